"""Geometric switching policies: which share of the future each policy of a sequence owns.

A sequence pi_1 -> pi_2 ... -> pi_K follows pi_k and, after every step, switches to the next policy
with probability alpha_k. With the global discount as the probability that the episode goes on,

    beta_k = discount (1 - alpha_k)              the chance of one more step under pi_k
    w_k    = (1 - discount) / (1 - beta_k)  prod_{i<k} (discount - beta_i) / (1 - beta_i)

and the successor measure of the whole is the mixture, with weights w, of chained samples of the
parts (theorem gsp sm). The weights sum to 1 - prod_k (discount - beta_k) / (1 - beta_k): to one
exactly if some beta_k equals the discount, as in the theory, where the last policy is never left.
The paper's planning table leaves that last policy too. ``tail="truncate"`` does as the table does
and drops what comes after; ``tail="absorb"`` gives it to the last policy.

Functions keep the dtype that they are given and take NumPy and JAX arrays.

Shapes: K policies in a sequence.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jumpyworld.errors import ConfigError

Tail = Literal["truncate", "absorb"]
Values = TypeVar("Values", Array, np.ndarray)


def effective_discounts(
    alphas: Float[Values, " K"] | Sequence[float], discount: float
) -> Float[Values, " K"]:
    """Return beta_k = discount (1 - alpha_k) [K] for switching probabilities in [0, 1].

    Paper: section 3.1, before definition gsp-weights.
    """
    values, discount = _as_array(alphas, "alphas"), as_discount(discount)
    _check(values, "alpha", 0.0, 1.0)
    return _kept(discount * (1.0 - values), values)


def switching_probabilities(
    betas: Float[Values, " K"] | Sequence[float], discount: float
) -> Float[Values, " K"]:
    """Return alpha_k = 1 - beta_k / discount, the inverse of ``effective_discounts`` [K]."""
    values = _as_array(betas, "betas")
    return _kept(1.0 - values / _check_discounts(values, discount), values)


def discounts_of_horizons(horizons: Sequence[float]) -> Float[np.ndarray, " K"]:
    """Return beta_k = 1 - 1 / horizon_k in float64; a horizon is a mean number of steps, >= 1.

    Paper: "effective horizons" of the planning hyperparameter table.
    """
    try:
        steps = np.asarray(horizons, np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"horizons={horizons!r}: must be numbers of steps") from error
    if steps.ndim != 1:
        raise ConfigError(f"horizons={horizons!r}: must be a sequence, one for each policy")
    for position, horizon in enumerate(steps.tolist()):
        if not (np.isfinite(horizon) and horizon >= 1):
            raise ConfigError(
                f"horizons[{position}]={horizon:g}: must be a finite number of steps, at least 1"
            )
        if 1.0 - 1.0 / horizon == 1.0:
            raise ConfigError(
                f"horizons[{position}]={horizon:g}: is too long; its discount, 1 - 1 / horizon, "
                "rounds to 1"
            )
    if not len(steps):
        raise ConfigError("horizons=(): a sequence needs at least one policy")
    return 1.0 - 1.0 / steps


def as_discount(discount: Any) -> float:
    """Return a global discount as a plain number, which widens nobody's dtype.

    Raises:
        ConfigError: it is no number in (0, 1).
    """
    try:
        value = float(discount)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"discount={discount!r}: must be a number in (0, 1)") from error
    if not 0 < value < 1:
        raise ConfigError(f"discount={value:g}: must lie in (0, 1)")
    return value


def gsp_weights(
    betas: Float[Values, " K"] | Sequence[float], discount: float, tail: Tail = "truncate"
) -> Float[Values, " K"]:
    """Return the weight of each policy of a sequence.

    Paper: definition gsp-weights. Deviation: ``absorb`` is the same definition with beta_K set to
    the discount in the weights alone, so that the model need not be asked beyond its training.

    Args:
        betas: effective discounts [K], each in [0, discount].
        discount: the global one, in (0, 1).
        tail: ``truncate`` or ``absorb``.

    Raises:
        ConfigError: a beta exceeds the discount (the message names its horizon), or a value is out
            of range. Traced values are not checked.
    """
    if tail not in ("truncate", "absorb"):
        raise ConfigError(f"tail={tail!r}: must be 'truncate' or 'absorb'")
    xp: Any = jnp if isinstance(betas, jax.Array) else np
    values = _as_array(betas, "betas")
    if values.ndim != 1 or not len(values):
        raise ConfigError(f"betas of shape {values.shape}: must be a sequence of at least one")
    discount = _check_discounts(values, discount)
    # Rounding may put a beta that is meant to equal the discount one unit above it.
    leaves: Any = xp.maximum(discount - values, 0.0) / (1.0 - values)
    arrives: Any = xp.cumprod(xp.concatenate([xp.ones_like(leaves[:1]), leaves[:-1]]))
    shares: Any = xp.minimum((1.0 - discount) / (1.0 - values), 1.0)
    weights: Any = shares * arrives
    if tail == "absorb":
        weights = xp.concatenate([weights[:-1], arrives[-1:]])
    return _kept(weights, values)


def sequence_value(
    rewards: Float[Array, "*batch K"], weights: Float[Array, " K"]
) -> Float[Array, "*batch"]:
    """Return sum_k w_k r(S_k) of chained samples: the expected reward when the episode halts.

    Paper: lemma gsp q-function, times (1 - discount). Rewards in [0, 1] so have values in [0, 1];
    divide by (1 - discount) for the return Q.

    Args:
        rewards: r(S_k) of one chain per row [..., K].
        weights: of ``gsp_weights`` [K].
    """
    # Accelerators may round the factors of a product to ten bits unless told not to.
    return jnp.matmul(rewards, weights, precision="highest")


def _as_array(values: Any, name: str) -> Any:
    """Return numbers as an array; those of JAX as they are."""
    if isinstance(values, jax.Array):
        return values
    array = np.asarray(values)
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise ConfigError(f"{name}={values!r}: must be numbers")
    return array


def _check_discounts(betas: Any, discount: float) -> float:
    discount = as_discount(discount)
    if isinstance(betas, Tracer):
        return discount
    dtype = np.asarray(betas).dtype
    # A beta may be the discount as its dtype rounds it, and no more; horizons are computed in
    # float64, in which 1 - 1 / (1 / (1 - x)) is x but for the last digits.
    rounded = float(np.asarray(discount, dtype)) if jnp.issubdtype(dtype, jnp.floating) else 0.0
    most = max(discount, rounded) + 4 * float(np.finfo(np.float64).eps)
    for beta in np.asarray(betas, np.float64).tolist():
        if not 0 <= beta < 1:
            raise ConfigError(f"beta={beta:g}: must lie in [0, 1)")
        if beta > most:
            raise ConfigError(
                f"horizons: {1 / (1 - beta):g} steps (beta={beta:g}) is longer than the "
                f"{1 / (1 - discount):g} steps of discount={discount:g}"
            )
    return discount


def _kept(found: Any, given: Any) -> Any:
    """Return what was found in the dtype that was given; whole numbers become fractions."""
    # NumPy alone would widen a bfloat16 beside a plain number.
    return found.astype(given.dtype) if jnp.issubdtype(given.dtype, jnp.floating) else found


def _check(values: Any, name: str, low: float, high: float) -> None:
    if isinstance(values, Tracer):
        return
    for value in np.asarray(values, np.float64).reshape(-1).tolist():
        if not low <= value <= high:
            raise ConfigError(f"{name}={value:g}: must lie in [{low:g}, {high:g}]")
