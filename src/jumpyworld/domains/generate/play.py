"""OGBench's *play* data: an arm that keeps moving random cubes to random places.

    scatter the cubes; draw, for this episode, how often targets are on top of another cube
    repeat: pick a cube that has none on top of it, and a target
            follow OGBench's scripted pick-and-place plan, with smoothed noise, to its end

The plan is not Markov: it was drawn in advance and is followed by time. Planner and scene belong to
the ogbench package; they draw from NumPy's global generator and from the environment's.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from jumpyworld.domains.cube import CubeDomain
from jumpyworld.domains.generate.episodes import Episode, seed_from
from jumpyworld.domains.seeding import global_numpy_seed

NOISE_SMOOTHING = 0.5
STACKING = {1: (0.0, 0.0), 2: (0.0, 0.25), 3: (0.05, 0.35), 4: (0.1, 0.5)}
"""Range of the probability that a target is on top of another cube, by number of cubes."""


class Play:
    """Makes episodes of one cube scene; holds the environment and the scripted planner."""

    def __init__(self, domain: CubeDomain, steps: int, noise: float):
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle

        self._domain, self._steps = domain, steps
        self.env = domain.make_env(terminate_at_goal=False, mode="data_collection")
        self._planner = CubePlanOracle(env=self.env, noise=noise, noise_smoothing=NOISE_SMOOTHING)

    def reset(self, rng: np.random.Generator) -> tuple[np.ndarray, dict]:
        """Put the scene at the start of the episode that ``rng`` determines."""
        return self.env.reset(seed=seed_from(rng))

    def __call__(self, rng: np.random.Generator) -> Episode:
        """Make the episode that ``rng`` determines."""
        ob, info = self.reset(rng)
        stacking = float(rng.uniform(*STACKING[self._domain.num_cubes]))
        with global_numpy_seed(seed_from(rng)):
            return self._follow_plans(ob, info, stacking)

    def _follow_plans(self, ob: np.ndarray, info: dict, stacking: float) -> Episode:
        scene: Any = self.env.unwrapped
        planner = self._planner
        episode = Episode.empty(self._steps, self._domain, scene.model)
        goals_reached = 0
        planner.reset(ob, info)
        for t in range(self._steps):
            episode.observations[t] = ob
            episode.qpos[t], episode.qvel[t] = scene.data.qpos, scene.data.qvel
            episode.actions[t] = np.clip(planner.select_action(ob, info), -1.0, 1.0)
            ob, _, _, _, info = scene.step(episode.actions[t])
            if planner.done:
                goals_reached += bool(info["success"])
                planner.reset(*scene.set_new_target(p_stack=stacking))
        return replace(episode, goals_reached=goals_reached)
