"""Without consistency rows the loss is TD-Flow's: in float64, where rounding hides nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.flows import interpolate
from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.losses import batch_condition, matching_loss

KEY = jax.random.key(3)


def td_flow(model, target, batch, draws, config, policy):
    """Eq. td-flow, written from the paper for rows in the order conditional, unconditional."""
    c = config.layout.conditional
    a_next = policy.sample(jax.random.split(KEY)[0], batch.next_observations[:c], batch.z[:c])
    x1 = model.state_normaliser.normalise(batch.next_observations)
    x_one = interpolate(draws.x0_one_step, x1, draws.t)
    later = batch_condition(target, batch.next_observations, a_next, batch.z[:c], draws.gamma)
    steps = config.train_steps
    x_boot = draws.x0_beta
    for i in range(steps):
        t = i / steps * draws.t
        h = (i + 1) / steps * draws.t - t
        x_boot = x_boot + h[:, None] * jax.vmap(target.velocity)(x_boot, t, later)
    u_boot = jax.vmap(target.velocity)(x_boot, draws.t, later)
    now = batch_condition(model, batch.observations, batch.actions[:c], batch.z[:c], draws.gamma)
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), (draws.t, now))
    v = jax.vmap(model.velocity)(jnp.concatenate([x_one, x_boot]), *twice)
    u = jnp.concatenate([x1 - draws.x0_one_step, u_boot])
    one, boot = jnp.split(jnp.sum(jnp.square(v - u), axis=-1), 2)
    return (jnp.sum((1 - draws.gamma) * one) + jnp.sum(draws.gamma * boot)) / config.batch_size


@pytest.mark.parametrize("normaliser", ["scaled", "paced"])
def test_without_consistency_rows_it_is_td_flow(
    make_model, make_batch, config, change, policy, normaliser
):
    config = change(config, hc_fraction=0.0, normaliser=normaliser)
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    with jax.enable_x64(True):
        model, target, batch = jax.tree.map(doubled, (model, target, batch))
        draws = sample_draws(jax.random.key(1), config, 3, jnp.float64)
        want = td_flow(model, target, batch, draws, config, policy)
        got, metrics = matching_loss(model, target, batch, draws, KEY, config, policy)
        assert got.dtype == jnp.float64
        np.testing.assert_allclose(got, want, rtol=1e-12)
    assert "loss/gamma_bootstrap" not in metrics


def doubled(leaf):
    is_float = eqx.is_inexact_array(leaf)
    return leaf.astype(jnp.float64) if is_float else leaf
