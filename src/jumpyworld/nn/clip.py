"""Gradient clipping that needs no scale: a spike is many times what is usual.

    g <- g min(1, ratio typical / |g|)
    log typical <- decay log typical + (1 - decay) log |g|          of the g that was let through

One row far from all others (a quaternion that changes sign between two states) has a gradient ten
times the usual one of a whole batch. Adam divides by a root mean square over a thousand steps, of
which one spike is little, but follows its direction for ten steps with a tenth of it each: the
weights go further than in hundreds of steps before, and a network thrown out like that has
gradients ten thousand times the usual ones, which Adam remembers for thousands of steps.

The typical norm is a geometric mean, so that it follows a trend (norms fall in training) and a
spike that was let through in part moves it by a hundredth of the logarithm of ``ratio``. Norms that
stay larger are let through once it has grown to them, at most 1.1 % a step with a ratio of 3.

Optax clips by a norm in absolute units, which each domain would need one of its own of, or by the
size of the weights. Deviation: the paper does not clip.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

DECAY = 0.99
# What is smaller has no logarithm to learn from: all of a batch may be masked.
SMALLEST = 1e-30


class TypicalNorm(NamedTuple):
    """State of ``clip_to_typical``: the logarithm of the typical norm, once there has been one."""

    log_norm: Float[Array, ""]
    known: Bool[Array, ""]


def clip_to_typical(ratio: float) -> optax.GradientTransformation:
    """Return a transformation that shrinks gradients larger than ``ratio`` times the typical one.

    Args:
        ratio: above 1; the first gradient is never clipped.
    """

    def init(params) -> TypicalNorm:
        del params
        return TypicalNorm(jnp.zeros((), jnp.float32), jnp.zeros((), bool))

    def update(updates, state, params=None):
        del params
        norm = optax.tree.norm(updates)
        log_norm = jnp.log(jnp.maximum(norm, SMALLEST))
        typical = jnp.where(state.known, state.log_norm, log_norm)
        allowed = jnp.minimum(log_norm, typical + jnp.log(ratio))
        factor = jnp.exp(allowed - log_norm)
        clipped = jax.tree.map(lambda g: g * factor.astype(g.dtype), updates)
        moved = DECAY * typical + (1 - DECAY) * allowed
        tells = norm > SMALLEST
        after = TypicalNorm(jnp.where(tells, moved, state.log_norm), state.known | tells)
        return clipped, after

    return optax.GradientTransformation(init, update)
