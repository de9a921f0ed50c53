"""Which discounts a row is trained at.

Laws on [gamma_min, gamma_max], cut off at an upper end of each row's own for beta:

    uniform       in the discount itself: the paper's, horizons above 50 in 1.6 % of rows
    log_uniform   in the logarithm of the horizon 1 / (1 - gamma): every octave alike
    mixture       half and half

and for beta alone, given gamma:

    ratio         the horizon 1 / (1 - beta) is 1.5 to 4 times shorter, evenly in the logarithm

Shapes: B rows.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.ghm.config import BetaLaw, DiscountLaw, GHMConfig

RATIOS = (1.5, 4.0)
"""Of the horizon that is learnt to the one it is learnt from, under the law ``ratio``.

A future at horizon H is then a chain of jumps of H / r, r of them on average: fewer jumps add up
fewer errors, and longer jumps have larger ones.
"""


def sample_discounts(
    key: PRNGKeyArray,
    upper: Float[Array, " B"],
    law: DiscountLaw,
    gamma_min: float,
    gamma_max: float,
) -> Float[Array, " B"]:
    """Draw discounts from a law on [gamma_min, gamma_max], given that they are at most ``upper``.

    Paper: gamma ~ U([gamma_min, gamma_max]) is law ``uniform`` with ``upper = gamma_max``;
    beta ~ U([gamma_min, gamma]) is the same with ``upper = gamma``.

    Args:
        key: randomness.
        upper: largest discount of each row, in [gamma_min, gamma_max] [B].
        law: ``uniform``, ``log_uniform`` or ``mixture``.
        gamma_min: lower end of the law.
        gamma_max: upper end of the law, below 1.
    """
    value_key, kind_key = jax.random.split(key)
    u = jax.random.uniform(value_key, upper.shape, upper.dtype)
    uniform = gamma_min + u * (upper - gamma_min)
    log_min, log_max = -math.log1p(-gamma_min), -math.log1p(-gamma_max)
    log_upper = -jnp.log1p(-upper)
    log_uniform = -jnp.expm1(-(log_min + u * (log_upper - log_min)))
    if law == "mixture":
        # The cut-off keeps a different share of each half, so the odds are no longer even.
        mass_uniform = (upper - gamma_min) / (gamma_max - gamma_min)
        mass_log = (log_upper - log_min) / (log_max - log_min)
        share = mass_uniform / jnp.maximum(mass_uniform + mass_log, 1e-12)
        pick = jax.random.uniform(kind_key, upper.shape, upper.dtype) < share
        drawn = jnp.where(pick, uniform, log_uniform)
    else:
        drawn = uniform if law == "uniform" else log_uniform
    # Rounding may overstep either end by one unit in the last place.
    return jnp.clip(drawn, min(gamma_min, 1.0), upper)


def sample_betas(
    key: PRNGKeyArray,
    gamma: Float[Array, " B"],
    law: BetaLaw,
    gamma_min: float,
    gamma_max: float,
) -> Float[Array, " B"]:
    """Draw the shorter discount of each consistency row, at most its gamma.

    Paper: beta ~ U([gamma_min, gamma]). Deviation: the law ``ratio``, under which the paper's
    equation holds as for any beta below gamma.
    """
    if law != "ratio":
        return sample_discounts(key, gamma, law, gamma_min, gamma_max)
    low, high = map(math.log, RATIOS)
    ratio = jnp.exp(jax.random.uniform(key, gamma.shape, gamma.dtype, low, high))
    return jnp.clip(1 - ratio * (1 - gamma), min(gamma_min, 1.0), gamma)


def longest_discount(step: Int[Array, ""], config: GHMConfig) -> Float[Array, ""] | float:
    """Return the largest discount trained at a step: constant (paper), or growing.

    Deviation: what is learnt of a long horizon before short ones are right is learnt from wrong
    targets. With ``curriculum`` the horizon grows from 2 to the longest, evenly in its logarithm.
    """
    if config.curriculum == 0 or config.gamma_max <= 0.5:
        return config.gamma_max
    done = jnp.minimum(step.astype(jnp.float32) / (config.curriculum * config.gradient_steps), 1.0)
    first, last = math.log(2.0), -math.log1p(-config.gamma_max)
    longest = -jnp.expm1(-(first + done * (last - first)))
    return jnp.clip(longest, config.gamma_min, config.gamma_max)
