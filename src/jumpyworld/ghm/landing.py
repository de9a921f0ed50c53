"""Where the jump of a consistency row ends: where the model says, or at a state that the data know.

    S+ ~ psi_1(X_0 | S', A', beta)                             paper
    S+ <- the nearest of N states of the data to it            ``landings=N``, from horizon 10 on

The gamma-bootstrap asks the model, and the policy, what follows S+. A sample in a wall, or an ant
with a posture that no ant has, is a place where neither was ever trained: what they say there is
anybody's guess, and the longer the horizon the more of the target rests on such guesses. States of
the data are places where both were trained. Nearness is in the model's units, in which slow
dimensions are large (``normaliser="paced"``); the N states are drawn anew at every step.

Deviation: the paper takes S+ as it is. Moving it costs a little sharpness, about the distance
between N states, so jumps of few steps, which are shorter than that, stay as they are.

Shapes: H consistency rows, N states of the data, d state.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jumpyworld.nn import Normaliser

SHORTEST = 10.0
"""Mean steps of a jump from which on it is moved."""
FAR = 1e6
"""Normalised units beyond which a jump is none: nothing can be learnt from there."""


def land(
    jumps: Float[Array, "H d"],
    beta: Float[Array, " H"],
    known: Float[Array, "N d"] | None,
    units: Normaliser,
) -> Float[Array, "H d"]:
    """Return where jumps end, in raw units.

    Args:
        jumps: samples of the model in its units [H, d].
        beta: their discounts [H].
        known: states of the data in raw units [N, d]; None leaves the jumps where they are.
        units: the model's.
    """
    free = units.denormalise(jumps)
    if known is None:
        return free
    there = units.normalise(known)
    # |x - y|^2 without the |x|^2 that all have in common: a product of matrices, in full precision
    # because small differences of large numbers decide.
    product = jnp.matmul(jumps, there.T, precision="highest")
    gap = jnp.sum(jnp.square(there), axis=-1)[None] - 2.0 * product
    nearest = known[jnp.argmin(gap, axis=-1)]
    # A hair below, as 1 / (1 - .9) is 10.000002 or 9.999998 by the rounding of .9.
    moved = 1.0 / (1.0 - beta) > SHORTEST - 1e-3
    # A jump that is none must not pass for a state: the loss, and ``ahead``, have to see it.
    moved &= jnp.all(jnp.abs(jumps) < FAR, axis=-1)
    return jnp.where(moved[:, None], nearest, free)
