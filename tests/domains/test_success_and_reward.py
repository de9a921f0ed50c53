"""Our predicate and reward against the simulator's own, on real states near and far from goals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.domains.envs import make

FAMILIES = {
    "pointmaze": ["pointmaze-medium", "pointmaze-large", "pointmaze-giant"],
    "antmaze": ["antmaze-medium", "antmaze-large", "antmaze-giant"],
    "cube": ["cube-1", "cube-2", "cube-3", "cube-4"],
}
STATES_PER_FAMILY = 2000
# A cube scene's goal observation is taken after two steps of physics, in which the cubes sink into
# the table and a stack into itself. The simulator scores against the place they were put at.
SAG = 0.0025  # observation units: a quarter of a millimetre; measured: .04 to .21 mm


def exact_goal(env, domain, goal):
    """The goal observation with the cubes exactly where the simulator wants them."""
    if not isinstance(domain, domains.CubeDomain):
        return goal
    goal = goal.copy()
    for i, target in enumerate(env.unwrapped.data.mocap_pos):
        goal[19 + 9 * i : 22 + 9 * i] = (target - [0.425, 0, 0]) * 10
    return goal


def test_goal_observations_sag_no_further_than_stated():
    for alias in FAMILIES["cube"]:
        domain = domains.get(alias)
        env = domain.make_env(0)
        for task in range(1, 6):
            _, info = env.reset(options={"task_id": task})
            sag = info["goal"] - exact_goal(env, domain, info["goal"])
            assert np.linalg.norm(domain.goal_features(sag), axis=-1).max() < SAG


def place_around_goal(env, domain, goal, rng):
    """Move the scored objects to distances from 0 to 3 tolerances of the goal, or leave them."""
    scene = env.unwrapped
    if rng.random() < 0.2:
        return
    qpos, qvel = scene.data.qpos.copy(), scene.data.qvel.copy() * 0
    width = 3 if isinstance(domain, domains.CubeDomain) else 2
    for i, centre in enumerate(domain.goal_features(goal)):
        offset = rng.normal(size=width)
        offset *= rng.uniform(0, 3) * domain.tolerance / np.linalg.norm(offset)
        if width == 2:
            qpos[:2] = centre + offset
        else:
            at_goal = np.array(domain.cube_positions(goal)[i])
            # Mostly within the tolerance: all cubes have to be in place for a success.
            scaled = offset / 10 * (1 if rng.random() < 0.3 else 0.25)
            qpos[14 + 7 * i : 17 + 7 * i] = at_goal + scaled * [1, 1, 0.3] + [0, 0, 0.005]
    scene.set_state(qpos, qvel)


@pytest.mark.parametrize("family", FAMILIES)
def test_success_equals_the_simulators(family):
    rng = np.random.default_rng(0)
    scored = successes = 0
    per_domain = -(-STATES_PER_FAMILY // len(FAMILIES[family]))
    for alias in FAMILIES[family]:
        domain = domains.get(alias)
        env = domain.make_env(1, terminate_at_goal=False)
        states, goals, given, truth = [], [], [], []
        for i in range(per_domain):
            if i % 25 == 0:
                _, info = env.reset(options={"task_id": i // 25 % 5 + 1})
                goal = info["goal"]
            place_around_goal(env, domain, goal, rng)
            observation, _, _, _, info = env.unwrapped.step(rng.uniform(-1, 1, domain.action_dim))
            states.append(observation)
            goals.append(exact_goal(env, domain, goal))
            given.append(goal)
            truth.append(bool(info["success"]))
        states, goals, given = np.array(states), np.array(goals), np.array(given)
        np.testing.assert_array_equal(domain.success(states, goals), truth)
        # With the goal as a policy sees it, and under jit in float32, the answer is the same
        # wherever the cubes' sag and rounding cannot decide it.
        gap = np.linalg.norm(domain.goal_features(states) - domain.goal_features(goals), axis=-1)
        clear = (np.abs(gap - domain.tolerance) > SAG).all(-1)
        assert clear.mean() > 0.97
        ours = jax.jit(domain.success)(jnp.float32(states), jnp.float32(given))
        np.testing.assert_array_equal(np.asarray(ours)[clear], np.array(truth)[clear])
        scored, successes = scored + len(truth), successes + sum(truth)
    assert scored >= STATES_PER_FAMILY
    assert 0.1 < successes / scored < 0.9, "the states should be near and far from the goals"


@pytest.mark.parametrize("alias", ["pointmaze-medium", "cube-3"])
def test_batches_of_any_rank_against_one_goal_or_many(alias):
    """Under JAX's strictest settings, which the tests run with, jitted and not."""
    domain = domains.get(alias)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(4, 3, domain.observation_dim)).astype(np.float32) * 0.3
    goal = states[1, 2]
    for function in (domain.success, domain.reward):
        whole = function(jnp.asarray(states), jnp.asarray(goal))
        assert whole.shape == (4, 3)
        np.testing.assert_array_equal(whole, function(states, goal))
        np.testing.assert_array_equal(whole, jax.jit(function)(states, goal))
        np.testing.assert_array_equal(whole[1], function(jnp.asarray(states[1]), goal))
        np.testing.assert_array_equal(whole[1, 2], function(jnp.asarray(states[1, 2]), goal))
        many = function(jnp.asarray(goal), jnp.asarray(states))
        np.testing.assert_array_equal(whole, many)
    assert domain.reward(jnp.asarray(states), goal).dtype == np.float32
    assert domain.success(states, goal)[1, 2] and domain.reward(states, goal)[1, 2] >= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_reward_equals_the_single_task_reward_plus_a_constant(family):
    """OGBench scores the state *before* the action in its single-task environments."""
    rng = np.random.default_rng(1)
    seen = []
    per_task = -(-STATES_PER_FAMILY // len(FAMILIES[family]) // 5)
    for alias in FAMILIES[family]:
        domain = domains.get(alias)
        world = domain.env_id.removesuffix("-v0")
        for task in range(1, 6):
            env = make(f"{world}-singletask-task{task}-v0", seed=task, terminate_at_goal=False)
            _, info = env.reset()
            scene, goal = env.unwrapped, exact_goal(env, domain, info["goal"])
            for i in range(per_task):
                place_around_goal(env, domain, goal, rng)
                if isinstance(domain, domains.CubeDomain):
                    before = scene.compute_observation()
                    reward = scene.compute_reward()
                    if i % 20 == 0:  # a step of physics is dear; the reward is the same function
                        assert scene.step(np.zeros(5))[1] == reward
                else:
                    before = scene.get_ob()
                    reward = scene.step(rng.uniform(-1, 1, domain.action_dim))[1]
                ours = domain.reward(before, goal)
                assert ours == reward + domain.reward_offset
                seen.append(int(ours))
    assert len(seen) >= STATES_PER_FAMILY
    most = 4 if family == "cube" else 1
    assert set(seen) == set(range(most + 1)), "every value of the reward should have occurred"
