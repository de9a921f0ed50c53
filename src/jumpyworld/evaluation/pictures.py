"""A picture of what a model believes: its samples beside the truth's, for several discounts.

Rows are the truth and the models, columns discounts; every panel shows one state-goal pair, in
mazes over the walls and with cubes from above. Paper: figure ``qual-ghm``. Drawn from saved samples
alone; nothing is computed but the picture.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jumpyworld import domains
from jumpyworld.data.pictures import (
    ACCENT,
    CUBES,
    DPI,
    INK,
    LINES,
    SAMPLING_BOUNDS_M,
    draw_walls,
    dress,
    maze_ranges,
)
from jumpyworld.domains import CubeDomain, Domain, MazeDomain
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.samples import Samples
from jumpyworld.storage.figures import new_figure, write_png

DOTS = 1500  # per panel; more only make the picture darker
STATE, GOAL = LINES[2], LINES[1]
GRIPPER = "#7a8594"
SOFT_WALL = "#c6cdd6"  # pale, so that dots which lie in a wall stand out


def draw_samples(
    samples: Sequence[Samples],
    path: Path | str,
    *,
    pair: int | None = None,
    gammas: Sequence[float] = (),
) -> int:
    """Draw samples into a PNG file, complete or not at all; return the pair that was drawn.

    Args:
        samples: rows of the picture, all of the same pairs (``samples.read_all``).
        path: the file.
        pair: which state-goal pair; by default the one whose goal is farthest from its state.
        gammas: columns; by default every discount that all sources have.

    Raises:
        ConfigError: there is no such pair or discount.
        DataError: the file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    domain = domains.get(samples[0].domain)
    if samples[0].states.shape[1] != domain.observation_dim:
        raise ConfigError(f"{domain.alias}: its states do not have {samples[0].states.shape[1]}")
    columns = _columns(samples, gammas)
    pair = _farthest(domain, samples[0]) if pair is None else pair
    if not 0 <= pair < len(samples[0].states):
        raise ConfigError(f"pair {pair}: the samples are of {len(samples[0].states)} pairs, from 0")

    x_range, y_range = _ranges(domain)
    panel = 2.6
    height = panel * (y_range[1] - y_range[0]) / (x_range[1] - x_range[0])
    size = (panel * len(columns) + 0.9, height * len(samples) + 0.9)
    figure = new_figure(size, dpi=DPI)
    panels = figure.subplots(len(samples), len(columns), squeeze=False, sharex=True, sharey=True)
    for i, source in enumerate(samples):
        for j, gamma in enumerate(columns):
            axes = panels[i, j]
            states = source.samples[source.gammas.index(gamma), pair]
            _draw_panel(axes, domain, states[:DOTS], source.states[pair], source.goals[pair])
            dress(axes, "", f"{source.label}" if j == 0 else "")
            axes.set(xlim=x_range, ylim=y_range, aspect="equal", xticks=(), yticks=())
            if i == 0:
                title = rf"$\gamma$ = {gamma:g}   ({1 / (1 - gamma):.0f} steps)"
                axes.set_title(title, fontsize=10, color=INK)
    figure.suptitle(f"{domain.alias}: where the policy will be", fontsize=11, color=INK)
    write_png(figure, path)
    return pair


def _columns(samples: Sequence[Samples], gammas: Sequence[float]) -> list[float]:
    shared = [g for g in samples[0].gammas if all(g in each.gammas for each in samples)]
    for gamma in gammas:
        if gamma not in shared:
            known = ", ".join(f"{g:g}" for g in shared) or "no discount"
            raise ConfigError(f"gamma={gamma:g}: the samples share {known}")
    if not shared:
        raise ConfigError("the samples share no discount")
    return sorted(gammas or shared)


def _farthest(domain: Domain, samples: Samples) -> int:
    gap = domain.goal_features(samples.states) - domain.goal_features(samples.goals)
    return int(np.argmax(np.square(gap).sum((-1, -2))))


def _ranges(domain: Domain) -> tuple[tuple[float, float], tuple[float, float]]:
    if isinstance(domain, MazeDomain):
        x_range, y_range, _ = maze_ranges(np.zeros((0, 2)), domain.grid)
        return x_range, y_range
    return (0.15, 0.70), (-0.45, 0.45)  # metres of the table


def _draw_panel(axes, domain: Domain, states, start, goal) -> None:
    if isinstance(domain, CubeDomain):
        _draw_table(axes, domain, states, start, goal)
        return
    if isinstance(domain, MazeDomain):
        draw_walls(axes, domain.grid, SOFT_WALL)
    # Above the walls: a sample that lies in one must be seen.
    axes.scatter(*states[:, :2].T, s=5, color=ACCENT, alpha=0.35, linewidth=0, zorder=4)
    axes.plot(*start[:2], "o", color=STATE, markeredgecolor="white", markersize=7, zorder=5)
    axes.plot(*goal[:2], "*", color=GOAL, markeredgecolor="white", markersize=11, zorder=5)


def _draw_table(axes, domain: CubeDomain, states, start, goal) -> None:
    from matplotlib.patches import Rectangle

    gripper = domain.effector_position(states)
    axes.scatter(*gripper[:, :2].T, s=3, color=GRIPPER, alpha=0.25, linewidth=0, zorder=2)
    begin, end = domain.cube_positions(start), domain.cube_positions(goal)
    for cube, xy in enumerate(np.moveaxis(domain.cube_positions(states)[..., :2], 1, 0)):
        colour = CUBES[cube]
        axes.scatter(*xy.T, s=5, color=colour, alpha=0.35, linewidth=0, zorder=3)
        axes.plot(*begin[cube, :2], "o", color=colour, markeredgecolor="white", zorder=5)
        axes.plot(*end[cube, :2], "*", color=colour, markeredgecolor=INK, markersize=11, zorder=5)
    (x0, x1), (y0, y1) = SAMPLING_BOUNDS_M
    bounds = Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=INK, linestyle="--")
    axes.add_patch(bounds)
