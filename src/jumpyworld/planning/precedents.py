"""Jumps that the data have made: what a planner may believe of a model where it knows nothing.

    places       k-means of the features that decide a task (a maze's positions)
    precedented  from each place, the fewest places that hold ``share`` of the data's own jumps at
                 a discount
    keep         a model's jump to any other place is refused: the chain stays where it was

A policy that is sent to a goal behind a wall pushes against the wall. Navigation data hold almost
no such pushes (2 in 10,000 rows of pointmaze-large), so no model can learn from them that the way
is blocked: it says that the policy arrives, and a planner, which looks for the best of many
answers, believes it above all others. The data do know which places follow which. Not in the paper.

Shapes: N rows, C places, H horizons, p features, R rows of states of width d.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jumpyworld.domains import Domain
from jumpyworld.errors import ConfigError

PLACES, SHARE = 200, 0.9
_DRAWS, _FITTED, _AT_ONCE, _ROUNDS = 20, 20_000, 20_000, 10


class Precedents(eqx.Module):
    """Which places the data go to from which, at each mean horizon of a plan.

    Attributes:
        centres: of the places [C, p].
        betas: discounts of the horizons [H].
        precedented: whether the data go from one place to another [H, C, C].
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
    """The data as sequences of places, from which the precedents of any horizon are counted.

    Attributes:
        centres: of the places [C, p].
        labels: the place of each row [N].
        ends: last row of each trajectory [E].
        features: states [..., d] to what places are made of [..., p].
        share: of the data's jumps from a place that count as precedents, the most usual first.
        seed: of the jumps' lengths.
    """

    centres: Float[np.ndarray, "C p"]
    labels: Int[np.ndarray, " N"]
    ends: Int[np.ndarray, " E"]
    features: Callable[[Any], Any]
    share: float = SHARE
    seed: int = 0

    def precedents(self, betas: Float[np.ndarray, " K"]) -> Precedents:
        """Count the data's jumps at the discounts of a plan."""
        rng, different = np.random.default_rng(self.seed), np.unique(np.asarray(betas))
        usual = [
            usual_places(
                count_jumps(self.labels, self.ends, float(beta), len(self.centres), rng), self.share
            )
            for beta in different
        ]
        return Precedents(
            jnp.asarray(self.centres),
            jnp.asarray(different, jnp.float32),
            jnp.asarray(np.stack(usual)),
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
        share: of the data's jumps that count as precedents.
        seed: of everything.

    Raises:
        ConfigError: a number is out of range.
    """
    x = np.asarray(features(observations), np.float32)
    if not 0 < share <= 1:
        raise ConfigError(f"share={share:g}: must be above 0 and at most 1")
    if not 1 <= number <= len(x):
        raise ConfigError(f"number={number}: must be at least 1 and at most {len(x)}, the rows")
    rng = np.random.default_rng(seed)
    fitted = x[rng.choice(len(x), min(len(x), max(_FITTED, number)), replace=False)]
    centres = _cluster(fitted, number, rng)
    labels = [_nearest(x[a : a + _AT_ONCE], centres, np) for a in range(0, len(x), _AT_ONCE)]
    return Places(centres, np.concatenate(labels), np.asarray(ends), features, share, seed)


@dataclass(frozen=True)
class GoalFeatures:
    """What decides a domain's tasks, as one vector; equal for equal domains."""

    domain: Domain

    def __call__(self, states: Any) -> Any:
        """Return [..., k * p] of states [..., d]."""
        parts = self.domain.goal_features(states)
        return parts.reshape((*parts.shape[:-2], -1))


def count_jumps(
    labels: Int[np.ndarray, " N"],
    ends: Int[np.ndarray, " E"],
    beta: float,
    places: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, "C C"]:
    """Count how often a trajectory is at j a Geometric(1 - beta) number of steps after i.

    Jumps past a trajectory's end do not count.
    """
    rows = np.arange(len(labels))
    last = np.asarray(ends)[np.searchsorted(ends, rows)]
    counts = np.zeros(places * places, np.int64)
    for _ in range(_DRAWS):
        later = rows + rng.geometric(1 - beta, len(rows))
        inside = later <= last
        pairs = labels[rows[inside]] * places + labels[later[inside]]
        counts += np.bincount(pairs, minlength=places * places)
    return counts.reshape(places, places)


def usual_places(counts: Int[np.ndarray, "C C"], share: float) -> Bool[np.ndarray, "C C"]:
    """Return, for each row, the fewest entries that hold ``share`` of its counts; and itself."""
    order = np.argsort(-counts, axis=1, kind="stable")
    held = np.cumsum(np.take_along_axis(counts, order, 1), 1)
    before = np.concatenate([np.zeros((len(counts), 1), held.dtype), held[:, :-1]], 1)
    usual = np.zeros(counts.shape, bool)
    np.put_along_axis(usual, order, before < share * held[:, -1:], 1)
    return (usual & (counts > 0)) | np.eye(len(counts), dtype=bool)


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
