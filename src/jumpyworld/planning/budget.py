"""A plan against the clock: rounds of the search while the next one is expected to end in time."""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from jumpyworld.planning.plan import Memory, Plan
from jumpyworld.planning.search import Pool, Uniform
from jumpyworld.planning.tasks import Task

if TYPE_CHECKING:
    from jumpyworld.planning.compplan import CompPlan

_compiled = threading.local()
PARTS = 8
"""Looks at the clock in the one round of a uniform search."""


def plan_within(
    planner: "CompPlan",
    budget_ms: float,
    key: PRNGKeyArray,
    state: Array,
    task: Task,
    memory: Memory | None,
) -> Plan:
    """Return the best plan so far when the next round would end too late.

    The first round is always played; of a search with one round, which judges each candidate by
    itself, an eighth of the candidates. With time enough it is the plan of ``planner.plan``. Fresh
    chains are left out where they would end too late. On first use all rounds are played once
    before the clock starts: each is a program of its own, and one that a later call came to first
    would be compiled in that call's time. The choice after the last round, which asks the policy
    about a state or two, comes on top: about a millisecond.
    """
    start = time.perf_counter()
    open_key, play_key, end_key = jax.random.split(key, 3)
    pool = _open(planner, open_key, state, task, memory)
    jax.block_until_ready(pool)
    rounds = _rounds(planner)
    if getattr(_compiled, "anew", False):
        _play_all(planner, rounds, (play_key, end_key), state, task, pool)
        _compiled.anew = False
        start = time.perf_counter()
    opened, played = time.perf_counter(), 0

    def in_time(chains: int) -> bool:
        now = time.perf_counter()
        expected = (now - opened) / played * chains if played else 0.0
        return (now - start + expected) * 1e3 <= budget_ms

    for number, (chains, play) in enumerate(rounds):
        if number and not in_time(chains):
            break
        pool = play(play_key, state, task, pool)
        jax.block_until_ready(pool)
        played += chains
    fresh = not planner.search.fresh or in_time(planner.search.fresh)
    return _conclude(planner, end_key, state, task, pool, fresh)


Play = Callable[[PRNGKeyArray, Array, Task, Pool], Pool]


def _rounds(planner: "CompPlan") -> list[tuple[int, Play]]:
    """Return what can be played between two looks at the clock: chains, and how."""
    search, many = planner.search, planner.num_candidates
    if isinstance(search, Uniform) and search.slices == 1:
        size = -(-many // PARTS)
        # An array, as a plain number would be compiled in.
        firsts = [jnp.asarray(first, jnp.int32) for first in range(0, many, size)]
        chains = size * search.samples
        return [
            (chains, functools.partial(_play_some, planner, first=first, size=size))
            for first in firsts
        ]
    return [
        (count * samples, functools.partial(_play, planner, number=number))
        for number, (count, samples) in enumerate(search.schedule(many))
    ]


def _play_all(
    planner: "CompPlan",
    rounds: list[tuple[int, Play]],
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    state: Array,
    task: Task,
    pool: Pool,
) -> None:
    for _, play in rounds:
        pool = play(keys[0], state, task, pool)
    for fresh in {True, not planner.search.fresh}:
        jax.block_until_ready(_conclude(planner, keys[1], state, task, pool, fresh))


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
def _play_some(
    planner: "CompPlan",
    key: PRNGKeyArray,
    state: Array,
    task: Task,
    pool: Pool,
    first: Array,
    size: int,
) -> Pool:
    return planner.play_some(key, state, task, pool, first, size)


@eqx.filter_jit
def _conclude(
    planner: "CompPlan", key: PRNGKeyArray, state: Array, task: Task, pool: Pool, fresh: bool
) -> Plan:
    return planner.conclude(key, state, task, pool, fresh=fresh)
