"""The callable that every planner is.

    plan  = planner(key, state, task)                  one state
    plans = planner.batch(keys, states, task)          many environments in one call
    action = planner.follow(key, state, plan)          between two plans: pi of the plan's first z

A planner is a pytree and enters its compiled functions as an *argument*: weights caught in a
closure would be compiled in as constants. What is compiled depends on the planner's settings, on
shapes and on the reward function, and on nothing else; goals, states, keys and weights are data.

Shapes: E environments, d state, da action.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import PlanError, check_whole
from jumpyworld.planning.estimate import in_turns
from jumpyworld.planning.inputs import (
    as_floats,
    check_budget,
    check_hashable,
    check_interval,
    finite_actions,
    many_keys,
    one_key,
)
from jumpyworld.planning.plan import Memory, Plan
from jumpyworld.planning.tasks import Task

T = TypeVar("T")
HostError: type[Exception] = jax.errors.JaxRuntimeError


class AbstractPlanner(eqx.Module):
    """Chooses an action, and a sequence of policies to follow, for any task."""

    def __check_init__(self) -> None:
        check_hashable(self)

    @abc.abstractmethod
    def plan(
        self, key: PRNGKeyArray, state: Float[Array, " d"], task: Task, memory: Memory | None
    ) -> Plan:
        """Return the plan for one state; pure and traceable, compiled by the methods below."""

    @abc.abstractmethod
    def act_between(
        self, key: PRNGKeyArray, state: Float[Array, " d"], plan: Plan
    ) -> Float[Array, " da"]:
        """Return the action at a state after the plan's first one; pure and traceable."""

    @property
    def environments_at_once(self) -> int:
        """How many environments ``batch`` plans for side by side; the rest wait their turn."""
        return 2**30

    @property
    def first_horizon(self) -> float | None:
        """Mean steps for which the first policy of a plan is meant to act; None if there is none.

        It is z_1 that the episode should be at by then.
        """
        return None

    def check_widths(self, state_width: int, task: Task) -> None:
        """Raise PlanError where a state or goal cannot be what the planner's parts expect."""

    def check_memory(self, memory: Any, environments: tuple[int, ...]) -> None:
        """Raise PlanError where a memory cannot be gone on from; ``environments`` is its batch."""
        del environments
        if not isinstance(memory, Memory):
            raise PlanError(f"memory={memory!r}: must be the memory of a plan")

    def remember(self, key: PRNGKeyArray, state: Float[Array, " d"], task: Task) -> Memory | None:
        """Return the memory to begin with: None where the planner keeps none."""
        del key, state, task
        return None

    def within(
        self,
        budget_ms: float,
        key: PRNGKeyArray,
        state: Float[Array, " d"],
        task: Task,
        memory: Memory | None,
    ) -> Plan:
        """Return the best plan that a time budget allows; here, the plan."""
        del budget_ms
        return _plan(self, key, state, task, memory)

    def __call__(
        self,
        key: PRNGKeyArray,
        state: Float[Array, " d"],
        task: Task,
        memory: Memory | None = None,
        *,
        budget_ms: float | None = None,
    ) -> Plan:
        """Plan for one state.

        Args:
            key: randomness.
            state: in raw units [d].
            task: reward and goal.
            memory: the last plan's, if the planner keeps any (``warm_start``).
            budget_ms: stop between rounds of the search rather than take longer; what was spent is
                in the plan. The first round is always played, and the first call compiles.

        Raises:
            PlanError: the request cannot be answered; the message names the field.
        """
        key, state = one_key(key), self._check(state, task, ndim=1)
        if budget_ms is not None:
            check_budget(budget_ms)
        if memory is None:
            memory = self.remember(key, state, task)
        else:
            self.check_memory(memory, ())
        if budget_ms is None:
            plan = _guarded(_plan, self, key, state, task, memory)
        else:
            # A number of NumPy's would make traced values of what is decided by it.
            plan = _guarded(self.within, float(budget_ms), key, state, task, memory)
        return _executable(plan)

    def batch(
        self,
        keys: PRNGKeyArray,
        states: Float[Array, "E d"],
        task: Task,
        memory: Memory | None = None,
    ) -> Plan:
        """Plan for many environments at once; each as ``__call__`` would, given its key.

        Args:
            keys: one per environment [E].
            states: in raw units [E, d].
            task: one reward; one goal per environment [E, ...], or none.
            memory: the last batch's, if the planner keeps any.

        Returns:
            A Plan whose arrays have a leading axis E, without ``candidates``.
        """
        states = self._check(states, task, ndim=2)
        if task.goal is not None and task.goal.shape[:1] != states.shape[:1]:
            raise PlanError(
                f"goal of shape {task.goal.shape}: a batch of {len(states)} states needs one each"
            )
        keys = many_keys(keys, len(states))
        if memory is None:
            goal = None if task.goal is None else task.goal[0]
            one = self.remember(one_key(keys[0]), states[0], task.for_goal(goal))
            memory = jax.tree.map(_repeat(len(states)), one)
        else:
            self.check_memory(memory, states.shape[:1])
        return _executable(_guarded(_plan_batch, self, keys, states, task, memory))

    def follow(
        self, key: PRNGKeyArray, state: Float[Array, " d"], plan: Plan
    ) -> Float[Array, " da"]:
        """Return the action at a state between two plans: of pi_{z_1}, drawn there and then.

        Paper: section on planning frequency; the stored action is executed once only.

        Raises:
            PlanError: the state or the action is not finite, or the policy fails.
        """
        state = _states(state, ndim=1)
        _check_plan(plan, state)
        return finite_actions(_guarded(_follow, self, one_key(key), state, plan))

    def follow_batch(
        self, keys: PRNGKeyArray, states: Float[Array, "E d"], plans: Plan
    ) -> Float[Array, "E da"]:
        """Return what ``follow`` does, for many environments [E]."""
        states = _states(states, ndim=2)
        _check_plan(plans, states)
        keys = many_keys(keys, len(states))
        return finite_actions(_guarded(_follow_batch, self, keys, states, plans))

    def _check(self, state: Any, task: Any, ndim: int) -> Array:
        if not isinstance(task, Task):
            raise PlanError(f"task={task!r}: must be a Task, such as goal_task(domain, goal)")
        states = _states(state, ndim)
        # Only an aim is known to be one place; any other goal may be an array of whatever shape.
        if ndim == 1 and task.aim and task.goal is not None and task.goal.ndim != 1:
            raise PlanError(
                f"goal of shape {task.goal.shape}: one state has one goal [d]; planner.batch takes "
                "many states, with a goal each"
            )
        self.check_widths(states.shape[-1], task)
        return states


def decide(
    planner: AbstractPlanner,
    keys: PRNGKeyArray,
    states: Float[Array, "E d"],
    task: Task,
    *,
    step: int,
    replan_every: int = 1,
    plans: Plan | None = None,
) -> tuple[Float[Array, "E da"], Plan]:
    """Return the actions of a control step, and the plans in force after it.

    Every ``replan_every`` steps it plans and executes the planned action; in between it follows the
    first policy of the plan. Paper: section on planning frequency.

    Args:
        planner: who plans.
        keys: one per environment, fresh at every step [E].
        states: [E, d].
        task: with one goal per environment.
        step: control steps since the episodes began.
        replan_every: n.
        plans: what the last step returned; None at the first.

    Raises:
        ConfigError: the interval is not positive, or the step no whole number.
        PlanError: as of the planner's ``batch`` and ``follow_batch``.
    """
    check_interval(replan_every)
    check_whole("step", step, 0)
    if plans is None or step % replan_every == 0:
        plans = planner.batch(keys, states, task, None if plans is None else plans.memory)
        return plans.action, plans
    return planner.follow_batch(keys, states, plans), plans


@eqx.filter_jit
def _plan(
    planner: AbstractPlanner, key: PRNGKeyArray, state: Array, task: Task, memory: Memory | None
) -> Plan:
    return planner.plan(key, state, task, memory)


@eqx.filter_jit
def _plan_batch(
    planner: AbstractPlanner, keys: PRNGKeyArray, states: Array, task: Task, memory: Memory | None
) -> Plan:
    def one(row: tuple[PRNGKeyArray, Array, Array | None, Memory | None]) -> Plan:
        key, state, goal, remembered = row
        plan = planner.plan(key, state, task.for_goal(goal), remembered)
        return dataclasses.replace(plan, candidates=None)

    rows = (keys, states, task.goal, memory)
    return in_turns(one, rows, planner.environments_at_once)


@eqx.filter_jit
def _follow(planner: AbstractPlanner, key: PRNGKeyArray, state: Array, plan: Plan) -> Array:
    return planner.act_between(key, state, plan)


@eqx.filter_jit
def _follow_batch(
    planner: AbstractPlanner, keys: PRNGKeyArray, states: Array, plans: Plan
) -> Array:
    return jax.vmap(planner.act_between)(keys, states, plans)


def _repeat(times: int) -> Callable[[Array], Array]:
    def repeat(value: Array) -> Array:
        return jnp.broadcast_to(value, (times, *value.shape))

    return repeat


def _guarded(function: Callable[..., T], *args: Any) -> T:
    """Call, and turn an error of a policy on the host, which JAX wraps, into one line."""
    try:
        answer = function(*args)
        jax.block_until_ready(answer)
    except HostError as error:
        lines = f"{error}".strip().splitlines()
        named = [line for line in lines if "Error: " in line]
        raise PlanError(f"policy or model: {(named or lines)[-1].strip()}") from error
    return answer


def _states(state: Any, ndim: int) -> Array:
    states = as_floats(state, "state")
    if states.ndim != ndim or not states.size:
        wanted = "[d]" if ndim == 1 else "[E, d]"
        raise PlanError(f"state of shape {states.shape}: must be {wanted}")
    return states


def _check_plan(plan: Any, states: Array) -> None:
    if not isinstance(plan, Plan):
        raise PlanError(f"plan={plan!r}: must be a Plan, as the planner returned it")
    if plan.action.shape[:-1] != states.shape[:-1]:
        raise PlanError(
            f"plan with actions of shape {plan.action.shape}: does not belong to states of shape "
            f"{states.shape}"
        )


def _executable(plan: Plan) -> Plan:
    if not isinstance(plan.action, Tracer):
        remark = f"; invalid candidates: {np.asarray(plan.invalid).max()}"
        finite_actions(plan.action, remark)
    return plan
