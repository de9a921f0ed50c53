"""Goals in hindsight: which state of the dataset a row is asked to reach.

Each row draws its kind independently, with the shares of a ``GoalMixture``; ``e`` is the last row
of the row's trajectory:

    current     the row's own state
    geometric   row + k, P(k) = (1 - discount) discount^(k-1) for k >= 1, no further than e
    uniform     any of the rows row + 1 ... e alike
    random      any row of the dataset that has a successor, alike

Paper: 0.5 geometric (0.995) and 0.5 random for the GHM; the clip at e and the meaning of "random"
are OGBench's. The mixtures of the policies are in their own files.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.data.sampling import DeviceData, sample_valid
from jumpyworld.errors import ConfigError

_KINDS = ("current", "geometric", "uniform", "random")


@dataclass(frozen=True)
class GoalMixture:
    """Shares of the kinds of goal; they sum to one. The defaults are OGBench's value goals.

    Attributes:
        current: share of goals at the row's own state.
        geometric: share of goals at a geometric offset in the row's future.
        uniform: share of goals anywhere in the row's future.
        random: share of goals anywhere in the dataset.
        discount: of the geometric law, in [0, 1); the mean offset is 1 / (1 - discount) steps.
    """

    current: float = 0.2
    geometric: float = 0.5
    uniform: float = 0.0
    random: float = 0.3
    discount: float = 0.99

    def __post_init__(self):
        for name in _KINDS:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"goal share {name}={getattr(self, name)}: must be in [0, 1]")
        if not 0 <= self.discount < 1:
            raise ConfigError(f"goal discount={self.discount}: must be in [0, 1)")
        total = math.fsum(self.shares)
        if abs(total - 1) > 1e-6:
            shares = ", ".join(f"{name}={getattr(self, name)}" for name in _KINDS)
            raise ConfigError(f"goal shares {shares} sum to {total:g}, must sum to 1")

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """The four shares in the order of the fields."""
        return self.current, self.geometric, self.uniform, self.random


def sample_goal_indices(
    data: DeviceData, key: PRNGKeyArray, index: Int[Array, " B"], mixture: GoalMixture
) -> Int[Array, " B"]:
    """Draw the row of a goal for each row.

    Args:
        data: the dataset on the device.
        key: randomness.
        index: rows, int32 [B]. A row that ends its trajectory has no future; it gets itself.
        mixture: shares and discount; static under ``jit``.

    Returns:
        Rows of goals, int32 [B].
    """
    kind_key, geometric_key, uniform_key, random_key = jax.random.split(key, 4)
    end = data.end_of_row[index]
    draws = {
        "current": lambda: index,
        "geometric": lambda: (
            index + geometric_offsets(geometric_key, end - index, mixture.discount)
        ),
        # With an empty range randint returns its lower bound, hence the minimum.
        "uniform": lambda: jnp.minimum(
            jax.random.randint(uniform_key, index.shape, index + 1, end + 1), end
        ),
        "random": lambda: sample_valid(data, random_key, index.shape),
    }
    used = [kind for kind, share in zip(_KINDS, mixture.shares, strict=True) if share > 0]
    # The last kind takes what is left, so rounding can never select a kind of share zero.
    limits = np.cumsum([getattr(mixture, kind) for kind in used[:-1]], dtype=np.float32)
    u = jax.random.uniform(kind_key, index.shape)
    goal = draws[used[-1]]()
    for kind, limit in reversed(list(zip(used[:-1], limits, strict=True))):
        goal = jnp.where(u < limit, draws[kind](), goal)
    return goal


def geometric_offsets(
    key: PRNGKeyArray, limit: Int[Array, " B"], discount: float | Float[Array, " B"]
) -> Int[Array, " B"]:
    """Draw k >= 1 with P(k) = (1 - discount) discount^(k-1), clipped to ``limit``.

    Args:
        key: randomness.
        limit: largest offset allowed per row, int32 [B].
        discount: in [0, 1), one for all or one per row.
    """
    # Floor of an exponential variable in units of -log(discount) is geometric from zero.
    if isinstance(discount, float):
        rate = -math.log(discount) if discount > 0 else math.inf
    else:
        rate = -jnp.log(discount)
    steps = _exponential(key, limit.shape) / rate
    # Clipped before the cast: a discount near one can exceed int32.
    return jnp.minimum(1 + jnp.minimum(steps, 2.0**30).astype(jnp.int32), limit)


def _exponential(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Draw unit exponentials, always above zero, with full relative precision at both ends.

    ``-log(uniform)`` in float32 moves in steps of 1e-7 near zero, which distorts P(k) for
    discounts near one, and ends at 16. Here 32 random bits b give v = (b + 1/2) / 2^32 and
    1 - v = (~b + 1/2) / 2^32, both exact to float32's relative precision.
    """
    bits = jax.random.bits(key, shape, jnp.uint32)
    v = (bits.astype(jnp.float32) + 0.5) * 2.0**-32
    u = ((~bits).astype(jnp.float32) + 0.5) * 2.0**-32
    return jnp.where(v < 0.5, -jnp.log1p(-v), -jnp.log(u))
