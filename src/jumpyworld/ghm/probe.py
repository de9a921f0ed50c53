"""Numbers that reveal a failing model; read once per row of the training log.

    action/sensitivity   shift of the mean future by another action, over the spread of the future.
                         Near 0 the model is blind to the action, whatever its loss says
    sample/outside       share of sampled coordinates beyond the range of the data
    sample/spread        standard deviation of samples over that of the data, mean over dimensions:
                         far from 1 at the longest horizon the model has collapsed or exploded
    ema/distance         |online - average| / |average| of the weights
    grad/rms             root mean square of the gradient's norm over the last thousand steps, as
                         Adam sees it: after clipping

They are not part of a step: their many small reductions would slow it on a GPU.
Shapes: B rows, n samples of each, d state dimensions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.data.sampling import DeviceData, sample_transitions
from jumpyworld.ghm.algorithm import GHMState, sample_batch
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.discounts import longest_discount
from jumpyworld.ghm.losses import Metrics
from jumpyworld.ghm.world_model import WorldModelState

ROWS, SAMPLES = 64, 16
SENSITIVITY_GAMMA = 0.9


def probe(state: GHMState, data: DeviceData, key: PRNGKeyArray, config: GHMConfig) -> Metrics:
    """Return the numbers above for the averaged weights; changes nothing.

    Args:
        state: of the training.
        data: dataset on the device.
        key: randomness.
        config: settings, static.
    """
    batch_key, noise_key, action_key, future_key = jax.random.split(key, 4)
    batch = sample_batch(data, batch_key, config, state.model.z_dim)
    rows = min(ROWS, config.batch_size)
    model, s, z = state.target, batch.observations[:rows], batch.z[:rows]
    noise = jax.random.normal(noise_key, (SAMPLES, rows, model.observation_dim), model.dtype)
    others = jax.random.permutation(action_key, batch.actions[:rows])
    gamma = min(SENSITIVITY_GAMMA, config.gamma_max)

    def futures(actions):
        wide = jnp.broadcast_to(actions, (SAMPLES, *actions.shape))
        return model.push(noise, s[None], wide, z[None], gamma)

    # As far as it has been trained: beyond, a sound model would look exploded.
    longest = longest_discount(state.step, config)
    far = model.sample(
        future_key, s, batch.actions[:rows], z, longest, allow_extrapolation=config.curriculum > 0
    )
    return {
        "action/sensitivity": action_sensitivity(futures(batch.actions[:rows]), futures(others)),
        **range_of(far, data.observations),
        **weights(state),
    }


def world_model_probe(
    state: WorldModelState, data: DeviceData, key: PRNGKeyArray, batch_size: int
) -> Metrics:
    """Return the same numbers for a one-step model; changes nothing."""
    row_key, action_key, noise_key = jax.random.split(key, 3)
    rows = sample_transitions(data, row_key, min(ROWS, batch_size))
    others = jax.random.permutation(action_key, rows.actions)

    def futures(actions):
        wide = (jnp.broadcast_to(x, (SAMPLES, *x.shape)) for x in (rows.observations, actions))
        return state.target.sample(noise_key, *wide)

    after = futures(rows.actions)
    return {
        "action/sensitivity": action_sensitivity(after, futures(others)),
        **range_of(after[0], data.observations),
        **weights(state),
    }


def action_sensitivity(x: Float[Array, "n B d"], y: Float[Array, "n B d"]) -> Float[Array, ""]:
    """Return the shift of the mean between two sets of samples, over their spread.

    Args:
        x: samples after one action.
        y: samples after another, from the same states.
    """
    shift = jnp.mean(x, axis=0) - jnp.mean(y, axis=0)
    spread = jnp.sqrt(0.5 * (jnp.var(x, axis=0) + jnp.var(y, axis=0)))
    return _norm(shift) / (_norm(spread) + 1e-12)


def range_of(samples: Float[Array, "B d"], data: Float[Array, "N d"]) -> Metrics:
    """Compare sampled states with the data's, in raw units."""
    low, high, std = jnp.min(data, axis=0), jnp.max(data, axis=0), jnp.std(data, axis=0)
    outside = jax.vmap(lambda x: (x < low) | (x > high))(samples)
    moving = std > 1e-6  # a dimension that stands still has no spread to compare
    ratio = jnp.where(moving, jnp.std(samples, axis=0) / jnp.where(moving, std, 1.0), 1.0)
    return {
        "sample/outside": jnp.mean(outside.astype(samples.dtype)),
        "sample/spread": jnp.mean(ratio),
    }


def weights(state) -> Metrics:
    """Return what the weights and the optimiser tell, of any state with a model and a target."""
    online, average = (
        eqx.filter(model.field, eqx.is_inexact_array) for model in (state.model, state.target)
    )
    difference = jax.tree.map(lambda a, b: a - b, online, average)
    # Adam's second moment is the average of the squared gradient.
    second = optax.tree.get(state.opt_state, "nu")
    return {
        "ema/distance": _tree_norm(difference) / (_tree_norm(average) + 1e-12),
        "grad/rms": jnp.sqrt(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(second))),
    }


def _norm(x: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(jnp.square(x)))


def _tree_norm(tree) -> Float[Array, ""]:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
