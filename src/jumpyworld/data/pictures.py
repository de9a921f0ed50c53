"""One picture per dataset: where its states are.

Mazes show the density of states beside a few whole trajectories, cubes a view of the table from
above for each cube and their heights, other sets histograms of their first columns.
"""

from pathlib import Path

import numpy as np

from jumpyworld.data.dataset import Dataset
from jumpyworld.data.summary import cube_positions, grid_of, layout_of
from jumpyworld.domains import CubeDomain, Grid, MazeDomain
from jumpyworld.storage.figures import new_figure, write_png

DPI = 150
INK, PALE, WALL = "#2b3440", "#d5dae1", "#4a5563"
ACCENT = "#2f6fb0"
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # told apart by all eyes
DENSITY = ("#eaf3f8", "#a6cfe3", "#4f9fcb", "#1f63a0", "#123465")
CUBES = ("#f54254", "#598ce8", "#ffb036", "#0fbd36")  # OGBench's own colours
SAMPLING_BOUNDS_M = ((0.30, 0.55), (-0.30, 0.30))  # where OGBench puts cubes and targets, x and y
BINS_PER_CELL = 8
POINTS = 5000  # per cube; more only make the picture darker
COLUMNS = 12


def draw(dataset: Dataset, path: Path | str) -> None:
    """Draw a dataset into a PNG file, complete or not at all.

    Args:
        dataset: any dataset; what is drawn depends on its domain.
        path: the file.

    Raises:
        DataError: the file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    figure = new_figure(dpi=DPI)
    domain = layout_of(dataset)
    if isinstance(domain, MazeDomain):
        _draw_maze(figure, dataset, grid_of(domain))
    elif isinstance(domain, CubeDomain):
        _draw_cubes(figure, dataset, cube_positions(dataset, domain))
    else:
        _draw_columns(figure, dataset)
    name = dataset.domain or Path(dataset.source).stem or "dataset"
    counts = f"{dataset.num_transitions:,} transitions in {dataset.num_trajectories:,} trajectories"
    figure.suptitle(f"{name}\n{counts}", fontsize=11, color=INK)
    write_png(figure, path)


def _draw_maze(figure, dataset: Dataset, grid: Grid | None) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    xy = dataset.observations[:, :2]
    x_range, y_range, unit = maze_ranges(xy, grid)
    width, height = x_range[1] - x_range[0], y_range[1] - y_range[0]
    figure.set_size_inches(11, 4.6 * min(max(height / width, 0.5), 1.5) + 1.2)
    left, right = figure.subplots(1, 2)

    size = unit / BINS_PER_CELL
    bins = (max(1, round(width / size)), max(1, round(height / size)))
    counts, _, _ = np.histogram2d(xy[:, 0], xy[:, 1], bins, (x_range, y_range))
    image = left.imshow(
        np.ma.masked_equal(counts.T, 0),
        origin="lower",
        extent=(*x_range, *y_range),
        cmap=LinearSegmentedColormap.from_list("density", DENSITY),
        norm=LogNorm(1, max(2, counts.max())),
        interpolation="nearest",
    )
    bar = figure.colorbar(image, cax=left.inset_axes((1.02, 0, 0.03, 1)))
    bar.set_label(f"states per {size:g} m x {size:g} m", fontsize=8, color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=INK)

    chosen = np.unique(np.linspace(0, dataset.num_trajectories - 1, len(LINES)).astype(int))
    for colour, index in zip(LINES, chosen, strict=False):
        path = dataset.trajectory(int(index)).observations[:, :2]
        right.plot(*path.T, color=colour, linewidth=0.7, alpha=0.8, zorder=2)
        right.plot(*path[0], "o", color=colour, markeredgecolor="white", markersize=8, zorder=4)
    left.set_title("density of states", fontsize=10, color=INK)
    right.set_title(f"{len(chosen)} whole trajectories from their starts", fontsize=10, color=INK)
    for axes in (left, right):
        if grid is not None:
            draw_walls(axes, grid)
        dress(axes, "x (m)", "y (m)")
        axes.set(xlim=x_range, ylim=y_range, aspect="equal")


def maze_ranges(xy, grid: Grid | None):
    """Return the x range, the y range and the side of a cell, in metres."""
    if grid is None:
        finite = xy[np.isfinite(xy).all(1)]
        low, high = (finite.min(0) - 2, finite.max(0) + 2) if len(finite) else ([0, 0], [1, 1])
        return (float(low[0]), float(high[0])), (float(low[1]), float(high[1])), 4.0
    # Half of the outer walls is enough to see that they close the maze.
    low = -grid.offset
    high = [low + (cells - 1) * grid.unit for cells in grid.free.shape]
    return (low, high[1]), (low, high[0]), grid.unit


def draw_walls(axes, grid: Grid, colour: str = WALL) -> None:
    """Fill a maze's walls."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    half = grid.unit / 2
    walls = []
    for cell in np.argwhere(~grid.free):
        x, y = grid.centre_of(cell)
        walls.append(Rectangle((x - half, y - half), grid.unit, grid.unit))
    # Edges in the face's colour: neighbours would show hairlines between them without.
    axes.add_collection(
        PatchCollection(walls, facecolor=colour, edgecolor=colour, linewidth=0.5, zorder=3)
    )


def _draw_cubes(figure, dataset: Dataset, positions) -> None:
    from matplotlib.patches import Rectangle

    k = positions.shape[1]
    panel, wide = 1.9, 1.7  # inches across a view from above; how much wider the heights are
    across, up = 0.41, 0.74  # metres shown
    figure.set_size_inches((panel + 0.3) * (k + wide) + 1.0, panel * up / across + 1.7)
    panels = figure.subplots(1, k + 1, gridspec_kw={"width_ratios": [1.0] * k + [wide]})
    rows = np.unique(np.linspace(0, dataset.num_states - 1, POINTS).astype(int))
    (x0, x1), (y0, y1) = SAMPLING_BOUNDS_M
    for cube, axes in enumerate(panels[:k]):
        x, y, _ = positions[rows, cube].T
        axes.scatter(x, y, s=4, color=CUBES[cube], alpha=0.35, linewidth=0, zorder=2)
        bounds = Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=INK, linestyle="--")
        axes.add_patch(bounds)
        axes.text(x0, y1 + 0.01, "where targets are drawn", fontsize=7, color=INK)
        axes.set_title(f"cube {cube + 1} from above", fontsize=10, color=INK)
        dress(axes, "x (m)", "y (m)" if cube == 0 else "")
        axes.set(xlim=(0.425 - across / 2, 0.425 + across / 2), ylim=(-up / 2, up / 2))
        axes.set(aspect="equal", xticks=(0.3, 0.4, 0.5, 0.6))
        axes.tick_params(labelleft=cube == 0)
    _draw_heights(panels[k], positions[..., 2])
    panels[k].set_box_aspect(up / across / wide)  # as tall as its neighbours


def _draw_heights(axes, z) -> None:
    """Draw a histogram of the cubes' heights [N, k] in metres."""
    z = z.astype(np.float64)
    top = np.clip(np.max(z, initial=0, where=np.isfinite(z)), 0.1, 1)
    # Bins centred on whole centimetres: a cube at rest is at 2, on another at 6, then at 10.
    edges = np.arange(-0.005, top + 0.02, 0.01)
    for cube in range(z.shape[1]):
        counts, _ = np.histogram(z[:, cube], edges)
        centres = (edges[1:] + edges[:-1]) / 2
        line = {"drawstyle": "steps-mid", "color": CUBES[cube], "linewidth": 1.6}
        axes.plot(centres, counts, label=f"cube {cube + 1}", **line)
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(bottom=0.7)
    axes.set_title("height of the centre", fontsize=10, color=INK)
    dress(axes, "z (m)", "states per centimetre")
    axes.legend(fontsize=8, frameon=False, labelcolor=INK)


def _draw_columns(figure, dataset: Dataset) -> None:
    d, da = dataset.observation_dim, dataset.action_dim
    da = min(da, max(COLUMNS // 3, COLUMNS - d))
    d = min(d, COLUMNS - da)
    across = min(4, d + da)
    down = -(-(d + da) // across)
    figure.set_size_inches(max(4.5, 2.7 * across), 2.1 * down + 0.8)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    columns = [("observation", dataset.observations[:, c], c, ACCENT) for c in range(d)]
    columns += [("action", dataset.actions[:, c], c, LINES[1]) for c in range(da)]
    for axes, (kind, values, column, colour) in zip(panels, columns, strict=False):
        axes.hist(values[np.isfinite(values)].astype(np.float64), 40, color=colour)
        axes.set_title(f"{kind} {column}", fontsize=9, color=INK)
        axes.locator_params(axis="x", nbins=4)
        dress(axes, "", "rows" if axes.get_subplotspec().is_first_col() else "")
    for axes in panels[len(columns) :]:
        axes.set_axis_off()


def dress(axes, x_label: str, y_label: str) -> None:
    """Give axes the look that all pictures share."""
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.set_ylabel(y_label, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(PALE)
