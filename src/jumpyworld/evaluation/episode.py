"""One episode of a planner in a real environment; ``success.evaluate`` runs many at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jumpyworld.errors import ConfigError, brief, check_whole
from jumpyworld.planning import AbstractPlanner, Actor, Plan, Task


@dataclass(frozen=True)
class Episode:
    """An episode as it went.

    Attributes:
        states: from the start to the end, float32, each [d].
        success: whether it ended at its goal.
        plans: that were made, with their candidates.
        plan_steps: the control step of each.
    """

    states: Sequence[Float[np.ndarray, " d"]]
    success: bool
    plans: Sequence[Plan]
    plan_steps: Sequence[int]

    @property
    def steps(self) -> int:
        """Control steps that it took."""
        return len(self.states) - 1


def run_episode(
    env: Any,
    state: Float[Any, " d"],
    planner: AbstractPlanner,
    task: Task,
    *,
    seed: int = 0,
    replan_every: int = 1,
    max_steps: int | None = None,
) -> Episode:
    """Act until the environment says that the episode is over; ``Actor`` does it step by step.

    Args:
        env: a Gymnasium environment that was reset; ``info["success"]`` says whether its goal is
            reached.
        state: what the reset returned.
        planner: who plans.
        task: reward and goal.
        seed: of all that the planner draws.
        replan_every: control steps between plans.
        max_steps: the most steps; for environments that have no limit of their own.

    Raises:
        ConfigError: the planner is none, or a number is out of range.
    """
    if not callable(planner):
        raise ConfigError(f"planner={brief(planner)}: must be a planner")
    check_whole("seed", seed, 0)
    if max_steps is not None:
        check_whole("max_steps", max_steps, 1)
    actor = Actor(planner, task, jax.random.key(seed), replan_every=replan_every)
    states, success, over = [np.asarray(state, np.float32)], False, False
    while not over and (max_steps is None or len(states) <= max_steps):
        state, _, terminated, truncated, info = env.step(actor(states[-1]))
        states.append(np.asarray(state, np.float32))
        success = bool(info.get("success", False))
        over = success or terminated or truncated
    return Episode(states, success, actor.plans, actor.plan_steps)
