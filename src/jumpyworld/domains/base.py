"""What every domain knows about itself."""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from jumpyworld.errors import DataError, MissingExtraError


@dataclass(frozen=True)
class Collection:
    """How OGBench collects a domain's standard data set.

    Attributes:
        episodes: training episodes; a tenth as many further ones are kept for validation.
        steps: rows per episode; the last row is the final state.
        noise: standard deviation of the Gaussian noise on actions (mazes) or plans (cubes).
        rate: steps per second and core, from results/generate-speed.jsonl, to tell a user what to
            expect of a server's core.
    """

    episodes: int
    steps: int
    noise: float
    rate: int


@dataclass(frozen=True)
class Domain(abc.ABC):
    """One OGBench domain: dimensions, what a goal means, and how to make its environment.

    ``success`` and ``reward`` are written with array operators alone, so that they take NumPy and
    JAX arrays, any leading batch dimensions, and work under ``jit`` and ``vmap``.

    Attributes:
        name: OGBench's data set name, such as ``antmaze-large-navigate-v0``.
        alias: the paper's name, such as ``antmaze-large`` or ``cube-3``.
        observation_dim: dimensions of a state, which is also that of a goal.
        action_dim: dimensions of an action; actions lie in [-1, 1].
        max_episode_steps: episode limit in evaluation.
        collection: how the standard data set is collected.
    """

    name: str
    alias: str
    observation_dim: int
    action_dim: int
    max_episode_steps: int
    collection: Collection

    num_tasks = 5

    @property
    def env_id(self) -> str:
        """Gymnasium id: the data set's name without its kind of behaviour."""
        *world, _, version = self.name.split("-")
        return "-".join([*world, version])

    @property
    @abc.abstractmethod
    def simulator_dim(self) -> int:
        """Positions and velocities of the simulator's state together."""

    @property
    def row_bytes(self) -> int:
        """Bytes that one row of the domain's npz takes: float32 arrays and one flag."""
        return 4 * (self.observation_dim + self.action_dim + self.simulator_dim) + 1

    @abc.abstractmethod
    def goal_features(self, observations) -> Any:
        """Return the part of observations [..., d] that decides success: [..., k, p].

        ``k`` counts the objects that must be placed and ``p`` the coordinates of each, in the
        observation's own units.
        """

    @property
    @abc.abstractmethod
    def tolerance(self) -> float:
        """Largest distance of an object from its place, in the observation's own units."""

    @property
    @abc.abstractmethod
    def reward_offset(self) -> int:
        """What ``reward`` adds to OGBench's single-task reward: the reward of success."""

    def objects_in_place(self, states, goal):
        """Say for each object whether it is at its goal: bool [..., k].

        Args:
            states: observations in raw units [..., d].
            goal: observation at the goal, [d] or broadcastable against ``states``.
        """
        self._check_dim("states", states)
        self._check_dim("goal", goal)
        here, there = self.goal_features(states), self.goal_features(goal)
        # Leading axes are added by hand, for callers who have JAX refuse to add them silently.
        rank = max(here.ndim, there.ndim)
        gap = here[(None,) * (rank - here.ndim)] - there[(None,) * (rank - there.ndim)]
        return (gap * gap).sum(-1) <= self.tolerance**2

    def success(self, states, goal):
        """Say whether states [..., d] satisfy ``goal``: bool [...]. OGBench's own predicate."""
        return self.objects_in_place(states, goal).all(-1)

    def reward(self, states, goal):
        """Return the planning reward of states [..., d]: objects in place, float32 [...].

        For mazes that is the success indicator. It equals OGBench's single-task reward plus
        ``reward_offset``; a constant does not change which plan is best.
        Paper: silent on the reward; this is the reading that its sources support best.
        """
        return self.objects_in_place(states, goal).astype("float32").sum(-1)

    def make_env(self, seed: int = 0, **kwargs: Any):
        """Make the environment; ``seed`` fixes every episode that ``reset()`` will start.

        Args:
            seed: start of the episode sequence; ``reset(seed=...)`` starts another.
            kwargs: passed to OGBench's environment, such as ``terminate_at_goal=False``.
        """
        try:
            from jumpyworld.domains.envs import make
        except ImportError as error:
            raise MissingExtraError(error.name or "ogbench", "ogbench") from error
        return make(self.env_id, seed, **kwargs)

    @staticmethod
    def observe(env):
        """Return an environment's observation of the state that it is in now."""
        scene = env.unwrapped
        return scene.get_ob() if hasattr(scene, "get_ob") else scene.compute_observation()

    def _check_dim(self, what: str, array) -> None:
        shape = np.shape(array)
        if not shape or shape[-1] != self.observation_dim:
            raise DataError(
                f"{self.alias}: {what} of shape {shape}; the last dimension must be "
                f"{self.observation_dim}"
            )
