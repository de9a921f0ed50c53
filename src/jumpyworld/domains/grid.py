"""The maze as a grid of cells: where the walls are, and which way a goal lies.

Rows ``i`` grow with y and columns ``j`` with x; cell (i, j) is the square of side ``unit`` centred
on ``(j * unit - offset, i * unit - offset)``, as in OGBench.
"""

from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# OGBench tries the neighbours in this order and takes the first of the best, so the order decides
# which of two equally short ways its data follow.
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))


@dataclass(frozen=True, eq=False)
class Grid:
    """A maze's free cells and the shortest ways between them.

    Attributes:
        free: bool [H, W], True where the agent can be.
        unit: side of a cell in metres.
        offset: metres between the centre of cell (0, 0) and the origin, on both axes.
    """

    free: np.ndarray
    unit: float
    offset: float

    def cell_of(self, xy) -> tuple[int, int]:
        """Return the cell (i, j) that holds position ``xy``."""
        i = int((xy[1] + self.offset + 0.5 * self.unit) / self.unit)
        j = int((xy[0] + self.offset + 0.5 * self.unit) / self.unit)
        return i, j

    def centre_of(self, cell) -> tuple[float, float]:
        """Return the position (x, y) of a cell's centre."""
        return cell[1] * self.unit - self.offset, cell[0] * self.unit - self.offset

    def in_wall(self, xy: np.ndarray) -> np.ndarray:
        """Say for each position [..., 2] whether it lies inside a wall or outside the maze."""
        ij = np.floor((np.asarray(xy)[..., ::-1] + self.offset) / self.unit + 0.5).astype(int)
        outside = (ij < 0).any(-1) | (ij >= self.free.shape).any(-1)
        ij = np.clip(ij, 0, np.array(self.free.shape) - 1)
        return outside | ~self.free[ij[..., 0], ij[..., 1]]

    @cached_property
    def free_cells(self) -> list[tuple[int, int]]:
        """All free cells, row by row."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.free)]

    @cached_property
    def junction_cells(self) -> list[tuple[int, int]]:
        """Free cells that are not the inside of a straight corridor: OGBench's navigation goals."""
        return [cell for cell in self.free_cells if not self._is_corridor(cell)]

    def _is_corridor(self, cell: tuple[int, int]) -> bool:
        up, left, down, right = (self._is_free(cell[0] + i, cell[1] + j) for i, j in NEIGHBOURS)
        return (up and down and not left and not right) or (left and right and not up and not down)

    def _is_free(self, i: int, j: int) -> bool:
        height, width = self.free.shape
        return 0 <= i < height and 0 <= j < width and bool(self.free[i, j])

    def distances_to(self, goal: tuple[int, int]) -> np.ndarray:
        """Return the number of moves [H, W] to ``goal`` by breadth-first search, -1 where none."""
        distance = np.full(self.free.shape, -1)
        distance[goal] = 0
        queue = deque([goal])
        while queue:
            i, j = queue.popleft()
            for di, dj in NEIGHBOURS:
                cell = i + di, j + dj
                if self._is_free(*cell) and distance[cell] == -1:
                    distance[cell] = distance[i, j] + 1
                    queue.append(cell)
        return distance

    def next_cells(self, goal: tuple[int, int]) -> list[list[tuple[int, int]]]:
        """Return for each cell the cell to move to on a shortest way to ``goal``.

        The goal, walls and cells without a way stay where they are.
        """
        distance = self.distances_to(goal)
        height, width = self.free.shape

        def step(i: int, j: int) -> tuple[int, int]:
            best = i, j
            for di, dj in NEIGHBOURS:
                cell = i + di, j + dj
                if self._is_free(*cell) and distance[cell] < distance[best]:
                    best = cell
            return best

        return [[step(i, j) for j in range(width)] for i in range(height)]
