"""A model that needs no training: the exact successor measure of a scripted policy, by simulation.

A planner takes anything with ``sample(key, states, actions, z, gamma)`` for its model. This one
draws a geometric number of steps and takes them, in a point maze without inertia. It stands in for
a trained model in the examples, so that they show planning alone.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from jumpyworld.policies import ScriptedGoalPolicy
from jumpyworld.policies.scripted import STEP


class MazeModel(eqx.Module):
    """Where a scripted policy is after a geometric number of steps.

    Attributes:
        policy: pi_z; it never steers into a wall, so there are none to hit here.
        most_steps: by then pi_z has arrived wherever it goes.
    """

    policy: ScriptedGoalPolicy
    most_steps: int = eqx.field(static=True)

    def __init__(self, policy):
        """Keep the policy."""
        self.policy = policy
        # A way of n moves from cell to cell is at most n + 1.5 cells long.
        self.most_steps = int((policy.reach + 1.5) * policy.unit / STEP)

    def sample(self, key, states, actions, z, gamma):
        """Draw one successor per row; the first step takes the given action."""
        u = jax.random.uniform(key, states.shape[:1], minval=1e-7)
        more = jnp.floor(jnp.log(u) / jnp.log(jnp.maximum(gamma, 1e-9))).astype(jnp.int32)

        # The policy is without noise, so that one key will do for all.
        act = jax.vmap(lambda s, g: self.policy.act(key, s, g, jnp.float32(1)))

        def step(states, i):
            moved = states + STEP * act(states, z)
            return jnp.where((i < more)[:, None], moved, states), None

        first = states + STEP * actions
        return jax.lax.scan(step, first, jnp.arange(self.most_steps))[0]
