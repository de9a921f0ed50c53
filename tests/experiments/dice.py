"""A model whose futures are thrown, and a policy that does not matter."""

import jax
import jax.numpy as jnp

from jumpyworld.planning.presets import PlanningPreset

PRESET = PlanningPreset(16, (1.0,), "conditional", 64, 1, 0.9)


class Proposer:
    """A policy whose actions do not matter."""

    def sample(self, key, states, z):
        return jax.random.uniform(key, states.shape)


class Dice:
    """Lands on 1 with the chance that z says; with a negative z, on a random chance."""

    observation_dim = 1

    def sample(self, key, states, actions, z, gamma, **options):
        thrown = jax.random.uniform(key, z.shape)
        return jnp.where(z < 0, thrown, (thrown < z).astype(states.dtype))


def reward(states, goal):
    return states[..., 0]
