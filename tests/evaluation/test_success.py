"""Planners in real environments: counting, pairing, independence, nothing compiled twice."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drifting import MEDIUM, Random, compose, paths
from own_domain import LINE

from jumpyworld import policies
from jumpyworld.errors import ConfigError, PlanError
from jumpyworld.evaluation.lockstep import Lockstep
from jumpyworld.evaluation.success import episode_seed, evaluate
from jumpyworld.planning import AbstractPlanner, Plan, ZeroShot
from jumpyworld.policies import from_callable


class Straight:
    """Heads straight for the goal: solves what no wall is in the way of."""

    def sample(self, key, states, goals):
        gap = goals - states
        return gap / jnp.maximum(jnp.linalg.norm(gap, axis=-1, keepdims=True), 1e-6)


class Still:
    def sample(self, key, states, goals):
        return jnp.zeros_like(states)


def test_evaluation_counts_successes_of_real_episodes():
    straight = evaluate(MEDIUM, Straight(), episodes=2, workers=2, max_steps=80)
    again = evaluate(MEDIUM, Straight(), episodes=2, workers=1, max_steps=80)
    still = evaluate(MEDIUM, Still(), episodes=2, workers=2, max_steps=5)
    assert straight.outcomes.shape == (5, 2)
    np.testing.assert_array_equal(straight.outcomes, again.outcomes)
    np.testing.assert_array_equal(straight.steps, again.steps)
    assert still.mean == 0.0 and still.ci95[0] == 0.0 and (still.steps == 5).all()
    # Task 3 leads around one corner; the others are far. By hand for one episode:
    env = MEDIUM.make_env(0)
    state, info = env.reset(seed=episode_seed(0, 3, 1), options={"task_id": 3})
    taken, terminated = 0, False
    while taken < 80 and not terminated:
        action = np.asarray(Straight().sample(None, np.float32(state), np.float32(info["goal"])))
        state, _, terminated, _, step = env.step(action)
        taken += 1
    assert straight.outcomes[2, 1] == bool(step["success"])
    assert straight.steps[2, 1] == taken


def test_a_domain_that_no_registry_knows_is_evaluated_like_any_other():
    straight = evaluate(LINE, Straight(), episodes=3, workers=2)
    assert straight.task_ids == (1, 2) and straight.mean == 1.0
    assert (straight.steps[0] == 3).all() and (straight.steps[1] == 6).all()
    assert evaluate(LINE, Still(), episodes=1, workers=1).mean == 0.0


def head_for_it(states, z):
    gap = z - states
    return gap / np.maximum(np.linalg.norm(gap, axis=-1, keepdims=True), 1e-6)


def test_a_function_of_somebody_elses_is_evaluated_like_a_policy():
    outside = from_callable(head_for_it, observation_dim=1, action_dim=1, z_dim=1)
    ours, theirs = (evaluate(LINE, p, episodes=2, workers=2) for p in (Straight(), outside))
    assert ours.mean == theirs.mean == 1.0
    np.testing.assert_array_equal(ours.steps, theirs.steps)


@pytest.mark.parametrize("name", ["hiql", "sharsa", "hfbc"])
def test_hierarchies_act_by_themselves(name):
    """An evaluation needs no planner for them: they see the far goal, and the seed fixes all."""
    algorithm = policies.get(name)
    spec = policies.PolicySpec.from_arrays(np.eye(2, dtype=np.float32), np.eye(2))
    state = algorithm.init(jax.random.key(0), algorithm.config.preset("debug"), spec)
    policy = algorithm.inference_model(state)
    box = {"episodes": 1, "workers": 1, "max_steps": 4, "tasks": (1,), "record": 1}
    found, again = (evaluate(MEDIUM, policy, **box, seed=0) for _ in range(2))
    assert found.outcomes.shape == (1, 1) and (found.steps == 4).all()
    (way,), (same,) = map(paths, (found, again))
    np.testing.assert_array_equal(way, same)
    assert way.shape == (5, 2) and np.abs(np.diff(way, axis=0)).max() > 0
    goal, key = found.traces[0].goal, jax.random.key(1)
    one, other = (policy.sample(key, way[0], z) for z in (goal, -goal))
    assert not np.allclose(one, other)


class Leaper:
    """Asks for actions far beyond the bounds; a point that moved by them would fly over walls."""

    def sample(self, key, states, goals):
        return 5.0 * (goals - states)


def test_actions_beyond_the_bounds_are_clipped_for_policies_as_for_planners(run):
    policy, planner = (
        run(actor, tasks=None, max_steps=20) for actor in (Leaper(), ZeroShot(Leaper()))
    )
    assert policy.mean == 0.0
    np.testing.assert_array_equal(policy.steps, planner.steps)


def test_a_scripted_policy_solves_every_task_and_a_random_one_none(run, policy):
    solved = run(policy, tasks=None, max_steps=250)
    assert solved.mean == 1.0 and solved.task_ids == (1, 2, 3, 4, 5)
    lost = run(Random(), tasks=None, max_steps=40)
    assert lost.mean == 0.0 and (lost.steps == 40).all()


def test_planners_meet_the_same_starts_goals_and_noise(run, policy):
    plain, zero, plan = (
        run(actor, episodes=2, record=2) for actor in (policy, ZeroShot(policy), compose(policy))
    )
    for a, b, c in zip(plain.traces, zero.traces, plan.traces, strict=True):
        np.testing.assert_array_equal(a.states[0], c.states[0])
        np.testing.assert_array_equal(a.goal, c.goal)
        np.testing.assert_array_equal(np.stack(a.states), np.stack(b.states))
    assert len({tuple(trace.goal) for trace in plan.traces}) == 4
    # As OGBench itself starts the episode of that seed.
    env = MEDIUM.make_env(0)
    start, info = env.reset(seed=episode_seed(0, 3, 1), options={"task_id": 3})
    np.testing.assert_array_equal(plan.traces[3].states[0], np.float32(start))
    np.testing.assert_array_equal(plan.traces[3].goal, np.float32(info["goal"]))


def test_an_episode_does_not_depend_on_who_runs_beside_it(run, policy):
    """Nor on workers, on how many are planned for at once, or on waves."""
    settings = {"include_base": True, "warm_start": 1, "margin": 0.1}
    planner, turns = compose(policy, **settings), compose(policy, **settings, max_rows=28)
    many = run(planner, episodes=3, record=3, envs=None, workers=2, replan_every=2)
    assert planner.environments_at_once > 6
    assert turns.environments_at_once == 2
    few = run(turns, tasks=(3,), episodes=2, record=2, replan_every=2)
    for a, b in zip(paths(few), paths(many)[3:5], strict=True):
        np.testing.assert_array_equal(a, b)
    waves = run(turns, episodes=3, record=3, replan_every=2)
    assert (waves.decisions.batch, many.decisions.batch) == (2, 6)
    assert waves.decisions.plans == many.decisions.plans == 6 * 3
    for a, b in zip(paths(waves), paths(many), strict=True):
        np.testing.assert_array_equal(a, b)
    assert waves.decisions.dithering == many.decisions.dithering
    other = run(planner, episodes=3, record=3, replan_every=2, seed=1)
    assert not np.array_equal(paths(other)[0], paths(many)[0])


def test_nothing_is_compiled_after_the_first_plan_and_the_first_step_between(
    run, policy, monkeypatch
):
    """Although episodes end at different times."""
    compiled, before, step = [], [], Lockstep.step

    def listen(name, duration, **_):
        if "backend_compile" in name:
            compiled.append(name)

    def counting(envs, actions):
        before.append(len(compiled))
        return step(envs, actions)

    monkeypatch.setattr(Lockstep, "step", counting)
    planner = compose(policy, warm_start=1, max_rows=30)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        ended = run(planner, tasks=(3, 5), episodes=2, max_steps=200, replan_every=4)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(set(ended.steps.ravel().tolist())) > 1 and ended.outcomes.any()
    assert before[0] > 0 and before[1] == len(compiled)
    assert len(before) == ended.steps.max()


def test_progress_is_told_plan_by_plan_before_any_environment_has_moved(run, policy, monkeypatch):
    """At the paper's sizes a processor plans for one environment at a time, minutes each."""
    told, step = [], Lockstep.step

    def counting(envs, actions):
        told.append("step")
        return step(envs, actions)

    def progress(done, total):
        assert total == 3 * 10
        told.append(done)

    monkeypatch.setattr(Lockstep, "step", counting)
    turns = compose(policy, max_rows=8)
    assert turns.environments_at_once == 1
    settings = {"tasks": (1, 3, 5), "max_steps": 10, "progress": progress}
    run(turns, replan_every=4, **settings)
    # A plan counts for the four steps that it decides, and nobody is done before the last step.
    first, second, third = [4, 8, 12], [16, 20, 24], [26, 27, 27]
    assert told == [
        *first, "step", 12, "step", 12, "step", 12, "step", 12,
        *second, "step", 24, "step", 24, "step", 24, "step", 24,
        *third, "step", 27, "step", 30,
    ]  # fmt: skip


def test_progress_never_goes_back_and_ends_at_the_end(run, policy):
    """Also where episodes are over early, and where they take two waves."""
    told = []

    def progress(done, total):
        assert total == 6 * 200
        told.append(done)

    ended = run(policy, tasks=(3, 5), episodes=3, max_steps=200, progress=progress)
    assert ended.steps.min() < 200 and told == sorted(told)
    assert told[-1] == 6 * 200 and told[-2] < 6 * 200


class EastThenNorth(AbstractPlanner):
    """Plans a step east and follows it north."""

    def plan(self, key, state, task, memory):
        plan = ZeroShot(Random()).plan(key, state, task, memory)
        return dataclasses.replace(plan, action=jnp.asarray([0.5, 0.0]))

    def act_between(self, key, state, plan: Plan):
        return jnp.asarray([0.0, 0.25])


def test_between_plans_the_policy_acts_and_not_the_plan(run):
    ended = run(EastThenNorth(), tasks=(1,), max_steps=7, replan_every=3, record=1)
    (trace,) = ended.traces
    assert trace.plan_steps == [0, 3, 6] and len(trace.z) == len(trace.actions) == 3
    moves = np.diff(np.stack(trace.states), axis=0)
    east, north = [0.1, 0.0], [0.0, 0.05]
    wanted = [east, north, north, east, north, north, east]
    np.testing.assert_allclose(moves, wanted, atol=1e-3)
    assert ended.decisions.plans == 3 and ended.decisions.plan_ms is not None


class NowhereBetween(EastThenNorth):
    """Plans a step east and returns NaN after it."""

    def act_between(self, key, state, plan: Plan):
        return jnp.full(2, jnp.nan)


def test_an_action_that_is_none_is_an_error_and_no_failure(run):
    with pytest.raises(PlanError, match=r"action: .* not finite"):
        run(NowhereBetween(), tasks=(1,), max_steps=7, replan_every=3)


@pytest.mark.parametrize(
    "asked", [{"episodes": 0}, {"tasks": (6,)}, {"tasks": ()}, {"tasks": (1, 1)},
              {"max_steps": 0}, {"replan_every": 0}, {"seed": -1}, {"seed": 0.5},
              {"episodes": 2.5}, {"max_steps": 2.5}, {"replan_every": 1.5}, {"record": -1}],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(asked, run, policy):
    with pytest.raises(ConfigError, match=next(iter(asked))):
        run(policy, **asked)
