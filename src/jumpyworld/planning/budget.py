"""A plan against the clock: rounds of the search while the next one is expected to end in time."""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import threading
import time
from typing import TYPE_CHECKING

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from jumpyworld.planning.plan import Memory, Plan
from jumpyworld.planning.search import Pool
from jumpyworld.planning.tasks import Task

if TYPE_CHECKING:
    from jumpyworld.planning.compplan import CompPlan

_compiled = threading.local()


def plan_within(
    planner: "CompPlan",
    budget_ms: float,
    key: PRNGKeyArray,
    state: Array,
    task: Task,
    memory: Memory | None,
) -> Plan:
    """Return the best plan so far when the next round would end too late.

    The first round is always played. With time enough it is the plan of ``planner.plan``. On first
    use all rounds are played once before the clock starts: each is a program of its own, and one
    that a later call came to first would be compiled in that call's time.
    """
    start = time.perf_counter()
    open_key, play_key, end_key = jax.random.split(key, 3)
    pool = _open(planner, open_key, state, task, memory)
    jax.block_until_ready(pool)
    if getattr(_compiled, "anew", False):
        _play_all(planner, play_key, state, task, pool)
        _compiled.anew = False
        start = time.perf_counter()
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


def _play_all(planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, pool: Pool) -> None:
    for number in range(len(planner.search.schedule(planner.num_candidates))):
        pool = _play(planner, key, state, task, pool, number)
    jax.block_until_ready(pool)


@eqx.filter_jit
def _open(
    planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, memory: Memory | None
) -> Pool:
    # This line runs while JAX traces, hence once for each program, in the thread that asked for it.
    _compiled.anew = True
    return planner.open(key, state, task, memory)


@eqx.filter_jit
def _play(
    planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, pool: Pool, number: int
) -> Pool:
    return planner.play(key, state, task, pool, number)


@eqx.filter_jit
def _conclude(planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, pool: Pool) -> Plan:
    return planner.conclude(key, state, task, pool)
