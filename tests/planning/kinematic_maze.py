"""A point in a maze that moves as it wants to: exact successor measures by simulation.

A step adds the action times ``STEP``; the scripted policy never steers into a wall, so there are no
walls to hit. The model draws a geometric number of steps and takes them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from jumpyworld import domains
from jumpyworld.planning import AbstractProposal
from jumpyworld.policies import ScriptedGoalPolicy
from jumpyworld.policies.scripted import STEP

LARGE = domains.get("pointmaze-large")
# (start, goal) cells of OGBench's five tasks in its large maze.
TASKS = (
    ((1, 1), (7, 10)),
    ((5, 4), (7, 1)),
    ((7, 4), (1, 10)),
    ((3, 8), (5, 4)),
    ((1, 1), (5, 4)),
)


def centres(grid, cells):
    return jnp.asarray([grid.centre_of(cell) for cell in cells], jnp.float32)


def walk(policy, key, states, z, steps, most):
    """Take ``steps`` [R] steps, at most ``most``, of pi_z from states [R, 2]."""

    def step(states, i):
        moved = states + STEP * policy.sample(key, states, z)
        return jnp.where((i < steps)[:, None], moved, states), None

    return jax.lax.scan(step, states, jnp.arange(most))[0]


class KinematicMaze(eqx.Module):
    """The exact model of a scripted policy that has somewhere to arrive.

    Attributes:
        policy: pi_z.
        most_steps: after so many steps pi_z has arrived wherever it goes.
    """

    policy: ScriptedGoalPolicy
    most_steps: int = eqx.field(static=True)

    def __init__(self, policy):
        # A way of n moves is at most n + 1.5 cells long.
        self.policy, self.most_steps = policy, int((policy.reach + 1.5) * policy.unit / STEP)

    def sample(self, key, states, actions, z, gamma):
        u = jax.random.uniform(key, states.shape[:1], minval=1e-7)
        steps = jnp.floor(jnp.log(u) / jnp.log(jnp.maximum(gamma, 1e-9))).astype(jnp.int32)
        return walk(self.policy, key, states + STEP * actions, z, steps, self.most_steps)


def logged_walks(grid, key, walks=64, steps=2400, every=30):
    """Return where a point that walks to one random place after another is, every so often.

    [walks, steps / every, 2], what a data set of navigation holds.
    """
    places, walker = centres(grid, grid.free_cells), ScriptedGoalPolicy(grid)
    start_key, *keys = jax.random.split(key, 1 + steps // every)

    def leg(carry, key):
        states, z = carry
        fresh = places[jax.random.randint(key, (walks,), 0, len(places))]
        arrived = jnp.abs(states - z).max(-1, keepdims=True) < 0.1
        z = jnp.where(arrived, fresh, z)
        states = walk(walker, key, states, z, jnp.full(walks, every), every)
        return (states, z), states

    start = places[jax.random.randint(start_key, (walks,), 0, len(places))]
    seen = jax.lax.scan(leg, (start, start), jnp.stack(keys))[1]
    return jnp.swapaxes(seen, 0, 1)


class LoggedProposal(AbstractProposal):
    """A user's own proposal: what came next, in the data, at the moments nearest to this state.

    The last z is the goal.

    Attributes:
        windows: stretches of K + 1 logged positions [L, K + 1, 2].
        number: how many of them.
    """

    windows: jax.Array
    number: int = eqx.field(static=True)

    @classmethod
    def cut(cls, walks, segments, number):
        starts = range(walks.shape[1] - segments)
        windows = [walks[:, i : i + segments + 1] for i in starts]
        return cls(jnp.concatenate(windows), number)

    @property
    def count(self):
        return self.number

    def sample(self, key, question):
        gap = jnp.square(self.windows[:, 0] - question.state[None]).sum(-1)
        # Many are about as near as the nearest; a little noise lets each have its turn.
        gap = gap + jax.random.uniform(key, gap.shape)
        z = self.windows[jax.lax.top_k(-gap, self.number)[1], 1:]
        return z.at[:, -1].set(jnp.broadcast_to(question.task.goal, z[:, -1].shape))
