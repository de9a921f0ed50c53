"""The scripted policy in the real maze: it arrives, and stands still beyond its reach."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.domains import get as get_domain
from jumpyworld.domains.grid import Grid
from jumpyworld.errors import ConfigError
from jumpyworld.policies import ScriptedGoalPolicy

DOMAIN = get_domain("pointmaze-medium")


@pytest.fixture(scope="module")
def maze():
    return DOMAIN.grid


def small_grid():
    #  y
    #  ^  #####      cells of 4 metres, (1, 1) at the origin
    #  |  #...#
    #     #.#.#
    #     ##..#
    #     #####
    free = np.zeros((5, 5), bool)
    for cell in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2), (3, 3)]:
        free[cell] = True
    return Grid(free=free, unit=4.0, offset=4.0)


def test_directions_by_hand(key):
    policy = ScriptedGoalPolicy(small_grid())
    # From (1, 2) to (2, 1) the only way is round: first to the right, +x.
    start, goal = np.array([4.0, 0.0]), np.array([0.0, 4.0])
    np.testing.assert_allclose(policy.sample(key, start, goal), [1, 0], atol=1e-6)
    # From (1, 3), up: +y, with a correction to the middle of the corridor.
    action = policy.sample(key, np.array([8.5, 0.0]), goal)
    np.testing.assert_allclose(action, np.array([-0.5, 4]) / np.hypot(0.5, 4), atol=1e-6)
    # Inside the goal's cell: straight to the goal, and no further than it.
    east = np.array([1.0, 0.0])
    np.testing.assert_allclose(policy.sample(key, goal + east, goal), [-1, 0], atol=1e-6)
    np.testing.assert_allclose(policy.sample(key, goal + 0.1 * east, goal), [-0.5, 0], atol=1e-6)


def test_reach_counts_cells(key):
    grid = small_grid()
    goal = np.array([0.0, 4.0])  # cell (2, 1): six moves from (1, 2)
    moves = {(1, 2): 6, (1, 3): 5, (2, 3): 4, (3, 3): 3, (3, 2): 2, (3, 1): 1, (2, 1): 0}
    for reach in range(7):
        policy = ScriptedGoalPolicy(grid, reach=reach)
        states = np.array([grid.centre_of(cell) for cell in moves]) + 0.3
        still = np.abs(np.asarray(policy.sample(key, states, goal))).sum(1) == 0
        assert still.tolist() == [n > reach for n in moves.values()]


def test_walls_and_the_outside_are_no_goals(key):
    policy = ScriptedGoalPolicy(small_grid(), noise=0.5)
    start = np.array([4.0, 0.0])
    for goal in ([0.0, 0.0], [100.0, -100.0]):
        assert (policy.sample(key, start, np.array(goal)) == 0).all()


def test_noise_and_settings(key):
    grid = small_grid()
    policy = ScriptedGoalPolicy(grid, noise=0.2)
    s, g = np.tile([4.0, 0.0], (2000, 1)), np.array([8.0, 8.0])
    actions = np.asarray(policy.sample(key, s, g))
    assert actions[:, 1].std() == pytest.approx(0.2, rel=0.1) and np.abs(actions).max() <= 1
    calm = policy.sample_actions(s[0], g, jax.random.PRNGKey(0), temperature=0.0)
    np.testing.assert_allclose(calm, [1, 0], atol=1e-6)
    with pytest.raises(ConfigError, match="body='ant'"):
        ScriptedGoalPolicy(grid, body="ant")
    with pytest.raises(ConfigError, match="negative"):
        ScriptedGoalPolicy(grid, reach=-1)


def run(policy, task, steps, seed=0):
    env = DOMAIN.make_env(seed=seed)
    observation, info = env.reset(options={"task_id": task})
    start, act = observation.copy(), eqx.filter_jit(policy.sample)
    for t in range(steps):
        action = np.asarray(act(jax.random.key(t), observation, info["goal"]))
        observation, _, terminated, truncated, step_info = env.step(action)
        if terminated or truncated:
            break
    env.close()
    return bool(step_info["success"]), float(np.linalg.norm(observation - start)), t + 1


def test_reaches_every_task_of_the_real_maze(maze):
    policy = ScriptedGoalPolicy(maze, noise=0.2)
    results = [run(policy, task, 600) for task in range(1, 6)]
    assert all(success for success, _, _ in results), results


def test_stands_still_beyond_its_reach_in_the_real_maze(maze):
    policy = ScriptedGoalPolicy(maze, reach=2, noise=0.2)
    for task in range(1, 6):
        success, moved, _ = run(policy, task, 30)
        assert not success and moved < 1e-6


def test_the_way_is_shortest(maze):
    """Moves looked up equal moves made, for every pair of cells."""
    policy = ScriptedGoalPolicy(maze)
    cells = np.array(maze.free_cells)
    centres = np.array([maze.centre_of(cell) for cell in cells], np.float32)
    number = cells[:, 0] * maze.free.shape[1] + cells[:, 1]
    moves = np.asarray(policy.moves)[np.ix_(number, number)]
    targets = np.asarray(policy.targets)[np.ix_(number, number)]
    after = jax.vmap(policy.cell)(jnp.asarray(targets.reshape(-1, 2))).reshape(moves.shape)
    goal = np.broadcast_to(number[:, None], moves.shape)
    left = np.asarray(policy.moves)[goal, np.asarray(after)]
    assert np.array_equal(left, np.maximum(moves - 1, 0))
    assert np.array_equal(jax.vmap(policy.cell)(jnp.asarray(centres)), number)
