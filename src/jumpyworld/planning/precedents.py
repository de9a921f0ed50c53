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
_DRAWS, _FITTED, _AT_ONCE, _ROUNDS, _KEPT = 20, 20_000, 20_000, 10, 16


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
        return nearest(self.features(states).astype(self.centres.dtype), self.centres, jnp)


@dataclass(frozen=True, eq=False)
class Places:
    """The data as sequences of places, from which the precedents of any horizon are counted.

    Attributes:
        centres: of the places [C, p].
        labels: the place of each row [N].
        ends: last row of each trajectory [E].
        examples: some of the rows of each place [C, R, d].
        features: states [..., d] to what places are made of [..., p].
        share: of the data's jumps from a place that count as precedents, the most usual first.
        seed: of the jumps' lengths.
    """

    centres: Float[np.ndarray, "C p"]
    labels: Int[np.ndarray, " N"]
    ends: Int[np.ndarray, " E"]
    examples: Float[np.ndarray, "C R d"]
    features: Callable[[Any], Any]
    share: float = SHARE
    seed: int = 0

    def precedents(self, betas: Float[np.ndarray, " K"]) -> Precedents:
        """Return which jumps are precedented at the discounts of a plan."""
        different = np.unique(np.asarray(betas))
        usual = [usual_places(counts, self.share) for counts in self.count(different)]
        return Precedents(
            jnp.asarray(self.centres),
            jnp.asarray(different, jnp.float32),
            jnp.asarray(np.stack(usual)),
            self.features,
        )

    def count(self, betas: Float[np.ndarray, " K"]) -> Int[np.ndarray, "K C C"]:
        """Count the data's jumps at the discounts of a plan; equal discounts have equal counts."""
        rng, number = np.random.default_rng(self.seed), len(self.centres)
        different, which = np.unique(np.asarray(betas), return_inverse=True)
        counts = [
            count_jumps(self.labels, self.ends, float(beta), number, rng) for beta in different
        ]
        return np.stack(counts)[which]


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
        raise ConfigError(f"{number} places: must be at least 1 and at most {len(x)}, the rows")
    rng = np.random.default_rng(seed)
    fitted = x[rng.choice(len(x), min(len(x), max(_FITTED, number)), replace=False)]
    centres = _cluster(fitted, number, rng)
    labels = np.concatenate(
        [nearest(x[a : a + _AT_ONCE], centres, np) for a in range(0, len(x), _AT_ONCE)]
    )
    examples = np.asarray(observations)[_examples(labels, number, rng)]
    return Places(centres, labels, np.asarray(ends), examples, features, share, seed)


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
    counts = np.zeros((places, places), np.int64)
    for _ in range(_DRAWS):
        counts += count_steps(labels, ends, rng.geometric(1 - beta, len(labels)), places)
    return counts


def count_steps(
    labels: Int[np.ndarray, " N"],
    ends: Int[np.ndarray, " E"],
    steps: int | Int[np.ndarray, " N"],
    places: int,
) -> Int[np.ndarray, "C C"]:
    """Count how often a trajectory is at j so many steps after i, within the trajectory."""
    rows = np.arange(len(labels))
    later = rows + steps
    inside = later <= np.asarray(ends)[np.searchsorted(ends, rows)]
    pairs = labels[rows[inside]] * places + labels[later[inside]]
    return np.bincount(pairs, minlength=places * places).reshape(places, places)


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
        labels = nearest(x, centres, np)
        count = np.bincount(labels, minlength=number)[:, None]
        total = np.stack([np.bincount(labels, column, number) for column in x.T], axis=1)
        centres = np.where(count > 0, total / np.maximum(count, 1), centres).astype(np.float32)
    return centres


def _examples(
    labels: Int[np.ndarray, " N"], number: int, rng: np.random.Generator
) -> Int[np.ndarray, "C R"]:
    """Return rows of each place, drawn at random; of a place without any, which is none's, any."""
    order = np.argsort(labels, kind="stable")
    first, last = (
        np.searchsorted(labels[order], np.arange(number), side) for side in ("left", "right")
    )
    pick = first[:, None] + rng.integers(0, np.maximum(last - first, 1)[:, None], (number, _KEPT))
    return order[np.minimum(pick, len(order) - 1)]


def nearest(x: Any, centres: Any, xp: Any) -> Any:
    """Return which centre [C, p] is nearest to each row [R, p]; ``xp`` is numpy or jax.numpy."""
    gaps = x[:, None, :] - centres[None]
    return xp.argmin((gaps * gaps).sum(-1), axis=-1)
