"""Raw units to the model's units and back, as part of the model.

    normalised = gain * (raw - offset) / scale

``standard`` standardises each dimension; ``identity`` leaves units alone; ``scaled`` standardises
and multiplies by a gain, so that one step of the system is not lost under noise of unit size.

Deviation: the paper is silent on normalisation; only the ``paper`` preset's choice is literal in
that its gain is 1.
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jumpyworld.errors import ConfigError

NormaliserKind = Literal["standard", "identity", "scaled"]
# A dimension that hardly moves in the data is not blown up: raw units.
STD_FLOOR = 1e-2


class Normaliser(eqx.Module):
    """An affine change of units per dimension; a pytree whose arrays are not trained.

    Attributes:
        offset: raw value that becomes 0 [d].
        scale: raw units per standardised unit [d].
        gain: model units per standardised unit.
    """

    offset: Float[Array, " d"]
    scale: Float[Array, " d"]
    gain: float = eqx.field(static=True, default=1.0)

    def normalise(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Turn raw units into the model's [..., d]."""
        return (x - self._like(self.offset, x)) * self._like(self.gain / self.scale, x)

    def denormalise(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Turn the model's units into raw ones [..., d]."""
        return x * self._like(self.scale / self.gain, x) + self._like(self.offset, x)

    def standardise(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Turn raw units into standardised ones, of size 1 whatever the gain [..., d]."""
        return (x - self._like(self.offset, x)) / self._like(self.scale, x)

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
) -> Normaliser:
    """Return the normaliser of a kind for data with these statistics.

    Args:
        kind: ``standard``, ``identity`` or ``scaled``.
        mean: mean of each dimension in raw units [d]; unused by ``identity``.
        std: standard deviation of each dimension in raw units [d]; unused by ``identity``.
        gain: factor after standardisation; used by ``scaled`` alone.
    """
    mean, std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    if mean.shape != std.shape or mean.ndim != 1:
        raise ConfigError(f"normaliser: mean has shape {mean.shape}, std {std.shape}")
    if kind == "identity":
        mean, std = np.zeros_like(mean), np.ones_like(std)
    elif kind not in ("standard", "scaled"):
        raise ConfigError(f"normaliser={kind!r}: must be 'standard', 'identity' or 'scaled'")
    if kind == "scaled" and not gain > 0:
        raise ConfigError(f"data_scale={gain}: must be above 0")
    return Normaliser(
        offset=jnp.asarray(mean),
        scale=jnp.asarray(np.maximum(std, STD_FLOOR)),
        gain=float(gain) if kind == "scaled" else 1.0,
    )
