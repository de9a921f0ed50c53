"""The frame a velocity field is written in: fixed in space, or moving with the state.

    absolute   v = w(x, t | ...)                                                the paper's
    moving     v = s + sqrt(1 + D^2) w(u / S, x / gain, t | ...)
    matched    v = s + (t D^2 - (1-t)) / S^2 u + D / S w(u / S, x / gain, t | ...)
               u = x - t s,  S^2 = (1-t)^2 + t^2 D^2

All in the model's normalised units; w is the network and D the root mean square displacement of
the data over the horizon 1 / (1 - gamma), per dimension. On the straight path u is
(1-t) x0 + t (x1 - s), and the velocity minus s is (x1 - s) - x0: the moving frame hands the network
inputs of size 1, asks for outputs of size 1, and leaves prior, path and fixed point as they are, as
well as the loss unless ``loss_units`` says otherwise. Without it one step of a slow system is a
hundredth of the noise and drowns in it.

The matched frame leaves to the network only what a Gaussian of that size does not know: where
x1 - s ~ N(0, D^2), the middle term is the velocity's mean given u and D / S its spread. An error of
the network is then small against D, where the moving frame has it against the noise: in a
dimension that hardly moves, the other frame's network has to repeat its input to many digits.
Neither helps a coarse solver: where D is a tenth of the noise, five Euler steps along the true
field keep a third of the spread, twenty keep four fifths.

Deviation: the paper has the absolute frame only.

Shapes: d state dimension, H horizons of the table.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jumpyworld.errors import ConfigError
from jumpyworld.ghm.config import FrameKind
from jumpyworld.nn import Normaliser

# Horizons, in steps, at which the displacement is tabulated; beyond the last it is held.
HORIZONS = tuple(float(2**k) for k in range(11))
# Normalised units. A dimension that stands still would make x - t s singular at t = 1.
DISPLACEMENT_FLOOR = 1e-2


class Frame(eqx.Module):
    """Maps between a field in normalised units and a network of inputs and outputs of size 1.

    Attributes:
        displacements: RMS displacement at each of ``HORIZONS`` in normalised units [H, d]; not
            trained.
        gain: size of the data in normalised units.
        kind: ``absolute``, ``moving`` or ``matched``.
        gains: the same by dimension [d], instead of ``gain``; None where they are all alike.
    """

    displacements: Float[Array, "H d"]
    gain: float = eqx.field(static=True)
    kind: FrameKind = eqx.field(static=True)
    gains: Float[Array, " d"] | None = None

    @staticmethod
    def num_inputs(kind: FrameKind, dim: int) -> int:
        """Return the width of the network's input for states of ``dim`` dimensions."""
        return dim if kind == "absolute" else 2 * dim

    def displacement(self, gamma: Float[Array, ""]) -> Float[Array, " d"]:
        """Return D at the horizon of ``gamma``, interpolated in its logarithm [d]."""
        log_horizons = jnp.log(jnp.asarray(HORIZONS, self.displacements.dtype))
        interpolate = jax.vmap(jnp.interp, in_axes=(None, None, 1))
        d = interpolate(-jnp.log1p(-gamma), log_horizons, self.displacements)
        return jnp.maximum(d, DISPLACEMENT_FLOOR)

    def inputs(
        self,
        x: Float[Array, " d"],
        t: Float[Array, ""],
        s: Float[Array, " d"],
        displacement: Float[Array, " d"],
    ) -> Float[Array, " inputs"]:
        """Return what the network sees of the point x at time t."""
        if self.kind == "absolute":
            return x
        gain = self.gain if self.gains is None else self.gains
        return jnp.concatenate([(x - t * s) / _spread(t, displacement), x / gain])

    def velocity(
        self,
        w: Float[Array, " d"],
        x: Float[Array, " d"],
        t: Float[Array, ""],
        s: Float[Array, " d"],
        displacement: Float[Array, " d"],
    ) -> Float[Array, " d"]:
        """Return the velocity at the point x and time t that the network's output w stands for."""
        if self.kind == "absolute":
            return w
        v = s + self.unit(t, displacement) * w
        if self.kind == "moving":
            return v
        variance = _spread(t, displacement) ** 2
        return v + (t * displacement**2 - (1.0 - t)) / variance * (x - t * s)

    def unit(self, t: Float[Array, ""], displacement: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return how much velocity one unit of the network's output is."""
        if self.kind == "absolute":
            return jnp.ones_like(displacement)
        if self.kind == "moving":
            return jnp.sqrt(1.0 + displacement**2)
        return displacement / _spread(t, displacement)

    def towards(self, s: Float[Array, " d"], z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return where the state z lies from s, near things at full size and far ones in brief.

        Deviation: the paper's network sees z alone. Where a goal is a metre away in a maze of
        twenty, the direction to it is a small difference of two large inputs. In units of the
        data's displacement over 16 steps, and beyond those as its logarithm.
        """
        near = jnp.maximum(self.displacements[HORIZONS.index(16.0)], DISPLACEMENT_FLOOR)
        return jnp.arcsinh((z - s) / near)

    def dimension_weights(self, power: float) -> Float[Array, " d"]:
        """Return how much a squared error counts by dimension, 1 on average; see ``step_power``.

        Deviation: the paper weighs all alike. An ant's joints are forgotten within ten steps and
        are 27 of 29 numbers; the two that plans are about move a hundredth of their range in a
        step. Each velocity's best value is its mean either way.
        """
        step = self.displacements[0]
        # What never moves has nothing to be learnt: no more weight than the fastest.
        step = jnp.where(step > DISPLACEMENT_FLOOR, step, jnp.max(step))
        weights = jnp.maximum(step, DISPLACEMENT_FLOOR) ** (-2.0 * power)
        return weights / jnp.mean(weights)


def _spread(t: Float[Array, ""], displacement: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return S, the size of x - t s along the path."""
    return jnp.sqrt((1.0 - t) ** 2 + (t * displacement) ** 2)


def make_frame(
    kind: FrameKind, displacements: Float[np.ndarray, "H d"], normaliser: Normaliser
) -> Frame:
    """Return the frame for displacements in raw units [H, d] and the state's normaliser."""
    unit = jnp.broadcast_to(normaliser.unit, displacements.shape)
    # Arrays of its own: a buffer that occurs twice cannot be donated.
    gains = None if normaliser.gains is None else normaliser.gains.copy()
    return Frame(jnp.asarray(displacements) / unit, normaliser.gain, kind, gains)


def displacement_table(
    observations: Float[np.ndarray, "N d"],
    starts: Int[np.ndarray, " T"],
    ends: Int[np.ndarray, " T"],
    *,
    horizons: tuple[float, ...] = HORIZONS,
    num_pairs: int = 20_000,
    seed: int = 0,
) -> Float[np.ndarray, "H d"]:
    """Measure how far states move within a geometric number of steps of mean ``horizon``.

    Offsets are cut at the trajectory's end, so the table levels off at the length of the data.

    Args:
        observations: states in raw units [N, d].
        starts: first row of each trajectory [T].
        ends: last row of each trajectory, inclusive [T].
        horizons: mean offsets in steps.
        num_pairs: pairs of states per horizon.
        seed: of the pairs.

    Returns:
        RMS displacement per dimension in raw units, float32 [H, d].
    """
    lengths = np.asarray(ends) - np.asarray(starts)
    if lengths.sum() == 0:
        raise ConfigError("displacement_table: the data have no transition")
    rng = np.random.default_rng(seed)
    # A uniform row that has a successor, and the last row of its trajectory.
    place = rng.integers(0, lengths.sum(), num_pairs)
    trajectory = np.searchsorted(np.cumsum(lengths), place, side="right")
    row = place + np.asarray(starts)[trajectory] - (np.cumsum(lengths) - lengths)[trajectory]
    end = np.asarray(ends)[trajectory]
    table = []
    for horizon in horizons:
        later = np.minimum(row + rng.geometric(1.0 / horizon, num_pairs), end)
        moved = observations[later].astype(np.float64) - observations[row]
        table.append(np.sqrt(np.mean(np.square(moved), axis=0)))
    return np.stack(table).astype(np.float32)
