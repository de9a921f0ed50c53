import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.algorithm import init, sample_batch, step
from jumpyworld.ghm.discounts import law_cdf, sample_discounts
from jumpyworld.ghm.losses import td_hc_loss
from jumpyworld.ghm.sampled_terms import (
    Jumped,
    SampledLayout,
    draw_discounts,
    draw_terms,
    sample_tilted,
    sampled_terms_loss,
)


def loss_of_one_step(model, target, batch, key, config, policy):
    """What a step with ``jumps="now"`` computes."""
    gamma_key, terms_key = jax.random.split(key)
    gamma = draw_discounts(gamma_key, config)
    terms, _ = draw_terms(target, batch, gamma, terms_key, config, policy)
    return sampled_terms_loss(model, terms, config)


def loss_of_the_second_step(model, target, batch, key, config, policy):
    """What ``jumps="ahead"`` computes once it has jumped."""
    jumped = Jumped.none_yet(SampledLayout.of(config).hc, *widths(batch))
    for step_key in jax.random.split(key):
        gamma_key, terms_key = jax.random.split(step_key)
        gamma = draw_discounts(gamma_key, config)
        terms, jumped = draw_terms(target, batch, gamma, terms_key, config, policy, jumped)
    return sampled_terms_loss(model, terms, config)


def widths(batch):
    return batch.observations.shape[1], batch.actions.shape[1], batch.z.shape[1]


LAWS = ["uniform", "log_uniform", "mixture"]


@pytest.mark.parametrize("law", LAWS)
def test_the_cdf_is_that_of_the_law(law):
    top = jnp.full((100_000,), 0.99)
    drawn = np.asarray(sample_discounts(jax.random.key(0), top, law, 0.2, 0.99))
    for gamma in (0.3, 0.7, 0.95):
        want = law_cdf(np.asarray([gamma]), law, 0.2, 0.99)[0]
        assert abs(np.mean(drawn <= gamma) - want) < 0.006


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bootstrap", [True, False])
def test_discounts_are_drawn_where_their_term_matters(law, bootstrap):
    """Against the law's own draws, reweighted."""
    config = GHMConfig(gamma_sampler=law)
    top = jnp.full((200_000,), 0.996)
    plain = np.asarray(sample_discounts(jax.random.key(0), top, law, 0.0, 0.996), np.float64)
    weight = plain if bootstrap else 1 - plain
    drawn = np.asarray(sample_tilted(jax.random.key(1), 200_000, config, bootstrap=bootstrap))
    assert drawn.min() >= 0 and drawn.max() <= 0.996
    for gamma in (0.2, 0.6, 0.9, 0.98, 0.993):
        want = np.sum(weight * (plain <= gamma)) / weight.sum()
        assert abs(np.mean(drawn <= gamma) - want) < 0.01


def test_layout_of_the_paper_batch():
    layout = SampledLayout.of(GHMConfig(gamma_sampler="uniform"))
    np.testing.assert_allclose(layout.share, 1 - 0.498, atol=1e-4)
    counts = (layout.hc, layout.plain, layout.one_step)
    assert sum(counts) + layout.uncond_bootstrap + layout.uncond_one_step == 256
    assert counts == (32, 83, 115) and layout.conditional == 230
    weights = layout.weights
    np.testing.assert_allclose(weights.sum(), 1.0)
    np.testing.assert_allclose(weights[:32].sum(), 64 / 256 * (1 - layout.share))
    np.testing.assert_allclose(weights[230:].sum(), 26 / 256)
    np.testing.assert_allclose(weights[layout.bootstraps].sum(), 1 - layout.share)
    with pytest.raises(ConfigError, match="batch_size=8"):
        SampledLayout.of(GHMConfig(batch_size=8))
    log = SampledLayout.of(GHMConfig(gamma_sampler="log_uniform"))
    np.testing.assert_allclose(log.share, (1 - 1 / 250) / np.log(250), rtol=1e-3)


@pytest.mark.parametrize("law", ["uniform", "mixture"])
@pytest.mark.parametrize("estimate", [loss_of_one_step, loss_of_the_second_step])
def test_in_expectation_it_is_the_weighted_loss(
    make_model, make_batch, config, change, policy, law, estimate
):
    """On a batch whose rows are all alike, so that only the draws differ."""
    weighted = change(config, batch_size=64, gamma_sampler=law, beta_sampler=law)
    sampled = change(weighted, terms="sampled")
    model, target = make_model(weighted), make_model(weighted, seed=1)
    batch = make_batch(weighted)
    batch = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), batch)
    keys = jax.random.split(jax.random.key(0), 400)

    def values(loss, config):
        one = lambda key: loss(model, target, batch, key, config, policy)[0]  # noqa: E731
        return np.asarray(jax.lax.map(jax.jit(one), keys), np.float64)

    a, b = values(td_hc_loss, weighted), values(estimate, sampled)
    error = np.sqrt(a.var() / len(a) + b.var() / len(b))
    assert abs(a.mean() - b.mean()) < 4 * error
    assert error < 0.02 * a.mean()  # the comparison can tell


def test_a_step_trains_and_the_target_gets_no_gradient(
    make_model, make_batch, config, change, policy
):
    config = change(config, terms="sampled", batch_size=32)
    both = make_model(config), make_model(config, seed=1)
    batch, key = make_batch(config), jax.random.key(2)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(both):
        return loss_of_one_step(*both, batch, key, config, policy)[0]

    online, target = gradient(both)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(online.field))
    assert all(np.abs(leaf).max() == 0 for leaf in jax.tree.leaves(target))


def test_the_algorithm_uses_it_where_asked(config, change, spec, policy, data, key):
    config = change(config, terms="sampled", batch_size=32)
    state = init(jax.random.key(0), config, spec, policy)
    after, metrics = eqx.filter_jit(step)(state, data, key, config, policy)
    assert "loss/bootstrap" in metrics and all(np.isfinite(v) for v in metrics.values())
    assert int(after.step) == 1


def test_jumps_ahead_are_learnt_from_one_step_later(config, change, spec, policy, data, key):
    config = change(config, terms="sampled", jumps="ahead", batch_size=32)
    state = init(jax.random.key(0), config, spec, policy)
    go = eqx.filter_jit(step)
    once, _ = go(state, data, key, config, policy)
    assert not state.jumped.ready and once.jumped.ready
    twice, metrics = go(once, data, jax.random.key(7), config, policy)
    assert np.isfinite(metrics["loss"])
    assert not np.array_equal(once.jumped.s, twice.jumped.s)
    # Only what the first step drew decides what the second learns on consistency rows.
    hc = SampledLayout.of(config).hc
    terms, _ = draw_terms(
        once.target,
        sample_batch(data, key, config, once.model.z_dim),
        draw_discounts(key, config),
        key,
        config,
        policy,
        once.jumped,
    )
    np.testing.assert_array_equal(terms.s[:hc], once.jumped.s)
    np.testing.assert_array_equal(terms.gamma[:hc], once.jumped.gamma)
    assert np.all(terms.weight[:hc] > 0)
    empty, _ = draw_terms(
        once.target,
        sample_batch(data, key, config, once.model.z_dim),
        draw_discounts(key, config),
        key,
        config,
        policy,
        state.jumped,
    )
    assert np.all(np.asarray(empty.weight[:hc]) == 0) and np.all(empty.weight[hc:] > 0)


def test_unconditional_rows_can_learn_from_their_trajectory(
    config, change, spec, policy, data, key
):
    config = change(config, terms="sampled", uncond_source="trajectory", batch_size=32)
    layout = SampledLayout.of(config)
    assert layout.uncond_one_step == 0 and layout.uncond_bootstrap == config.layout.unconditional
    np.testing.assert_allclose(layout.weights.sum(), 1.0)
    state = init(jax.random.key(0), config, spec, policy)
    gamma = draw_discounts(key, config)
    batch = sample_batch(data, key, config, state.model.z_dim, gamma)
    assert batch.inside.any()
    terms, _ = draw_terms(state.target, batch, gamma, key, config, policy)
    c = layout.conditional
    # On a straight path to a state that was reached, x + (1 - t) v is that state.
    end = terms.points.x[c:] + (1 - terms.t[c:, None]) * terms.points.velocity[c:]
    reached = state.target.state_normaliser.normalise(batch.next_observations[c:])
    close = np.abs(np.asarray(end - reached)).max(-1) < 1e-4
    np.testing.assert_array_equal(close, np.asarray(batch.inside))


@pytest.mark.parametrize("bad", [{"mask_action": False}, {"bootstrap_grid": "through"}])
def test_what_does_not_go_with_it_is_named(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        GHMConfig(terms="sampled", **bad)


def test_jumps_ahead_need_sampled_terms():
    with pytest.raises(ConfigError, match="jumps=ahead"):
        GHMConfig(jumps="ahead")
