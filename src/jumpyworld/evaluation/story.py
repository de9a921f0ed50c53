"""One picture that tells a plan: what the model expects, what was considered, what came of it.

    left     where the policy will be on its way to the goal, at three mean horizons
    middle   a plan made on the way, the first that finds rewards for most candidates: all of them
             by value, and the chosen one
    right    the way that the planner took, beside the policy's own

For mazes, where a state has a place. Shapes: M candidates, K segments, d state.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.data.pictures import DPI, INK, LINES, draw_walls, dress, maze_ranges
from jumpyworld.domains import MazeDomain
from jumpyworld.evaluation.decisions import Trace
from jumpyworld.evaluation.episode import run_episode
from jumpyworld.evaluation.planned import Outcomes
from jumpyworld.evaluation.success import episode_seed
from jumpyworld.planning import AbstractPlanner, CompPlan, Plan, goal_task
from jumpyworld.storage.figures import new_figure, write_png

HORIZONS = (10, 50, 200)
SAMPLES = 300
WALL, START, GOAL = "#c6cdd6", LINES[2], LINES[1]
EQUAL = "#7a8594"  # candidates that no value tells apart


def most_telling(alone: Outcomes, planned: Outcomes) -> tuple[int, int]:
    """Return (task, episode), both from 0, that shows best what planning changes.

    An episode that planning wins and the policy alone loses; where there is none, the one that
    planning shortens most.
    """
    won = planned.success & ~alone.success
    shorter = alone.steps - planned.steps + 10**6 * won
    task, episode = np.unravel_index(np.argmax(shorter), shorter.shape)
    return int(task), int(episode)


def replay(
    domain: MazeDomain,
    planner: AbstractPlanner,
    task: int,
    episode: int,
    *,
    seed: int,
    replan_every: int,
    max_steps: int,
) -> tuple[Trace, list[Plan]]:
    """Run one episode of an evaluation again, by itself; ``task`` counts from 1.

    Its start and its noise are those of ``evaluate``; rounding may differ, as a batch's does. Plans
    of a batch are told without their candidates, and these have them.
    """
    env, own_seed = domain.make_env(), episode_seed(seed, task, episode)
    state, info = env.reset(seed=own_seed, options={"task_id": task})
    goal = np.asarray(info["goal"], np.float32)
    # Without its wrappers an environment knows no limit but ours.
    run = run_episode(
        env.unwrapped, state, planner, goal_task(domain, goal),
        seed=own_seed, replan_every=replan_every, max_steps=max_steps,
    )  # fmt: skip
    env.close()
    trace = Trace(task, goal, run.success, list(run.states), list(run.plan_steps))
    return trace, list(run.plans)


def unlike_counted(trace: Trace, counted: Outcomes, place: tuple[int, int]) -> str | None:
    """Return how an episode that ran again ends otherwise than it was counted; None if alike.

    Args:
        trace: the episode as ``replay`` ran it.
        counted: all episodes of the evaluation.
        place: which of them, (task, episode), as ``most_telling`` returns it.
    """
    there = bool(counted.success[place]), int(counted.steps[place])
    here = trace.success, len(trace.states) - 1
    if here == there:
        return None
    return (
        f"drawn: {_ending(*here)}; counted: {_ending(*there)} (alone, an episode rounds otherwise)"
    )


def _ending(success: bool, steps: int) -> str:
    return f"reached after {steps} steps" if success else f"not in {steps} steps"


def draw_story(
    domain: MazeDomain,
    planner: CompPlan,
    alone: Trace,
    planned: Trace,
    plans: Sequence[Plan],
    path: Path,
    *,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> None:
    """Draw a telling plan of an episode and its outcome into a PNG file, complete or not at all.

    Args:
        domain: the maze.
        planner: who planned.
        alone: the episode with the policy alone.
        planned: the same episode with the planner.
        plans: that were made in it, from ``replay``.
        path: the file.
        seed: of the samples shown.
        notes: what must be known of the picture, below it.

    Raises:
        DataError: the file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    x_range, y_range, _ = maze_ranges(np.zeros((0, 2)), domain.grid)
    figure = new_figure(dpi=DPI)
    height = 4.2 * (y_range[1] - y_range[0]) / (x_range[1] - x_range[0])
    figure.set_size_inches(12.8, height + 1.0)
    left, middle, right = figure.subplots(1, 3)
    key = jax.random.key(episode_seed(seed, planned.task, 0))
    _draw_samples(left, planner, planned, key)
    _draw_candidates(figure, middle, planned, plans)
    for axes, trace, colour, label in (
        (right, alone, LINES[3], "policy alone"),
        (right, planned, LINES[0], "CompPlan"),
    ):
        way = np.stack(trace.states)[:, :2]
        label += f": {_ending(trace.success, len(way) - 1)}"
        axes.plot(*way.T, color=colour, linewidth=1.6, label=label, zorder=4)
    right.set_title("the way taken", fontsize=10, color=INK)
    for axes in (left, middle, right):
        draw_walls(axes, domain.grid, WALL)
        axes.plot(*planned.states[0][:2], "o", color=START, markeredgecolor="white", ms=9, zorder=8)
        axes.plot(*planned.goal[:2], "*", color=GOAL, markeredgecolor="white", ms=14, zorder=8)
        axes.set(xlim=x_range, ylim=y_range, aspect="equal", xticks=(), yticks=())
        dress(axes, "", "")
    for axes in (left, right):
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "frameon": False}
        axes.legend(fontsize=8, ncols=3, labelcolor=INK, **below)
    figure.suptitle(f"{domain.alias}, task {planned.task}", fontsize=11, color=INK)
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=8, color=INK)
    write_png(figure, path)


def _draw_samples(axes: Any, planner: CompPlan, trace: Trace, key: jax.Array) -> None:
    """Draw where the model expects the policy on its way to the goal."""
    state, goal = jnp.asarray(trace.states[0]), jnp.asarray(trace.goal)
    ghm, policy = planner.repertoire.model, planner.repertoire.policy
    states, goals = (jnp.broadcast_to(x, (SAMPLES, x.shape[0])) for x in (state, goal))
    action_key, *keys = jax.random.split(key, 1 + len(HORIZONS))
    actions = policy.sample(action_key, states, goals)
    for horizon, draw, colour in zip(HORIZONS, keys, LINES, strict=False):
        gamma = min(1 - 1 / horizon, float(getattr(ghm, "gamma_max", 1)))
        xy = np.asarray(_sample(ghm, draw, states, actions, goals, jnp.float32(gamma)))[:, :2]
        label = f"after {round(1 / (1 - gamma))} steps"
        axes.scatter(*xy.T, s=5, color=colour, linewidth=0, alpha=0.6, label=label, zorder=3)
    axes.set_title("where the policy will be, says the model", fontsize=10, color=INK)


@eqx.filter_jit
def _sample(ghm: Any, *question: Any) -> jax.Array:
    return ghm.sample(*question)


def _draw_candidates(figure: Any, axes: Any, trace: Trace, plans: Sequence[Plan]) -> None:
    """Draw a plan's sequences of subgoals by value, and the chosen one."""
    told = telling_plan(plans)
    step, plan = trace.plan_steps[told], plans[told]
    here, values = trace.states[step][:2], np.asarray(plan.candidate_values)
    z = np.asarray(plan.candidates)[..., :2]
    colours = colour_map(values)
    shades = [EQUAL] * len(values) if colours is None else colours.to_rgba(values)
    # Values of candidates that were dropped early rest on few chains, and are high by luck.
    spent = np.asarray(plan.spent).sum(0)
    kept = spent == spent.max()
    for i in np.lexsort((values, kept)):
        way, look = np.vstack([here, z[i]]), {"linewidth": 0.8, "marker": "."}
        look |= {"alpha": 1.0 if kept[i] else 0.3, "zorder": 5 if kept[i] else 4}
        axes.plot(*way.T, color=shades[i], **look)
    chain = np.vstack([here, np.asarray(plan.z)[:, :2]])
    axes.plot(*chain.T, color=LINES[0], linewidth=1.8, marker="o", markersize=4, zorder=6)
    axes.plot(*here, "o", color=INK, markeredgecolor="white", ms=7, zorder=9)
    title = f"a plan made after {step} steps" + ("" if kept.all() else " (pale: dropped early)")
    axes.set_title(title, fontsize=10, color=INK)
    if colours is None:
        place = {"x": 0.5, "y": -0.03, "ha": "center", "va": "top", "transform": axes.transAxes}
        axes.text(s=_alike(values), fontsize=8, color=INK, **place)
    else:
        _draw_scale(figure, axes, colours)


def _alike(values: np.ndarray) -> str:
    """Say what values are that are all the same: a scale of one value would tell nothing."""
    found = values[np.isfinite(values)]
    if not len(found):
        return "no value is a number"
    return f"all values {found[0]:.3g}" + ("" if found[0] else ": no chain found the goal")


def _draw_scale(figure: Any, axes: Any, colours: Any) -> None:
    """Draw what the colours mean below a maze."""
    from matplotlib.ticker import MaxNLocator

    # Inside a place of its own, so that the three mazes stay of one size.
    below = axes.inset_axes((0.15, -0.06, 0.7, 0.03))
    bar = figure.colorbar(colours, cax=below, orientation="horizontal")
    bar.locator = MaxNLocator(4)
    bar.set_label("value: discounted time at the goal", fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=8, colors=INK)


def telling_plan(plans: Sequence[Plan]) -> int:
    """Return which plan of an episode tells most: the first that finds much.

    Far from the goal no chain, or a lucky one, gets there, and values that are all zero tell
    nothing; so it is the first plan with rewards for most candidates, or else the one with most.
    """
    found = [float(np.mean(np.asarray(plan.candidate_values) != 0)) for plan in plans]
    return next((i for i, share in enumerate(found) if share > 0.5), int(np.argmax(found)))


def colour_map(values: np.ndarray) -> Any:
    """Return colours for values, from their least to their greatest; None if all are the same."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    found = values[np.isfinite(values)]
    if not len(found) or found.min() == found.max():
        return None
    return ScalarMappable(Normalize(found.min(), found.max()), "viridis")
