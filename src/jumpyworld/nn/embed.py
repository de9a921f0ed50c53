"""Embeddings of flow time and discount, and the encoder of the conditioning (s, a, z).

Paper: GHM hyperparameter table. Each part ends in one vector of the same width, and the parts are
added ("conditioning mixing: additive").

Modules are un-batched. Shapes: d state, da action, dz policy encoding, width of the conditioning.
"""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.nn.mlp import MLP, Linear, mish

GammaEmbed = Literal["gamma", "log_horizon"]


def sinusoid(
    x: Float[Array, ""], size: int, scale: float, max_period: float = 10_000.0
) -> Float[Array, " size"]:
    """Return [cos, sin] of ``scale * x`` at size / 2 frequencies from 1 down to 1 / max_period.

    Paper: "positional embedding, dim 256". The paper does not give the scale. For x in [0, 1] and
    scale 1 the fastest feature turns 0.16 times over the whole range, which leaves t and gamma
    almost invisible; scale 1000 spans 160 turns down to 0.016.

    Args:
        x: a scalar.
        size: number of features, even.
        scale: factor on x; the fastest feature turns ``scale / 2 pi`` times per unit of x.
        max_period: ratio of the fastest frequency to the slowest.
    """
    half = size // 2
    frequencies = jnp.exp(jnp.arange(half, dtype=x.dtype) * (-math.log(max_period) / half))
    angles = (scale * x) * frequencies
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])


class TimeEmbedding(eqx.Module):
    """Flow time t to a vector: sinusoid, then an MLP.

    Attributes:
        mlp: the two layers after the sinusoid.
        size: number of sinusoid features.
        scale: factor on t before the sinusoid.
    """

    mlp: MLP
    size: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(self, width: int, *, size: int, scale: float, key: PRNGKeyArray):
        self.mlp = MLP(size, (width, width), key=key)
        self.size = size
        self.scale = scale

    def __call__(self, t: Float[Array, ""]) -> Float[Array, " width"]:
        """Embed one time in [0, 1]."""
        return self.mlp(sinusoid(t, self.size, self.scale))


class DiscountEmbedding(eqx.Module):
    """Discount to a vector: sinusoid and [gamma, 1 - gamma, -log(1 - gamma)], then an MLP.

    Attributes:
        mlp: the two layers after the features.
        size: number of sinusoid features.
        scale: factor before the sinusoid.
        kind: what the sinusoid sees, ``gamma`` or ``log_horizon``.
    """

    mlp: MLP
    size: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    kind: GammaEmbed = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        *,
        size: int,
        scale: float,
        kind: GammaEmbed = "gamma",
        key: PRNGKeyArray,
    ):
        self.mlp = MLP(size + 3, (width, width), key=key)
        self.size = size
        self.scale = scale
        self.kind = kind

    def __call__(self, gamma: Float[Array, ""]) -> Float[Array, " width"]:
        """Embed one discount in [0, 1)."""
        log_horizon = -jnp.log1p(-gamma)
        # log 1000 brings horizons of 1 to 1000 steps to [0, 1], the range of gamma itself.
        seen = gamma if self.kind == "gamma" else log_horizon / math.log(1000.0)
        features = jnp.stack([gamma, 1.0 - gamma, log_horizon])
        return self.mlp(jnp.concatenate([sinusoid(seen, self.size, self.scale), features]))


class ContextEncoder(eqx.Module):
    """Encoder MLP over (s, a, z), where a learnable token can stand for the action and for z.

    The first layer is held in three parts, one per input, which is the same map as one layer over
    their concatenation. A token replaces a part's contribution, so that no action or z can be
    mistaken for a missing one.

    Paper: encoder MLP (1024, 1024, 1024), mish; "learnable token" for z = empty (ablation on the
    proposal distribution) and a = empty (proposal figure).

    Attributes:
        state: first layer's part for s, with the bias.
        action: first layer's part for a.
        z: first layer's part for z, or None if the model has no z.
        action_token: stands for a missing action [width], or None if actions are always given.
        z_token: stands for a missing z [width], or None if the model has no z.
        rest: the layers after the first.
    """

    state: Linear
    action: Linear
    z: Linear | None
    action_token: Float[Array, " width"] | None
    z_token: Float[Array, " width"] | None
    rest: MLP

    def __init__(self, state_dim: int, action_dim: int, z_dim: int, width: int, *, key):
        """Build the encoder.

        Args:
            state_dim: d.
            action_dim: da.
            z_dim: dz; 0 builds an encoder of (s, a) alone, without tokens.
            width: of every layer and of the output.
            key: randomness.
        """
        keys = jax.random.split(key, 6)
        # One layer over the concatenation would have weights of variance 1 / (d + da + dz).
        inputs = state_dim + action_dim + z_dim
        gains = [(n / inputs) ** 0.5 for n in (state_dim, action_dim, z_dim)]
        self.state = Linear(state_dim, width, key=keys[0], gain=gains[0])
        self.action = Linear(action_dim, width, key=keys[1], gain=gains[1], bias=False)
        has_z = z_dim > 0
        self.z = Linear(z_dim, width, key=keys[2], gain=gains[2], bias=False) if has_z else None
        # As large as the contribution of a standardised input.
        self.action_token = gains[1] * jax.random.normal(keys[3], (width,)) if has_z else None
        self.z_token = gains[2] * jax.random.normal(keys[4], (width,)) if has_z else None
        self.rest = MLP(width, (width, width), key=keys[5])

    def __call__(
        self,
        s: Float[Array, " d"],
        a: Float[Array, " da"] | None,
        z: Float[Array, " dz"] | None,
    ) -> Float[Array, " width"]:
        """Encode one condition; ``None`` stands for the token."""
        return self.finish(self.first(s, a, z))

    def first(
        self,
        s: Float[Array, " d"],
        a: Float[Array, " da"] | None,
        z: Float[Array, " dz"] | None,
    ) -> Float[Array, " width"]:
        """Return the first layer's output; rows with and without tokens can be joined after it."""
        action = self.action_token if a is None else self.action(a)
        if action is None:
            raise ConfigError("an action is needed: this model has no token for a missing one")
        h = self.state(s) + action
        if self.z is None or self.z_token is None:
            return h
        return h + (self.z_token if z is None else self.z(z))

    def finish(self, h: Float[Array, " width"]) -> Float[Array, " width"]:
        """Apply the layers after the first."""
        return self.rest(mish(h))
