import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest, sem, t

from jumpyworld import domains
from jumpyworld.evaluation.stats import mean_interval, mean_of_tasks, wilson
from jumpyworld.evaluation.success import episode_seed, evaluate


@pytest.mark.parametrize(("k", "n"), [(0, 20), (7, 20), (20, 20), (1, 1), (250, 1000)])
def test_wilson_is_scipys(k, n):
    theirs = binomtest(k, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson(k, n), (theirs.low, theirs.high), atol=1e-12)


def test_mean_of_tasks_by_hand():
    mean, interval = mean_of_tasks([(20, 20), (0, 20), (10, 20)])
    assert mean == pytest.approx(0.5)
    np.testing.assert_allclose(interval, wilson(30, 60))
    # Unequal numbers: tasks count alike; trials of the harmonic kind: 4 / (1/10 + 1/40) = 32.
    mean, interval = mean_of_tasks([(10, 10), (0, 40)])
    assert mean == pytest.approx(0.5)
    np.testing.assert_allclose(interval, wilson(16, 32))


@pytest.mark.parametrize("n", [2, 5, 256])
def test_the_interval_of_a_mean_is_students(n):
    values = np.random.default_rng(n).exponential(size=n)
    mean, half = mean_interval(values)
    theirs = t.interval(0.95, n - 1, values.mean(), sem(values))
    np.testing.assert_allclose((mean - half, mean + half), theirs, rtol=1e-9)
    with pytest.raises(ValueError, match="two values"):
        mean_interval(values[:1])


class Straight:
    """Heads straight for the goal: solves what no wall is in the way of."""

    def sample(self, key, states, goals):
        gap = goals - states
        return gap / jnp.maximum(jnp.linalg.norm(gap, axis=-1, keepdims=True), 1e-6)


class Still:
    def sample(self, key, states, goals):
        return jnp.zeros_like(states)


def test_evaluation_counts_successes_of_real_episodes():
    domain = domains.get("pointmaze-medium")
    straight = evaluate(domain, Straight(), episodes=2, workers=2, max_steps=80)
    again = evaluate(domain, Straight(), episodes=2, workers=1, max_steps=80)
    still = evaluate(domain, Still(), episodes=2, workers=2, max_steps=5)
    assert straight.outcomes.shape == (5, 2)
    np.testing.assert_array_equal(straight.outcomes, again.outcomes)
    np.testing.assert_array_equal(straight.steps, again.steps)
    assert still.mean == 0.0 and still.ci95[0] == 0.0 and (still.steps == 5).all()
    # Task 3 leads around one corner; the others are far. By hand for one episode:
    env = domain.make_env(0)
    state, info = env.reset(seed=episode_seed(0, 3, 1), options={"task_id": 3})
    taken, terminated = 0, False
    while taken < 80 and not terminated:
        action = np.asarray(Straight().sample(None, np.float32(state), np.float32(info["goal"])))
        state, _, terminated, _, step = env.step(action)
        taken += 1
    assert straight.outcomes[2, 1] == bool(step["success"])
    assert straight.steps[2, 1] == taken
