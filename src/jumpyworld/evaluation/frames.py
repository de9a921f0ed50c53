"""Pictures of episodes as they went, one row or panel per task.

Mazes show the way taken over the walls, and the subgoals of a few plans on it. Cube scenes are a
strip of moments, as the simulator draws them, with arms and cubes that one can see through where
the model expected the first policy of the plan to lead (paper: the figure of frames of an episode).
Where nothing can be rendered they are drawn from above: solid squares are the cubes, outlines their
targets, and pale dots the model's samples.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jumpyworld.data.pictures import CUBES, DPI, INK, LINES, draw_walls, dress, maze_ranges
from jumpyworld.domains import CubeDomain, Domain, MazeDomain
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.decisions import Trace
from jumpyworld.evaluation.scenes import Camera, NoRendererError
from jumpyworld.planning import AbstractPlanner, CompPlan, goal_task
from jumpyworld.planning.estimate import Question, chain_states
from jumpyworld.storage.figures import new_figure, write_png
from jumpyworld.storage.runs import Warn, python_warning

MOMENTS = 6  # plans shown of an episode
DOTS, GHOSTS = 24, 6  # samples of the model shown for a plan: from above, and rendered
PATH, PLAN, START, GOAL, WALL = LINES[0], LINES[4], LINES[2], LINES[1], "#c6cdd6"


def draw_episodes(
    domain: Domain,
    planner: AbstractPlanner,
    traces: Sequence[Trace],
    path: Path,
    title: str,
    *,
    warn: Warn = python_warning,
) -> None:
    """Draw recorded episodes into a PNG file, complete or not at all.

    Args:
        domain: where they ran.
        planner: who acted; asked for its model's samples.
        traces: the episodes, at least one.
        path: the file.
        title: above the picture.
        warn: told in one line where scenes cannot be rendered.

    Raises:
        ConfigError: the domain is neither a maze nor a cube scene.
        DataError: the file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    figure = new_figure(dpi=DPI)
    if isinstance(domain, MazeDomain):
        _draw_mazes(figure, domain, traces)
    elif isinstance(domain, CubeDomain):
        with _camera(domain, warn) as camera:
            _draw_strips(figure, domain, planner, traces, camera)
    else:
        raise ConfigError(f"{domain.alias}: frames are drawn of mazes and cubes alone")
    figure.suptitle(title, fontsize=11, color=INK)
    write_png(figure, path)


def moments_of(trace: Trace) -> list[int]:
    """Return which of an episode's plans to show: a few, evenly spread."""
    plans = len(trace.plan_steps)
    return np.unique(np.linspace(0, plans - 1, min(plans, MOMENTS)).astype(int)).tolist()


def imagine(
    domain: Domain, planner: CompPlan, trace: Trace, plan: int, count: int
) -> Float[np.ndarray, "R d"]:
    """Return where the model expected the first policy of a plan to lead when it was made.

    Args:
        domain: whose reward was planned for.
        planner: with the model.
        trace: an episode of the planner.
        plan: number of the plan in the episode.
        count: samples R.
    """
    task = goal_task(domain, trace.goal)
    state = jnp.asarray(trace.states[trace.plan_steps[plan]])
    betas, weights = planner.betas[:1], planner.weights[:1]
    question = Question(planner.repertoire, task, state, betas, weights)
    action, z = jnp.asarray(trace.actions[plan]), jnp.asarray(trace.z[plan][:1])
    return np.asarray(_samples(question, action, z, count))


@eqx.filter_jit
def _samples(question: Question, action: Array, z: Array, count: int) -> Array:
    return chain_states(jax.random.key(0), question, action, z, count)[0][0]


@contextlib.contextmanager
def _camera(domain: CubeDomain, warn: Warn) -> Iterator[Camera | None]:
    try:
        camera = Camera(domain)
    except NoRendererError as error:
        warn(f"{error}; cubes are drawn from above instead")
        yield None
        return
    with contextlib.closing(camera):
        yield camera


def _draw_mazes(figure: Any, domain: MazeDomain, traces: Sequence[Trace]) -> None:
    x_range, y_range, _ = maze_ranges(np.zeros((0, 2)), domain.grid)
    across = min(3, len(traces))
    down = -(-len(traces) // across)
    height = 3.2 * (y_range[1] - y_range[0]) / (x_range[1] - x_range[0])
    figure.set_size_inches(3.2 * across + 0.3, (height + 0.3) * down + 0.4)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, trace in zip(panels, traces, strict=False):
        draw_walls(axes, domain.grid, WALL)
        way = np.stack(trace.states)[:, :2]
        axes.plot(*way.T, color=PATH, linewidth=1.6, zorder=4)
        for plan in moments_of(trace):
            at, z = trace.states[trace.plan_steps[plan]][:2], trace.z[plan][:, :2]
            axes.plot(*np.vstack([at, z]).T, color=PLAN, linewidth=0.6, alpha=0.7, zorder=5)
            axes.scatter(*z.T, s=9, color=PLAN, linewidth=0, zorder=5)
            axes.plot(*at, "o", color=PATH, markersize=3, zorder=6)
        axes.plot(*way[0], "o", color=START, markeredgecolor="white", markersize=7, zorder=7)
        axes.plot(*trace.goal[:2], "*", color=GOAL, markeredgecolor="white", ms=11, zorder=7)
        axes.set(xlim=x_range, ylim=y_range, aspect="equal", xticks=(), yticks=())
        dress(axes, "", "")
        axes.set_title(_caption(trace), fontsize=9, color=INK)
    for axes in panels[len(traces) :]:
        axes.set_axis_off()


def _draw_strips(
    figure: Any,
    domain: CubeDomain,
    planner: AbstractPlanner,
    traces: Sequence[Trace],
    camera: Camera | None,
) -> None:
    width, height, count = (2.4, 2.1, GHOSTS) if camera else (1.5, 2.3, DOTS)
    figure.set_size_inches(width * MOMENTS + 0.6, height * len(traces) + 0.4)
    panels = figure.subplots(len(traces), MOMENTS, squeeze=False, sharex=True, sharey=True)
    for row, trace in zip(panels, traces, strict=True):
        plans = moments_of(trace)
        for axes, plan in zip(row, plans, strict=False):
            step = trace.plan_steps[plan]
            ghosts = None
            if isinstance(planner, CompPlan):
                ghosts = imagine(domain, planner, trace, plan, count)
            if camera:
                axes.imshow(camera.picture(trace.states[step], trace.goal, ghosts))
                axes.set(xticks=(), yticks=())
            else:
                _draw_table(axes, domain, trace.states[step], trace.goal, ghosts)
            axes.set_title(f"step {step}", fontsize=8, color=INK)
        row[0].set_ylabel(_caption(trace), fontsize=8, color=INK)
        for axes in row[len(plans) :]:
            axes.set_axis_off()


def _draw_table(axes: Any, domain: CubeDomain, state, goal, ghosts) -> None:
    if ghosts is not None:
        positions = domain.cube_positions(ghosts)
        for cube in range(domain.num_cubes):
            xy = positions[:, cube, :2]
            axes.scatter(*xy.T, s=5, color=CUBES[cube], alpha=0.25, linewidth=0, zorder=2)
    here, there = domain.cube_positions(state), domain.cube_positions(goal)
    for cube in range(domain.num_cubes):
        colour = CUBES[cube]
        axes.plot(*there[cube, :2], "s", color=colour, fillstyle="none", markersize=8, zorder=3)
        axes.plot(*here[cube, :2], "s", color=colour, markeredgecolor="white", ms=7, zorder=4)
    axes.plot(*domain.effector_position(state)[:2], "+", color=INK, markersize=7, zorder=5)
    axes.set(xlim=(0.15, 0.70), ylim=(-0.45, 0.45), aspect="equal", xticks=(), yticks=())
    dress(axes, "", "")


def _caption(trace: Trace) -> str:
    end = "solved" if trace.success else "not solved"
    return f"task {trace.task}: {end}, {len(trace.states) - 1} steps"
