"""Targets several steps ahead, along what the data did: fewer bootstraps for a long horizon.

    a row (S_0, A_0) whose goal z is the state K steps later in its own trajectory, N <= K:
      m_gamma(. | S_0, A_0) = (1 - gamma) sum over k = 1 ... N of gamma^(k-1) delta_{S_k}
                              + gamma^N m_gamma(. | S_N, A_N),   A_N ~ pi_z(S_N)
      N = share of the horizon 1 / (1 - gamma), at least 1

Each bootstrap adds the error of a network, and one step at a time a horizon of 200 takes 200 of
them; with N a tenth of the horizon it takes ten. The sum is one draw, S_k with P(k) ~ gamma^(k-1),
and has the weight 1 - gamma^N.

Deviation: the paper looks one step ahead, which is right for any policy. This needs the states on
the way to be those that pi_z would pass. They are, exactly, if pi_z imitates the data given a goal
that they reached a geometric time later (GC-BC at ``goal_discount``), the data's behaviour was
Markov and the environment has no noise of its own: the law of a trajectory, given that it is at z
when a geometric clock rings, is that of pi_z, and the clock has no memory. For other policies, as
those that maximise a value, it is biased towards the behaviour. Rows whose goal lies elsewhere look
one step ahead; unconditional rows, which are about the behaviour itself, look as far as their
trajectory goes.

Shapes: B rows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.data.sampling import DeviceData


def spans(
    data: DeviceData,
    index: Int[Array, " B"],
    goal: Int[Array, " B"],
    gamma: Float[Array, " B"],
    share: float,
    conditional: int,
) -> Int[Array, " B"]:
    """Return N of each row.

    Args:
        data: dataset on the device.
        index: rows [B].
        goal: rows of their goals [B].
        gamma: discounts [B].
        share: of the horizon.
        conditional: rows from here on are unconditional.
    """
    left = data.end_of_row[index] - index
    offset = goal - index
    ahead = jnp.where((offset >= 1) & (offset <= left), offset, 1)
    furthest = jnp.where(jnp.arange(len(index)) < conditional, ahead, left)
    # The small part: 1 / (1 - .99) is 99.99999 in float32, and a tenth of it is ten.
    wanted = jnp.floor(share / (1.0 - gamma) + 1e-3).astype(jnp.int32)
    return jnp.clip(wanted, 1, furthest)


def times_on_the_way(
    key: PRNGKeyArray, span: Int[Array, " B"], gamma: Float[Array, " B"]
) -> Int[Array, " B"]:
    """Draw k in 1 ... N with P(k) ~ gamma^(k-1)."""
    u = jax.random.uniform(key, span.shape, gamma.dtype)
    inside = u * -jnp.expm1(span.astype(gamma.dtype) * jnp.log(gamma))  # u (1 - gamma^N)
    k = 1 + jnp.floor(jnp.log1p(-inside) / jnp.log(gamma)).astype(jnp.int32)
    return jnp.where(span > 1, jnp.clip(k, 1, span), 1)
