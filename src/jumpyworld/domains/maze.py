"""pointmaze and antmaze: reach a position."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from jumpyworld.domains.base import Domain
from jumpyworld.domains.grid import Grid


@dataclass(frozen=True)
class MazeDomain(Domain):
    """A body in a maze. Success: its xy within ``tolerance`` metres of the goal's.

    Observations are x, y (point) or qpos (15) then qvel (14) (ant). The rest of an ant's goal
    observation is a random pose and carries no meaning.
    """

    @property
    def body(self) -> str:
        """Return ``point`` or ``ant``."""
        return self.name.split("maze-")[0]

    @property
    def tolerance(self) -> float:
        """Metres."""
        return 1.0 if self.body == "point" else 0.5

    @property
    def simulator_dim(self) -> int:
        """A point has two positions and velocities; an ant's state is its observation."""
        return 4 if self.body == "point" else self.observation_dim

    @property
    def reward_offset(self) -> int:
        """OGBench's single-task reward is -1 until success."""
        return 1

    def goal_features(self, observations):
        """Return xy as one object: [..., 1, 2]."""
        return observations[..., None, :2]

    @property
    def grid(self) -> Grid:
        """The maze's cells, read from the environment."""
        return _read_grid(self)


@functools.cache
def _read_grid(domain: MazeDomain) -> Grid:
    env = domain.make_env()
    maze: Any = env.unwrapped
    grid = Grid(
        free=np.asarray(maze.maze_map == 0),
        unit=float(maze._maze_unit),
        offset=float(maze._offset_x),
    )
    env.close()
    return grid
