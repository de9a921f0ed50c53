"""Success of a planner or policy on a domain's five tasks, in the real environment.

Every episode has a seed of its own, (seed, task, episode), which fixes start, goal and noise; two
planners evaluated with one seed meet the same episodes, and nobody's outcome depends on who runs
beside it. Environments step in lockstep. A planner is asked for as many of them at a time as its
memory allows, always the same number, so that nothing is compiled twice; episodes that are over are
not asked about.

Shapes: E environments, C environments of one call, d state, da action.
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jumpyworld.domains import CubeDomain, Domain
from jumpyworld.errors import ConfigError, check_whole
from jumpyworld.evaluation.decisions import DecisionLog, Decisions, Trace
from jumpyworld.evaluation.lockstep import Lockstep
from jumpyworld.evaluation.stats import mean_of_tasks
from jumpyworld.planning import AbstractPlanner, Plan, RewardName, ZeroShot, decide, goal_task

# Environments in memory at once. A maze takes 2 MB, a scene with cubes 160 MB.
MAZES_AT_ONCE, CUBES_AT_ONCE = 512, 128


@dataclass(frozen=True)
class Success:
    """Outcome of an evaluation.

    Attributes:
        outcomes: whether each episode succeeded, bool [tasks, episodes].
        steps: control steps each episode took, int [tasks, episodes].
        task_ids: which tasks, from 1.
        decisions: what planning was like.
        traces: the episodes that were recorded.
    """

    outcomes: np.ndarray
    steps: np.ndarray
    task_ids: tuple[int, ...]
    decisions: Decisions
    traces: tuple[Trace, ...] = ()

    @property
    def tasks(self) -> list[tuple[int, int]]:
        """(successes, episodes) of each task."""
        return [(int(row.sum()), len(row)) for row in self.outcomes]

    @property
    def mean(self) -> float:
        """Mean over tasks."""
        return mean_of_tasks(self.tasks)[0]

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % interval of the mean."""
        return mean_of_tasks(self.tasks)[1]


def episode_seed(seed: int, task: int, episode: int) -> int:
    """Return the seed of one episode; the same for every policy and planner."""
    return int(np.random.SeedSequence([seed, task, episode]).generate_state(1)[0] % 2**31)


def open_environments(domain: Domain, episodes: int, workers: int | None = None) -> Lockstep:
    """Return environments for so many episodes: one each, or as many as memory should hold."""
    most = CUBES_AT_ONCE if isinstance(domain, CubeDomain) else MAZES_AT_ONCE
    return Lockstep(domain, min(episodes, most), workers=workers)


def evaluate(
    domain: Domain,
    actor: Any,
    *,
    episodes: int = 20,
    tasks: Sequence[int] | None = None,
    seed: int = 0,
    workers: int | None = None,
    envs: Lockstep | None = None,
    max_steps: int | None = None,
    replan_every: int = 1,
    reward: RewardName = "count",
    record: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Success:
    """Run a planner or policy on every task until success or the limit.

    Args:
        domain: where.
        actor: a planner; or a policy, which acts on batches [B, d] of states and goals in raw
            units by ``sample(key, states, goals)``; its actions are clipped to the environment's
            bounds.
        episodes: per task.
        tasks: which tasks, from 1; all by default.
        seed: fixes all episodes.
        workers: processes; they change the time alone.
        envs: environments of the domain to use, any number of them; they stay open, for another
            planner. By default they are made here.
        max_steps: episode limit; the domain's own by default.
        replan_every: control steps between plans; in between, the plan's first policy acts.
        reward: what planners maximise; see ``goal_task``. Success is the environment's own.
        record: how many episodes of each task to keep as traces.
        progress: called with (environment steps decided, all) after each call of the planner and
            each step. A plan decides the steps until the next one; an episode that is over is done.

    Raises:
        ConfigError: a number is out of range.
        PlanError: the planner cannot answer.
    """
    task_ids = tuple(range(1, domain.num_tasks + 1) if tasks is None else tasks)
    _check(domain, task_ids, episodes, max_steps, replan_every, seed)
    check_whole("record", record, 0)
    # Environments clip actions to their own bounds, whoever acts.
    planner = actor if isinstance(actor, AbstractPlanner) else ZeroShot(actor, action_limit=None)
    jobs = [(task, episode) for task in task_ids for episode in range(episodes)]
    limit = max_steps or domain.max_episode_steps
    steps, done = np.full(len(jobs), limit), np.zeros(len(jobs), bool)
    log, traces = DecisionLog(domain, first_horizon=planner.first_horizon), []
    made = nullcontext(envs) if envs else open_environments(domain, len(jobs), workers)
    with made as envs:
        lanes = envs.num_envs
        for first in range(0, len(jobs), lanes):
            # The last wave may be smaller; spare environments repeat its episodes unwatched.
            count = min(lanes, len(jobs) - first)
            wave = np.resize(np.arange(first, first + count), lanes)
            seeds = [episode_seed(seed, *jobs[i]) for i in wave]
            starts = [{"seed": s, "task": jobs[i][0]} for s, i in zip(seeds, wave, strict=True)]
            states, goals = envs.reset(starts)
            size = min(lanes, len(jobs), planner.environments_at_once)
            pilot = _Pilot(
                planner, domain, seeds, goals, size, replan_every, reward, log, warm=first > 0
            )
            for row in range(count):
                task, episode = jobs[wave[row]]
                if episode < record:
                    traces.append(pilot.record(row, task, states[row]))
            over = np.arange(lanes) >= count
            tell = _Teller(progress, limit, replan_every, first + count, len(jobs))
            for t in range(limit):
                running = np.flatnonzero(~over)
                asked = functools.partial(tell, t, len(running))
                actions = pilot.act(t, running, states, asked)
                states, success = envs.step(actions)
                pilot.look(t + 1, states, success, ~over)
                won = np.flatnonzero(success & ~over)
                steps[first + won], done[first + won] = t + 1, True
                over |= success
                left = int((~over).sum()) if t + 1 < limit else 0
                tell(t, left, left)
                if not left:
                    break
    shape = (len(task_ids), episodes)
    return Success(
        done.reshape(shape), steps.reshape(shape), task_ids, log.summary(), tuple(traces)
    )


@dataclass(frozen=True)
class _Teller:
    """Tells progress in control steps that are decided; a plan decides those until the next.

    So the time left is known from the second call of a planner on, which may be long before all
    episodes have made their first step. What still runs is never told to be done.

    Attributes:
        progress: called with (steps, all).
        limit: steps of an episode.
        every: steps between plans.
        begun: episodes of this wave and those before.
        episodes: all.
    """

    progress: Callable[[int, int], None]
    limit: int
    every: int
    begun: int
    episodes: int

    def __call__(self, t: int, running: int, planned: int) -> None:
        """At step t ``running`` episodes go on, for ``planned`` of which there is a plan."""
        until = min(self.limit, t - t % self.every + self.every)
        undecided = running * (self.limit - t) - planned * (until - t)
        total = self.episodes * self.limit
        self.progress(min(self.begun * self.limit - undecided, total - running), total)


class _Pilot:
    """Asks a planner for the actions of the episodes that still run, C of them at a time."""

    def __init__(
        self,
        planner: AbstractPlanner,
        domain: Domain,
        seeds: Sequence[int],
        goals: Float[np.ndarray, "E d"],
        size: int,
        replan_every: int,
        reward: RewardName,
        log: DecisionLog,
        *,
        warm: bool,
    ):
        self._planner, self._domain, self._goals = planner, domain, goals
        self._keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
        self._reward: RewardName = reward
        self._size, self._every, self._log, self._warm = size, replan_every, log, warm
        self._plans: Plan | None = None
        self._traces: dict[int, Trace] = {}
        log.begin(len(goals))

    def record(self, row: int, task: int, state: Float[np.ndarray, " d"]) -> Trace:
        """Return the trace that an environment's episode will fill."""
        self._traces[row] = Trace(task, self._goals[row], states=[state])
        return self._traces[row]

    def look(
        self, step: int, states: Float[np.ndarray, "E d"], success: np.ndarray, ran: np.ndarray
    ) -> None:
        """Add where ``step`` steps led to, for those who ran."""
        rows = np.flatnonzero(ran)
        self._log.see(step, rows, states[rows])
        for row, trace in self._traces.items():
            if ran[row]:
                trace.states.append(states[row])
                trace.success = bool(success[row])

    def act(
        self,
        t: int,
        running: Int[np.ndarray, " R"],
        states: Float[np.ndarray, "E d"],
        asked: Callable[[int], None],
    ) -> Float[np.ndarray, "E da"]:
        """Return the actions of step t; zero for episodes that are over.

        ``asked`` is called with how many episodes have a plan by then, after each call for one.
        """
        actions = np.zeros((len(states), self._domain.action_dim), np.float32)
        for first in range(0, len(running), self._size):
            rows = running[first : first + self._size]
            actions[rows] = self._ask(t, rows, states)[: len(rows)]
            if t % self._every == 0:
                asked(first + len(rows))
        return actions

    def _ask(self, t: int, rows: np.ndarray, states: np.ndarray) -> np.ndarray:
        planning = t % self._every == 0
        padded = np.resize(rows, self._size)
        held = None if t == 0 else jax.tree.map(lambda x: jnp.asarray(x[padded]), self._plans)
        keys = _step_keys(self._keys, jnp.asarray(padded, jnp.int32), jnp.int32(t))
        places = jnp.asarray(states[padded])
        task = goal_task(self._domain, self._goals[padded], self._reward)
        ask = {"step": t, "replan_every": self._every, "plans": held}
        if not planning:
            return np.asarray(decide(self._planner, keys, places, task, **ask)[0])
        with self._log.timing(self._size, len(rows), warm=self._warm or t > 0):
            chosen, made = decide(self._planner, keys, places, task, **ask)
        made = jax.tree.map(lambda x: np.asarray(x)[: len(rows)], made)
        self._log.add(t, rows, states[rows], made)
        self._keep(rows, made)
        for i, row in enumerate(rows.tolist()):
            if row in self._traces:
                self._traces[row].plan_steps.append(t)
                self._traces[row].z.append(made.z[i])
                self._traces[row].actions.append(made.action[i])
        return np.asarray(chosen)

    def _keep(self, rows: np.ndarray, made: Plan) -> None:
        if self._plans is None:
            many = len(self._goals)
            self._plans = jax.tree.map(lambda x: np.zeros((many, *x.shape[1:]), x.dtype), made)
        for kept, new in zip(jax.tree.leaves(self._plans), jax.tree.leaves(made), strict=True):
            kept[rows] = new


@jax.jit
def _step_keys(keys, rows, t):
    """Return fresh keys of some episodes at step t; each depends on its own episode alone."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys[rows], t)


def _check(
    domain: Domain,
    tasks: tuple[int, ...],
    episodes: int,
    max_steps: int | None,
    replan_every: int,
    seed: int,
) -> None:
    known = range(1, domain.num_tasks + 1)
    if not tasks or len(set(tasks)) < len(tasks) or not set(tasks) <= set(known):
        raise ConfigError(f"tasks={tasks}: must be different ones of 1 to {domain.num_tasks}")
    check_whole("episodes", episodes, 1)
    check_whole("replan_every", replan_every, 1)
    if max_steps is not None:
        check_whole("max_steps", max_steps, 1)
    check_whole("seed", seed, 0)
