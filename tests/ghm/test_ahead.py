import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.ahead import Jumped, regressions_ahead
from jumpyworld.ghm.algorithm import init, sample_batch, step
from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.losses import mixture_weights, regressions

KEY = jax.random.key(3)


@pytest.fixture
def ahead(config, change):
    return change(config, jumps="ahead")


@pytest.fixture
def setting(ahead, make_model, make_batch, spec):
    draws = sample_draws(jax.random.key(5), ahead, make_model(ahead).observation_dim)
    return make_model(ahead), make_batch(ahead), draws, Jumped.none_yet(ahead, spec)


compiled = eqx.filter_jit(regressions_ahead)


def test_a_row_that_waited_learns_the_same_terms(setting, ahead, policy_class):
    """Asked again about the rows it jumped for, it returns the terms of ``regressions``.

    The policy has no noise, which the two would draw for other numbers of rows.
    """
    policy = policy_class(noise=0.0)
    target, batch, draws, nothing = setting
    *_, jumped = compiled(target, batch, draws, KEY, ahead, policy, nothing)
    same_batch, same_draws, terms, _ = compiled(target, batch, draws, KEY, ahead, policy, jumped)
    want = eqx.filter_jit(regressions)(target, batch, draws, KEY, ahead, policy)
    for got, wanted in zip(
        jax.tree.leaves((same_batch, same_draws, terms)),
        jax.tree.leaves((batch, draws, want)),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_the_policy_is_asked_once_about_all_rows(setting, ahead, policy):
    """A flow policy's ten evaluations come one after the other; two calls would double the wait."""
    asked = []

    class Counting:
        def sample(self, key, states, z):
            asked.append((states.shape, z.shape))
            return policy.sample(key, states, z)

    target, batch, draws, nothing = setting
    regressions_ahead(target, batch, draws, KEY, ahead, Counting(), nothing)
    rows = ahead.layout.conditional + ahead.layout.hc
    assert asked == [((rows, 3), (rows, 3))]


def test_actions_after_a_jump_are_drawn_anew_each_step(setting, ahead, policy):
    """A+ ~ pi_z(. | S+): from where the row landed, with noise of the step that learns from it."""
    target, batch, draws, nothing = setting
    *_, jumped = compiled(target, batch, draws, KEY, ahead, policy, nothing)
    *_, once, _ = compiled(target, batch, draws, KEY, ahead, policy, jumped)
    *_, again, _ = compiled(target, batch, draws, jax.random.key(4), ahead, policy, jumped)
    assert np.all(np.any(once[2].velocity != again[2].velocity, axis=-1))
    moved = eqx.tree_at(lambda j: j.s_plus, jumped, jumped.s_plus + 1.0)
    *_, elsewhere, _ = compiled(target, batch, draws, KEY, ahead, policy, moved)
    assert np.all(np.any(once[2].velocity != elsewhere[2].velocity, axis=-1))


def test_before_any_row_has_jumped_they_are_plain(setting, ahead, policy):
    target, batch, draws, nothing = setting
    same, used, _, _ = compiled(target, batch, draws, KEY, ahead, policy, nothing)
    hc = ahead.layout.hc
    np.testing.assert_array_equal(used.beta[:hc], used.gamma[:hc])
    assert np.all(mixture_weights(used.beta, used.gamma)[2] == 0)
    np.testing.assert_array_equal(same.observations, batch.observations)


@pytest.mark.parametrize("bad", [3e30, np.nan, np.inf])
def test_a_jump_out_of_every_range_is_no_jump(setting, ahead, policy, bad):
    """Else a step that is undone would meet the same bad row again, and every later one."""
    target, batch, draws, nothing = setting
    *_, jumped = compiled(target, batch, draws, KEY, ahead, policy, nothing)
    spoilt = eqx.tree_at(lambda j: j.s_plus, jumped, jumped.s_plus.at[1, 0].set(bad))
    _, used, terms, after = compiled(target, batch, draws, KEY, ahead, policy, spoilt)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((terms, after)))
    assert used.beta[1] == used.gamma[1]
    _, wanted, _, _ = compiled(target, batch, draws, KEY, ahead, policy, jumped)
    np.testing.assert_array_equal(used.beta[2:], wanted.beta[2:])
    assert used.beta[0] == wanted.beta[0]


def test_rows_are_exchanged_and_wait_one_step(ahead, spec, policy, data):
    state = init(jax.random.key(0), ahead, spec, policy)
    go = eqx.filter_jit(step)
    once, _ = go(state, data, jax.random.key(1), ahead, policy)
    assert not state.jumped.ready and once.jumped.ready
    twice, metrics = go(once, data, jax.random.key(2), ahead, policy)
    assert np.isfinite(metrics["loss"]) and int(twice.step) == 2
    draws = sample_draws(KEY, ahead, once.model.observation_dim)
    fresh = sample_batch(data, KEY, ahead, once.model.z_dim, draws.gamma)
    batch, used, _, after = compiled(once.target, fresh, draws, KEY, ahead, policy, once.jumped)
    hc = ahead.layout.hc
    waited = once.jumped
    np.testing.assert_array_equal(batch.observations[:hc], waited.batch.observations)
    np.testing.assert_array_equal(used.gamma[:hc], waited.gamma)
    np.testing.assert_array_equal(used.beta[:hc], waited.beta)
    np.testing.assert_array_equal(batch.observations[hc:], fresh.observations[hc:])
    np.testing.assert_array_equal(used.gamma[hc:], draws.gamma[hc:])
    np.testing.assert_array_equal(after.batch.observations, fresh.observations[:hc])
    np.testing.assert_array_equal(after.gamma, draws.gamma[:hc])


def test_futures_of_unconditional_rows_are_kept(change, ahead, spec, policy, data):
    config = change(ahead, uncond_source="trajectory")
    state = init(jax.random.key(0), config, spec, policy)
    draws = sample_draws(KEY, config, state.model.observation_dim)
    fresh = sample_batch(data, KEY, config, state.model.z_dim, draws.gamma)
    batch, *_ = compiled(state.target, fresh, draws, KEY, config, policy, state.jumped)
    np.testing.assert_array_equal(batch.inside, fresh.inside)
    after, _ = eqx.filter_jit(step)(state, data, KEY, config, policy)
    assert jax.tree.structure(after) == jax.tree.structure(state)


def test_without_consistency_rows_nothing_waits(change, ahead, spec, policy):
    assert init(KEY, change(ahead, hc_fraction=0.0), spec, policy).jumped is None
    assert init(KEY, change(ahead, jumps="now"), spec, policy).jumped is None


def test_the_target_gets_no_gradient(setting, ahead, policy):
    target, batch, draws, nothing = setting

    def total(target):
        *_, terms, _ = regressions_ahead(target, batch, draws, KEY, ahead, policy, nothing)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(terms))

    gradient = eqx.filter_jit(eqx.filter_grad(total))(target)
    assert all(np.abs(leaf).max() == 0 for leaf in jax.tree.leaves(gradient))


def test_what_does_not_go_with_it_is_named():
    with pytest.raises(ConfigError, match="bootstrap_grid"):
        GHMConfig(jumps="ahead", bootstrap_grid="through")
