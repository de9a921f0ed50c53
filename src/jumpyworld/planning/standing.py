"""Candidates that stand beside the proposed ones: the base policy's sequence, the last plan's.

They stand first, in this order: the base policy's, the remembered ones as they are, the same one
segment further on, the proposed ones. A margin protects the last plan, or else the base policy:
another candidate must be worth so much more to be chosen.

Shapes: M candidates, P of them proposed, W remembered, K segments, dz policy-encoding dimensions.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jumpyworld.errors import PlanError
from jumpyworld.planning.plan import Memory
from jumpyworld.planning.search import Pool
from jumpyworld.planning.tasks import Task


def with_standing(
    z: Float[Array, "P K dz"],
    task: Task,
    memory: Memory | None,
    *,
    include_base: bool,
    warm_start: int,
) -> Float[Array, "M K dz"]:
    """Return the proposed sequences with those that stand before them.

    Args:
        z: proposed sequences.
        task: whose goal is the base policy's z.
        memory: of the last plan.
        include_base: add z_k = g for all k.
        warm_start: W.

    Raises:
        PlanError: ``include_base`` for a goal that cannot be a z.
    """
    if warm_start:
        # Without a last plan, proposals stand in: shapes are the same in every call.
        fill = z[:warm_start]
        if memory is not None and memory.z.shape != fill.shape:
            raise PlanError(f"memory of shape {memory.z.shape}: sequences here are {fill.shape}")
        kept = fill if memory is None else jnp.where(memory.valid, memory.z.astype(z.dtype), fill)
        # The first subgoal of a sequence may have been reached by now.
        onward = jnp.concatenate([kept[:, 1:], kept[:, -1:]], axis=1)
        z = jnp.concatenate([kept, onward, z])
    if include_base:
        base = base_sequence(z, task)
        if base is None:
            shape = None if task.goal is None else task.goal.shape
            raise PlanError(
                f"include_base: needs a goal of shape {z.shape[2:]} as z's, the task's is {shape}"
            )
        z = jnp.concatenate([base[None], z])
    return z


def base_sequence(z: Float[Array, "M K dz"], task: Task) -> Float[Array, "K dz"] | None:
    """Return z_k = g for all k, or None where the goal cannot be a z."""
    goal = task.goal
    if goal is None or goal.shape != z.shape[2:]:
        return None
    return jnp.broadcast_to(goal.astype(z.dtype), z.shape[1:])


def protected(
    memory: Memory | None, count: int, *, include_base: bool, warm_start: int
) -> Bool[Array, " M"]:
    """Say which of ``count`` candidates a margin protects: the last plan, or else the base policy.

    Of the last plan it is the sequence that was chosen, as it is and one segment further on.
    """
    nobody = jnp.zeros(count, bool)
    base = nobody.at[0].set(include_base)
    if not warm_start or memory is None:
        return base
    first = int(include_base)
    last = nobody.at[jnp.asarray([first, first + warm_start])].set(True)
    return jnp.where(memory.valid, last, base)


def num_protected(warm_start: int) -> int:
    """Return the most candidates that ``protected`` marks."""
    return 2 if warm_start else 1


def best_of(pool: Pool, margin: float) -> tuple[Int[Array, ""], Float[Array, " M"]]:
    """Return the candidate to choose, and the scores that it is chosen by.

    Args:
        pool: after the last round; only its candidates count.
        margin: by which share another must be worth more than the protected ones.
    """
    nothing = jnp.full_like(pool.scores, -jnp.inf)
    scores = jnp.where(pool.alive, pool.scores, nothing)
    # Where the whole last round is broken, those before it are still worth what they were.
    scores = jnp.where(jnp.isfinite(scores).any(), scores, pool.scores)
    # Where nothing at all is finite, the first that can at least be followed.
    best = jnp.where(jnp.isfinite(scores).any(), jnp.argmax(scores), jnp.argmax(pool.sound))
    if margin > 0:
        held = jnp.argmax(jnp.where(pool.protected, scores, nothing))
        enough = scores[held] + margin * jnp.abs(scores[held])
        worthless = ~pool.protected.any() | ~jnp.isfinite(scores[held])
        best = jnp.where(worthless | (scores[best] > enough), best, held)
    return best.astype(jnp.int32), scores


def not_the_base(pool: Pool, best: Int[Array, ""]) -> Int[Array, ""]:
    """Return the first candidate after the base policy's, which stands first, if nothing is found.

    Nothing is found where no candidate meets any reward or none has a finite value. The base
    policy's is kept only where no other can be followed.
    """
    finite = jnp.isfinite(pool.scores)
    others = jnp.where(finite.any(), finite, pool.sound).at[0].set(False)
    instead = (pool.no_reward | ~finite.any()) & (best == 0) & others.any()
    return jnp.where(instead, jnp.argmax(others), best).astype(best.dtype)


def best_first(pool: Pool, best: Int[Array, ""]) -> Int[Array, " M"]:
    """Return the candidates to remember, in the order in which they are.

    The chosen one first, as it is the one that a margin protects; then those of the last round, and
    those eliminated before it, each by their values. What is not finite is not remembered: the
    chosen one stands in.

    Args:
        pool: after the last round.
        best: the one chosen.
    """
    scores = pool.scores
    sound, others = jnp.isfinite(scores), jnp.arange(len(scores)) != best
    # The last key decides first.
    order = jnp.lexsort((-scores, ~pool.alive, ~sound, others))
    return jnp.where(sound[order], order, best)
