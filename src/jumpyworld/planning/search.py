"""How chains are spent on candidates.

    Uniform(256)                                      the paper: the same number for each
    Elimination(((256, 16), (32, 48), (4, 192)))      a few wide rounds; the best go on

A round gives ``samples`` chains to each of the ``count`` best candidates so far, by running mean.
The winner is the best of the last round's. A candidate that ever scored NaN or infinity ranks last
and never wins. On a bandit with the paper's sizes the rounds above decide as well as 256 chains for
each of 256 candidates, with a tenth of the chains; few wide rounds suit an accelerator better than
many halvings.

Shapes: M candidates, K segments, T rounds, da action, dz policy-encoding dimensions.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

from dataclasses import dataclass
from numbers import Integral

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.planning.estimate import Question, candidate_totals

Rounds = tuple[tuple[int, int], ...]
"""(count, samples) of each round."""


@dataclass(frozen=True)
class Uniform:
    """Every candidate gets the same number of chains.

    Paper: algorithm compplan, "eval samples" of the planning table.

    Attributes:
        samples: N.
        slices: rounds in which they are spent; a time budget can stop between rounds.
        common_noise: same noise for every candidate. The paper draws it afresh.
        fresh: chains that estimate the winner's value anew, free of the bias of having won.
    """

    samples: int
    slices: int = 1
    common_noise: bool = False
    fresh: int = 0

    def __post_init__(self) -> None:
        _check("samples", self.samples, 1)
        _check("slices", self.slices, 1)
        _check("fresh", self.fresh, 0)
        if self.samples % self.slices:
            raise ConfigError(f"slices={self.slices}: must divide samples={self.samples}")

    def schedule(self, num_candidates: int) -> Rounds:
        """Return the rounds for a number of candidates."""
        return ((num_candidates, self.samples // self.slices),) * self.slices


@dataclass(frozen=True)
class Elimination:
    """Rounds of ever fewer candidates with ever more chains.

    Attributes:
        rounds: (count, samples) of each round; counts do not grow. The first round takes all
            candidates there are, which its count must not fall short of.
        common_noise: same noise for every candidate of a round.
        fresh: chains that estimate the winner's value anew, free of the bias of having won.
    """

    rounds: Rounds = ((256, 16), (32, 48), (4, 192))
    common_noise: bool = True
    fresh: int = 0

    def __post_init__(self) -> None:
        # Searches are compared and hashed to find compiled programs, which lists cannot be.
        rounds = tuple((count, samples) for count, samples in self.rounds)
        object.__setattr__(self, "rounds", rounds)
        if not self.rounds:
            raise ConfigError("rounds=(): must have at least one round")
        for count, samples in self.rounds:
            _check("rounds: count", count, 1)
            _check("rounds: samples", samples, 1)
        counts = [count for count, _ in self.rounds]
        if counts != sorted(counts, reverse=True):
            raise ConfigError(f"rounds={self.rounds}: counts must not grow")
        _check("fresh", self.fresh, 0)

    def schedule(self, num_candidates: int) -> Rounds:
        """Return the rounds for a number of candidates."""
        (_, samples), *later = self.rounds
        return (
            (num_candidates, samples),
            *((min(count, num_candidates), samples) for count, samples in later),
        )


Search = Uniform | Elimination


class Pool(eqx.Module):
    """Candidates and what is known of them so far.

    Attributes:
        z: sequences [M, K, dz].
        actions: a_1 of each [M, da].
        totals: sums of the chains' values [M].
        spent: chains given to each candidate in each round [T, M].
        alive: candidates of the last round [M].
        protected: candidates that stay to the end whatever they score [M].
    """

    z: Float[Array, "M K dz"]
    actions: Float[Array, "M da"]
    totals: Float[Array, " M"]
    spent: Int[Array, "T M"]
    alive: Bool[Array, " M"]
    protected: Bool[Array, " M"]

    @property
    def means(self) -> Float[Array, " M"]:
        """Mean value of each candidate; NaN where nothing was spent or something went wrong."""
        return self.totals / self.spent.sum(0).astype(self.totals.dtype)

    @property
    def scores(self) -> Float[Array, " M"]:
        """Mean values, minus infinity where they are not finite."""
        means = self.means
        return jnp.where(jnp.isfinite(means), means, jnp.full_like(means, -jnp.inf))

    @property
    def no_reward(self) -> Bool[Array, ""]:
        """Whether no candidate has a value other than zero.

        Where some are below zero it is a choice like any other, and zero may be the best.
        """
        means = self.means
        return ~jnp.any(jnp.isfinite(means) & (means != 0))


def open_pool(
    z: Float[Array, "M K dz"],
    actions: Float[Array, "M da"],
    protected: Bool[Array, " M"],
    num_rounds: int,
) -> Pool:
    """Return a pool before the first round; candidates with a z or a_1 not finite are worth NaN."""
    sound = jnp.isfinite(z).all((1, 2)) & jnp.isfinite(actions).all(1)
    totals = jnp.where(sound, jnp.zeros_like(z[:, 0, 0]), jnp.full_like(z[:, 0, 0], jnp.nan))
    spent = jnp.zeros((num_rounds, len(z)), jnp.int32)
    return Pool(z, actions, totals, spent, jnp.ones(len(z), bool), protected)


def play_round(
    key: PRNGKeyArray,
    question: Question,
    pool: Pool,
    search: Search,
    number: int,
    *,
    shared_action: bool,
    protects: int,
) -> Pool:
    """Return the pool after one more round.

    Args:
        key: randomness of the search; each round has its own.
        question: what candidates are judged by.
        pool: before the round.
        search: the schedule.
        number: which round, from 0; static.
        shared_action: whether all chains of a candidate begin with its a_1 (objective ``q``).
        protects: protected candidates; they play beside the ``count`` best.
    """
    count, samples = search.schedule(len(pool.z))[number]
    count = min(count + protects, len(pool.z))
    if number and count < len(pool.z):
        scores = jnp.where(pool.protected, jnp.full_like(pool.scores, jnp.inf), pool.scores)
        # Below even those that scored NaN, so that nobody comes back.
        scores = jnp.where(pool.alive, jnp.maximum(scores, -1e30), scores - jnp.inf)
        picks = jax.lax.top_k(scores, count)[1]
    else:
        picks = jnp.arange(len(pool.z))
    totals = candidate_totals(
        jax.random.fold_in(key, number),
        question,
        pool.actions[picks] if shared_action else None,
        pool.z[picks],
        samples,
        common_noise=search.common_noise,
    )
    return Pool(
        pool.z,
        pool.actions,
        pool.totals.at[picks].add(totals.astype(pool.totals.dtype)),
        pool.spent.at[number, picks].set(samples),
        jnp.zeros_like(pool.alive).at[picks].set(True),
        pool.protected,
    )


def _check(name: str, value: int, least: int) -> None:
    if not (isinstance(value, Integral) and value >= least):
        raise ConfigError(f"{name}={value}: must be a whole number, at least {least}")
