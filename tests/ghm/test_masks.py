"""True ends of an episode: an option for data that have them (the paper's have none)."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.data import Dataset
from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMConfig, mixture_weights
from jumpyworld.ghm.algorithm import init, step
from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.job import ghm_job
from jumpyworld.ghm.losses import regression_loss, regressions

KEY = jax.random.key(1)


def test_at_a_true_end_the_next_state_is_all_there_is_to_learn(
    make_model, make_batch, config, change, policy
):
    config = change(config, use_masks=True)
    model, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    ended = np.arange(config.batch_size) % 2 == 0
    batch = eqx.tree_at(
        lambda b: b.masks, batch, jnp.asarray(~ended, jnp.float32), is_leaf=lambda x: x is None
    )
    draws = sample_draws(jax.random.key(2), config, 3)
    terms = eqx.filter_jit(regressions)(target, batch, draws, KEY, config, policy)
    loss = eqx.filter_jit(regression_loss)

    def of_rows(weights):
        """The loss, term by term and row by row."""
        total = 0.0
        for term, weight in zip(terms, weights, strict=True):
            for k in range(len(term.x)):
                c = config.layout.conditional
                a, z = (batch.actions[k], batch.z[k]) if k < c else (None, None)
                s = batch.observations[k]
                condition = model.condition(model.encode(s, a, z), s, draws.gamma[k])
                v = model.velocity(term.x[k], draws.t[k], condition)
                total += weight[k] * float(jnp.sum((v - term.velocity[k]) ** 2))
        return total / config.batch_size

    one, beta, gamma = map(np.asarray, mixture_weights(draws.beta, draws.gamma))
    want = of_rows((np.where(ended, 1.0, one), beta * ~ended, gamma * ~ended))
    got, _ = loss(model, terms, batch, draws, config)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    unmasked, _ = loss(model, terms, dataclasses.replace(batch, masks=None), draws, config)
    assert abs(float(unmasked) - want) > 1e-3


@pytest.mark.parametrize("jumps", ["now", "ahead"])
def test_a_step_takes_the_masks_of_its_rows(config, change, spec, policy, data, jumps):
    config = change(config, use_masks=True, jumps=jumps)
    data = eqx.tree_at(
        lambda d: d.masks, data, jnp.ones(len(data.observations)), is_leaf=lambda x: x is None
    )
    state = init(jax.random.key(0), config, spec, policy)
    after, metrics = eqx.filter_jit(step)(state, data, KEY, config, policy)
    assert np.isfinite(metrics["loss"])
    assert jax.tree.structure(after) == jax.tree.structure(state)


def test_data_without_masks_are_refused(policy):
    rng = np.random.default_rng(0)
    ends = np.arange(20) % 10 == 9
    dataset = Dataset.from_arrays(rng.normal(size=(20, 3)), rng.uniform(-1, 1, (20, 2)), ends)
    with pytest.raises(ConfigError, match="use_masks"):
        ghm_job(dataset, policy, GHMConfig.preset("debug", use_masks=True))
    masked = dataclasses.replace(dataset, extras={"masks": np.ones(20, np.float32)})
    with pytest.raises(ConfigError, match="use_masks: needs hc_fraction=0"):
        ghm_job(masked, policy, GHMConfig.preset("debug", use_masks=True))
    ghm_job(masked, policy, GHMConfig.preset("debug", use_masks=True, hc_fraction=0.0))
    with pytest.raises(ConfigError, match="uncond_source"):
        GHMConfig(use_masks=True, uncond_source="trajectory")
