"""The straight path from noise to data, and the velocity that follows it.

Paper: the conditional optimal-transport path with sigma = 0 (GHM hyperparameter table), which the
one-step terms of Eqs. td-flow and td-hc regress on.

Shapes: d state dimension; leading axes are a batch.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def interpolate(
    x0: Float[Array, "*batch d"], x1: Float[Array, "*batch d"], t: Float[Array, "*batch"]
) -> Float[Array, "*batch d"]:
    """Return the point X_t = (1 - t) X_0 + t X_1 of the straight path.

    Args:
        x0: noise [..., d].
        x1: data [..., d].
        t: time in [0, 1] [...], one per sample.
    """
    t = jnp.expand_dims(t, -1)
    return (1.0 - t) * x0 + t * x1


def target_velocity(
    x0: Float[Array, "*batch d"], x1: Float[Array, "*batch d"]
) -> Float[Array, "*batch d"]:
    """Return dX_t/dt = X_1 - X_0 of the straight path, the same at every t.

    Args:
        x0: noise [..., d].
        x1: data [..., d].
    """
    return x1 - x0
