"""It works at all: a policy that is lost beyond three cells, composed, crosses a large maze."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kinematic_maze import LARGE, TASKS, KinematicMaze, LoggedProposal, centres, logged_walks

from jumpyworld.planning import (
    CompPlan,
    GoalProposal,
    MixtureProposal,
    Task,
    Uniform,
    ZeroShot,
    decide,
    goal_task,
)
from jumpyworld.policies import ScriptedGoalPolicy
from jumpyworld.policies.scripted import STEP

SEGMENTS = 14


@pytest.fixture
def compiled_with_care():
    """For programs that run for a while."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="module")
def grid():
    return LARGE.grid


@pytest.fixture(scope="module")
def walks(grid):
    return jax.jit(lambda key: logged_walks(grid, key))(jax.random.key(7))


def compose(grid, walks, reach, **settings):
    policy = ScriptedGoalPolicy(grid, reach=reach)
    return CompPlan(
        KinematicMaze(policy),
        policy,
        horizons=(60,) * SEGMENTS,
        discount=0.999,
        proposal=LoggedProposal.cut(walks, SEGMENTS, 128),
        search=Uniform(4),
        **settings,
    )


def three_jumps(policy, proposal, chains):
    return CompPlan(
        KinematicMaze(policy),
        policy,
        horizons=(60, 60, 60),
        discount=0.999,
        proposal=proposal,
        search=Uniform(chains),
    )


def run(planner, grid, steps, replan_every):
    """Kinematic episodes of the five tasks side by side; returns who arrived, and the plans."""
    states, goals = (centres(grid, [task[i] for task in TASKS]) for i in (0, 1))
    task, plans, done, empty = goal_task(LARGE, goals), None, np.zeros(5, bool), 0
    for t in range(steps):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), t), 5)
        actions, plans = decide(
            planner, keys, states, task, step=t, replan_every=replan_every, plans=plans
        )
        empty += int(plans.all_zero.sum()) if t % replan_every == 0 else 0
        states = states + STEP * jnp.asarray(actions)
        done |= np.asarray(LARGE.success(states, goals))
        if done.all():
            break
    return done, empty, t


@pytest.mark.usefixtures("compiled_with_care")
def test_composition_crosses_the_maze_and_the_policy_alone_does_not(grid, walks):
    zero_shot = ZeroShot(ScriptedGoalPolicy(grid, reach=3))
    # It stands still at once, so a few steps tell.
    done, _, _ = run(zero_shot, grid, 60, 1)
    assert done.sum() <= 1
    done, empty, steps = run(compose(grid, walks, 3, include_base=True), grid, 1000, 20)
    assert done.all(), (done, empty, steps)


def test_goal_proposals_are_nearer_to_the_goal_by_the_way(grid, key):
    """A model that gets other units than it was made for proposes states all over the maze."""
    policy = ScriptedGoalPolicy(grid, reach=40)
    planner = three_jumps(policy, GoalProposal(64), 1)
    for start, goal in (centres(grid, task) for task in TASKS):
        z = planner(key, start, goal_task(LARGE, goal)).candidates
        moves = policy.moves[policy.cell(goal)]
        left = moves[jax.vmap(jax.vmap(policy.cell))(z)]
        assert np.mean(left < moves[policy.cell(start)]) >= 0.8


def test_where_no_chain_leads_to_the_goal_it_says_so(grid, walks, key):
    """Three times one cell is not enough for a goal fifteen cells away."""
    policy = ScriptedGoalPolicy(grid, reach=1)
    planner = three_jumps(policy, LoggedProposal.cut(walks, 3, 64), 4)
    assert planner.when_all_zero == "base"
    start, goal = centres(grid, TASKS[0])
    plan = planner(key, start, goal_task(LARGE, goal))
    assert plan.all_zero and plan.chosen == -1 and plan.value == 0 and plan.invalid == 0
    # The way out is the base policy, which stands still as well.
    np.testing.assert_array_equal(plan.z, jnp.broadcast_to(goal, (3, 2)))
    np.testing.assert_array_equal(plan.action, np.zeros(2))
    near = goal_task(LARGE, centres(grid, [(1, 3)])[0])
    found = planner(key, start, near)
    assert not found.all_zero and found.value > 0 and found.chosen >= 0


def either_place_and_never_there(states, places):
    """A reward that is no goal: two places [2, 2] are good, a region [2] around a third is bad."""
    gaps = jnp.abs(states[..., None, :] - places[(None,) * (states.ndim - 1)]).max(-1)
    arrived = (gaps[..., :2] < 1.0).any(-1)
    return arrived.astype(jnp.float32) - 5.0 * (gaps[..., 2] < 2.0).astype(jnp.float32)


def test_a_reward_that_is_no_goal(grid, key):
    """Two places two cells away, on either side; what lies between decides which one it is."""
    policy = ScriptedGoalPolicy(grid, reach=3)
    start, left, below, on_the_left, on_the_way_down = centres(
        grid, [(3, 6), (3, 4), (5, 6), (3, 5), (4, 6)]
    )
    planner = CompPlan(
        KinematicMaze(policy),
        policy,
        horizons=(40, 40),
        discount=0.99,
        proposal=MixtureProposal((GoalProposal(4, goal=left), GoalProposal(4, goal=below))),
        search=Uniform(64),
    )
    for forbidden, place in ((on_the_left, below), (on_the_way_down, left)):
        task = Task(either_place_and_never_there, jnp.stack([left, below, forbidden]))
        plan = planner(key, start, task)
        assert not plan.all_zero and plan.value > -0.5
        towards = (place - start) / jnp.abs(place - start).max()
        np.testing.assert_allclose(plan.action, towards, atol=0.2)


@pytest.mark.slow
def test_composition_crosses_the_real_maze(grid, walks):
    """The same planner drives OGBench's point through its five tasks."""
    from jumpyworld.evaluation.lockstep import Lockstep

    # Two ways round are equally long: without a margin it goes to and fro between them.
    planner = compose(grid, walks, 3, include_base=True, warm_start=2, margin=0.2)
    done = np.zeros(5, bool)
    with Lockstep(LARGE, 5) as envs:
        states, goals = envs.reset([{"seed": i, "task": i + 1} for i in range(5)])
        plans, task = None, goal_task(LARGE, goals)
        for t in range(LARGE.max_episode_steps):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), t), 5)
            actions, plans = decide(
                planner, keys, states, task, step=t, replan_every=10, plans=plans
            )
            states, success = envs.step(np.asarray(actions))
            done |= success
            if done.all():
                break
    assert done.all()
