"""A policy that needs no training: a point that follows the shortest way through a maze.

    cell of s, cell of z  ->  centre of the next cell on a shortest way (one look-up)
    head for that centre, or for z itself inside its cell; slow down to arrive, not to overshoot

With ``reach=r`` it stands still when the goal is more than r cells away. That is a policy which is
perfect on short tasks and useless on long ones, whatever the network or the luck: what composing
policies is for, and a fixed ground for tests of models and planners.

The way from any point of a cell to the centre of a neighbouring one stays inside the two.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jumpyworld.domains.grid import Grid
from jumpyworld.errors import ConfigError
from jumpyworld.policies.base import AbstractPolicy
from jumpyworld.policies.networks import clip_action

# Metres that a point moves in a step at full action; OGBench's.
STEP = 0.2


class ScriptedGoalPolicy(AbstractPolicy):
    """Follows breadth-first directions to the goal's cell, then goes straight to the goal.

    Attributes:
        targets: position to head for, by cell of the goal and cell of the state [H W, H W, 2].
        moves: number of moves between cells, -1 where there is no way [H W, H W].
        shape: rows H and columns W of the maze.
        unit: side of a cell in metres.
        offset: metres between the centre of cell (0, 0) and the origin.
        reach: largest number of moves to a goal that it goes for.
        noise: standard deviation of the Gaussian noise on actions.
    """

    targets: Float[Array, "goals cells 2"]
    moves: Int[Array, "goals cells"]
    shape: tuple[int, int] = eqx.field(static=True)
    unit: float = eqx.field(static=True)
    offset: float = eqx.field(static=True)
    reach: int = eqx.field(static=True)
    noise: float = eqx.field(static=True)

    def __init__(
        self,
        grid: Grid,
        body: Literal["point"] = "point",
        reach: int | None = None,
        noise: float = 0.0,
    ):
        """Look up all ways once.

        Args:
            grid: the maze.
            body: only a ``point`` obeys directions; an ant needs a trained runner.
            reach: largest number of moves between cells to a goal; None for any.
            noise: standard deviation of the noise on actions; none while it stands still.

        Raises:
            ConfigError: another body, or a negative reach or noise.
        """
        if body != "point":
            raise ConfigError(f"body={body!r}: only a point can be steered by directions")
        if noise < 0 or (reach is not None and reach < 0):
            raise ConfigError(f"reach={reach}, noise={noise}: must not be negative")
        rows, columns = grid.free.shape
        cells = rows * columns
        targets = np.zeros((cells, cells, 2), np.float32)
        moves = np.full((cells, cells), -1, np.int32)
        for i, j in grid.free_cells:
            goal = i * columns + j
            moves[goal] = grid.distances_to((i, j)).reshape(-1)
            following = grid.next_cells((i, j))
            targets[goal] = [grid.centre_of(cell) for row in following for cell in row]
        self.targets, self.moves = jnp.asarray(targets), jnp.asarray(moves)
        self.shape, self.unit, self.offset = (rows, columns), grid.unit, grid.offset
        self.reach, self.noise = cells if reach is None else reach, noise

    @property
    def observation_dim(self) -> int:
        """A state is x, y."""
        return 2

    @property
    def action_dim(self) -> int:
        """An action is a displacement in units of ``STEP``."""
        return 2

    def cell(self, xy: Float[Array, " 2"]) -> Int[Array, ""]:
        """Return the number of the cell that holds a position; outside, the nearest one's."""
        column_row = jnp.floor((xy + self.offset) / self.unit + 0.5).astype(jnp.int32)
        row = jnp.clip(column_row[1], 0, self.shape[0] - 1)
        return row * self.shape[1] + jnp.clip(column_row[0], 0, self.shape[1] - 1)

    def act(self, key, s, z, temperature):
        """Draw one action; the temperature scales the noise."""
        goal, here = self.cell(z), self.cell(s)
        moves = self.moves[goal, here]
        target = jnp.where(goal == here, z, self.targets[goal, here])
        gap = target - s
        heading = gap / jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(gap))), STEP)
        noise = temperature * self.noise * jax.random.normal(key, s.shape, s.dtype)
        goes = (moves >= 0) & (moves <= self.reach)
        return clip_action(jnp.where(goes, heading + noise, jnp.zeros_like(s)))
