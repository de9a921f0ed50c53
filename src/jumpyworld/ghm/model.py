"""The geometric horizon model: a generative model of where a policy will be.

``sample(key, s, a, z, gamma)`` draws S+ from the successor measure m of the policy pi_z: the state
after a geometric number of steps of mean 1 / (1 - gamma), having taken a in s and followed pi_z
since. It pushes noise along a learned velocity field (section 2 of the paper).

Two levels, both here: ``sample`` and ``push`` speak raw units, [d] or [B, d]; ``encode``,
``condition``, ``velocity`` and ``flow`` are the parts that losses and planners combine, in the
model's normalised units where they concern x.

Shapes: B batch, d state, da action, dz policy-encoding dimensions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.flows import Grid, Solver, integrate, integrate_along, integrate_through
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.frame import Frame, make_frame
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.nn import FieldNetwork, Normaliser, hidden_as, make_normaliser


class Condition(eqx.Module):
    """All that a velocity depends on besides x and t; computed once per ODE solve.

    Attributes:
        prepared: the network's own conditioning.
        s: state in normalised units [d].
        displacement: RMS displacement at the horizon, in normalised units [d].
    """

    prepared: Float[Array, "..."]
    s: Float[Array, " d"]
    displacement: Float[Array, " d"]


class GeometricHorizonModel(eqx.Module):
    """A velocity field conditioned on (s, a, z, gamma), with the units it was trained in.

    Only ``field`` is trained; the other arrays are statistics of the data.

    Attributes:
        field: the network, with the tokens that stand for a missing action and z.
        frame: the frame that the field is written in.
        state_normaliser: raw units of states to normalised ones.
        z_normaliser: the same for z; the state's where z is a state.
        gamma_max: largest discount trained.
        eval_steps: default number of ODE steps.
        solver: default ODE solver.
        unroll: ODE steps per iteration of the compiled loop.
        mask_action: whether the unconditional model has no action either.
        z_moves: whether the network sees z from the state as well.
        input_power: by which power of their gain dimensions of s and z are seen larger.
    """

    field: FieldNetwork
    frame: Frame
    state_normaliser: Normaliser
    z_normaliser: Normaliser
    gamma_max: float = eqx.field(static=True)
    eval_steps: int = eqx.field(static=True)
    solver: Solver = eqx.field(static=True)
    unroll: int = eqx.field(static=True)
    mask_action: bool = eqx.field(static=True)
    z_moves: bool = eqx.field(static=True)
    input_power: float = eqx.field(static=True)

    def __init__(self, config: GHMConfig, spec: GHMSpec, *, key: PRNGKeyArray):
        self.z_moves = config.z_frame == "moving"
        if self.z_moves and not spec.z_is_state:
            raise ConfigError("z_frame=moving: must be absolute where z is no state")
        step = spec.displacements[0]
        self.state_normaliser = make_normaliser(
            config.normaliser, spec.mean, spec.std, gain=config.data_scale, step=step
        )
        if spec.z_mean is None or spec.z_std is None:
            # Equal, and not the same arrays: a buffer that occurs twice cannot be donated.
            self.z_normaliser = make_normaliser(
                config.normaliser, spec.mean, spec.std, gain=config.data_scale, step=step
            )
        else:
            self.z_normaliser = make_normaliser("standard", spec.z_mean, spec.z_std)
        self.frame = make_frame(config.frame, spec.displacements, self.state_normaliser)
        self.field = FieldNetwork(
            inputs=Frame.num_inputs(config.frame, spec.observation_dim),
            state_dim=spec.observation_dim,
            action_dim=spec.action_dim,
            z_dim=2 * spec.z_dim if self.z_moves else spec.z_dim,
            width=config.width,
            stages=config.stages,
            embed_dim=config.embed_dim,
            embed_scale=config.embed_scale,
            gamma_embed=config.gamma_embed,
            skip=config.skip,
            films_per_block=config.films_per_block,
            linear_mix=config.linear_mix,
            key=key,
        )
        self.gamma_max = config.gamma_max
        self.eval_steps = config.eval_steps
        self.solver = config.solver
        self.unroll = config.unroll
        self.mask_action = config.mask_action
        self.input_power = config.input_power

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.state_normaliser.offset.shape[0]

    @property
    def z_dim(self) -> int:
        """Width dz of a policy encoding."""
        return self.z_normaliser.offset.shape[0]

    def encode(
        self,
        s: Float[Array, " d"],
        a: Float[Array, " da"] | None,
        z: Float[Array, " dz"] | None,
    ) -> Float[Array, " width"]:
        """Return the encoder's first layer for one condition in raw units; None is a token."""
        units = self.state_normaliser
        seen = None if z is None else self.z_normaliser.enlarged(z, self.input_power)
        if z is not None and seen is not None and self.z_moves:
            towards = self.frame.towards(units.normalise(s), units.normalise(z))
            seen = jnp.concatenate([seen, towards])
        return self.field.encoder.first(units.enlarged(s, self.input_power), a, seen)

    def condition(
        self, encoded: Float[Array, " width"], s: Float[Array, " d"], gamma: Float[Array, ""]
    ) -> Condition:
        """Return the condition of one encoded (s, a, z), state s in raw units, and discount."""
        return Condition(
            prepared=self.field.prepare(encoded, gamma),
            s=self.state_normaliser.normalise(s),
            displacement=self.frame.displacement(gamma),
        )

    def velocity(
        self,
        x: Float[Array, " d"],
        t: Float[Array, ""],
        condition: Condition,
        time: Float[Array, "..."] | None = None,
    ) -> Float[Array, " d"]:
        """Return v_t(x | s, a, z, gamma) at one point, in normalised units.

        Args:
            x: the point.
            t: its time.
            condition: of (s, a, z, gamma).
            time: ``field.at_time(t)`` where it is known already.
        """
        time = self.field.at_time(t) if time is None else time
        inputs = self.frame.inputs(x, t, condition.s, condition.displacement)
        w = self.field(inputs, time, condition.prepared)
        return self.frame.velocity(w, x, t, condition.s, condition.displacement)

    def flow(
        self,
        x0: Float[Array, " d"],
        t_end: Float[Array, ""],
        condition: Condition,
        *,
        num_steps: int | None = None,
        solver: Solver | None = None,
        grid: Grid = "scaled",
    ) -> Float[Array, " d"]:
        """Return psi_t(x0 | s, a, z, gamma) at ``t_end`` for one sample, in normalised units."""
        return integrate(
            lambda x, t, time: self.velocity(x, t, condition, time),
            x0,
            t_end,
            num_steps=self.eval_steps if num_steps is None else num_steps,
            solver=self.solver if solver is None else solver,
            grid=grid,
            unroll=self.unroll,
            at_time=self.field.at_time,
        )

    def flow_through(
        self, x0: Float[Array, " d"], t: Float[Array, ""], condition: Condition, *, num_steps: int
    ) -> tuple[Float[Array, " d"], Float[Array, " d"], Float[Array, " d"]]:
        """Return psi_t(x0), the velocity there, and psi_1(x0), all of one path; see ``flow``."""
        return integrate_through(
            lambda x, t, time: self.velocity(x, t, condition, time),
            x0,
            t,
            num_steps=num_steps,
            solver=self.solver,
            unroll=self.unroll,
            at_time=self.field.at_time,
        )

    def flow_along(
        self,
        x0: Float[Array, " d"],
        shift: Float[Array, ""],
        condition: Condition,
        *,
        num_steps: int,
    ) -> tuple[Float[Array, "N d"], Float[Array, "N d"], Float[Array, " N"], Float[Array, " d"]]:
        """Return psi_t(x0), the velocity there and t, at N times, and psi_1(x0); see ``flow``.

        All are of one path, with N = num_steps points (shift + i) / N.
        """
        return integrate_along(
            lambda x, t, time: self.velocity(x, t, condition, time),
            x0,
            shift,
            num_steps=num_steps,
            solver=self.solver,
            unroll=self.unroll,
            at_time=self.field.at_time,
        )

    def sample(
        self,
        key: PRNGKeyArray,
        states: Float[Array, "*batch d"],
        actions: Float[Array, "*batch da"] | None,
        z: Float[Array, "*batch dz"] | None,
        gamma: Float[Array, "*batch"] | float,
        *,
        num_steps: int | None = None,
        solver: Solver | None = None,
        allow_extrapolation: bool = False,
    ) -> Float[Array, "*batch d"]:
        """Draw one successor state per row, in raw units.

        Args:
            key: randomness.
            states: s [d] or [B, d].
            actions: a [da] or [B, da]; None for the unconditional model.
            z: policy encoding [dz] or [B, dz]; None for the unconditional (behaviour) model.
            gamma: discount, one for all or [B]; 0 draws the next state.
            num_steps: ODE steps; by default the model's ``eval_steps``.
            solver: ``euler`` or ``midpoint``; by default the model's.
            allow_extrapolation: let gamma exceed the largest discount trained.

        Returns:
            Successor states [d] or [B, d]. Arguments are broadcast over the batch.

        Raises:
            ConfigError: gamma is above the range trained (only checked where it is not traced),
                or a width is wrong.
        """
        shape = self._batch_shape(states, actions, z, gamma)
        noise = jax.random.normal(key, (*shape, self.observation_dim), self.dtype)
        return self.push(
            noise,
            states,
            actions,
            z,
            gamma,
            num_steps=num_steps,
            solver=solver,
            allow_extrapolation=allow_extrapolation,
        )

    def push(
        self,
        noise: Float[Array, "*batch d"],
        states: Float[Array, "*batch d"],
        actions: Float[Array, "*batch da"] | None,
        z: Float[Array, "*batch dz"] | None,
        gamma: Float[Array, "*batch"] | float,
        *,
        num_steps: int | None = None,
        solver: Solver | None = None,
        allow_extrapolation: bool = False,
    ) -> Float[Array, "*batch d"]:
        """Push given noise [..., d] to successor states; otherwise like ``sample``."""
        self._check_gamma(gamma, allow_extrapolation)
        if z is not None and actions is None:
            raise ConfigError("sample: a policy's model needs actions; only z=None goes without")
        if z is None and (actions is None) != self.mask_action:
            has = "no action" if self.mask_action else "an action"
            raise ConfigError(f"sample: the unconditional model was trained with {has}")
        shape = noise.shape[:-1]

        def rows(value, width):
            if value is None:
                return None
            value = jnp.asarray(value, self.dtype)
            return jnp.broadcast_to(value, (*shape, width)).reshape(-1, width)

        s = rows(states, self.observation_dim)
        a = rows(actions, self.field.encoder.action.weight.shape[0])
        z = rows(z, self.z_dim)
        gamma = jnp.asarray(gamma, self.dtype)
        if gamma.ndim > 0:
            gamma = jnp.broadcast_to(gamma, shape).reshape(-1)
        # What is not batched under vmap (the end time, one gamma for all) is embedded only once.
        t_end = jnp.ones((), self.dtype)

        def one(x0, s, a, z, gamma):
            condition = self.condition(self.encode(s, a, z), s, gamma)
            return self.flow(x0, t_end, condition, num_steps=num_steps, solver=solver)

        x0 = jnp.asarray(noise, self.dtype).reshape(-1, self.observation_dim)
        x1 = jax.vmap(one, in_axes=(0, 0, 0, 0, 0 if gamma.ndim else None))(x0, s, a, z, gamma)
        return self.state_normaliser.denormalise(x1).reshape(noise.shape)

    def with_inner_layers(self, dtype) -> "GeometricHorizonModel":
        """Return the model with the inner layers of its network in ``dtype``, say bfloat16.

        Inputs, samples and what they are computed from stay as they are; see ``nn.hidden_as``.
        """
        return eqx.tree_at(lambda model: model.field, self, hidden_as(self.field, dtype))

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of inputs and samples, that of the network's first layer."""
        return self.field.unet.project_in.weight.dtype

    def _batch_shape(self, states, actions, z, gamma) -> tuple[int, ...]:
        shapes = [jnp.shape(states)[:-1], jnp.shape(gamma)]
        widths = {"states": (states, self.observation_dim)}
        widths["actions"] = (actions, self.field.encoder.action.weight.shape[0])
        widths["z"] = (z, self.z_dim)
        for name, (value, width) in widths.items():
            if value is None:
                continue
            if jnp.ndim(value) < 1 or jnp.shape(value)[-1] != width:
                got = jnp.shape(value)
                raise ConfigError(f"sample: {name} has shape {got}, the model's width is {width}")
            shapes.append(jnp.shape(value)[:-1])
        return jnp.broadcast_shapes(*shapes)

    def _check_gamma(self, gamma, allow_extrapolation: bool) -> None:
        try:
            values = np.asarray(gamma)
        except jax.errors.TracerArrayConversionError:
            return
        # gamma_max itself may arrive rounded to float32.
        limit = 1.0 if allow_extrapolation else self.gamma_max + 1e-6
        if not ((values >= 0) & (values <= limit) & (values < 1)).all():
            hint = "" if allow_extrapolation else "; allow_extrapolation=True asks anyway"
            raise ConfigError(
                f"gamma={values.max():g}: the model was trained on [0, {self.gamma_max:g}]{hint}"
            )
