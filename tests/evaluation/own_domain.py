"""A domain that no registry knows, and its environment: a line to walk along."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from jumpyworld.domains.base import Collection, Domain


class Line(gym.Env):
    """One number; an action adds itself, and a little wind. Success: within 0.5 of the goal."""

    observation_space = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, terminate_at_goal=True):
        self.terminate_at_goal = terminate_at_goal

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal = np.float32([3.0 * options["task_id"]])
        self.place = self.np_random.uniform(-0.4, 0.4, 1).astype(np.float32)
        return self.place, {"goal": self.goal}

    def step(self, action):
        wind = self.np_random.normal(0, 0.01, 1).astype(np.float32)
        self.place = self.place + np.clip(action, -1, 1) + wind
        success = bool(abs(self.place - self.goal)[0] <= 0.5)
        return self.place, 0.0, success and self.terminate_at_goal, False, {"success": success}


class Shifted(gym.ObservationWrapper):
    """What a user's own wrapper says is what counts."""

    def observation(self, observation):
        return observation + 0.25


@dataclass(frozen=True)
class LineDomain(Domain):
    tolerance = 0.5
    simulator_dim = 2
    reward_offset = 1
    num_tasks = 2
    wrapped: bool = False

    def goal_features(self, observations):
        return observations[..., None, :]

    def make_env(self, seed=0, **kwargs):
        env = Line(**kwargs)
        return Shifted(env) if self.wrapped else env


LINE = LineDomain("line-walk-v0", "line", 1, 1, 20, Collection(1, 2, 0.0, 1))
