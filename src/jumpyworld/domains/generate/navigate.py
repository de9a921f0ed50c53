"""OGBench's *navigate* data: a body that runs from goal to goal through a maze.

    start in a random free cell; draw a goal near the centre of a random non-corridor cell
    at each step: look up the next cell on a shortest way to the goal
                  head for its centre; add Gaussian noise to the controller's action
                  goal reached: draw the next one; the episode goes on, without a reset

The point's controller is the direction itself, the ant's is a trained directional runner. The
oracle steers to cell centres, while goals are offset from them: near its goal a body waits until
noise carries it there (upstream's behaviour, kept).

A point's physics takes 70 microseconds a step, so what surrounds it must be cheap: shortest ways
are looked up in tables, noise is drawn for the whole episode, scalars stay Python floats, and the
bodies are stepped beneath the maze's own ``step``, which copies the state four times and scores a
goal that is not ours. A test steps the real environment with the same actions and compares.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jumpyworld.domains.generate.episodes import Episode, seed_from
from jumpyworld.domains.maze import MazeDomain


class Navigate:
    """Makes episodes of one maze; holds the environment and the tables."""

    def __init__(self, domain: MazeDomain, steps: int, noise: float, expert: Path | None = None):
        self._domain, self._steps, self._noise = domain, steps, noise
        self.env = domain.make_env(terminate_at_goal=False)
        self._grid = domain.grid
        self._targets = {goal: self._target_table(goal) for goal in self._grid.junction_cells}
        scene: Any = self.env.unwrapped
        self._body = _Ant(scene, expert) if domain.body == "ant" else _Point(scene)

    def _target_table(self, goal: tuple[int, int]) -> list[list[tuple[float, float]]]:
        centre = self._grid.centre_of
        return [[centre(cell) for cell in row] for row in self._grid.next_cells(goal)]

    def _draw_goal(self, rng: np.random.Generator):
        """Return a goal's position and the table of directions to it."""
        cells = self._grid.junction_cells
        cell = cells[rng.integers(len(cells))]
        x, y = self._grid.centre_of(cell)
        dx, dy = rng.uniform(-1.0, 1.0, size=2) * self._grid.unit / 4
        return x + float(dx), y + float(dy), self._targets[cell]

    def reset(self, rng: np.random.Generator) -> None:
        """Put the environment at the start of the episode that ``rng`` determines."""
        start = self._grid.free_cells[rng.integers(len(self._grid.free_cells))]
        self.env.reset(
            seed=seed_from(rng),
            # The environment's own goal is not used: ours are drawn from ``rng``.
            options={"task_info": {"init_ij": start, "goal_ij": start}},
        )

    def __call__(self, rng: np.random.Generator) -> Episode:
        """Make the episode that ``rng`` determines."""
        self.reset(rng)
        grid, domain = self._grid, self._domain
        scene: Any = self.env.unwrapped
        episode = Episode.empty(self._steps, domain, scene.model)
        noise = rng.normal(scale=self._noise, size=(self._steps, domain.action_dim))
        act, step = self._body.controller(noise.astype(np.float32)), self._body.step
        qpos, qvel = scene.data.qpos, scene.data.qvel  # views of the simulator's memory
        tolerance, shift, unit = domain.tolerance, grid.offset + 0.5 * grid.unit, grid.unit
        goal_x, goal_y, targets = self._draw_goal(rng)
        goals_reached = 0
        x, y = float(qpos[0]), float(qpos[1])
        for t in range(self._steps):
            episode.qpos[t], episode.qvel[t] = qpos, qvel
            target_x, target_y = targets[int((y + shift) / unit)][int((x + shift) / unit)]
            dx, dy = target_x - x, target_y - y
            length = math.hypot(dx, dy) + 1e-6
            action = episode.actions[t]
            act(t, dx / length, dy / length, action)
            step(action)
            x, y = float(qpos[0]), float(qpos[1])
            if math.hypot(x - goal_x, y - goal_y) <= tolerance:
                goals_reached += 1
                goal_x, goal_y, targets = self._draw_goal(rng)
        self._body.observe(episode)
        return replace(episode, goals_reached=goals_reached)


class _Point:
    """Moves straight along the direction; observes its position."""

    def __init__(self, scene):
        from ogbench.locomaze.point import PointEnv

        self._scene, self._step = scene, PointEnv.step

    def controller(self, noise: np.ndarray):
        noise_x, noise_y = noise.T.tolist()

        def act(t: int, dx: float, dy: float, action: np.ndarray) -> None:
            action[0] = max(-1.0, min(1.0, dx + noise_x[t]))
            action[1] = max(-1.0, min(1.0, dy + noise_y[t]))

        return act

    def step(self, action: np.ndarray) -> None:
        self._step(self._scene, action)

    def observe(self, episode: Episode) -> None:
        episode.observations[:] = episode.qpos


class _Ant:
    """Runs along the direction with the trained expert; observes positions and velocities."""

    def __init__(self, scene, expert: Path | None):
        from jumpyworld.domains.generate.ant_expert import AntExpert

        self._scene, self._expert = scene, AntExpert.load(expert)

    def controller(self, noise: np.ndarray):
        expert, data = self._expert, self._scene.data
        qpos, qvel = data.qpos, data.qvel

        def act(t: int, dx: float, dy: float, action: np.ndarray) -> None:
            np.add(expert(qpos, qvel, (dx, dy)), noise[t], out=action)
            # ndarray.clip costs a third of np.clip, and this runs at every step.
            action.clip(-1.0, 1.0, out=action)

        return act

    def step(self, action: np.ndarray) -> None:
        self._scene.do_simulation(action, self._scene.frame_skip)

    def observe(self, episode: Episode) -> None:
        np.concatenate([episode.qpos, episode.qvel], axis=1, out=episode.observations)
