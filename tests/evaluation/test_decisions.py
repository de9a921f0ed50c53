"""What planning was like: in episodes, and by hand."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drifting import MEDIUM, Random, compose

from jumpyworld.cli.eval_table import print_table
from jumpyworld.evaluation.decisions import DecisionLog
from jumpyworld.evaluation.planned import success_fields
from jumpyworld.evaluation.stats import wilson
from jumpyworld.planning import CompPlan, GoalProposal, Uniform, ZeroShot, goal_task


def test_what_plans_say_is_counted(run, policy):
    """With horizons of one step nothing finds the far goals of tasks 1 and 3."""
    blind = run(compose(policy, horizons=(1, 1)), episodes=2)
    assert blind.decisions.all_zero == 1.0 and blind.decisions.plans == 4 * 6
    seeing = run(compose(policy, horizons=(40, 40)), episodes=2).decisions
    assert seeing.all_zero < 0.5 and seeing.z1_distance is not None
    assert seeing.evaluations == 4 * 2 * 2 + 4 * 2 and seeing.invalid == 0
    fields = success_fields(blind)
    assert fields["all_zero"] == 1.0 and fields["decisions"] == 24
    interval = [round(end, 4) for end in wilson(0, 2)]
    told = {"task": 3, "episodes": 2, "successes": 0, "ci95": interval, "solved": "00"}
    assert fields["tasks"][1] == told
    assert "all_zero" not in success_fields(run(policy, max_steps=2))
    # Subgoals one step of the model away, and so within the policy's first five steps.
    near = run(compose(policy, horizons=(5, 40)), episodes=2, max_steps=12).decisions
    assert near.z1_reached is not None and 0 <= near.z1_reached <= 1
    assert run(policy, max_steps=2).decisions.z1_reached is None


def test_nearness_is_a_reward_where_the_goal_is_beyond_the_horizons(run, policy):
    blind = compose(policy, horizons=(1, 1))
    near = run(blind, episodes=1, reward="neg-distance").decisions
    assert near.all_zero == 0.0 and near.plans == 2 * 6
    assert run(blind, episodes=1, reward="indicator").decisions.all_zero == 1.0


def test_decisions_by_hand():
    log = DecisionLog(MEDIUM, jump=2.0)
    rows = np.asarray([0, 3])
    base = ZeroShot(Random()).plan(
        jax.random.key(0), jnp.zeros(2), goal_task(MEDIUM, np.zeros(2, np.float32)), None
    )

    def plans(*z):
        stacked = jax.tree.map(lambda x: np.stack([np.asarray(x)] * len(z)), base)
        many = {"all_zero": np.full(len(z), True), "chosen": np.zeros(len(z), int)}
        return dataclasses.replace(stacked, z=np.asarray(z, np.float32)[:, None], **many)

    log.add(0, rows, np.zeros((2, 2)), plans([3.0, 4.0], [0.0, 1.0]))
    log.add(1, rows, np.zeros((2, 2)), plans([3.0, 5.0], [0.0, 4.0]))
    log.add(2, rows[1:], np.zeros((1, 2)), plans([0.0, 3.5]))
    # A way out has no subgoal: it is no distance, and no pair with the plan after it.
    out = dataclasses.replace(plans([9.0, 9.0]), chosen=np.asarray([-1]))
    log.add(3, rows[1:], np.zeros((1, 2)), out)
    log.add(4, rows[1:], np.zeros((1, 2)), plans([0.0, 0.0]))
    found = log.summary()
    assert (found.plans, found.all_zero, found.dithering) == (7, 1.0, 1 / 3)
    assert found.z1_distance == pytest.approx((5 + 1 + np.sqrt(34) + 4 + 3.5 + 0) / 6)
    assert found.plan_ms is None and found.jump == 2.0


def test_the_time_of_a_plan_is_that_of_plans_and_not_of_places_in_a_batch(monkeypatch):
    """Ten environments of which four, then one, still run; the call that compiles is left out."""
    clock = iter([0.0, 60.0, 62.0, 70.0, 73.0])
    monkeypatch.setattr("jumpyworld.evaluation.decisions.time.perf_counter", lambda: next(clock))
    log = DecisionLog(MEDIUM)
    for plans, warm in ((10, False), (4, True), (1, True)):
        with log.timing(10, plans, warm=warm):
            pass
    found = log.summary()
    assert (found.plan_ms, found.batch_ms, found.batch) == (1000.0, 2500.0, 10)


class Broken(eqx.Module):
    """A model that answers NaN."""

    def sample(self, key, states, actions, z, gamma):
        return states * jnp.nan


def test_a_model_that_answers_nan_is_counted_and_shown(run, policy, capsys):
    settings = {"horizons": (5, 20), "discount": 0.98, "search": Uniform(2)}
    broken = CompPlan(Broken(), policy, proposal=GoalProposal(4), **settings)
    found = run(broken, episodes=1, max_steps=2)
    assert (found.decisions.all_invalid, found.decisions.all_zero) == (1.0, 0.0)
    fields = success_fields(found)
    print_table([{"planner": "compplan", **fields}])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("invalid") and lines[1].endswith("100.0%")
    print_table([{"planner": "compplan", **fields, "all_invalid": 0.0}])
    assert "invalid" not in capsys.readouterr().out
