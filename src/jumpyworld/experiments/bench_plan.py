"""Cost and quality of a plan: the paper's search beside cheaper ones, on the same candidates.

    cost      milliseconds per plan and network evaluations, in turns, median over rounds
    regret    (value of the best candidate - value of the pick) / (best - mean), both by a reference
              that spends ``REFERENCE`` times the paper's chains on every candidate

Every method judges the same candidates with the same first actions, drawn once per state as the
paper draws them; what differs is how they are judged. Regret 0 is the reference's own choice, 1 is
no better than a random candidate.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError, PlanError
from jumpyworld.evaluation.stats import mean_interval, wilson
from jumpyworld.experiments.references import Judged, References
from jumpyworld.flows import Solver
from jumpyworld.planning import CompPlan, Elimination, GoalProposal, Task, Uniform, fast_search
from jumpyworld.planning.presets import PlanningPreset
from jumpyworld.planning.proposals import AbstractProposal, HighLevelProposal, UnconditionalProposal
from jumpyworld.planning.repertoire import Precision
from jumpyworld.planning.search import Pool, open_pool

REFERENCE = 4
COMPILERS = 4
"""Planners compiled side by side."""


@dataclass(frozen=True)
class Method:
    """One way to judge candidates.

    Attributes:
        name: short and unique.
        idea: what it changes, in words.
        solver: of the ODE.
        num_steps: of the ODE.
        precision: of the model's inner layers.
        elimination: rounds instead of the paper's uniform search.
        common_noise: same noise for every candidate.
        chains: times the usual number in every round of elimination.
        policy_steps: midpoint steps of the policy's flow; None solves it as the policy acts.
    """

    name: str
    idea: str
    solver: Solver = "euler"
    num_steps: int = 20
    precision: Precision = "fp32"
    elimination: bool = False
    common_noise: bool = False
    chains: int = 1
    policy_steps: int | None = None

    def search(self, preset: PlanningPreset) -> Uniform | Elimination:
        """Return how this method spends chains."""
        if not self.elimination:
            return Uniform(preset.samples, common_noise=self.common_noise)
        rounds = fast_search(preset.candidates).rounds
        rounds = tuple((count, self.chains * samples) for count, samples in rounds)
        return Elimination(rounds, common_noise=self.common_noise)


METHODS = (
    Method("paper", "uniform search, 20 Euler steps, fp32"),
    Method("bf16", "and bf16 inner layers", precision="bf16"),
    Method("midpoint-4", "and 4 midpoint steps", "midpoint", 4, "bf16"),
    Method("elimination", "and rounds of elimination", "midpoint", 4, "bf16", True),
    Method("fast", "and common random numbers", "midpoint", 4, "bf16", True, True),
    Method("fast-3", "the same with 3 midpoint steps", "midpoint", 3, "bf16", True, True),
    Method("fast-2", "the same with 2 midpoint steps", "midpoint", 2, "bf16", True, True),
    Method("fast-2x2", "that with twice the chains", "midpoint", 2, "bf16", True, True, 2),
    Method("fast-2x4", "with four times the chains", "midpoint", 2, "bf16", True, True, 4),
    Method(
        "fast-2p",
        "fast-2, and the policy's flow in 2 midpoint steps",
        *("midpoint", 2, "bf16", True, True),
        policy_steps=2,
    ),
)


def usual_methods(policy: Any) -> list[Method]:
    """Return the methods that differ for a policy: who solves no flow cannot solve it in fewer."""
    flows = hasattr(policy, "with_flow_steps")
    return [method for method in METHODS if flows or method.policy_steps is None]


def make_planner(
    method: Method,
    ghm: Any,
    policy: Any,
    preset: PlanningPreset,
    max_rows: int,
    *,
    proposer: Any = None,
    base: Any = None,
) -> CompPlan:
    """Return the planner of a method, with a preset's candidates, horizons and discount.

    Args:
        method: how candidates are judged.
        ghm: the model.
        policy: pi, whose model it is.
        preset: what is judged.
        max_rows: chains alive at once.
        proposer: a hierarchical policy whose high level makes the conditional proposals, as
            ``jumpy eval`` plans with HFBC; the model by default.
        base: what acts where nothing is found; the policy by default.
    """
    proposal: AbstractProposal = UnconditionalProposal(preset.candidates)
    if preset.proposal == "conditional":
        proposal = GoalProposal(preset.candidates)
        if proposer is not None:
            proposal = HighLevelProposal(policy=proposer, number=preset.candidates)
    return CompPlan(
        ghm,
        policy,
        horizons=preset.horizons,
        discount=preset.discount,
        proposal=proposal,
        search=method.search(preset),
        solver=method.solver,
        num_steps=method.num_steps,
        policy_steps=method.policy_steps,
        precision=method.precision,
        base=base,
        max_rows=max_rows,
    )


def time_plans(
    planners: dict[str, CompPlan],
    states: Float[Array, "S d"],
    task: Task,
    *,
    rounds: int,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, float]]:
    """Return milliseconds per plan (median and 90th percentile) and evaluations of each planner.

    Args:
        planners: by name; all are compiled first, then take turns.
        states: to plan from, one after the other.
        task: what to plan for.
        rounds: turns of each.
        say: told of each stage.
    """
    key = jax.random.key(0)

    def prepare(name: str) -> float:
        began = time.monotonic()
        plan = jax.block_until_ready(planners[name](key, states[0], task))
        say(f"{name}: compiled and run in {time.monotonic() - began:.0f} s")
        return float(plan.evaluations)

    with ThreadPoolExecutor(COMPILERS) as pool:
        evaluations = dict(zip(planners, pool.map(prepare, planners), strict=True))
    times: dict[str, list[float]] = {name: [] for name in planners}
    for i in range(rounds):
        for name, planner in planners.items():
            began = time.monotonic()
            jax.block_until_ready(
                planner(jax.random.fold_in(key, i), states[i % len(states)], task)
            )
            times[name].append(1000 * (time.monotonic() - began))
    return {
        name: {
            "plan_ms": statistics.median(values),
            "p90_ms": float(np.quantile(values, 0.9)),
            "evaluations": evaluations[name],
        }
        for name, values in times.items()
    }


@eqx.filter_jit
def _open(planner: CompPlan, key: PRNGKeyArray, state: Array, task: Task) -> Pool:
    return planner.open(key, state, task, None)


@eqx.filter_jit
def _judge(planner: CompPlan, key: PRNGKeyArray, state: Array, task: Task, pool: Pool) -> Pool:
    rounds = len(planner.search.schedule(planner.num_candidates))
    spent = jnp.zeros((rounds, *pool.spent.shape[1:]), pool.spent.dtype)
    pool = eqx.tree_at(lambda p: p.spent, pool, spent)
    for number in range(rounds):
        pool = planner.play(key, state, task, pool, number)
    return pool


def _pick(
    planner: CompPlan, key: PRNGKeyArray, state: Float[Array, " d"], task: Task, judged: Judged
) -> int:
    """Return which of the reference's candidates a planner chooses."""
    z = jnp.asarray(judged.z)
    pool = open_pool(z, jnp.asarray(judged.actions), jnp.zeros(len(z), bool), 1)
    pool = _judge(planner, key, state, task, pool)
    return int(jnp.argmax(jnp.where(pool.alive, pool.scores, -jnp.inf)))


def regret(values: Float[np.ndarray, " M"], pick: int) -> float:
    """Return how far below the best a pick is, relative to the spread; 0 where all are equal.

    A candidate whose value is not finite counts as the worst, and not at all towards the spread.
    """
    sound = values[np.isfinite(values)]
    if not sound.size or sound.max() <= sound.mean():
        return 0.0
    picked = values[pick] if np.isfinite(values[pick]) else sound.min()
    return float((sound.max() - picked) / (sound.max() - sound.mean()))


def measure_regret(
    reference: CompPlan,
    planners: dict[str, CompPlan],
    states: Float[np.ndarray, "S d"],
    tasks: Sequence[Task],
    *,
    opener: CompPlan | None = None,
    seed: int = 0,
    store: References | None = None,
    minutes: float = math.inf,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Return each planner's regret and top-1 agreement with the reference, over states.

    Agreement is the share of states where a planner picks the reference's best candidate.
    ``regret_over_first`` is the mean difference to the first planner's regret on the same states.
    Intervals are over states, at 95 %: Student's, and Wilson's of agreement.

    States where the reference finds every candidate worth the same (flat), or most of them worth
    nothing finite (broken), teach nothing: they are left out and counted.

    Args:
        reference: judges candidates with many chains.
        planners: by name.
        states: raw units.
        tasks: one for each state, with the same reward function.
        opener: draws the candidates and first actions; the reference by default.
        seed: of everything.
        store: where the reference's findings are looked up and kept.
        minutes: after which no further state is begun.
        progress: called with (states done, all).

    Raises:
        PlanError: most states so far are broken; the first one already is, or others follow.
    """
    if len(states) != len(tasks):
        raise ConfigError(f"{len(states)} states for {len(tasks)} tasks")
    found: dict[str, list[tuple[float, bool]]] = {name: [] for name in planners}
    flat, broken, end = 0, 0, time.monotonic() + 60 * minutes
    # Threads, because every planner compiles at the first state.
    with ThreadPoolExecutor(COMPILERS) as pool:
        for i, (state, task) in enumerate(zip(states, tasks, strict=True)):
            if time.monotonic() > end:
                break
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), i), 3)
            state = jnp.asarray(state)
            judged = store.read(i) if store else None
            if judged is None:
                judged = _reference(reference, opener or reference, keys[0], keys[1], state, task)
                if store and not _is_broken(judged):
                    store.write(i, judged)
            values = np.asarray(judged.values, np.float64)
            sound = values[np.isfinite(values)]
            if _is_broken(judged):
                broken += 1
                if 2 * broken > i + 1:
                    raise PlanError(f"regret, state {i}: {_broken(judged)}")
            elif sound.max() <= sound.mean():
                flat += 1
            else:
                pick = partial(_pick, key=keys[2], state=state, task=task, judged=judged)
                best = int(np.nanargmax(values))
                for name, chosen in zip(planners, pool.map(pick, planners.values()), strict=True):
                    found[name].append((regret(values, chosen), chosen == best))
            progress(i + 1, len(states))
    first = next(iter(found.values()))
    return {
        "flat": flat,
        "broken": broken,
        "states": len(first),
        **{name: _summary(rows, first) for name, rows in found.items()},
    }


def _reference(
    planner: CompPlan,
    opener: CompPlan,
    open_key: PRNGKeyArray,
    key: PRNGKeyArray,
    state: Array,
    task: Task,
) -> Judged:
    pool = _judge(planner, key, state, task, _open(opener, open_key, state, task))
    values = np.asarray(pool.means)
    values = np.where(np.isfinite(values), values, np.nan)
    return Judged(np.asarray(pool.z), np.asarray(pool.actions), values)


def _is_broken(judged: Judged) -> bool:
    """Whether most values are not finite."""
    return 2 * int(np.isfinite(judged.values).sum()) < len(judged.values)


def _broken(judged: Judged) -> str:
    """Say how many candidates are not finite, and since when."""
    count = int(np.sum(~np.isfinite(judged.values)))
    where = "already as proposed" if not np.isfinite(judged.z).all() else "as chains judge them"
    return (
        f"the model, or the device that runs it, is not sound: {count} of {len(judged.values)} "
        f"candidates are not finite ({where})"
    )


def _summary(rows: list[tuple[float, bool]], first: list[tuple[float, bool]]) -> dict[str, Any]:
    """Return means over states with their 95 % intervals, as [low, high]."""
    if len(rows) < 2:  # an interval needs two
        return {}
    regrets, base = (np.asarray([regret for regret, _ in each]) for each in (rows, first))
    mean, half = mean_interval(regrets)
    over, reach = mean_interval(regrets - base)
    agreed = sum(same for _, same in rows)
    return {
        "regret": mean,
        "regret_ci95": [max(0.0, mean - half), mean + half],
        "regret_over_first": over,
        "regret_over_first_ci95": [over - reach, over + reach],
        "agreement": agreed / len(rows),
        "agreement_ci95": list(wilson(agreed, len(rows))),
    }
