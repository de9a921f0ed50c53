"""A planner that needs no training: a policy that goes straight, and a model that knows it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.planning import CompPlan, GoalProposal, Uniform


class Toward(eqx.Module):
    """Goes straight for z."""

    gain: jax.Array

    def sample(self, key, states, z):
        return jnp.clip(self.gain * (z - states), -1.0, 1.0)


class Drift(eqx.Module):
    """Lands between here and z, the nearer to z the longer the horizon."""

    noise: jax.Array

    def sample(self, key, states, actions, z, gamma):
        target = states if z is None else z
        noise = self.noise * jax.random.normal(key, states.shape)
        return states + gamma * (target - states) + noise


def drifting(policy=None, model=None, proposal=None, **settings):
    settings = {"horizons": (4, 8), "discount": 0.95, "search": Uniform(4), **settings}
    return CompPlan(
        model or Drift(jnp.asarray(0.3)),
        policy or Toward(jnp.asarray(1.0)),
        proposal=proposal or GoalProposal(8),
        **settings,
    )


GOAL = np.asarray([3.0, -2.0], np.float32)


def near(states, goal):
    return jnp.exp(-jnp.abs(states - goal[(None,) * (states.ndim - 1)]).sum(-1))
