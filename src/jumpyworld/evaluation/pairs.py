"""Where fidelity is measured: states to start from and goals to be sent to.

``random`` pairs are the paper's: state and goal independent and uniform over the dataset. They ask
far more of the policy than it can do, so that much of what is measured there is what its data never
showed. ``in-support`` pairs have a goal that the data reached from the state a little later.

Shapes: P pairs, d state dimensions, nq and nv positions and velocities of the simulator.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from jumpyworld.data.dataset import Dataset
from jumpyworld.errors import ConfigError, data_error
from jumpyworld.storage.tensors import digest

Kind = Literal["in-support", "random"]
REACH = (10, 100)


@dataclass(frozen=True)
class Pairs:
    """Where rollouts start and where they are sent.

    Attributes:
        states: observations that rollouts start from, raw units, float32 [P, d].
        goals: goal observations in raw units, float32 [P, d].
        qpos: simulator positions of the states [P, nq].
        qvel: simulator velocities of the states [P, nv].
    """

    states: np.ndarray
    goals: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray

    def __len__(self) -> int:
        return len(self.states)

    @property
    def fingerprint(self) -> str:
        """A hash of all four arrays."""
        return digest({name: np.asarray(array) for name, array in vars(self).items()})

    @classmethod
    def of_rows(cls, dataset: Dataset, rows: np.ndarray, goal_rows: np.ndarray) -> "Pairs":
        """Return pairs of rows of a dataset that stores its simulator states."""
        for key in ("qpos", "qvel"):
            if key not in dataset.extras:
                raise data_error(dataset.source, f"has no {key}, so rollouts cannot start in it")
        return cls(
            dataset.observations[rows],
            dataset.observations[goal_rows],
            dataset.extras["qpos"][rows],
            dataset.extras["qvel"][rows],
        )


def draw_pairs(kind: Kind, dataset: Dataset, count: int, seed: int) -> Pairs:
    """Draw pairs of a kind; the same ones for the same dataset, count and seed.

    Raises:
        ConfigError: there is no such kind, or fewer than the two pairs that an interval needs.
    """
    if kind not in get_args(Kind):
        raise ConfigError(f"pairs={kind!r}: must be one of {', '.join(get_args(Kind))}")
    if count < 2:
        raise ConfigError(f"{count} pairs: a confidence interval needs at least 2")
    draw = random_pairs if kind == "random" else in_support_pairs
    return draw(dataset, count, np.random.default_rng(seed))


def draw_rows(kind: Kind, dataset: Dataset, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of the states and goals that ``draw_pairs`` draws, which need no simulator."""
    draw = _random_rows if kind == "random" else _in_support_rows
    return draw(dataset, count, np.random.default_rng(seed))


def random_pairs(dataset: Dataset, count: int, rng: np.random.Generator) -> Pairs:
    """Draw states and goals independently and uniformly, as the paper does."""
    return Pairs.of_rows(dataset, *_random_rows(dataset, count, rng))


def _random_rows(
    dataset: Dataset, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    rows, goal_rows = rng.choice(dataset.valid_indices, (2, count))
    return rows, goal_rows


def in_support_pairs(
    dataset: Dataset, count: int, rng: np.random.Generator, *, reach: tuple[int, int] = REACH
) -> Pairs:
    """Draw states and goals that the data reached from them ``reach`` steps later."""
    return Pairs.of_rows(dataset, *_in_support_rows(dataset, count, rng, reach))


def _in_support_rows(
    dataset: Dataset, count: int, rng: np.random.Generator, reach: tuple[int, int] = REACH
) -> tuple[np.ndarray, np.ndarray]:
    starts, ends = dataset.starts, dataset.ends
    if (ends - starts).max() < reach[1]:
        raise ConfigError(
            f"{dataset.source}: no trajectory has {reach[1]} steps, the reach of in-support pairs"
        )
    which = rng.choice(np.flatnonzero(ends - starts >= reach[1]), count)
    ahead = rng.integers(reach[0], reach[1], count, endpoint=True)
    rows = starts[which] + rng.integers(0, ends[which] - starts[which] - ahead + 1)
    return rows, rows + ahead
