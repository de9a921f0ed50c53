import json

import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.data import Dataset, load, ogbench, summary
from jumpyworld.data.summary import summarise
from jumpyworld.domains.cube import ARM_DIM, CENTRE, CUBE_DIM
from jumpyworld.errors import MissingExtraError
from jumpyworld.storage import sidecar


def make(observations, lengths=None, actions=None, domain=None, **kwargs):
    """Build a dataset of trajectories with these numbers of transitions."""
    n = len(observations)
    lengths = [n - 1] if lengths is None else lengths
    terminals = np.zeros(n, bool)
    terminals[np.cumsum(np.asarray(lengths) + 1) - 1] = True
    known = domains.get(domain) if domain else None
    if actions is None:
        actions = np.zeros((n, known.action_dim if known else 2))
    return Dataset.from_arrays(
        np.asarray(observations, np.float32), actions, terminals, domain=domain, **kwargs
    )


def cube_states(*paths):
    """Build observations [N, d] from each cube's path in metres [N, 3]."""
    states = np.zeros((len(paths[0]), ARM_DIM + CUBE_DIM * len(paths)))
    for i, path in enumerate(paths):
        begin = ARM_DIM + CUBE_DIM * i
        states[:, begin : begin + 3] = (np.asarray(path) - CENTRE) * 10
    return states


def test_the_general_part_by_hand():
    states = [[0, 0], [3, 4], [3, 4], [10, 0], [10, 1]]
    actions = [[1, 0], [0, -1], [0.5, 0.5], [0, 1], [0.99, 0]]
    found = summarise(make(states, [2, 1], np.array(actions)))
    assert (found.transitions, found.trajectories) == (3, 2)
    assert found.lengths == (1, 1.5, 2)
    assert found.saturated == pytest.approx(3 / 10)
    assert found.displacement == pytest.approx((5 + 0 + 1) / 3)  # not the jump between them
    assert found.observations.low == (0, 0)
    assert found.observations.high == (10, 4)
    assert found.observations.mean == pytest.approx((26 / 5, 9 / 5))
    assert found.observations.std == pytest.approx(np.std(states, 0))
    assert found.actions.mean == pytest.approx(np.mean(actions, 0))
    assert found.maze is found.cubes is found.domain is found.goals_per_trajectory is None


def test_columns_over_many_blocks_equal_numpy_on_the_whole(monkeypatch):
    monkeypatch.setattr(summary, "_BLOCK", 7)
    rng = np.random.default_rng(0)
    # A mean of 1e5 times the spread: naive sums of squares would lose the spread.
    states = (1e4 + rng.normal(size=(40, 3)) * 0.1).astype(np.float32)
    found = summarise(make(states, [9, 13, 15]))
    exact = states.astype(np.float64)
    assert found.observations.low == tuple(exact.min(0))
    assert found.observations.high == tuple(exact.max(0))
    assert found.observations.mean == pytest.approx(exact.mean(0), rel=1e-12)
    assert found.observations.std == pytest.approx(exact.std(0), rel=1e-8)
    steps = np.linalg.norm(np.diff(exact, axis=0), axis=1)
    assert found.displacement == pytest.approx(np.delete(steps, [9, 23]).mean())


def test_padded_actions_do_not_count():
    actions = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    padded = np.array([False, False, True])
    found = summarise(make(np.zeros((3, 1)), actions=actions, extras={"padded": padded}))
    assert found.saturated == 0.5
    assert found.actions.mean == (0.5, 0.5)


@pytest.mark.parametrize("domain", [None, "antmaze-medium", "cube-1"])
def test_values_that_are_not_finite_leave_no_nan(domain):
    width = domains.get(domain).observation_dim if domain else 4
    states = np.random.default_rng(0).normal(size=(60, width))
    states[:, -1] = np.nan
    states[[3, 5, 7, 9, 11]] = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38])[:, None]
    states[[9, 11], -1] = np.nan
    allow = ("non-finite", "huge-values")
    found = summarise(make(states, [29, 29], domain=domain, allow=allow))
    json.dumps(found.as_dict(), allow_nan=False)
    assert found.observations.mean[-1] is found.observations.low[-1] is None
    assert found.observations.high[0] == pytest.approx(3e38)


def test_a_point_in_the_medium_maze_by_hand():
    still = [[0, 0]] * 13
    walking = [[0.2 * t, 0] for t in range(12)]  # 0 to 2.2: from cell (1, 1) into (1, 2)
    away = [[-4, 0], [100, 0]]  # in the outer wall, and outside
    found = summarise(make(still + walking + away, [12, 11, 1], domain="pointmaze-medium")).maze
    assert (found.cells_visited, found.cells_free) == (2, 26)
    assert found.in_wall == pytest.approx(2 / 27)
    assert found.speed == pytest.approx((11 * 0.2 + 104) / 24 / 0.1)
    assert found.stuck == pytest.approx(3 / 5)  # three windows of ten steps, then two
    assert found.upside_down is None


def test_positions_in_the_maze_are_judged_as_the_grid_judges_them():
    domain = domains.get("pointmaze-giant")
    xy = np.random.default_rng(0).uniform(-8, 62, (500, 2)).astype(np.float32)
    found = summarise(make(xy, domain="pointmaze-giant")).maze
    walls = domain.grid.in_wall(xy)
    assert found.in_wall == pytest.approx(walls.mean())
    assert found.cells_visited == len({domain.grid.cell_of(p) for p in xy[~walls]})


def test_trajectories_too_short_to_be_stuck():
    assert summarise(make([[0, 0]] * 10, domain="pointmaze-medium")).maze.stuck is None


def test_an_ant_on_its_back():
    states = np.zeros((5, 29))
    up, turned, flipped_x, flipped_y = [1, 0, 0, 0], [0, 0, 0, -2], [0, 1, 0, 0], [0.1, 0, 0.2, 0]
    states[:, 3:7] = [up, turned, turned, flipped_x, flipped_y]
    assert summarise(make(states, domain="antmaze-medium")).maze.upside_down == pytest.approx(2 / 5)


def test_a_maze_without_the_simulator_keeps_what_needs_no_walls(monkeypatch):
    def missing(self):
        raise MissingExtraError("ogbench", "ogbench")

    monkeypatch.setattr(domains.MazeDomain, "grid", property(missing))
    found = summarise(make([[0, 0], [0, 0.2]], domain="pointmaze-medium")).maze
    assert found.cells_free is found.cells_visited is found.in_wall is None
    assert found.speed == pytest.approx(2.0)


def test_one_cube_by_hand():
    path = [
        [0.30, 0, 0.02], [0.30, 0, 0.02], [0.30, 0, 0.06], [0.302, 0, 0.06], [0.302, 0, 0.02],
        [0.302, 0.0005, 0.02], [0.302, 0.0005, 0.04],
        [0.59, 0.29, 0.10], [0.59, 0.29, 0.02],  # a second trajectory that begins in the air
    ]  # fmt: skip
    found = summarise(make(cube_states(path), [6, 1], domain="cube-1")).cubes
    assert found.moving == pytest.approx((5 / 7,))
    assert found.lifted == pytest.approx((4 / 9,))
    assert found.lifts_per_trajectory == (1.0,)  # two in the first, none in the second
    assert found.table_coverage == pytest.approx((2 / 60,))
    assert found.stacked == 0


@pytest.mark.parametrize(
    ("upper", "stacked"),
    [
        ([0.31, 0, 0.06], 1),
        ([0.31, 0, 0.045], 0),  # too low: beside it, or tilted
        ([0.31, 0, 0.09], 0),  # carried over it
        ([0.325, 0, 0.06], 0),  # too far to the side
    ],
)
def test_stacked_is_one_edge_above_another_cube(upper, stacked):
    lower = [0.30, 0, 0.02]
    found = summarise(make(cube_states([lower] * 3, [upper] * 3), domain="cube-2"))
    assert found.cubes.stacked == stacked


def test_a_cube_that_moves_is_not_stacked():
    lower, upper = [[0.3, 0, 0.02]] * 3, [[0.3, 0, 0.06], [0.302, 0, 0.06], [0.302, 0, 0.06]]
    assert summarise(make(cube_states(lower, upper), domain="cube-2")).cubes.stacked == 0.5


def test_a_tower_of_three_is_stacked_whatever_the_order():
    path = [[[0.4, 0.1, z]] * 2 for z in (0.10, 0.02, 0.06)]
    assert summarise(make(cube_states(*path), domain="cube-3")).cubes.stacked == 1


def test_goals_come_from_the_sidecar(tmp_path):
    path = tmp_path / "pointmaze-medium-navigate-v0.npz"
    ogbench.write_npz(path, make([[0, 0], [1, 0], [0, 0], [1, 0]], [1, 1]))
    assert summarise(load(path)).goals_per_trajectory is None
    entry = sidecar.file_entry(path) | {"episodes": 2, "goals_reached": 5}
    contents = {
        "domain": "pointmaze-medium",
        "seed": 0,
        "versions": {},
        "files": {path.name: entry},
    }
    sidecar.write_sidecar(path, contents)
    assert summarise(load(path)).goals_per_trajectory == 2.5
    sidecar.write_sidecar(path, contents | {"files": {path.name: entry | {"episodes": 3}}})
    assert summarise(load(path)).goals_per_trajectory is None  # of other data


def test_a_foreign_json_beside_the_data_is_no_sidecar(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    data = make([[0, 0], [1, 0]], source=str(tmp_path / "x.npz"))
    assert summarise(data).goals_per_trajectory is None


def test_a_set_of_other_widths_is_not_read_by_its_name():
    data = make(np.zeros((3, 5)), actions=np.zeros((3, 5)), domain="cube-1", allow=["dimensions"])
    found = summarise(data)
    assert found.cubes is None
    assert "observations column 0 is constant at 0" in found.remarks
