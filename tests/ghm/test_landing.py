"""Jumps that end at states of the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.algorithm import init, sample_batch, step
from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.landing import land
from jumpyworld.ghm.losses import regressions
from jumpyworld.nn import Normaliser

KEY = jax.random.key(3)


def test_the_nearest_by_hand():
    # Model units: (raw - (10, 0)) * (5, 1), so a step of the first dimension is worth five.
    units = Normaliser(jnp.array([10.0, 0.0]), jnp.array([2.0, 1.0]), gains=jnp.array([10.0, 1.0]))
    known = jnp.array([[10.0, 0.0], [11.0, 0.0], [10.0, 4.0]])
    jumps = jnp.array([[1.0, 0.5], [3.0, 2.1], [0.5, 3.5], [0.5, 3.5], [0.5, 3.5]])
    beta = jnp.array([0.99, 0.95, 0.9, 0.89, 0.0])
    got = land(jumps, beta, known, units)
    # The second is (10.6, 2.1) in raw units, in which (10, 4) would be the nearest. The third is
    # (10.1, 3.5), and the last two are too short to be moved.
    want = [[10.0, 0.0], [11.0, 0.0], [10.0, 4.0], [10.1, 3.5], [10.1, 3.5]]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(land(jumps, beta, None, units), units.denormalise(jumps))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e7])
def test_a_jump_that_is_none_does_not_pass_for_a_state(bad):
    units = Normaliser(jnp.zeros(2), jnp.ones(2))
    jumps = jnp.array([[0.2, 0.0], [bad, 0.0], [0.0, bad]])
    got = land(jumps, jnp.full(3, 0.99), jnp.array([[0.0, 0.0], [5.0, 5.0]]), units)
    np.testing.assert_array_equal(got, [[0.0, 0.0], [bad, 0.0], [0.0, bad]])


def test_the_nearest_of_many_is_the_one_of_all_distances(spec, config, make_model):
    units = make_model(config).state_normaliser
    rng = np.random.default_rng(0)
    known = units.denormalise(jnp.asarray(rng.normal(size=(500, 3)) * 10, jnp.float32))
    jumps = jnp.asarray(rng.normal(size=(40, 3)) * 10, jnp.float32)
    there = np.asarray(units.normalise(known), np.float64)
    gaps = np.linalg.norm(np.asarray(jumps, np.float64)[:, None] - there[None], axis=-1)
    got = land(jumps, jnp.full(40, 0.99), known, units)
    np.testing.assert_array_equal(got, np.asarray(known)[gaps.argmin(1)])


class Witness:
    """A policy that remembers the states it was asked about."""

    def __init__(self):
        self.states = []

    def sample(self, key, states, z):
        self.states.append(np.asarray(states))
        return jnp.zeros((len(states), 2))


@pytest.fixture
def landing(config, change):
    return change(config, landings=64, gamma_min=0.95, hc_fraction=0.5)


def test_the_policy_and_the_model_are_asked_about_known_states(landing, change, data, make_model):
    model, hc = make_model(landing), landing.layout.hc
    draws = sample_draws(KEY, landing, 3)
    batch = sample_batch(data, KEY, landing, 3, draws.gamma)
    assert batch.known.shape == (64, 3)
    rows = {row.tobytes() for row in np.asarray(data.observations)}
    assert {row.tobytes() for row in np.asarray(batch.known)} <= rows
    seen, free = Witness(), Witness()
    moved = regressions(model, batch, draws, KEY, landing, seen)
    plain = change(landing, landings=0)
    same = sample_batch(data, KEY, plain, 3, draws.gamma)
    assert same.known is None
    as_it_was = regressions(model, same, draws, KEY, plain, free)
    known = {row.tobytes() for row in np.asarray(batch.known)}
    assert {row.tobytes() for row in seen.states[1]} <= known and len(seen.states[1]) == hc
    assert not {row.tobytes() for row in free.states[1]} & known
    # Nothing else is touched: rows, one-step and beta terms are the same numbers.
    np.testing.assert_array_equal(same.observations, batch.observations)
    for a, b in zip(jax.tree.leaves(moved[:2]), jax.tree.leaves(as_it_was[:2]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.allclose(moved[2].velocity, as_it_was[2].velocity)


@pytest.mark.parametrize("jumps", ["now", "ahead"])
@pytest.mark.parametrize("more", [{"hindsight": 0.1}, {"uncond_source": "trajectory"}])
def test_steps_learn_and_wait_with_known_states(landing, change, jumps, more, spec, policy, data):
    config = change(landing, jumps=jumps, **more)
    state = init(jax.random.key(0), config, spec, policy)
    go = eqx.filter_jit(step)
    for i in range(2):
        after, metrics = go(state, data, jax.random.key(i), config, policy)
        assert jax.tree.structure(after) == jax.tree.structure(state)
        assert np.isfinite(metrics["loss"])
        state = after
    if jumps == "ahead":
        rows = {row.tobytes() for row in np.asarray(data.observations)}
        assert {row.tobytes() for row in np.asarray(state.jumped.s_plus)} <= rows


def test_several_seeds_at_once_land_as_each_does_alone(landing, change, spec, policy, data):
    config = change(landing, jumps="ahead")

    def two_steps(seed):
        state = init(jax.random.key(seed), config, spec, policy)
        for i in range(2):
            state, _ = step(
                state, data, jax.random.fold_in(jax.random.key(seed), i), config, policy
            )
        return eqx.filter(state, eqx.is_inexact_array)

    together = eqx.filter_jit(eqx.filter_vmap(two_steps))(jnp.array([5, 6]))
    for k, seed in enumerate((5, 6)):
        alone = eqx.filter_jit(two_steps)(jnp.array(seed))
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[k], b, rtol=2e-4, atol=2e-5)


def test_a_number_below_zero_is_refused():
    with pytest.raises(ConfigError, match="landings=-1: must be at least 0"):
        GHMConfig(landings=-1)
