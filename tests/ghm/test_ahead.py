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
from jumpyworld.ghm.losses import (
    batch_condition,
    beta_bootstrap_target,
    gamma_bootstrap_target,
    mixture_weights,
    one_step_target,
    regressions,
)

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


class Recording:
    """A policy without noise that keeps what it was asked, and has no action at some states."""

    def __init__(self, policy, nowhere=lambda states: False):
        self.policy, self.nowhere, self.asked = policy, nowhere, []

    def sample(self, key, states, z):
        self.asked.append((states, z))
        lost = jnp.broadcast_to(self.nowhere(states), len(states))
        return jnp.where(lost[:, None], jnp.nan, self.policy.sample(key, states, z))


@pytest.fixture
def recording(policy_class):
    return lambda **known: Recording(policy_class(noise=0.0), **known)


@pytest.fixture
def others(ahead, make_batch):
    """Rows and draws of the next step, other ones than those that jumped."""
    return make_batch(ahead, seed=9), sample_draws(jax.random.key(6), ahead, 3)


def test_the_policy_is_asked_once_where_rows_are_and_where_they_jumped(
    setting, ahead, others, recording
):
    """A flow policy's ten evaluations come one after the other; two calls would double the wait."""
    target, batch, draws, nothing = setting
    hc, c = ahead.layout.hc, ahead.layout.conditional
    first, second = recording(), recording()
    *_, jumped = regressions_ahead(target, batch, draws, KEY, ahead, first, nothing)
    regressions_ahead(target, *others, KEY, ahead, second, jumped)
    # At first nobody has jumped: the policy hears of no state that is in no data.
    no_jumps = (
        [batch.next_observations[:c], batch.next_observations[:hc]],
        [batch.z[:c], batch.z[:hc]],
    )
    jumps = [others[0].next_observations[:c], jumped.s_plus], [others[0].z[:c], jumped.batch.z]
    for policy, wanted in ((first, no_jumps), (second, jumps)):
        (asked,) = policy.asked
        for got, parts in zip(asked, wanted, strict=True):
            np.testing.assert_array_equal(got, np.concatenate(parts))


def test_a_row_goes_on_from_its_jump_under_its_own_policy(setting, ahead, others, recording):
    """Paper: Eq. td-hc, third term, A+ ~ pi_z(. | S+) with the z of the row that jumped."""
    target, batch, draws, nothing = setting
    policy = recording()
    *_, jumped = regressions_ahead(target, batch, draws, KEY, ahead, policy, nothing)
    _, used, terms, _ = regressions_ahead(target, *others, KEY, ahead, policy, jumped)
    z, hc = jumped.batch.z, ahead.layout.hc
    want = gamma_bootstrap_target(
        target, jumped.s_plus, policy.sample(KEY, jumped.s_plus, z), z, jumped.gamma,
        others[1].x0_gamma, used.t[:hc], ahead,
    )  # fmt: skip
    np.testing.assert_allclose(terms[2].x, want.x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms[2].velocity, want.velocity, rtol=1e-4, atol=1e-5)


def test_a_row_that_jumped_keeps_its_own_next_state_action_z_and_discount(
    setting, ahead, others, recording
):
    """Paper: Eq. td-hc, first two terms, of the row that jumped and not of a fresh one."""
    target, batch, draws, nothing = setting
    policy, hc = recording(), ahead.layout.hc
    *_, jumped = regressions_ahead(target, batch, draws, KEY, ahead, policy, nothing)
    _, used, terms, _ = regressions_ahead(target, *others, KEY, ahead, policy, jumped)
    held, new = jumped.batch, others[1]
    condition = batch_condition(target, held.next_observations, jumped.a_next, held.z, jumped.beta)
    second, _ = beta_bootstrap_target(
        target, condition, new.x0_beta[:hc], used.t[:hc], new.x0_beta[:0], ahead
    )
    s_next = target.state_normaliser.normalise(held.next_observations)
    first = one_step_target(s_next, new.x0_one_step[:hc], used.t[:hc])
    for got, want in zip(terms[:2], (first, second), strict=True):
        np.testing.assert_allclose(got.x[:hc], want.x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got.velocity[:hc], want.velocity, rtol=1e-4, atol=1e-5)


def test_actions_after_a_jump_are_drawn_anew_each_step(setting, ahead, policy):
    """With noise of the step that learns from them, not of the one that jumped."""
    target, batch, draws, nothing = setting
    *_, jumped = compiled(target, batch, draws, KEY, ahead, policy, nothing)
    *_, once, _ = compiled(target, batch, draws, KEY, ahead, policy, jumped)
    *_, again, _ = compiled(target, batch, draws, jax.random.key(4), ahead, policy, jumped)
    assert np.all(np.any(once[2].velocity != again[2].velocity, axis=-1))


def test_where_a_policy_knows_no_action_a_row_has_not_jumped(setting, ahead, others, recording):
    """Else the step would be undone, and the row would wait, and spoil each later try as well."""
    target, batch, draws, nothing = setting
    *_, jumped = regressions_ahead(target, batch, draws, KEY, ahead, recording(), nothing)
    lost = jumped.s_plus[1]
    policy = recording(nowhere=lambda states: jnp.all(states == lost[None], axis=-1))
    _, used, terms, after = regressions_ahead(target, *others, KEY, ahead, policy, jumped)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((terms, after)))
    plain = np.asarray(used.beta == used.gamma)[: ahead.layout.hc]
    assert plain[1] and not plain[np.arange(len(plain)) != 1].any()


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


@pytest.mark.parametrize("bad", [3e30, np.nan, np.inf])
def test_nobody_is_asked_where_a_jump_went_out_of_every_range(
    setting, ahead, others, recording, bad
):
    """A policy from outside would refuse such a state, in a step that could never be taken."""
    target, batch, draws, nothing = setting
    *_, jumped = regressions_ahead(target, batch, draws, KEY, ahead, recording(), nothing)
    spoilt = eqx.tree_at(lambda j: j.s_plus, jumped, jumped.s_plus.at[1, 0].set(bad))
    policy = recording()
    regressions_ahead(target, *others, KEY, ahead, policy, spoilt)
    ((states, z),) = policy.asked
    asked = ahead.layout.conditional + 1  # instead, the fresh row in its place
    np.testing.assert_array_equal(states[asked], others[0].next_observations[1])
    np.testing.assert_array_equal(z[asked], others[0].z[1])
    assert np.isfinite(states).all() and np.abs(states).max() < 1e6
