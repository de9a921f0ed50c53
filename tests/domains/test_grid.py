import numpy as np
import pytest

from jumpyworld import domains

MAZES = ["pointmaze-medium", "pointmaze-large", "pointmaze-giant"]


@pytest.mark.parametrize("alias", MAZES)
def test_next_cells_are_the_oracles(alias):
    """OGBench's oracle is the authority, for every pair of a cell (walls too) and a goal."""
    domain = domains.get(alias)
    maze, grid = domain.make_env(0).unwrapped, domain.grid
    height, width = grid.free.shape
    cells = [(i, j) for i in range(height) for j in range(width)]
    rng = np.random.default_rng(0)
    for goal in [grid.free_cells[k] for k in rng.choice(len(grid.free_cells), 8, replace=False)]:
        table = grid.next_cells(goal)
        for cell in cells:
            theirs, _ = maze.get_oracle_subgoal(grid.centre_of(cell), grid.centre_of(goal))
            assert tuple(theirs) == grid.centre_of(table[cell[0]][cell[1]])


@pytest.mark.parametrize("alias", MAZES)
def test_cells_and_positions_are_the_mazes(alias):
    domain = domains.get(alias)
    maze, grid = domain.make_env(0).unwrapped, domain.grid
    rng = np.random.default_rng(0)
    height, width = grid.free.shape
    for xy in rng.uniform([-3.9, -3.9], [4 * width - 6.1, 4 * height - 6.1], size=(500, 2)):
        cell = grid.cell_of(xy)
        assert cell == maze.xy_to_ij(xy)
        assert grid.centre_of(cell) == maze.ij_to_xy(cell)
        assert grid.in_wall(xy) == (maze.maze_map[cell] == 1)
    assert grid.in_wall(np.array([[-100.0, 0.0], [0.0, 100.0]])).all()


def test_distances_by_hand():
    # . # .
    # . . .
    grid = domains.Grid(np.array([[1, 0, 1], [1, 1, 1]], bool), unit=4.0, offset=4.0)
    np.testing.assert_array_equal(grid.distances_to((0, 0)), [[0, -1, 4], [1, 2, 3]])
    assert grid.next_cells((0, 0))[0][2] == (1, 2)
    assert grid.next_cells((0, 0))[0][1] == (0, 1), "a wall has no way and stays"


@pytest.mark.parametrize("alias", MAZES)
def test_junctions_are_the_cells_where_a_way_bends_ends_or_branches(alias):
    grid = domains.get(alias).grid
    padded = np.pad(grid.free, 1)
    expected = []
    for i, j in np.argwhere(grid.free):
        window = padded[i : i + 3, j : j + 3]
        column, row = window[[0, 2], 1].sum(), window[1, [0, 2]].sum()
        if (column, row) not in {(2, 0), (0, 2)}:
            expected.append((i, j))
    assert grid.junction_cells == expected
    assert 0 < len(expected) < len(grid.free_cells)


def test_junctions_leave_out_straight_corridors():
    grid = domains.Grid(np.array([[1, 1, 1], [1, 0, 0]], bool), unit=4.0, offset=4.0)
    assert grid.junction_cells == [(0, 0), (0, 2), (1, 0)]
