"""What the generators of episodes share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jumpyworld.domains.base import Domain
from jumpyworld.domains.cube import CubeDomain
from jumpyworld.domains.maze import MazeDomain

SPLITS = ("train", "val")


@dataclass(frozen=True)
class Episode:
    """One episode in OGBench's layout: row t holds a state and the action taken there.

    The last row is the final state; its action is real, but its successor is not kept.

    Attributes:
        observations: f32 [L, d].
        actions: f32 [L, da], as given to the simulator.
        qpos: f32 [L, nq], qvel: f32 [L, nv], the simulator's state.
        goals_reached: how many of the behaviour's goals were reached on the way.
    """

    observations: np.ndarray
    actions: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray
    goals_reached: int

    @classmethod
    def empty(cls, steps: int, domain: Domain, model) -> "Episode":
        """Return arrays for ``steps`` rows of a domain with this MuJoCo model, to be filled."""
        widths = (domain.observation_dim, domain.action_dim, model.nq, model.nv)
        return cls(*(np.empty((steps, width), np.float32) for width in widths), goals_reached=0)


def episode_generator(seed: int, split: str, index: int) -> np.random.Generator:
    """Return the generator of one episode: a function of its place, not of who makes it when.

    Training and validation draw from different streams, so that asking for more episodes of one
    only ever adds to it.
    """
    return np.random.default_rng([seed, SPLITS.index(split), index])


class EpisodeMaker(Protocol):
    """Makes episodes of one domain; holds its environment."""

    env: Any

    def reset(self, rng: np.random.Generator) -> object:
        """Put the environment at the start of the episode that ``rng`` determines."""

    def __call__(self, rng: np.random.Generator) -> Episode:
        """Make the episode that ``rng`` determines."""
        ...


def episode_maker(
    domain: Domain, steps: int, noise: float, expert: Path | None = None
) -> EpisodeMaker:
    """Return a function that makes episodes of OGBench's standard behaviour in ``domain``.

    Args:
        domain: where.
        steps: rows per episode.
        noise: see ``Collection``.
        expert: weights of the ant's controller; the packaged ones by default.
    """
    if isinstance(domain, CubeDomain):
        from jumpyworld.domains.generate.play import Play

        return Play(domain, steps, noise)
    from jumpyworld.domains.generate.navigate import Navigate

    assert isinstance(domain, MazeDomain)
    return Navigate(domain, steps, noise, expert)


def seed_from(generator: np.random.Generator) -> int:
    """Draw a seed for something that wants an integer."""
    return int(generator.integers(2**31))
