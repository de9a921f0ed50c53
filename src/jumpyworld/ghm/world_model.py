"""The one-step world model that action planning needs: the same network, no policy, no discount.

    loss = E |v_t((1-t) X_0 + t S' | S, A) - (S' - X_0)|^2        X_0 ~ N(0, I), t ~ U([0, 1])

Paper: the first term of Eq. td-flow; ActionPlan (alpha_1 = ... = alpha_n = 1) chains its samples.
The paper gives it no hyperparameters; here they are the GHM's where both have them.

Shapes: B batch, d state and da action dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.data.sampling import DeviceData, sample_transitions
from jumpyworld.errors import ConfigError
from jumpyworld.flows import Solver, integrate
from jumpyworld.ghm.algorithm import copy_arrays, descend, rebuild
from jumpyworld.ghm.config import FrameKind, Precision
from jumpyworld.ghm.frame import Frame, make_frame
from jumpyworld.ghm.losses import Metrics, one_step_target
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.nn import (
    FieldNetwork,
    Normaliser,
    clip_to_typical,
    cosine_rate,
    make_normaliser,
)
from jumpyworld.nn.film_unet import hidden_as
from jumpyworld.nn.normaliser import NormaliserKind


@dataclass(frozen=True)
class WorldModelConfig:
    """Settings of the one-step model; plain values only.

    Attributes:
        width: units of every hidden layer.
        stages: U-Net blocks down, and up.
        embed_dim: sinusoid features of t.
        embed_scale: factor on t before its sinusoid.
        frame: ``absolute``, ``moving`` or ``matched``; see ``Frame``.
        normaliser: ``standard``, ``identity``, ``scaled`` or ``paced``; see ``Normaliser``.
        data_scale: size of the data in units of the noise, for ``scaled`` and, at most, ``paced``.
        solver: ``euler`` or ``midpoint``.
        eval_steps: ODE steps of a sample.
        unroll: ODE steps per iteration of the compiled loop.
        precision: of the inner layers' products in training, ``fp32`` or ``bf16``.
        batch_size: rows per gradient step.
        learning_rate: Adam's.
        final_lr_fraction: learning rate after ``gradient_steps`` over the first one, reached along
            a cosine; 1 keeps it constant.
        grad_clip: largest gradient norm, in units of the typical one of the steps before (see
            ``nn.clip``), above 1; 0 for none.
        target_rate: share of the online weights that enters the average each step.
        gradient_steps: length of a full run.
    """

    width: int = 1024
    stages: int = 3
    embed_dim: int = 256
    embed_scale: float = 1000.0
    frame: FrameKind = "absolute"
    normaliser: NormaliserKind = "standard"
    data_scale: float = 10.0
    solver: Solver = "euler"
    eval_steps: int = 20
    unroll: int = 1
    precision: Precision = "fp32"
    batch_size: int = 256
    learning_rate: float = 1e-4
    final_lr_fraction: float = 1.0
    grad_clip: float = 0.0
    target_rate: float = 5e-4
    gradient_steps: int = 3_000_000

    def __post_init__(self):
        whole = ("width", "stages", "eval_steps", "unroll", "batch_size", "gradient_steps")
        for name in whole:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at least 1")
        for name in ("embed_scale", "data_scale", "learning_rate", "target_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be above 0")
        if self.embed_dim < 2 or self.embed_dim % 2:
            raise ConfigError(f"embed_dim={self.embed_dim}: must be even, above 0")
        if self.target_rate > 1:
            raise ConfigError(f"target_rate={self.target_rate}: must be at most 1")
        if self.grad_clip != 0 and not self.grad_clip > 1:
            raise ConfigError(f"grad_clip={self.grad_clip}: must be above 1, or 0")
        if not 0 <= self.final_lr_fraction <= 1:
            raise ConfigError(f"final_lr_fraction={self.final_lr_fraction}: must be in [0, 1]")

    @classmethod
    def preset(
        cls, name: Literal["paper", "base", "small", "debug"], **changes
    ) -> "WorldModelConfig":
        """Return a named configuration, the twin of the GHM's of that name, with changes."""
        if name not in _PRESETS:
            raise ConfigError(f"preset {name!r}: must be one of {', '.join(_PRESETS)}")
        return cls(**{**_PRESETS[name], **changes})


_OURS = {"frame": "moving", "normaliser": "paced", "learning_rate": 1e-3, "target_rate": 1e-3}
_PRESETS = {
    "paper": {},
    # At a constant 1e-3 and unclipped, three trainings of this width ended damaged
    # (``docs/results.md``).
    "base": {
        **_OURS,
        "width": 512,
        "batch_size": 1024,
        "learning_rate": 5e-4,
        "final_lr_fraction": 0.05,
        "grad_clip": 3.0,
        "gradient_steps": 100_000,
    },
    "small": {**_OURS, "width": 128, "gradient_steps": 20_000},
    "debug": {
        **_OURS,
        "width": 32,
        "stages": 1,
        "embed_dim": 32,
        "eval_steps": 4,
        "batch_size": 32,
        "target_rate": 5e-2,
        "gradient_steps": 20,
    },
}


class WorldModel(eqx.Module):
    """A generative model of P(S' | s, a).

    Attributes:
        field: the network; all that is trained.
        frame: the frame that the field is written in.
        state_normaliser: raw units of states to normalised ones.
        eval_steps: default number of ODE steps.
        solver: default ODE solver.
        unroll: ODE steps per iteration of the compiled loop.
    """

    field: FieldNetwork
    frame: Frame
    state_normaliser: Normaliser
    eval_steps: int = eqx.field(static=True)
    solver: Solver = eqx.field(static=True)
    unroll: int = eqx.field(static=True)

    def __init__(self, config: WorldModelConfig, spec: GHMSpec, *, key: PRNGKeyArray):
        d = spec.observation_dim
        self.state_normaliser = make_normaliser(
            config.normaliser,
            spec.mean,
            spec.std,
            gain=config.data_scale,
            step=spec.displacements[0],
        )
        self.frame = make_frame(config.frame, spec.displacements, self.state_normaliser)
        self.field = FieldNetwork(
            inputs=Frame.num_inputs(config.frame, d),
            state_dim=d,
            action_dim=spec.action_dim,
            z_dim=0,
            width=config.width,
            stages=config.stages,
            embed_dim=config.embed_dim,
            embed_scale=config.embed_scale,
            use_discount=False,
            key=key,
        )
        self.eval_steps = config.eval_steps
        self.solver = config.solver
        self.unroll = config.unroll

    def with_inner_layers(self, dtype) -> "WorldModel":
        """Return the model with the inner layers of its network in ``dtype``, say bfloat16."""
        return eqx.tree_at(lambda model: model.field, self, hidden_as(self.field, dtype))

    def prepare(self, s: Float[Array, " d"], a: Float[Array, " da"]) -> Float[Array, "..."]:
        """Return the conditioning of one (s, a) in raw units."""
        encoded = self.field.encoder.first(self.state_normaliser.standardise(s), a, None)
        return self.field.prepare(encoded, None)

    def velocity(
        self,
        x: Float[Array, " d"],
        t: Float[Array, ""],
        s: Float[Array, " d"],
        prepared: Float[Array, "..."],
        time: Float[Array, "..."] | None = None,
    ) -> Float[Array, " d"]:
        """Return v_t(x | s, a) at one point; x and s in normalised units."""
        time = self.field.at_time(t) if time is None else time
        displacement = self.frame.displacement(jnp.zeros_like(t))
        w = self.field(self.frame.inputs(x, t, s, displacement), time, prepared)
        return self.frame.velocity(w, x, t, s, displacement)

    def sample(
        self,
        key: PRNGKeyArray,
        states: Float[Array, "*batch d"],
        actions: Float[Array, "*batch da"],
        *,
        num_steps: int | None = None,
        solver: Solver | None = None,
    ) -> Float[Array, "*batch d"]:
        """Draw one next state per row, in raw units.

        Args:
            key: randomness.
            states: s [d] or [B, d].
            actions: a [da] or [B, da].
            num_steps: ODE steps; by default the model's ``eval_steps``.
            solver: ``euler`` or ``midpoint``; by default the model's.
        """
        x0 = jax.random.normal(key, jnp.shape(states))
        t_end = jnp.ones(())

        def one(x0, s, a):
            prepared, s = self.prepare(s, a), self.state_normaliser.normalise(s)
            return integrate(
                lambda x, t, time: self.velocity(x, t, s, prepared, time),
                x0,
                t_end,
                num_steps=self.eval_steps if num_steps is None else num_steps,
                solver=self.solver if solver is None else solver,
                unroll=self.unroll,
                at_time=self.field.at_time,
            )

        rows = (jnp.asarray(value).reshape(-1, jnp.shape(value)[-1]) for value in (states, actions))
        x1 = jax.vmap(one)(x0.reshape(-1, x0.shape[-1]), *rows)
        return self.state_normaliser.denormalise(x1).reshape(x0.shape)


class WorldModelState(eqx.Module):
    """All that training changes.

    Attributes:
        step: gradient steps done, int32.
        model: online model, float32.
        target: its exponential moving average, which is what ``sample`` users get.
        opt_state: the optimiser's.
    """

    step: Int[Array, ""]
    model: WorldModel
    target: WorldModel
    opt_state: optax.OptState


def world_model_loss(
    model: WorldModel,
    states: Float[Array, "B d"],
    actions: Float[Array, "B da"],
    next_states: Float[Array, "B d"],
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Metrics]:
    """Return the conditional flow-matching loss on next states.

    Paper: Eq. td-flow, first term, at gamma = 0.

    Args:
        model: the model.
        states: S in raw units [B, d].
        actions: A in raw units [B, da].
        next_states: S' in raw units [B, d].
        key: randomness.
    """
    t_key, noise_key = jax.random.split(key)
    t = jax.random.uniform(t_key, states.shape[:1])
    x0 = jax.random.normal(noise_key, states.shape)
    regression = one_step_target(model.state_normaliser.normalise(next_states), x0, t)
    s = model.state_normaliser.normalise(states)
    prepared = jax.vmap(model.prepare)(states, actions)
    v = jax.vmap(model.velocity)(regression.x, t, s, prepared)
    loss = jnp.mean(jnp.sum(jnp.square(v - regression.velocity), axis=-1))
    return loss, {"velocity/online_norm": jnp.mean(jnp.sqrt(jnp.sum(jnp.square(v), axis=-1)))}


def optimiser(config: WorldModelConfig) -> optax.GradientTransformation:
    """Return Adam, with a rate that falls and spikes that are clipped where the settings say so."""
    rate = cosine_rate(config.learning_rate, config.gradient_steps, config.final_lr_fraction)
    adam = optax.adam(rate)
    return optax.chain(clip_to_typical(config.grad_clip), adam) if config.grad_clip > 0 else adam


def init(
    key: PRNGKeyArray, config: WorldModelConfig, spec: GHMSpec, policy: object = None
) -> WorldModelState:
    """Return the state before the first step; ``policy`` is unused, as there is none to model."""
    del policy
    model = WorldModel(config, spec, key=key)
    opt_state = optimiser(config).init(eqx.filter(model.field, eqx.is_inexact_array))
    return WorldModelState(jnp.zeros((), jnp.int32), model, copy_arrays(model), opt_state)


def step(
    state: WorldModelState,
    data: DeviceData,
    key: PRNGKeyArray,
    config: WorldModelConfig,
    policy: object = None,
) -> tuple[WorldModelState, Metrics]:
    """Take one gradient step; pure, for use inside ``lax.scan``; ``policy`` is unused.

    Args:
        state: before the step.
        data: dataset on the device.
        key: randomness of this step.
        config: settings, static.
        policy: unused, part of every algorithm's interface.
    """
    del policy
    batch_key, loss_key = jax.random.split(key)
    rows = sample_transitions(data, batch_key, config.batch_size)

    def loss_fn(model):
        if config.precision == "bf16":
            model = model.with_inner_layers(jnp.bfloat16)
        return world_model_loss(
            model, rows.observations, rows.actions, rows.next_observations, loss_key
        )

    return descend(state, loss_fn, optimiser(config), config.target_rate)


def inference_model(state: WorldModelState) -> WorldModel:
    """Return the model to sample with: the averaged weights."""
    return state.target


def from_checkpoint(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> WorldModel:
    """Return the model that a checkpoint describes; see ``algorithm.from_checkpoint``."""
    return rebuild(WorldModelConfig, WorldModel, document, arrays)
