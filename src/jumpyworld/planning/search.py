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

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jumpyworld.errors import ConfigError, check_whole
from jumpyworld.planning.estimate import Question, candidate_totals
from jumpyworld.planning.inputs import check_size

Rounds = tuple[tuple[int, int], ...]
"""(count, samples) of each round."""


@dataclass(frozen=True)
class Uniform:
    """Every candidate gets the same number of chains.

    Paper: algorithm compplan, "eval samples" of the planning table.

    Attributes:
        samples: N.
        slices: rounds in which they are spent; a time budget can stop between rounds. With one it
            stops between candidates.
        common_noise: same noise for every candidate. The paper draws it afresh.
        fresh: chains that estimate the winner's value anew, free of the bias of having won.
    """

    samples: int
    slices: int = 1
    common_noise: bool = False
    fresh: int = 0

    def __post_init__(self) -> None:
        check_size("samples", self.samples, 1)
        check_whole("slices", self.slices, 1)
        check_size("fresh", self.fresh, 0)
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
        try:
            rounds = tuple((count, samples) for count, samples in self.rounds)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"rounds={self.rounds!r}: must be pairs (count, samples), one for each round"
            ) from error
        object.__setattr__(self, "rounds", rounds)
        if not self.rounds:
            raise ConfigError("rounds=(): must have at least one round")
        for count, samples in self.rounds:
            check_whole("rounds: count", count, 1)
            check_size("rounds: samples", samples, 1)
        counts = [count for count, _ in self.rounds]
        if counts != sorted(counts, reverse=True):
            raise ConfigError(f"rounds={self.rounds}: counts must not grow")
        check_size("fresh", self.fresh, 0)

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
        """Whether no candidate has a value other than zero, and some have that.

        Where some are below zero it is a choice like any other, and zero may be the best. Where no
        value is finite nothing is known, which is something else.
        """
        means = self.means
        known = jnp.isfinite(means)
        return known.any() & ~jnp.any(known & (means != 0))

    @property
    def sound(self) -> Bool[Array, " M"]:
        """Which candidates could be followed: their z and a_1 are finite."""
        return jnp.isfinite(self.z).all((1, 2)) & jnp.isfinite(self.actions).all(1)


def open_pool(
    z: Float[Array, "M K dz"],
    actions: Float[Array, "M da"],
    protected: Bool[Array, " M"],
    num_rounds: int,
) -> Pool:
    """Return a pool before the first round; candidates with a z or a_1 not finite are worth NaN."""
    spent = jnp.zeros((num_rounds, len(z)), jnp.int32)
    # Of the states' dtype and not of z's: sums of thousands of values outgrow 16 bits.
    zero, everyone = jnp.zeros(len(z)), jnp.ones(len(z), bool)
    pool = Pool(z, actions, zero, spent, everyone, protected)
    totals = jnp.where(pool.sound, zero, jnp.full_like(zero, jnp.nan))
    return dataclasses.replace(pool, totals=totals)


def play_part(
    key: PRNGKeyArray,
    question: Question,
    pool: Pool,
    search: Uniform,
    first: Int[Array, ""],
    size: int,
    *,
    shared_action: bool,
) -> Pool:
    """Return the pool after some candidates had all chains that a uniform search gives them.

    All parts together are the one round of the search, number for number; those that were not
    played are worth NaN, and cannot win.

    Args:
        key: randomness of the search.
        question: what candidates are judged by.
        pool: before.
        search: of one round.
        first: number of the first candidate; a traced value, as all parts are one program.
        size: candidates of a part; numbers beyond the last are nobody.
        shared_action: whether all chains of a candidate begin with its a_1 (objective ``q``).
    """
    picks = first + jnp.arange(size)
    totals = candidate_totals(
        jax.random.fold_in(key, 0),
        question,
        pool.actions[picks] if shared_action else None,
        pool.z[picks],
        search.samples,
        common_noise=search.common_noise,
        part=(picks, len(pool.z)),
    )
    return dataclasses.replace(
        pool,
        totals=pool.totals.at[picks].add(totals.astype(pool.totals.dtype), mode="drop"),
        spent=pool.spent.at[0, picks].set(search.samples, mode="drop"),
    )


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
