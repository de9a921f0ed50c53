"""What is drawn, from above, and how a click becomes a goal.

A scene has objects with places on a plane: the body in a maze, the cubes on a table. Everything the
page draws is such places, in metres; the rest of an observation stays on the server.

A painted reward is a field of values on the scene's cells; a state is worth the sum of the values
under its objects. The field travels as the task's goal, so that painting never compiles anything.

Shapes: k objects, d state, H x W cells.
"""

import abc
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.data.pictures import SAMPLING_BOUNDS_M
from jumpyworld.domains import CubeDomain, Domain, MazeDomain
from jumpyworld.domains.cube import ARM_DIM, CENTRE, CUBE_DIM, POSITION_SCALE
from jumpyworld.errors import ConfigError, PlanError

TABLE_CELL = 0.05  # metres
TABLE = ((0.15, 0.70), (-0.45, 0.45))  # what the camera above shows: x, y


class AbstractScene(abc.ABC):
    """A domain as the page sees it.

    Attributes:
        domain: the domain.
        free: cells where something can be, bool [H, W]; row i grows with y, column j with x.
        unit: side of a cell in metres.
        origin: (x, y) of the centre of cell (0, 0).
    """

    domain: Domain
    free: np.ndarray
    unit: float
    origin: tuple[float, float]

    @abc.abstractmethod
    def places(self, states: Any) -> Any:
        """Return where the objects are, in metres: [..., d] to [..., k, 2]."""

    @abc.abstractmethod
    def goal_at(self, template: np.ndarray, places: Sequence[Sequence[float]]) -> np.ndarray:
        """Return the goal observation with every object at its place [k, 2].

        Args:
            template: a goal observation that says all the rest [d].
            places: one per object.

        Raises:
            PlanError: a place is out of reach, or there is one for another number of objects.
        """

    def painted_reward(self, states: Any, field: Any) -> Any:
        """Return the sum of the field's values [H, W] under the objects of states [..., d].

        Takes NumPy and JAX arrays; traceable.
        """
        places = self.places(states)
        xp = _module(places)
        origin = xp.broadcast_to(xp.asarray(self.origin, places.dtype), places.shape)
        cell = xp.floor((places - origin) / self.unit + 0.5).astype("int32")
        column, row = cell[..., 0], cell[..., 1]
        height, width = field.shape
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        values = field[xp.clip(row, 0, height - 1), xp.clip(column, 0, width - 1)]
        return xp.where(inside, values, xp.zeros_like(values)).sum(-1)

    def field_of(self, cells: Sequence[tuple[int, int, float]]) -> np.ndarray:
        """Return the field [H, W] of painted cells (i, j, value).

        Raises:
            PlanError: a cell is outside, or a wall.
        """
        height, width = self.free.shape
        field = np.zeros((height, width), np.float32)
        for i, j, value in cells:
            if not (0 <= i < height and 0 <= j < width and self.free[i, j]):
                raise PlanError(f"cells: ({i}, {j}) is a wall or outside")
            field[i, j] = value
        return field

    def centre_of(self, cell: tuple[int, int]) -> tuple[float, float]:
        """Return the position (x, y) of a cell's centre."""
        return self.origin[0] + cell[1] * self.unit, self.origin[1] + cell[0] * self.unit

    def describe(self) -> dict[str, Any]:
        """Return what the page draws once."""
        height, width = self.free.shape
        left, low = self.origin[0] - self.unit / 2, self.origin[1] - self.unit / 2
        return {
            "kind": "maze" if isinstance(self, MazeScene) else "cubes",
            "domain": self.domain.alias,
            "bounds": [left, left + width * self.unit, low, low + height * self.unit],
            "unit": self.unit,
            "origin": list(self.origin),
            "free": self.free.astype(int).tolist(),
            "tolerance": self.tolerance,
            "max_steps": self.domain.max_episode_steps,
        }

    @property
    @abc.abstractmethod
    def tolerance(self) -> float:
        """How near an object must come to its place, in metres."""


class MazeScene(AbstractScene):
    """A body in a maze."""

    def __init__(self, domain: MazeDomain):
        """Read the walls."""
        grid = domain.grid
        self.domain, self.grid = domain, grid
        self.free, self.unit, self.origin = grid.free, grid.unit, (-grid.offset, -grid.offset)

    @property
    def tolerance(self) -> float:
        """Metres."""
        return self.domain.tolerance

    def places(self, states: Any) -> Any:
        """Return the body's xy."""
        return self.domain.goal_features(states)

    def goal_at(self, template: np.ndarray, places: Sequence[Sequence[float]]) -> np.ndarray:
        """Return the template moved to a place."""
        (xy,) = _count(places, 1)
        self.check_free(xy)
        return np.concatenate([np.asarray(xy, np.float32), template[2:]]).astype(np.float32)

    def check_free(self, xy: Sequence[float]) -> None:
        """Raise PlanError where a place is in a wall."""
        if bool(self.grid.in_wall(np.asarray(xy))):
            raise PlanError(f"({xy[0]:.1f}, {xy[1]:.1f}) is in a wall: choose a free place")


class CubeScene(AbstractScene):
    """Cubes on a table."""

    def __init__(self, domain: CubeDomain):
        """Lay cells over the table."""
        self.domain, self.cubes, self.unit = domain, domain, TABLE_CELL
        (left, right), (low, high) = TABLE
        shape = round((high - low) / self.unit), round((right - left) / self.unit)
        self.free = np.ones(shape, bool)
        self.origin = (left + self.unit / 2, low + self.unit / 2)

    @property
    def tolerance(self) -> float:
        """Four centimetres."""
        return self.domain.tolerance / POSITION_SCALE

    def places(self, states: Any) -> Any:
        """Return the cubes' xy in metres."""
        places = self.cubes.goal_features(states)[..., :2] / POSITION_SCALE
        xp = _module(places)
        return places + xp.broadcast_to(xp.asarray(CENTRE[:2], places.dtype), places.shape)

    def goal_at(self, template: np.ndarray, places: Sequence[Sequence[float]]) -> np.ndarray:
        """Return the template with its cubes at other places on the table; heights stay."""
        goal = np.array(template, np.float32)
        for cube, xy in enumerate(_count(places, self.cubes.num_cubes)):
            for (low, high), value in zip(SAMPLING_BOUNDS_M, xy, strict=True):
                if not low - 0.05 <= value <= high + 0.05:
                    raise PlanError(f"({xy[0]:.2f}, {xy[1]:.2f}) is out of the arm's reach")
            at = ARM_DIM + cube * CUBE_DIM
            goal[at : at + 2] = (np.asarray(xy) - CENTRE[:2]) * POSITION_SCALE
        return goal


def scene_of(domain: Domain) -> AbstractScene:
    """Return the scene of a domain.

    Raises:
        ConfigError: it is neither a maze nor a cube scene.
    """
    if isinstance(domain, MazeDomain):
        return MazeScene(domain)
    if isinstance(domain, CubeDomain):
        return CubeScene(domain)
    raise ConfigError(f"{domain.alias}: the page draws mazes and cubes alone")


def _module(array: Any) -> Any:
    return jnp if isinstance(array, jax.Array) else np


def _count(places: Sequence[Sequence[float]], wanted: int) -> Sequence[Sequence[float]]:
    if len(places) != wanted:
        raise PlanError(f"goal: {len(places)} places for {wanted} objects")
    return places
