"""What a dataset holds, in numbers that show whether it can teach anything.

A set may be well formed and still useless: an ant on its back, a point behind a wall, cubes that
never leave the table. ``summarise`` measures what a set of each domain should show; the general
part is the same for every set.

Shapes: N states, M transitions, T trajectories, d observation dimensions, k cubes.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from jumpyworld.data import validate
from jumpyworld.data.dataset import Dataset
from jumpyworld.domains import CubeDomain, Domain, Grid, MazeDomain
from jumpyworld.errors import JumpyError, MissingExtraError
from jumpyworld.storage.sidecar import read_sidecar

MAZE_STEP_S = 0.1  # control step of OGBench's mazes in seconds
STUCK_STEPS, STUCK_M = 10, 0.2  # an ant that walks covers more than a metre in these steps
MOVING_M = 1e-3  # per step; resting cubes jitter by micrometres
LIFTED_M = 0.03  # height of the centre; at rest on the table it is 0.02
STACK_GAP_M = (0.03, 0.05)  # height above the cube below: one edge, 0.04, give or take a centimetre
STACK_OFFSET_M = 0.02  # beyond half an edge the upper cube would fall
TABLE_M = ((0.25, 0.60), (-0.30, 0.30))  # x and y ranges that are divided into bins
TABLE_BINS = (6, 10)

_BLOCK = 2**13  # rows per float64 working copy: stays in the cache, and 5M rows need no second copy


@dataclass(frozen=True)
class Columns:
    """Statistics of each column [d]; None where a column has no finite value."""

    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]


@dataclass(frozen=True)
class MazeSummary:
    """How a body moves through a maze.

    Attributes:
        cells_free: free cells of the maze; None, with the two below, if OGBench is not installed.
        cells_visited: free cells that hold at least one state.
        in_wall: share of states inside a wall or outside the maze.
        speed: mean over transitions in m/s.
        stuck: share of the 10-step windows that end less than 0.2 m from where they began.
        upside_down: share of states with the torso's up vector pointing down; None for the point.
    """

    cells_free: int | None
    cells_visited: int | None
    in_wall: float | None
    speed: float | None
    stuck: float | None
    upside_down: float | None


@dataclass(frozen=True)
class CubesSummary:
    """What happens to the cubes; tuples have an entry per cube.

    Attributes:
        moving: share of transitions over which the cube moves more than 1 mm.
        lifted: share of states with the cube's centre higher than 3 cm.
        lifts_per_trajectory: how often the cube rises above 3 cm, on average.
        table_coverage: share of the table's 6 x 10 bins that the cube visits.
        stacked: share of transitions in which some cube rests on another.
    """

    moving: tuple[float | None, ...]
    lifted: tuple[float | None, ...]
    lifts_per_trajectory: tuple[float, ...]
    table_coverage: tuple[float, ...]
    stacked: float | None


@dataclass(frozen=True)
class Summary:
    """A dataset in numbers.

    Attributes:
        domain: OGBench dataset name, if known.
        transitions: M.
        trajectories: T.
        lengths: least, median and greatest number of transitions in a trajectory.
        observations: statistics of the observations' columns.
        actions: statistics of the actions' columns, without padded rows.
        saturated: share of action entries at or beyond a bound, |a| >= 1.
        displacement: mean Euclidean norm of a transition's change of observation.
        goals_per_trajectory: goals that the behaviour reached, if the sidecar tells.
        maze: present for mazes.
        cubes: present for cubes.
        remarks: what is odd without being wrong.
    """

    domain: str | None
    transitions: int
    trajectories: int
    lengths: tuple[int, float, int]
    observations: Columns
    actions: Columns
    saturated: float | None
    displacement: float | None
    goals_per_trajectory: float | None
    maze: MazeSummary | None
    cubes: CubesSummary | None
    remarks: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain dicts, tuples, numbers and None; JSON takes it, without NaN."""
        return dataclasses.asdict(self)


def summarise(dataset: Dataset) -> Summary:
    """Measure a dataset; see ``Summary``. Values that are not finite do not count."""
    # Only sets let in with non-finite or huge values raise these, and there they say nothing new.
    with np.errstate(over="ignore", invalid="ignore"):
        return _summarise(dataset)


def _summarise(dataset: Dataset) -> Summary:
    padded = dataset.extras.get("padded")
    actions = dataset.actions if padded is None else dataset.actions[~padded.astype(bool)]
    domain = layout_of(dataset)
    lengths = dataset.lengths
    return Summary(
        domain=dataset.domain,
        transitions=dataset.num_transitions,
        trajectories=dataset.num_trajectories,
        lengths=(int(lengths.min()), float(np.median(lengths)), int(lengths.max())),
        observations=_columns(dataset.observations),
        actions=_columns(actions),
        saturated=_mean(np.abs(actions) >= 1),
        displacement=_mean(_step_norms(dataset.observations, dataset)),
        goals_per_trajectory=_goals_per_trajectory(dataset),
        maze=_maze(dataset, domain) if isinstance(domain, MazeDomain) else None,
        cubes=_cubes(dataset, domain) if isinstance(domain, CubeDomain) else None,
        remarks=validate.remarks(dataset.observations, dataset.actions),
    )


def layout_of(dataset: Dataset) -> Domain | None:
    """Return the domain by which the columns can be read, or None."""
    domain = validate.known_domain(dataset.domain)
    # A set let in with other widths under this name is not laid out as the name says.
    return domain if domain and domain.observation_dim == dataset.observation_dim else None


def grid_of(domain: MazeDomain) -> Grid | None:
    """Return the maze's cells, or None where the simulator that knows them is not installed."""
    try:
        return domain.grid
    except MissingExtraError:
        return None


def cube_positions(dataset: Dataset, domain: CubeDomain) -> Float[np.ndarray, "N k 3"]:
    """Return the cubes' centres in metres, float32 [N, k, 3]."""
    return np.concatenate([domain.cube_positions(rows) for rows in _blocks(dataset.observations)])


def _maze(dataset: Dataset, domain: MazeDomain) -> MazeSummary:
    states = dataset.observations
    xy = np.ascontiguousarray(states[:, :2])
    speed = _mean(_step_norms(xy, dataset))
    first = _window_starts(dataset, STUCK_STEPS)
    travelled = np.linalg.norm(xy[first + STUCK_STEPS] - xy[first], axis=1)
    upside_down = None
    if domain.body == "ant":
        w, x, y, z = (states[:, column] for column in range(3, 7))
        # The z component of the up vector, w^2 - x^2 - y^2 + z^2 for any length of quaternion.
        upside_down = _mean(w * w + z * z < x * x + y * y)
    grid = grid_of(domain)
    free = visited = in_wall = None
    if grid is not None:
        counts, outside = _visits(grid, xy)
        free, visited = int(grid.free.sum()), int((counts > 0)[grid.free].sum())
        in_wall = float((outside + counts[~grid.free].sum()) / len(xy))
    return MazeSummary(
        cells_free=free,
        cells_visited=visited,
        in_wall=in_wall,
        speed=None if speed is None else speed / MAZE_STEP_S,
        stuck=_mean(travelled < STUCK_M),
        upside_down=upside_down,
    )


def _visits(grid: Grid, xy: Float[np.ndarray, "N 2"]) -> tuple[Int[np.ndarray, "H W"], int]:
    """Return how many positions each cell holds, and how many lie outside the maze."""
    height, width = grid.free.shape
    i, j = (
        # Clipped to a ring around the maze, and NaN sent there, before the cast to integers.
        np.clip(np.floor(np.nan_to_num(v + grid.offset, nan=-1e9) / grid.unit + 0.5), -1, size)
        for v, size in ((xy[:, 1], height), (xy[:, 0], width))
    )
    cells = ((i + 1) * (width + 2) + (j + 1)).astype(np.int64)
    counts = np.bincount(cells, minlength=(height + 2) * (width + 2))
    inside = counts.reshape(height + 2, width + 2)[1:-1, 1:-1]
    return inside, len(xy) - int(inside.sum())


def _cubes(dataset: Dataset, domain: CubeDomain) -> CubesSummary:
    positions = cube_positions(dataset, domain)
    rows = dataset.valid_indices
    moving, lifted, lifts, coverage = [], [], [], []
    for cube in range(domain.num_cubes):
        place = positions[:, cube]
        moving.append(_step_norms(place, dataset) > MOVING_M)
        up = place[:, 2] > LIFTED_M
        lifted.append(_mean(up))
        lifts.append(int((up[rows + 1] & ~up[rows]).sum()) / dataset.num_trajectories)
        bins, _, _ = np.histogram2d(place[:, 0], place[:, 1], TABLE_BINS, TABLE_M)
        coverage.append(float((bins > 0).mean()))
    return CubesSummary(
        moving=tuple(_mean(cube) for cube in moving),
        lifted=tuple(lifted),
        lifts_per_trajectory=tuple(lifts),
        table_coverage=tuple(coverage),
        stacked=_mean(_stacked(positions[rows], np.stack(moving, 1))),
    )


def _stacked(
    positions: Float[np.ndarray, "M k 3"], moving: Bool[np.ndarray, "M k"]
) -> Bool[np.ndarray, " M"]:
    """Say for each state whether some cube lies still on another."""
    found = np.zeros(len(positions), bool)
    k = positions.shape[1]
    for upper, lower in ((i, j) for i in range(k) for j in range(k) if i != j):
        gap = positions[:, upper] - positions[:, lower]
        near = np.hypot(gap[:, 0], gap[:, 1]) < STACK_OFFSET_M
        on_top = (gap[:, 2] > STACK_GAP_M[0]) & (gap[:, 2] < STACK_GAP_M[1])
        found |= near & on_top & ~moving[:, upper]
    return found


def _goals_per_trajectory(dataset: Dataset) -> float | None:
    """Read from the sidecar how many goals the behaviour reached; None if it does not say."""
    path = Path(dataset.source)
    sidecar = path.with_name(f"{path.stem.removesuffix('-val')}.json") if path.name else path
    if not sidecar.is_file():
        return None
    try:
        entry = read_sidecar(sidecar)["files"].get(path.name, {})
    except JumpyError:  # some other JSON file of that name
        return None
    goals, episodes = entry.get("goals_reached"), entry.get("episodes")
    if not isinstance(goals, int) or episodes != dataset.num_trajectories:
        return None
    return goals / dataset.num_trajectories


def _window_starts(dataset: Dataset, steps: int) -> Int[np.ndarray, " W"]:
    """Return the rows that have a row ``steps`` later in the same trajectory."""
    ends = np.repeat(dataset.ends, dataset.lengths + 1)
    return np.flatnonzero(np.arange(dataset.num_states) + steps <= ends)


def _step_norms(rows: Float[np.ndarray, "N d"], dataset: Dataset) -> Float[np.ndarray, " M"]:
    """Return the Euclidean norm of each transition's change, float64 [M]."""
    norms = np.empty(len(rows) - 1)
    for begin in range(0, len(norms), _BLOCK):
        block = rows[begin : begin + _BLOCK + 1].astype(np.float64)
        change = np.diff(block, axis=0)
        norms[begin : begin + _BLOCK] = np.sqrt(np.einsum("ij,ij->i", change, change))
    return norms[dataset.valid_indices]


def _columns(rows: Float[np.ndarray, "N d"]) -> Columns:
    """Return the statistics of each column, accumulated in float64 over blocks of rows."""
    d = rows.shape[1]
    count, total, squares = np.zeros(d), np.zeros(d), np.zeros(d)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    shift = None
    for block in _blocks(rows):
        block = block.astype(np.float64)
        finite = np.isfinite(block)
        block = np.where(finite, block, np.nan) if not finite.all() else block
        if shift is None:  # squares about a typical value lose no digits when |mean| >> std
            shift = np.nan_to_num(block[0])
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
        centred = np.where(finite, block - shift, 0)
        count += finite.sum(0)
        total += centred.sum(0)
        squares += np.einsum("ij,ij->j", centred, centred)
    mean = total / count  # NaN where nothing is finite
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return Columns(*map(_floats, (low, high, mean + (0 if shift is None else shift), std)))


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    return (rows[begin : begin + _BLOCK] for begin in range(0, len(rows), _BLOCK))


def _floats(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(v) if np.isfinite(v) else None for v in values)


def _mean(values: np.ndarray) -> float | None:
    """Return the mean of the finite values, or None if there are none."""
    if values.dtype != bool:
        values = values[np.isfinite(values)]
    return float(values.mean(dtype=np.float64)) if values.size else None
