"""Training a geometric horizon model: state, ``init`` and ``step``.

    batch, z ~ data                          transitions; goals 0.5 geometric / 0.5 random
    loss, gradient = td_hc_loss              see ``losses``
    theta <- Adam(theta, gradient)
    theta_bar <- zeta theta_bar + (1 - zeta) theta,   zeta = 1 - target_rate

Paper: Algorithm 1. ``step`` is pure and has no I/O: the same state, data and key give the same next
state, inside ``jit`` and ``lax.scan`` or out of them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jumpyworld.data.relabel import GoalMixture, geometric_offsets, sample_goal_indices
from jumpyworld.data.sampling import DeviceData, sample_transitions
from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.ghm.ahead import Jumped, targets
from jumpyworld.ghm.batch import GHMBatch, SupportsSample, sample_draws
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.hindsight import spans, times_on_the_way
from jumpyworld.ghm.losses import Metrics, regression_loss
from jumpyworld.ghm.model import GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.nn import clip_to_typical, cosine_rate
from jumpyworld.storage.schema import brief, from_json
from jumpyworld.storage.trees import from_arrays


class GHMState(eqx.Module):
    """All that training changes.

    Attributes:
        step: gradient steps done, int32.
        model: online model, float32.
        target: its exponential moving average, which bootstraps and is what ``sample`` users get.
        opt_state: the optimiser's.
        jumped: with ``jumps="ahead"``, the consistency rows of the next step.
    """

    step: Int[Array, ""]
    model: GeometricHorizonModel
    target: GeometricHorizonModel
    opt_state: optax.OptState
    jumped: Jumped | None = None


def optimiser(config: GHMConfig) -> optax.GradientTransformation:
    """Return Adam with the paper's settings, and the options it leaves off."""
    parts = [clip_to_typical(config.grad_clip)] if config.grad_clip > 0 else []
    parts.append(optax.scale_by_adam(eps=config.adam_eps))
    if config.weight_decay > 0:
        parts.append(optax.add_decayed_weights(config.weight_decay))
    rate = cosine_rate(config.learning_rate, config.gradient_steps, config.final_lr_fraction)
    return optax.chain(*parts, optax.scale_by_learning_rate(rate))


def init(
    key: PRNGKeyArray,
    config: GHMConfig,
    spec: GHMSpec,
    policy: SupportsSample,
    start: GeometricHorizonModel | None = None,
) -> GHMState:
    """Return the state before the first step.

    Args:
        key: randomness of the weights.
        config: settings.
        spec: widths and statistics of the data.
        policy: whose future will be learnt; unused here, part of every algorithm's interface.
        start: a trained model to begin with, whose units and frame are kept; None for new weights.

    Raises:
        ConfigError: ``start`` has another network than the settings ask for.
    """
    del policy
    model = GeometricHorizonModel(config, spec, key=key)
    if start is not None:
        model = _continue_from(model, start)
    opt_state = optimiser(config).init(eqx.filter(model.field, eqx.is_inexact_array))
    return GHMState(
        jnp.zeros((), jnp.int32),
        model,
        copy_arrays(model),
        opt_state,
        Jumped.none_yet(config, spec),
    )


def _continue_from(
    model: GeometricHorizonModel, start: GeometricHorizonModel
) -> GeometricHorizonModel:
    def parts(m: GeometricHorizonModel):
        return m.field, m.frame, m.state_normaliser, m.z_normaliser

    paced = [m.state_normaliser.gains is not None for m in (model, start)]
    if paced[0] != paced[1]:
        its = "paced" if paced[1] else "another than paced (scaled, in earlier presets)"
        raise ConfigError(f"normaliser: that of the model to start from is {its}; ask for the same")
    wanted, found = (
        {jax.tree_util.keystr(path): leaf.shape for path, leaf in leaves}
        for leaves in (jax.tree_util.tree_leaves_with_path(parts(m)) for m in (model, start))
    )
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise ConfigError(
                f"the model to start from has {found.get(name)} where {name} needs "
                f"{wanted.get(name)}: it was trained with another network, frame or data"
            )
    # Equal shapes may still be another function: skips, embeddings, a linear mix. The checkpoint
    # will be read by the settings of this run.
    if jax.tree.structure(parts(model)) != jax.tree.structure(parts(start)):
        raise ConfigError("the model to start from was trained with other settings of its network")
    return eqx.tree_at(parts, model, parts(start))


def sample_batch(
    data: DeviceData,
    key: PRNGKeyArray,
    config: GHMConfig,
    z_dim: int,
    gamma: Float[Array, " B"] | None = None,
) -> GHMBatch:
    """Draw transitions, and the policies they are asked about.

    Paper: goals are 0.5 trajectory (geometric, 0.995), 0.5 random over the dataset.

    Args:
        data: dataset on the device.
        key: randomness.
        config: batch size and source of z.
        z_dim: number of policies where z is one-hot.
        gamma: discounts of the rows, which ``uncond_source="trajectory"`` and ``hindsight`` need;
            without them every row looks one step ahead [B].
    """
    row_key, z_key, future_key, known_key = jax.random.split(key, 4)
    rows = sample_transitions(data, row_key, config.batch_size)
    goals = rows.index
    if config.z_source == "one_hot":
        which = jax.random.randint(z_key, (config.batch_size,), 0, z_dim)
        z = jax.nn.one_hot(which, z_dim, dtype=rows.observations.dtype)
    else:
        share = config.goal_trajectory
        mixture = GoalMixture(0.0, share, 0.0, 1.0 - share, config.goal_discount)
        goals = sample_goal_indices(data, z_key, rows.index, mixture)
        z = data.observations[goals]
    batch = GHMBatch(
        rows.observations,
        rows.actions,
        rows.next_observations,
        rows.next_actions,
        z,
        masks=_masks(data)[rows.index] if config.use_masks else None,
        known=_some_states(data, known_key, config.landings) if config.landings > 0 else None,
    )
    if config.uncond_source == "trajectory" and gamma is not None:
        c = config.layout.conditional
        futures, inside = trajectory_futures(data, future_key, rows.index[c:], gamma[c:])
        following = jnp.concatenate([rows.next_observations[:c], futures])
        batch = eqx.tree_at(
            lambda b: (b.next_observations, b.inside),
            batch,
            (following, inside),
            is_leaf=lambda node: node is None,
        )
    if config.hindsight > 0 and gamma is not None:
        c, share = config.layout.conditional, config.hindsight
        span = spans(data, rows.index, goals, gamma, share, c)
        met = rows.index + times_on_the_way(future_key, span, gamma)
        batch = dataclasses.replace(
            batch,
            next_observations=data.observations[rows.index + span],
            next_actions=data.actions[rows.index + span],
            on_the_way=data.observations[met],
            span=span.astype(gamma.dtype),
        )
    return batch


def _some_states(data: DeviceData, key: PRNGKeyArray, number: int) -> Float[Array, "N d"]:
    """Draw states of the dataset, raw units."""
    return data.observations[jax.random.randint(key, (number,), 0, len(data.observations))]


def _masks(data: DeviceData) -> Float[Array, " N"]:
    if data.masks is None:
        raise ConfigError("use_masks=True: the data have no masks")
    return data.masks


def trajectory_futures(
    data: DeviceData, key: PRNGKeyArray, index: Int[Array, " U"], gamma: Float[Array, " U"]
) -> tuple[Float[Array, "U d"], Bool[Array, " U"]]:
    """Draw the state that the data reached a geometric number of steps after each row.

    Deviation: the paper bootstraps the unconditional model, which learns a Markov behaviour that
    forgets at every state where it was going. This one goes on as the data did. A geometric time
    has no memory, so past the end of a trajectory the model's own measure from there continues it.

    Args:
        data: dataset on the device.
        key: randomness.
        index: rows [U].
        gamma: discounts [U].

    Returns:
        States [U, d], and whether the time fell inside the trajectory; elsewhere the state is the
        trajectory's last.
    """
    left = data.end_of_row[index] - index
    offset = geometric_offsets(key, left + 1, gamma)
    return data.observations[index + jnp.minimum(offset, left)], offset <= left


def step(
    state: GHMState,
    data: DeviceData,
    key: PRNGKeyArray,
    config: GHMConfig,
    policy: SupportsSample,
) -> tuple[GHMState, Metrics]:
    """Take one gradient step; pure, for use inside ``lax.scan``.

    Args:
        state: before the step.
        data: dataset on the device.
        key: randomness of this step.
        config: settings, static.
        policy: whose future is learnt.

    Returns:
        The next state, and scalar metrics; ``loss`` is the one to guard.
    """
    batch_key, loss_key = jax.random.split(key)
    rate = target_rate(state.step, config)
    draw_key, policy_key = jax.random.split(loss_key)
    draws = sample_draws(draw_key, config, state.model.observation_dim, step=state.step)
    batch = sample_batch(data, batch_key, config, state.model.z_dim, draws.gamma)
    batch, draws, terms, jumped = targets(
        state.target, batch, draws, policy_key, config, policy, state.jumped
    )
    state = eqx.tree_at(lambda s: s.jumped, state, jumped, is_leaf=lambda node: node is None)

    def loss_fn(model):
        return regression_loss(model, terms, batch, draws, config)

    return descend(state, loss_fn, optimiser(config), rate)


def target_rate(step: Int[Array, ""], config: GHMConfig) -> Float[Array, ""] | float:
    """Return the target's rate at a step: constant (paper), or from one to another by a power."""
    if config.final_target_rate is None:
        return config.target_rate
    done = jnp.minimum(step.astype(jnp.float32) / config.gradient_steps, 1.0)
    return config.target_rate * (config.final_target_rate / config.target_rate) ** done


def descend(state, loss_fn, transform: optax.GradientTransformation, rate):
    """Take one gradient step on ``state.model.field`` and move the average.

    Nothing is checked here: the training loop undoes a step whose ``loss`` is not finite.

    Args:
        state: with fields step, model, target and opt_state; both models have a ``field``.
        loss_fn: model to (loss, metrics).
        transform: optimiser whose state is ``state.opt_state``.
        rate: share of the online weights that enters the average.

    Returns:
        The next state, of the same class, and the metrics.
    """

    def field_loss(field):
        return loss_fn(eqx.tree_at(lambda m: m.field, state.model, field))

    online = state.model.field
    (loss, metrics), grads = eqx.filter_value_and_grad(field_loss, has_aux=True)(online)
    # Optax raises a float to an integer power, which strict promotion (as in tests) would refuse.
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = transform.update(grads, state.opt_state, online)
    online = eqx.apply_updates(online, updates)
    average = polyak(state.target.field, online, rate)
    metrics = {"loss": loss, **metrics}
    state = eqx.tree_at(
        lambda s: (s.step, s.model.field, s.target.field, s.opt_state),
        state,
        (state.step + 1, online, average, opt_state),
    )
    return state, metrics


def inference_model(state: GHMState) -> GeometricHorizonModel:
    """Return the model to sample, plan and measure with: the averaged weights.

    Deviation: the paper does not say which weights act.
    """
    return state.target


def from_checkpoint(
    document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> GeometricHorizonModel:
    """Return the model that a checkpoint describes.

    Args:
        document: the checkpoint's description; ``config`` is a ``GHMConfig`` and ``spec`` what
            ``GHMSpec.shapes`` returned.
        arrays: the arrays of ``inference_model(state)`` by name.
    """
    return rebuild(GHMConfig, GeometricHorizonModel, document, arrays)


def rebuild(config_class, model_class, document: Mapping[str, Any], arrays: Mapping[str, Any]):
    """Return ``model_class(config, spec, key=...)`` with its arrays replaced by stored ones."""
    config = from_json(config_class, document["config"])
    try:
        spec = GHMSpec.blank(**document["spec"])
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"spec {brief(document['spec'])}: {error}") from error
    template = eqx.filter_eval_shape(lambda: model_class(config, spec, key=jax.random.key(0)))
    return from_arrays(template, arrays)


def polyak(target, online, rate):
    """Return the average of two trees, ``target + rate (online - target)``.

    Paper: Algorithm 1, theta_bar <- zeta theta_bar + (1 - zeta) theta with zeta = 1 - rate.
    """
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)


def copy_arrays(tree):
    """Return a tree with arrays of its own, so that donating one never invalidates the other."""
    return jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, tree)
