"""OGBench's *navigate* data: a body that runs from goal to goal through a maze.

    start in a random free cell; draw a goal near the centre of a random non-corridor cell
    at each step: look up the next cell on a shortest way to the goal
                  head for its centre; add Gaussian noise to the controller's action
                  goal reached: draw the next one; the episode goes on, without a reset

The point's controller is the direction itself, the ant's is a trained directional runner. The
oracle steers to cell centres, while goals are offset from them: near its goal a body waits until
noise carries it there (upstream's behaviour, kept).

A point's physics takes 70 microseconds a step, so what surrounds it must be cheap: shortest ways
are looked up in tables, noise is drawn for the whole episode, and scalars stay Python floats.
"""

import math
from dataclasses import replace

import numpy as np

from jumpyworld.domains.generate.episodes import Episode, seed_from
from jumpyworld.domains.maze import MazeDomain


class Navigate:
    """Makes episodes of one maze; holds the environment and the tables."""

    def __init__(self, domain: MazeDomain, steps: int, noise: float):
        self._domain, self._steps, self._noise = domain, steps, noise
        self._env = domain.make_env(terminate_at_goal=False)
        self._grid = domain.grid
        self._targets = {goal: self._target_table(goal) for goal in self._grid.junction_cells}
        if domain.body == "ant":
            from jumpyworld.domains.generate.ant_expert import AntExpert

            self._controller = _AntController(AntExpert.load())
        else:
            self._controller = _PointController()

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

    def __call__(self, rng: np.random.Generator) -> Episode:
        """Make the episode that ``rng`` determines."""
        grid, domain = self._grid, self._domain
        start = grid.free_cells[rng.integers(len(grid.free_cells))]
        ob, _ = self._env.reset(
            seed=seed_from(rng),
            # The environment's own goal is not used: ours are drawn from ``rng``.
            options={"task_info": {"init_ij": start, "goal_ij": start}},
        )
        env = self._env.unwrapped
        episode = Episode.empty(self._steps, domain, env.model)
        noise = rng.normal(scale=self._noise, size=(self._steps, domain.action_dim))
        act = self._controller.start(noise.astype(np.float32))
        step, data, tolerance = env.step, env.data, domain.tolerance
        shift, unit = grid.offset + 0.5 * grid.unit, grid.unit
        goal_x, goal_y, targets = self._draw_goal(rng)
        goals_reached = 0
        for t in range(self._steps):
            episode.observations[t] = ob
            episode.qpos[t], episode.qvel[t] = data.qpos, data.qvel
            x, y = float(ob[0]), float(ob[1])
            target_x, target_y = targets[int((y + shift) / unit)][int((x + shift) / unit)]
            dx, dy = target_x - x, target_y - y
            length = math.hypot(dx, dy) + 1e-6
            action = episode.actions[t]
            act(t, ob, dx / length, dy / length, action)
            ob = step(action)[0]
            if math.hypot(ob[0] - goal_x, ob[1] - goal_y) <= tolerance:
                goals_reached += 1
                goal_x, goal_y, targets = self._draw_goal(rng)
        return replace(episode, goals_reached=goals_reached)


class _PointController:
    """Moves straight along the direction."""

    def start(self, noise: np.ndarray):
        noise_x, noise_y = noise.T.tolist()

        def act(t: int, ob: np.ndarray, dx: float, dy: float, action: np.ndarray) -> None:
            action[0] = max(-1.0, min(1.0, dx + noise_x[t]))
            action[1] = max(-1.0, min(1.0, dy + noise_y[t]))

        return act


class _AntController:
    """Runs along the direction with the trained expert."""

    def __init__(self, expert):
        self._expert = expert

    def start(self, noise: np.ndarray):
        expert, nq = self._expert, 15

        def act(t: int, ob: np.ndarray, dx: float, dy: float, action: np.ndarray) -> None:
            np.add(expert(ob[:nq], ob[nq:], (dx, dy)), noise[t], out=action)
            # ndarray.clip costs a third of np.clip, and this runs at every step.
            action.clip(-1.0, 1.0, out=action)

        return act
