"""What to plan for: a reward on states, with a goal or without.

    goal_task(domain, goal)                               reach a goal, as the domain counts it
    goal_task(domain, goal, "neg-distance")               the nearer the better
    Task(lambda states: -jnp.abs(states[..., 0]))         any function of states
    Task(nearest_of, goal=places)                         a function of states and of an array
    Task(nearness, goal=place, aim=True)                  of a place to be at

A planner is compiled once for each reward *function*; goals are data and cost nothing. So make a
function once and keep it, and hand arrays that change through ``goal``.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jumpyworld.domains import Domain
from jumpyworld.errors import ConfigError, JumpyError, PlanError
from jumpyworld.planning.inputs import as_floats, one_line

RewardName = Literal["count", "indicator", "neg-distance"]


class Task(eqx.Module):
    """A reward on states, and the goal that it is about if there is one.

    Attributes:
        reward: traceable; (states [..., d], goal) to rewards [...], or (states) where there is no
            goal. Booleans count as 0 and 1.
        goal: anything that the reward needs [...]; a vector as wide as z is also what pi_g is sent
            to by whoever asks for pi_g. For a batch of plans, one goal per row.
        aim: whether to be at the goal is what is wanted. Only then may a planner that found no
            reward send the base policy there: a goal may as well be a place to keep away from, and
            a value of zero the best there is.
    """

    reward: Callable[..., Any] = eqx.field(static=True)
    goal: Float[Array, "..."] | None
    aim: bool = eqx.field(static=True)

    def __init__(self, reward: Callable[..., Any], goal: Any = None, *, aim: bool = False):
        """Keep the function, and the goal as an array.

        Raises:
            PlanError: the reward cannot be called, or the goal is no array of finite numbers.
        """
        if not callable(reward):
            raise PlanError(f"reward={reward!r}: must be a function of states")
        self.reward = reward
        self.goal = optional_floats(goal)
        self.aim = aim

    def for_goal(self, goal: Float[Array, "..."] | None) -> "Task":
        """Return the same task for another goal."""
        return Task(self.reward, goal, aim=self.aim)

    def rewards(self, states: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return r(S) of states [..., d] in the states' dtype.

        Raises:
            PlanError: the function raises, or returns another shape than one value per state.
        """
        try:
            found = self.reward(states) if self.goal is None else self.reward(states, self.goal)
            values = jnp.asarray(found)
        except JumpyError:
            raise
        except Exception as error:
            raise PlanError(f"reward: raised {one_line(error)}") from error
        if values.shape != states.shape[:-1]:
            raise PlanError(
                f"reward: returned shape {values.shape} for states of shape {states.shape}; must "
                f"be {states.shape[:-1]}"
            )
        if jnp.issubdtype(values.dtype, jnp.complexfloating):
            raise PlanError(f"reward: must be real numbers, and is complex ({values.dtype})")
        return values.astype(states.dtype)


@dataclasses.dataclass(frozen=True)
class NegativeDistance:
    """Minus the distances of all objects from their places, summed, in the observation's units.

    Equal for equal domains, so that tasks of one domain share a compiled program.
    """

    domain: Domain

    def __call__(self, states: Any, goal: Any) -> Any:
        """Return one value per state."""
        here, there = self.domain.goal_features(states), self.domain.goal_features(goal)
        gap = here - there[(None,) * (here.ndim - there.ndim)]
        return -jnp.sqrt((gap * gap).sum(-1)).sum(-1)


def goal_task(domain: Domain, goal: Any, reward: RewardName = "count") -> Task:
    """Return the task of reaching a goal [d] or goals [E, d].

    Args:
        domain: what being at the goal means.
        goal: observations in raw units.
        reward: ``count`` of the objects in place, the domain's own; ``indicator`` of all being
            there, which is the same in mazes; ``neg-distance``.

    Raises:
        PlanError: the goal has another width than the domain's observations, or is not finite.
        ConfigError: there is no such reward.
    """
    goal = as_floats(goal, "goal")
    shape = goal.shape
    if not shape or shape[-1] != domain.observation_dim:
        raise PlanError(
            f"goal of shape {shape}: the last dimension must be {domain.observation_dim} "
            f"({domain.alias})"
        )
    kinds: dict[str, Any] = {
        "count": domain.reward,
        "indicator": domain.success,
        "neg-distance": NegativeDistance(domain),
    }
    if reward not in kinds:
        raise ConfigError(f"reward={reward!r}: must be one of {', '.join(kinds)}")
    return Task(kinds[reward], goal, aim=True)


def vector_goal(task: Task, who: str, policy: Any = None) -> Float[Array, " dz"]:
    """Return a task's goal as a z that a policy can aim at.

    Args:
        task: with the goal.
        who: asks for it.
        policy: which one aims at it, if that is known.

    Raises:
        PlanError: the task has none, or one that is not a vector or not as wide as the policy's z.
    """
    if task.goal is None:
        raise PlanError(f"{who}: goal=None; this needs a task with a goal")
    if task.goal.ndim != 1:
        raise PlanError(f"{who}: goal of shape {task.goal.shape}; must be a vector, as z is")
    width = getattr(policy, "z_dim", None)
    if width not in (None, len(task.goal)):
        raise PlanError(
            f"{who}: goal of {len(task.goal)} values; must be {width}, as z's of "
            f"{type(policy).__name__}"
        )
    return task.goal


def optional_floats(goal: Any) -> Array | None:
    """Return a goal as an array, or None as None.

    Raises:
        PlanError: it is no array of finite numbers.
    """
    return None if goal is None else as_floats(goal, "goal")
