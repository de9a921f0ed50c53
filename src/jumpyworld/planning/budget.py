"""A plan against the clock: rounds of the search while the next one is expected to end in time."""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import time
from typing import TYPE_CHECKING

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from jumpyworld.errors import PlanError
from jumpyworld.planning.plan import Memory, Plan
from jumpyworld.planning.search import Pool
from jumpyworld.planning.tasks import Task

if TYPE_CHECKING:
    from jumpyworld.planning.compplan import CompPlan


def plan_within(
    planner: "CompPlan",
    budget_ms: float,
    key: PRNGKeyArray,
    state: Array,
    task: Task,
    memory: Memory | None,
) -> Plan:
    """Return the best plan so far when the next round would end too late.

    The first round is always played. With time enough it is the plan of ``planner.plan``.

    Raises:
        PlanError: the budget is negative or no number.
    """
    if not budget_ms >= 0:
        raise PlanError(f"budget_ms={budget_ms:g}: must be at least 0")
    start = time.perf_counter()
    open_key, play_key, end_key = jax.random.split(key, 3)
    pool = _open(planner, open_key, state, task, memory)
    jax.block_until_ready(pool)
    opened, chains = time.perf_counter(), 0
    for number, (count, samples) in enumerate(planner.search.schedule(planner.num_candidates)):
        now = time.perf_counter()
        expected = (now - opened) / chains * count * samples if chains else 0.0
        if number and (now - start + expected) * 1e3 > budget_ms:
            break
        pool = _play(planner, play_key, state, task, pool, number)
        jax.block_until_ready(pool)
        chains += count * samples
    return _conclude(planner, end_key, state, task, pool)


@eqx.filter_jit
def _open(
    planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, memory: Memory | None
) -> Pool:
    return planner.open(key, state, task, memory)


@eqx.filter_jit
def _play(
    planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, pool: Pool, number: int
) -> Pool:
    return planner.play(key, state, task, pool, number)


@eqx.filter_jit
def _conclude(planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, pool: Pool) -> Plan:
    return planner.conclude(key, state, task, pool)
