"""Jumps that the data could have made: what a planner may believe of a model that knows no walls.

    places       k-means of the features that decide a task (a maze's positions)
    hops         from place to place the fewest stretches of ``LAG`` steps, each of which some
                 trajectory has made; trajectories are stitched where they meet
    keep         a model's jump that needs more steps than a geometric number of them has, but for
                 one time in ten, is refused: the chain stays where it was

A policy that is sent to a goal behind a wall pushes against the wall. Navigation data hold almost
no such pushes (2 in 10,000 rows of pointmaze-large), so no model can learn from them that the way
is blocked: it says that the policy arrives, and a planner, which looks for the best of many
answers, believes it above all others. The data do know how long the way round takes. Not in the
paper.

Shapes: N rows, C places, H horizons, p features, R rows of states of width d.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jumpyworld.domains import Domain
from jumpyworld.errors import ConfigError

PLACES, SHARE, LAG = 200, 0.9, 25
_FITTED, _AT_ONCE, _ROUNDS = 20_000, 20_000, 10


class Precedents(eqx.Module):
    """Which places can be reached from which in a jump, at each discount of a plan.

    Attributes:
        centres: of the places [C, p].
        betas: discounts of the horizons [H].
        precedented: whether the data get from one place to another in time [H, C, C].
        features: states [..., d] to what places are made of [..., p].
    """

    centres: Float[Array, "C p"]
    betas: Float[Array, " H"]
    precedented: Bool[Array, "H C C"]
    features: Callable[[Any], Any] = eqx.field(static=True)

    def keep(
        self, states: Float[Array, "R d"], successors: Float[Array, "R d"], beta: Float[Array, ""]
    ) -> Float[Array, "R d"]:
        """Return the successors, and the states themselves where the data know no such jump.

        A successor that is not finite stays as it is, for the planner to see.
        """
        horizon = jnp.argmin(jnp.abs(self.betas - beta.astype(self.betas.dtype)))
        known = self.precedented[horizon, self._place(states), self._place(successors)]
        known |= ~jnp.isfinite(successors).all(-1)
        return jnp.where(known[:, None], successors, states.astype(successors.dtype))

    def _place(self, states: Float[Array, "R d"]) -> Int[Array, " R"]:
        return _nearest(self.features(states).astype(self.centres.dtype), self.centres, jnp)


@dataclass(frozen=True, eq=False)
class Places:
    """Where the data have been, and how long they take from there to there.

    Attributes:
        centres: of the places [C, p].
        hops: stretches of ``LAG`` steps from place to place [C, C]; -1 where there is no way.
        features: states [..., d] to what places are made of [..., p].
        share: of a jump's geometric lengths that must not suffice before it is refused.
    """

    centres: Float[np.ndarray, "C p"]
    hops: Int[np.ndarray, "C C"]
    features: Callable[[Any], Any]
    share: float = SHARE

    def precedents(self, betas: Float[np.ndarray, " K"]) -> Precedents:
        """Return what can be reached at the discounts of a plan."""
        different = np.unique(np.asarray(betas, np.float64))
        most = [max(1, long_jump(beta, self.share) // LAG) for beta in different]
        reached = np.stack([(self.hops >= 0) & (self.hops <= hops) for hops in most])
        return Precedents(
            jnp.asarray(self.centres),
            jnp.asarray(different, jnp.float32),
            jnp.asarray(reached),
            self.features,
        )


def find_places(
    observations: Float[np.ndarray, "N d"],
    ends: Int[np.ndarray, " E"],
    features: Callable[[Any], Any],
    *,
    number: int = PLACES,
    share: float = SHARE,
    seed: int = 0,
) -> Places:
    """Cut the data into places.

    Args:
        observations: of all trajectories, one after the other.
        ends: last row of each trajectory.
        features: states to the coordinates that matter; the same object in every call, so that
            planners share compiled programs.
        number: places.
        share: of a jump's geometric lengths that must not suffice before it is refused.
        seed: of the places.

    Raises:
        ConfigError: a number is out of range.
    """
    x = np.asarray(features(observations), np.float32)
    if not 0 < share < 1:
        raise ConfigError(f"share={share:g}: must lie in (0, 1)")
    if not 1 <= number <= len(x):
        raise ConfigError(f"number={number}: must be at least 1 and at most {len(x)}, the rows")
    rng = np.random.default_rng(seed)
    fitted = x[rng.choice(len(x), min(len(x), max(_FITTED, number)), replace=False)]
    centres = _cluster(fitted, number, rng)
    labels = [_nearest(x[a : a + _AT_ONCE], centres, np) for a in range(0, len(x), _AT_ONCE)]
    return Places(centres, count_hops(np.concatenate(labels), ends, number), features, share)


@dataclass(frozen=True)
class GoalFeatures:
    """What decides a domain's tasks, as one vector; equal for equal domains."""

    domain: Domain

    def __call__(self, states: Any) -> Any:
        """Return [..., k * p] of states [..., d]."""
        parts = self.domain.goal_features(states)
        return parts.reshape((*parts.shape[:-2], -1))


def count_hops(
    labels: Int[np.ndarray, " N"], ends: Int[np.ndarray, " E"], places: int
) -> Int[np.ndarray, "C C"]:
    """Return the fewest stretches of ``LAG`` steps that lead from place to place, -1 for no way.

    A stretch is what some trajectory did; one that ends sooner makes its last stretch shorter.
    """
    rows = np.arange(len(labels))
    last = np.asarray(ends)[np.searchsorted(ends, rows)]
    made = np.eye(places, dtype=bool)
    made[labels, labels[np.minimum(rows + LAG, last)]] = True
    hops = np.where(np.eye(places, dtype=bool), 0, -1)
    reached, step = hops == 0, 0
    while True:
        step += 1
        further = (reached.astype(np.float32) @ made.astype(np.float32)) > 0
        if (further == reached).all():
            return hops
        hops[further & ~reached] = step
        reached = further


def long_jump(beta: float, share: float) -> int:
    """Return the number of steps that Geometric(1 - beta) does not exceed in ``share`` of cases."""
    return 1 if beta <= 0 else math.ceil(math.log(1 - share) / math.log(beta) - 1e-9)


def _cluster(x: Float[np.ndarray, "N p"], number: int, rng: np.random.Generator) -> np.ndarray:
    """Return the centres of Lloyd's k-means, begun at random rows."""
    centres = x[rng.choice(len(x), number, replace=False)]
    for _ in range(_ROUNDS):
        labels = _nearest(x, centres, np)
        count = np.bincount(labels, minlength=number)[:, None]
        total = np.stack([np.bincount(labels, column, number) for column in x.T], axis=1)
        centres = np.where(count > 0, total / np.maximum(count, 1), centres).astype(np.float32)
    return centres


def _nearest(x: Any, centres: Any, xp: Any) -> Any:
    """Return which centre [C, p] is nearest to each row [R, p]."""
    gaps = x[:, None, :] - centres[None]
    return xp.argmin((gaps * gaps).sum(-1), axis=-1)
