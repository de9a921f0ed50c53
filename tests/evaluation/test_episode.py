"""One episode in an environment that is there to be looked through."""

from types import SimpleNamespace

import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.evaluation import run_episode


class Line:
    """A walk on numbers, to a goal; ``limit`` steps at most."""

    def __init__(self, goal, limit):
        self.at, self.goal, self.limit, self.steps = 0.0, goal, limit, 0

    def step(self, action):
        self.at += float(action[0])
        self.steps += 1
        there = self.at >= self.goal
        info = {"success": True} if there else {}
        return np.asarray([self.at]), 0.0, there, self.steps >= self.limit, info


class Walker:
    """A planner that goes on by one, and says where it planned."""

    def __call__(self, key, state, task, memory):
        return SimpleNamespace(action=np.ones(1), memory=None, planned_at=float(state[0]))

    def follow(self, key, state, plan):
        return np.ones(1)


def walk(goal, limit, **settings):
    return run_episode(Line(goal, limit), [0.0], Walker(), None, **settings)


def test_it_acts_until_the_goal_and_plans_in_between():
    episode = walk(5, 100, replan_every=2)
    assert episode.success and episode.steps == 5
    np.testing.assert_array_equal(np.stack(episode.states)[:, 0], np.arange(6.0))
    assert episode.plan_steps == [0, 2, 4]
    assert [plan.planned_at for plan in episode.plans] == [0, 2, 4]


@pytest.mark.parametrize(("limit", "most", "steps"), [(3, None, 3), (100, 4, 4)])
def test_it_ends_where_the_environment_or_the_caller_says_so(limit, most, steps):
    episode = walk(50, limit, max_steps=most)
    assert not episode.success and episode.steps == steps


@pytest.mark.parametrize(
    ("asked", "named"),
    [({"replan_every": 0}, "replan_every=0"), ({"seed": "a"}, "seed='a'"),
     ({"seed": -1}, "seed=-1"), ({"max_steps": 0}, "max_steps=0"),
     ({"max_steps": 2.5}, "max_steps=2.5")],
)  # fmt: skip
def test_settings_out_of_range_are_refused(asked, named):
    with pytest.raises(ConfigError, match=f"^{named}: must be a whole number"):
        walk(5, 5, **asked)


def test_a_planner_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="planner='compplan': must be a planner"):
        run_episode(Line(5, 5), [0.0], "compplan", None)
