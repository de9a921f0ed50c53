"""What is asked of a planner: batches, plans to follow, and nothing compiled twice."""

import dataclasses
import functools
import gc
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beeline import GOAL, Toward, drifting, near

from jumpyworld import domains
from jumpyworld.errors import PlanError
from jumpyworld.planning import (
    AbstractPlanner,
    ActionPlan,
    Elimination,
    HighLevelProposal,
    Task,
    Uniform,
    ZeroShot,
    decide,
    goal_task,
)

POINT = domains.get("pointmaze-large")


def compilations(function):
    """Return how many programs a call compiles."""
    found = []

    def listen(name, duration, **_):
        if "backend_compile" in name:
            found.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        function()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return len(found)


def resident_bytes():
    """Return the memory of this process; 0 where the system does not say."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * 4096 if path.exists() else 0


def test_a_thousand_mixed_plans_compile_nothing_and_keep_no_memory():
    planner = drifting(search=Elimination(((8, 2), (2, 4))), warm_start=1)
    others = drifting(policy=Toward(jnp.asarray(0.5)), search=planner.search, warm_start=1)
    rng = np.random.default_rng(0)
    tasks = [functools.partial(Task, near), functools.partial(goal_task, POINT)]

    def ask(count):
        plan = None
        for i in range(count):
            who = planner if i % 2 else others
            state, goal = rng.normal(size=(2, 2)) * 10
            # Whoever asks may hold float32 or float64, NumPy or JAX.
            state = [state, state.astype(np.float32), jnp.asarray(state, jnp.float32)][i % 3]
            memory = plan.memory if plan is not None and i % 4 else None
            task = tasks[i % 2](goal=goal)
            plan = who(jax.random.key(i), state, task, memory)
            if i % 5 == 0:
                first = tasks[0](goal=goal)
                plan = who(jax.random.key(i), state, first, memory, budget_ms=float(i % 7))
            if i % 10 == 0:
                who.follow(jax.random.key(i), state, plan)
            if i % 50 == 0:
                keys = jax.random.split(jax.random.key(i), 3)
                who.batch(keys, np.tile(state, (3, 1)), tasks[0](goal=np.tile(goal, (3, 1))))
        return plan

    assert compilations(lambda: ask(106)) > 0
    gc.collect()
    arrays, before = len(jax.live_arrays()), resident_bytes()
    assert compilations(lambda: ask(1000)) == 0
    gc.collect()
    assert len(jax.live_arrays()) <= arrays + 10
    # Ten kilobytes a request would be a leak; what allocators keep by the way is less.
    assert resident_bytes() - before < 1000 * 10_000


def test_with_a_budget_only_the_first_call_compiles(key):
    """However few rounds it had time for: a later one must not compile within its budget."""
    planner = drifting(search=Elimination(((8, 2), (4, 4), (2, 8))))
    task, state = Task(near, GOAL), np.zeros(2)
    hasty = planner(key, state, task, budget_ms=0)
    assert (hasty.spent.sum(1) > 0).tolist() == [True, False, False]
    patient = []
    assert compilations(lambda: patient.append(planner(key, state, task, budget_ms=1e9))) == 0
    assert (patient[0].spent.sum(1) > 0).all()


def test_weights_are_arguments_and_not_constants(key):
    """New weights, same program; and the plan does change with them."""
    plans = []

    def plan_with(gain):
        planner = drifting(policy=Toward(jnp.asarray(gain)), search=Uniform(3))
        plans.append(planner(key, np.zeros(2), Task(near, GOAL)))

    plan_with(1.0)
    assert compilations(lambda: plan_with(0.1)) == 0
    assert (plans[0].action != plans[1].action).any()


class Scales:
    """Any part of a planner, as plain as it gets."""

    def sample(self, key, states, *others):
        return 0.5 * states

    def propose(self, key, states, goals):
        return goals


@dataclasses.dataclass
class Unhashable(Scales):
    gain: float = 1.0


@dataclasses.dataclass(frozen=True)
class Hashable(Scales):
    gain: float = 1.0


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda part: drifting(policy=part), "policy"),
        (lambda part: drifting(model=part), "model"),
        (lambda part: drifting(base=part), "base"),
        (lambda part: drifting(proposal=HighLevelProposal(part, 8)), "policy"),
        (ZeroShot, "policy"),
        (lambda part: ActionPlan(part, Scales(), discount=0.9, action_horizon=2), "world_model"),
    ],
)
def test_parts_that_no_program_can_be_found_by_are_named_in_one_line(make, named, key):
    """A dataclass with equals among its kind has no hash unless it is frozen."""
    with pytest.raises(PlanError, match=f"^{named} Unhashable: must be hashable") as caught:
        make(Unhashable())
    assert "\n" not in str(caught.value)
    for part in (Scales(), Hashable()):
        assert make(part)(key, np.zeros(2), Task(near, GOAL)).action.shape == (2,)


@pytest.mark.parametrize("max_rows", [2**16, 32])
def test_a_batch_answers_as_each_alone_would(max_rows, key):
    planner = drifting(max_rows=max_rows)
    keys, rng = jax.random.split(key, 5), np.random.default_rng(0)
    states, goals = rng.normal(size=(2, 5, 2)).astype(np.float32)
    plans = planner.batch(keys, states, Task(near, goals))
    assert plans.action.shape == (5, 2) and plans.z.shape == (5, 2, 2)
    assert plans.candidates is None and plans.spent.shape == (5, 1, 8)
    for i in (0, 4):
        alone = planner(keys[i], states[i], Task(near, goals[i]))
        np.testing.assert_allclose(plans.action[i], alone.action, atol=1e-6)
        np.testing.assert_allclose(plans.candidate_values[i], alone.candidate_values, atol=1e-6)


class Counting(eqx.Module):
    """Tells states apart by what it answers: the action is z plus the state."""

    def sample(self, key, states, z):
        return 0.01 * (states + 10 * z)


def never(states, goal):
    return 0.0 * near(states, goal)


def test_between_plans_the_policy_of_z1_acts_anew(key):
    planner = drifting(policy=Counting())
    keys, states = jax.random.split(key, 2), np.ones((2, 2), np.float32)
    task = Task(near, np.zeros((2, 2)))
    actions, plans = decide(planner, keys, states, task, step=0, replan_every=3)
    np.testing.assert_array_equal(actions, plans.action)
    for step in (1, 2):
        moved = states + step
        actions, kept = decide(planner, keys, moved, task, step=step, replan_every=3, plans=plans)
        assert kept is plans
        np.testing.assert_allclose(actions, 0.01 * (moved + 10 * plans.z[:, 0]), rtol=1e-6)
    assert decide(planner, keys, states, task, step=3, replan_every=3, plans=plans)[1] is not plans


def test_the_base_is_the_way_out_and_goes_on_until_the_next_plan(key):
    """Where a policy is but the low level of a hierarchy, only the whole of it can go far."""
    planner = drifting(policy=Counting(), base=Toward(jnp.asarray(0.01)))
    state = np.ones(2, np.float32)

    def base_action(state):
        return 0.01 * (GOAL - state)

    found = planner(key, state, Task(near, GOAL, aim=True))
    assert found.chosen >= 0
    np.testing.assert_allclose(
        planner.follow(key, state, found), 0.01 * (state + 10 * found.z[0]), rtol=1e-5
    )
    lost = planner(key, state, Task(never, GOAL, aim=True))
    assert lost.chosen == -1
    np.testing.assert_allclose(lost.action, base_action(state), rtol=1e-5)
    np.testing.assert_allclose(
        planner.follow(key, 2 * state, lost), base_action(2 * state), rtol=1e-5
    )


class Forgetful(AbstractPlanner):
    """Plans, and between two plans returns NaN."""

    def plan(self, key, state, task, memory):
        return ZeroShot(Counting()).plan(key, state, task, memory)

    def act_between(self, key, state, plan):
        return jnp.full(2, jnp.nan)


def test_between_plans_nothing_is_executed_that_is_not_finite(key):
    keys, states, task = jax.random.split(key, 2), np.ones((2, 2)), Task(near, np.zeros((2, 2)))
    forgetful, sound = Forgetful(), ZeroShot(Counting())
    plans = sound.batch(keys, states, task)
    plan = jax.tree.map(lambda x: x[0], plans)
    with pytest.raises(
        PlanError, match=r"action: .* 2 values that are not finite, first at \(0,\)"
    ):
        forgetful.follow(key, states[0], plan)
    with pytest.raises(PlanError, match=r"action: .* 4 values that are not finite"):
        decide(forgetful, keys, states, task, step=1, replan_every=2, plans=plans)
    for bad in (np.nan, 1e300):
        with pytest.raises(
            PlanError, match=r"state: 1 values that are not finite, first at \(1,\)"
        ):
            sound.follow(key, np.asarray([0, bad]), plan)
        with pytest.raises(PlanError, match=r"state: 2 values that are not finite"):
            sound.follow_batch(keys, np.asarray([[0, bad], [0, bad]]), plans)
    with pytest.raises(PlanError, match=r"state of shape \(2, 2\)"):
        sound.follow(key, states, plan)
    with pytest.raises(PlanError, match="keys: one for a batch of 2"):
        sound.follow_batch(key, states, plans)
