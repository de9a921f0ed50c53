"""A bandit as a planning problem: the chances of its coins are the values of the candidates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.planning import CompPlan, ListProposal, Task


class NoAction(eqx.Module):
    def sample(self, key, states, z):
        return jnp.zeros((*states.shape[:-1], 1), states.dtype)


class Coin(eqx.Module):
    """A bandit as a model: the next state is 1 with probability z, else 0."""

    def sample(self, key, states, actions, z, gamma):
        u = jax.random.uniform(key, states.shape[:-1])
        return (u[..., None] < z).astype(states.dtype)


def heads(states):
    return states[..., 0]


def heads_with_goal(states, goal):
    return states[..., 0]


TASK = Task(heads)


def bandit(chances, search, model=None, policy=None, **settings):
    """One jump with weight 1: the value of a candidate is its chance.

    With other horizons there are as many chances to a candidate, [M, K].
    """
    return CompPlan(
        model or Coin(),
        policy or NoAction(),
        proposal=ListProposal(np.asarray(chances, float).reshape(len(chances), -1, 1)),
        search=search,
        **{"horizons": (10,), "discount": 0.9, **settings},
    )
