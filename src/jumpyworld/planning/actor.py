"""A planner at work in one environment: it plans every few steps and follows in between.

Paper: section on planning frequency. ``decide`` is the same for many environments at once.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.planning.base import AbstractPlanner
from jumpyworld.planning.inputs import check_interval, one_key
from jumpyworld.planning.plan import Plan
from jumpyworld.planning.tasks import Task


class Actor:
    """Maps the states of an episode, one after the other, to actions.

    Attributes:
        plans: all that were made, the last one in force.
        plan_steps: the control step of each.
    """

    def __init__(
        self, planner: AbstractPlanner, task: Task, key: PRNGKeyArray, *, replan_every: int = 1
    ):
        """Begin an episode.

        Args:
            planner: who plans.
            task: reward and goal.
            key: of all randomness in the episode.
            replan_every: control steps between plans; in between, the plan's first policy acts.

        Raises:
            ConfigError: the interval is not positive.
            PlanError: the key is none.
        """
        check_interval(replan_every)
        self._planner, self._task, self._every = planner, task, replan_every
        self._key = one_key(key)
        self._step = 0
        self.plans: list[Plan] = []
        self.plan_steps: list[int] = []

    def __call__(self, state: Float[Any, " d"]) -> Float[np.ndarray, " da"]:
        """Return the action for the state that the episode is in now."""
        key = jax.random.fold_in(self._key, self._step)
        if self._step % self._every == 0:
            memory = self.plans[-1].memory if self.plans else None
            self.plans.append(self._planner(key, state, self._task, memory))
            self.plan_steps.append(self._step)
            action: Array = self.plans[-1].action
        else:
            action = self._planner.follow(key, state, self.plans[-1])
        self._step += 1
        return np.asarray(action)
