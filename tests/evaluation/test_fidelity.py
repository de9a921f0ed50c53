import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from jumpyworld import domains
from jumpyworld.data import Dataset
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.evaluation.fidelity import (
    Pairs,
    emd,
    geometric_resample,
    in_support_pairs,
    measure_fidelity,
    random_pairs,
    rollouts,
)


def test_emd_of_a_shift_is_its_length():
    x = np.random.default_rng(0).normal(size=(64, 3))
    assert emd(x, x) == pytest.approx(0, abs=1e-6)
    assert emd(x, x + np.array([3.0, 4.0, 0.0])) == pytest.approx(5.0, abs=1e-9)


def test_emd_by_pot_equals_scipys_assignment():
    rng = np.random.default_rng(1)
    for n, d in [(32, 2), (100, 29), (257, 2)]:
        x, y = rng.normal(size=(n, d)), rng.normal(size=(n, d)) + 0.3
        cost = np.linalg.norm(x[:, None] - y[None], axis=-1)
        rows, columns = linear_sum_assignment(cost)
        assert emd(x, y) == pytest.approx(cost[rows, columns].mean(), abs=1e-6)


def test_emd_refuses_unequal_samples():
    with pytest.raises(ConfigError, match="emd"):
        emd(np.zeros((3, 2)), np.zeros((4, 2)))


def test_geometric_times_have_their_law_and_start_at_one():
    paths = np.arange(1, 2001, dtype=float)[None, :, None]
    for gamma in (0.0, 0.5, 0.98):
        states, clipped = geometric_resample(np.random.default_rng(0), paths, gamma, 100_000)
        assert states.min() == 1.0 and clipped == 0.0
        assert states.mean() == pytest.approx(1 / (1 - gamma), rel=0.02)
        assert (states == 1).mean() == pytest.approx(1 - gamma, abs=0.005)
    _, clipped = geometric_resample(np.random.default_rng(0), paths[:, :200], 0.995, 100_000)
    assert clipped == pytest.approx(0.995**200, abs=0.005)


def walks():
    x = np.arange(300, dtype=np.float32)[:, None]
    ends = np.zeros(300, bool)
    ends[[149, 299]] = True
    return Dataset.from_arrays(x, np.zeros_like(x), ends, extras={"qpos": x, "qvel": 0 * x})


def test_in_support_goals_lie_ahead_in_the_same_trajectory():
    pairs = in_support_pairs(walks(), 1000, np.random.default_rng(0), reach=(10, 40))
    ahead = pairs.goals[:, 0] - pairs.states[:, 0]
    assert ahead.min() == 10 and ahead.max() == 40
    assert (pairs.states // 150 == pairs.goals // 150).all()
    np.testing.assert_array_equal(pairs.qpos, pairs.states)
    assert random_pairs(walks(), 50, np.random.default_rng(0)).goals.shape == (50, 1)
    with pytest.raises(ConfigError, match="reach"):
        in_support_pairs(walks(), 5, np.random.default_rng(0), reach=(10, 400))


class Drift:
    """A policy that does nothing, and the exact model of a walk that moves by one each step."""

    gamma_max = 0.99

    def __init__(self, error=0.0):
        self.error = error

    def sample(self, key, states, *rest):
        if len(rest) == 1:
            return jnp.zeros_like(states)
        gamma = rest[2]
        u = jax.random.uniform(key, states.shape, minval=1e-7)
        times = jnp.where(gamma > 0, jnp.floor(jnp.log(u) / jnp.log(gamma)) + 1, 1.0)
        return states + times + self.error


def test_an_exact_model_scores_the_noise_floor_and_a_shifted_one_its_shift():
    starts = np.array([[0.0], [5.0]], np.float32)
    pairs = Pairs(starts, starts, starts, starts)
    truth = starts[:, None, None] + np.arange(1, 1501, dtype=np.float32)[None, None, :, None]
    truth = np.repeat(truth, 4, axis=1)
    key = jax.random.key(0)
    for fact in measure_fidelity(Drift(), Drift(), pairs, truth, (0.5, 0.9), key, samples=2000):
        assert fact.emd < 2.5 * fact.floor
    wrong = measure_fidelity(Drift(100.0), Drift(), pairs, truth, (0.9,), key, samples=200)[0]
    assert wrong.emd == pytest.approx(100.0, abs=2.0)
    with pytest.raises(ConfigError, match="trained up to"):
        measure_fidelity(Drift(), Drift(), pairs, truth, (0.999,), key, samples=8)


def test_rollouts_start_where_the_pairs_say_and_follow_the_policy():
    domain = domains.get("pointmaze-medium")
    xy = np.array([[0.0, 0.0], [0.5, 0.2], [0.3, -0.1]], np.float32)
    dataset = Dataset.from_arrays(
        xy, np.zeros_like(xy), np.array([0, 0, 1]), extras={"qpos": xy, "qvel": np.zeros_like(xy)}
    )
    pairs = Pairs.of_rows(dataset, np.array([0, 1]), np.array([2, 2]))

    class Right:
        def sample(self, key, states, z):
            return jnp.broadcast_to(jnp.array([1.0, 0.0]), states.shape)

    paths = rollouts(domain, Right(), pairs, jax.random.key(0), repeats=2, steps=3, workers=1)
    assert paths.shape == (2, 2, 3, 2)
    np.testing.assert_allclose(paths[0, 1, :, 0], [0.2, 0.4, 0.6], atol=1e-3)
    np.testing.assert_allclose(paths[1, 0, :, 1], 0.2, atol=1e-3)
    bare = Dataset.from_arrays(xy, np.zeros_like(xy), np.array([0, 0, 1]))
    with pytest.raises(DataError, match="has no qpos"):
        random_pairs(bare, 2, np.random.default_rng(0))
