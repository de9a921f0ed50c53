"""Samples and plans for the page, compiled once per shape.

What a user changes while looking (state, goal, painted field, horizons, discount, seed) is data:
the number of candidates, chains and segments is not, and is fixed when the page is opened. So each
program below is compiled once, at warm-up, and then answers at once.

Beside the plan itself a page shows why it won: fresh chains of the chosen sequence, of the
runner-up and of the base policy's own sequence, with the same noise for all three.

Shapes: N chains, K segments, k objects, d state, dz policy encoding.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.planning import CompPlan, Memory, Plan, Task, goal_task
from jumpyworld.planning.estimate import Question, chain_states
from jumpyworld.planning.repertoire import Repertoire
from jumpyworld.viewer.candidates import AbstractSource, Effort, Horizons, sources_of
from jumpyworld.viewer.opened import Opened
from jumpyworld.viewer.scene import AbstractScene


class Compared(NamedTuple):
    """Fresh chains of three sequences: chosen, runner-up, base policy.

    Attributes:
        rewards: at the end of each segment [3, K, N].
        states: the same [3, K, N, d].
        runner_up: number of that candidate, -1 where there is none.
    """

    rewards: Float[np.ndarray, "3 K N"]
    states: Float[np.ndarray, "3 K N d"]
    runner_up: int


class Thinker:
    """A policy and its model, asked by a page."""

    def __init__(self, opened: Opened, scene: AbstractScene, effort: Effort | None = None):
        """Keep them; nothing is compiled yet."""
        self.opened, self.scene = opened, scene
        self.effort = Effort() if effort is None else effort
        self.sources = {source.name: source for source in sources_of(opened, self.effort)}
        self._empty: dict[tuple[str, bool], Memory | None] = {}

    @property
    def first(self) -> AbstractSource:
        """Where candidates come from when the page opens."""
        return next(iter(self.sources.values()))

    def samples(
        self,
        seed: int,
        state: np.ndarray,
        z: np.ndarray | None,
        horizon: float,
    ) -> np.ndarray:
        """Return where pi_z is after a geometric number of steps of that mean [R, d].

        Args:
            seed: of the noise; the same seed moves the same samples along as the horizon changes.
            state: from where [d].
            z: whose future [dz]; None for the behaviour that made the data.
            horizon: mean steps, at least 1.
        """
        gamma = jnp.asarray(1 - 1 / horizon, jnp.float32)
        repertoire = Repertoire(self.opened.ghm, self.opened.policy.policy)
        key, rows = jax.random.key(seed), self.effort.samples
        z_array = None if z is None else jnp.asarray(z, jnp.float32)
        states = jnp.asarray(state, jnp.float32)
        return np.asarray(_samples(repertoire, key, states, z_array, gamma, rows))

    def plan(
        self,
        seed: int,
        state: np.ndarray,
        task: Task,
        base: np.ndarray,
        source: AbstractSource,
        horizons: Horizons,
        memory: Memory | None,
    ) -> tuple[Plan, Compared, CompPlan]:
        """Plan, and compare the plan with its rivals.

        Args:
            seed: of all noise.
            state: from where [d].
            task: of ``goal_task`` or ``paint_task``.
            base: the base policy's z: the goal, or the best painted place [d].
            source: of the candidates.
            horizons: of the segments, and the discount.
            memory: of the last plan for the same task and source, if there is one.
        """
        planner = source.planner(has_goal(task), base, horizons)
        # A plan without memory has the shapes of one with it: nothing else is ever compiled.
        kind = source.name, has_goal(task)
        states, key = jnp.asarray(state, jnp.float32), jax.random.key(seed)
        if memory is None:
            if kind not in self._empty:
                self._empty[kind] = planner.remember(key, states, task)
            memory = self._empty[kind]
        plan = jax.block_until_ready(_plan(planner, key, states, task, memory))
        return plan, self._compare(key, states, task, base, planner, plan), planner

    def _compare(
        self,
        key: PRNGKeyArray,
        state: Array,
        task: Task,
        base: np.ndarray,
        planner: CompPlan,
        plan: Plan,
    ) -> Compared:
        """Draw fresh chains; the program knows no reward, so that every task shares it."""
        runner_up = _runner_up(plan)
        rivals = [plan.z, np.asarray(plan.candidates)[runner_up]]
        rivals.append(np.broadcast_to(base.astype(np.float32), plan.z.shape))
        sequences = jnp.asarray(np.stack([np.asarray(z) for z in rivals]))
        states = np.asarray(
            _chains(
                planner.repertoire,
                jax.random.fold_in(key, 1),
                state,
                planner.betas,
                plan.action,
                sequences,
                self.effort.explained,
            )
        )
        rewards = np.asarray(task.reward(states, np.asarray(task.goal)), np.float64)
        return Compared(rewards, states, runner_up)

    def goal_task(self, goal: np.ndarray) -> Task:
        """Return the task of reaching a goal."""
        return goal_task(self.opened.domain, goal)

    def paint_task(self, field: np.ndarray) -> Task:
        """Return the task of collecting a painted reward."""
        return Task(self.scene.painted_reward, field)


def has_goal(task: Task) -> bool:
    """Say whether a task is to reach a goal, rather than to collect what is painted."""
    return task.goal is not None and task.goal.ndim == 1


@eqx.filter_jit
def _samples(
    repertoire: Repertoire,
    key: PRNGKeyArray,
    state: Array,
    z: Array | None,
    gamma: Array,
    rows: int,
) -> Array:
    act_key, jump_key = jax.random.split(key)
    states = jnp.broadcast_to(state, (rows, *state.shape))
    if z is None:
        return repertoire.jump(jump_key, states, None, None, gamma)
    z_rows = jnp.broadcast_to(z, (rows, *z.shape))
    actions = repertoire.act(act_key, states, z_rows)
    return repertoire.jump(jump_key, states, actions, z_rows, gamma)


@eqx.filter_jit
def _plan(
    planner: CompPlan, key: PRNGKeyArray, state: Array, task: Task, memory: Memory | None
) -> Plan:
    return planner.plan(key, state, task, memory)


@eqx.filter_jit
def _chains(
    repertoire: Repertoire,
    key: PRNGKeyArray,
    state: Array,
    betas: Array,
    action: Array,
    sequences: Array,
    rows: int,
) -> Array:
    """Return the states of chains of several sequences [S, K, N, d], with the same noise for all.

    The first sequence begins with the given action, the others with one of their own.
    """
    act_key, chain_key = jax.random.split(key)
    states = jnp.broadcast_to(state, (len(sequences), *state.shape))
    actions = repertoire.act(act_key, states, sequences[:, 0]).at[0].set(action)
    # Only the rewards of a question depend on its task and weights, and none is asked for here.
    question = Question(repertoire, Task(_nothing), state, betas, betas)
    return jax.vmap(lambda a, z: chain_states(chain_key, question, a, z, rows)[0])(
        actions, sequences
    )


def _nothing(states: Any) -> Any:
    return states[..., 0] * 0


def _runner_up(plan: Plan) -> int:
    """Return the best candidate of the last round but the chosen one, or -1."""
    values, last = np.asarray(plan.candidate_values), np.asarray(plan.spent)[-1] > 0
    last[int(plan.chosen)] &= int(plan.chosen) < 0
    scores = np.where(last & np.isfinite(values), values, -np.inf)
    best = int(scores.argmax())
    return best if np.isfinite(scores[best]) else -1
