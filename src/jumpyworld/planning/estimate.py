"""The value of a sequence of policies, by chained samples.

    (S_0, A_0) = (s, a_1);   for k = 1..K
        S_k ~ m_{beta_k} of pi_{z_k} at (S_{k-1}, A_{k-1})
        A_k ~ pi_{z_{k+1}}(S_k)                              not drawn after the last segment
    value = sum_k w_k r(S_k)

Paper: lemma gsp q-function and lines 10-18 of algorithm compplan. All shapes are static.

Shapes: M candidates, N chains of each, K segments, d state, da action, dz policy encoding.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.planning.gsp import sequence_value
from jumpyworld.planning.repertoire import Repertoire
from jumpyworld.planning.tasks import Task

T = TypeVar("T")


class Question(eqx.Module):
    """What every candidate of one plan is judged by.

    Attributes:
        repertoire: policies and their model.
        task: reward and goal.
        state: where the plan starts [d].
        betas: effective discounts [K].
        weights: of the segments [K].
        max_rows: rows of the model or policy alive at once.
    """

    repertoire: Repertoire
    task: Task
    state: Float[Array, " d"]
    betas: Float[Array, " K"]
    weights: Float[Array, " K"]
    max_rows: int = eqx.field(static=True, default=2**16)


def chain_states(
    key: PRNGKeyArray,
    question: Question,
    action: Float[Array, " da"] | None,
    z: Float[Array, "K dz"],
    num_samples: int,
) -> tuple[Float[Array, "K N d"], Float[Array, "K N da"]]:
    """Return the states S_1..S_K of N chains, and the actions A_0..A_{K-1} that led to them.

    Args:
        key: randomness.
        question: what is asked.
        action: a_1, shared by all chains (objective ``q``); None lets each chain draw its own from
            pi_{z_1} (objective ``v``).
        z: the sequence [K, dz].
        num_samples: N.
    """
    ask = question.repertoire
    cond: Any = jax.lax.cond

    def rows(value: Array) -> Array:
        return jnp.broadcast_to(value, (num_samples, *value.shape))

    def segment(
        states: Array, step: tuple[PRNGKeyArray, Array, Array, Array]
    ) -> tuple[Array, tuple[Array, Array]]:
        keys, z_k, beta, is_first = step
        z_rows = rows(z_k)

        def draw() -> Array:
            return ask.act_in_chain(keys[0], states, z_rows)

        # Drawing when a segment begins, not when it ends, draws no A_K; a given a_1 is not drawn.
        actions = draw() if first is None else cond(is_first, lambda: first, draw)
        successors = ask.jump(keys[1], states, actions, z_rows, beta)
        return successors, (successors, actions)

    first = None if action is None else rows(action)
    segments = z.shape[0]
    keys = jax.random.split(key, (segments, 2))
    steps = (keys, z, question.betas, jnp.arange(segments) == 0)
    return jax.lax.scan(segment, rows(question.state), steps)[1]


def chain_values(
    key: PRNGKeyArray,
    question: Question,
    action: Float[Array, " da"] | None,
    z: Float[Array, "K dz"],
    num_samples: int,
) -> Float[Array, " N"]:
    """Return N single-sample estimates of the value of one sequence.

    A chain that meets a state, action or reward that is not finite is worth NaN: an indicator of
    NaN would be an innocent zero. Arguments are those of ``chain_states``.
    """
    states, actions = chain_states(key, question, action, z, num_samples)
    rewards = question.task.rewards(states)
    sound = jnp.isfinite(states).all(-1) & jnp.isfinite(actions).all(-1)
    rewards = jnp.where(sound, rewards, jnp.full_like(rewards, jnp.nan))
    return sequence_value(rewards.T, question.weights.astype(rewards.dtype))


def candidate_totals(
    key: PRNGKeyArray,
    question: Question,
    actions: Float[Array, "M da"] | None,
    z: Float[Array, "M K dz"],
    num_samples: int,
    *,
    common_noise: bool,
    part: tuple[Array, int] | None = None,
) -> Float[Array, " M"]:
    """Return the sum of N estimates of the value of each candidate.

    Args:
        key: randomness.
        question: what is asked.
        actions: a_1 of each candidate [M, da]; None for objective ``v``.
        z: candidates [M, K, dz].
        num_samples: N.
        common_noise: chain j of every candidate sees the same noise, so that differences between
            candidates are less noisy than their values.
        part: (which, all) where these candidates are only some of ``all`` that the key is for, and
            see the noise that they would see beside the others; ``which`` are their numbers.
    """
    which, many = (slice(None), z.shape[0]) if part is None else part
    keys = None if common_noise else jax.random.split(key, many)[which]

    def one(candidate: tuple[PRNGKeyArray | None, Array | None, Array]) -> Array:
        own_key, action, sequence = candidate
        chosen = key if own_key is None else own_key
        # Summed at once: of all candidates together, only a number each is ever alive.
        return chain_values(chosen, question, action, sequence, num_samples).sum()

    return in_turns(one, (keys, actions, z), max(1, question.max_rows // num_samples))


def in_turns(function: Callable[[Any], T], rows: Any, together: int) -> T:
    """Map over the leading axis of ``rows``, so many of them at once, and no more alive."""
    if together >= len(jax.tree.leaves(rows)[0]):
        return jax.vmap(function)(rows)
    turns: Any = jax.lax.map
    return turns(function, rows, batch_size=together)


def draw_in_turns(
    draw: Callable[[PRNGKeyArray, Any], Array], key: PRNGKeyArray, rows: Any, together: int
) -> Array:
    """Draw for all rows with one call, or where they are too many with several of one size.

    Args:
        draw: (key, rows) to one answer for each row.
        key: randomness; with several calls each has its own.
        rows: arrays with a common leading axis.
        together: most rows of a call.
    """
    count = len(jax.tree.leaves(rows)[0])
    if count <= together:
        return draw(key, rows)
    turns = -(-count // together)
    size = -(-count // turns)
    # The last call repeats a few rows: shapes are the same in all of them.
    which = jnp.minimum(jnp.arange(turns * size), count - 1).reshape(turns, size)

    def turn(keyed: tuple[PRNGKeyArray, Array]) -> Array:
        def pick(array: Array) -> Array:
            return array[keyed[1]]

        return draw(keyed[0], jax.tree.map(pick, rows))

    each: Any = jax.lax.map
    drawn = each(turn, (jax.random.split(key, turns), which))
    return drawn.reshape(turns * size, *drawn.shape[2:])[:count]
