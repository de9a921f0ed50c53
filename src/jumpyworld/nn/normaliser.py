"""Raw units to the model's units and back, as part of the model.

    normalised = gain * (raw - offset) / scale

``standard`` standardises each dimension; ``identity`` leaves units alone; ``scaled`` standardises
and multiplies by a gain, so that one step of the system is not lost under noise of unit size.
``paced`` gives each dimension the gain that it needs: an ant's position crosses its range in
hundreds of steps and is scaled up, its joints do within one and stay as they are. Noise that is far
smaller than the data costs accuracy: along the true field from noise of size 1 to a Gaussian of
size 10 five Euler steps keep 36 % of the spread, to one of size 1 77 %.

Deviation: the paper is silent on normalisation; only the ``paper`` preset's choice is literal in
that its gain is 1.
"""

from typing import Literal, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jumpyworld.errors import ConfigError

NormaliserKind = Literal["standard", "identity", "scaled", "paced"]
# A dimension that hardly moves in the data is not blown up: raw units.
STD_FLOOR = 1e-2
# Of ``paced``: how large one step of the data is to be, in units of the noise.
PACE = 0.3


class Normaliser(eqx.Module):
    """An affine change of units per dimension; a pytree whose arrays are not trained.

    Attributes:
        offset: raw value that becomes 0 [d].
        scale: raw units per standardised unit [d].
        gain: model units per standardised unit.
        gains: the same by dimension [d], instead of ``gain``; None where they are all alike.
    """

    offset: Float[Array, " d"]
    scale: Float[Array, " d"]
    gain: float = eqx.field(static=True, default=1.0)
    gains: Float[Array, " d"] | None = None

    @property
    def factor(self) -> float | Float[Array, " d"]:
        """Model units per standardised unit: one number, or one of each dimension [d]."""
        return self.gain if self.gains is None else self.gains

    @property
    def unit(self) -> Float[Array, " d"]:
        """Raw units per unit of the model's [d]."""
        return self.scale / self.factor

    def normalise(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Turn raw units into the model's [..., d]."""
        return (x - self._like(self.offset, x)) * self._like(self.factor / self.scale, x)

    def denormalise(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Turn the model's units into raw ones [..., d]."""
        return x * self._like(self.unit, x) + self._like(self.offset, x)

    def standardise(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Turn raw units into standardised ones, of size 1 whatever the gain [..., d]."""
        return (x - self._like(self.offset, x)) / self._like(self.scale, x)

    def enlarged(self, x: Float[Array, "*batch d"], power: float) -> Float[Array, "*batch d"]:
        """Turn raw units into standardised ones times the gain to a power [..., d]."""
        return self.standardise(x) * self._like(jnp.asarray(self.factor) ** power, x)

    @staticmethod
    def _like(value: Float[Array, " d"], x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        # Explicit, because implicit rank promotion hides mistakes elsewhere and is switched off
        # in tests.
        return jnp.broadcast_to(value, x.shape)


def make_normaliser(
    kind: NormaliserKind,
    mean: Float[np.ndarray, " d"],
    std: Float[np.ndarray, " d"],
    *,
    gain: float = 1.0,
    step: Float[np.ndarray, " d"] | None = None,
) -> Normaliser:
    """Return the normaliser of a kind for data with these statistics.

    Args:
        kind: ``standard``, ``identity``, ``scaled`` or ``paced``.
        mean: mean of each dimension in raw units [d]; unused by ``identity``.
        std: standard deviation of each dimension in raw units [d]; unused by ``identity``.
        gain: factor after standardisation, used by ``scaled`` alone; by ``paced`` the largest.
        step: how far each dimension moves in one step of the data, in raw units [d]; needed by
            ``paced`` alone.
    """
    mean, std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    if mean.shape != std.shape or mean.ndim != 1:
        raise ConfigError(f"normaliser: mean has shape {mean.shape}, std {std.shape}")
    if kind == "identity":
        mean, std = np.zeros_like(mean), np.ones_like(std)
    elif kind not in ("standard", "scaled", "paced"):
        known = ", ".join(map(repr, get_args(NormaliserKind)))
        raise ConfigError(f"normaliser={kind!r}: must be one of {known}")
    if kind in ("scaled", "paced") and not gain > 0:
        raise ConfigError(f"data_scale={gain}: must be above 0")
    scale = np.maximum(std, STD_FLOOR)
    return Normaliser(
        offset=jnp.asarray(mean),
        scale=jnp.asarray(scale),
        gain=float(gain) if kind == "scaled" else 1.0,
        gains=_paced(scale, step, gain) if kind == "paced" else None,
    )


def _paced(scale, step, largest: float) -> Float[Array, " d"]:
    if step is None:
        raise ConfigError("normaliser='paced': needs the data's displacement in one step")
    gains = PACE * scale / np.maximum(np.asarray(step, np.float32), 1e-8)
    return jnp.asarray(np.clip(gains, min(1.0, largest), largest).astype(np.float32))
