"""A planner at work in one environment."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.planning import Actor


class Logged:
    """A planner that writes down what it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, key, state, task, memory):
        self.asked.append(("plan", state, memory, jax.random.key_data(key).tolist()))
        return SimpleNamespace(action=np.full(2, state), memory=f"after {state}")

    def follow(self, key, state, plan):
        self.asked.append(("follow", state, plan.memory, jax.random.key_data(key).tolist()))
        return np.full(2, -state)


def test_it_plans_every_few_steps_remembers_and_follows_in_between(key):
    planner = Logged()
    actor = Actor(planner, "a task", key, replan_every=3)
    actions = [actor(state)[0] for state in range(1, 8)]
    assert actions == [1, -2, -3, 4, -5, -6, 7]
    assert [asked[:3] for asked in planner.asked] == [
        ("plan", 1, None),
        ("follow", 2, "after 1"),
        ("follow", 3, "after 1"),
        ("plan", 4, "after 1"),
        ("follow", 5, "after 4"),
        ("follow", 6, "after 4"),
        ("plan", 7, "after 4"),
    ]
    # The noise of step t is that of ``evaluate``: the episode's key, folded with t.
    wanted = [jax.random.key_data(jax.random.fold_in(key, t)).tolist() for t in range(7)]
    assert [asked[3] for asked in planner.asked] == wanted
    assert actor.plan_steps == [0, 3, 6] and len(actor.plans) == 3


def test_the_interval_must_be_positive(key):
    with pytest.raises(ConfigError, match="replan_every=0: must be a whole number, at least 1"):
        Actor(Logged(), "a task", key, replan_every=0)
