"""A model that knows no walls, and planners with it: what tests of evaluation share."""

import equinox as eqx
import jax
import numpy as np

from jumpyworld import domains
from jumpyworld.planning import CompPlan, GoalProposal, Uniform

MEDIUM = domains.get("pointmaze-medium")


class Drift(eqx.Module):
    """A model that knows no walls: lands between here and z, the nearer to z the longer."""

    noise: float = eqx.field(static=True, default=0.3)

    def sample(self, key, states, actions, z, gamma, **options):
        target = states if z is None else z
        return (
            states + gamma * (target - states) + self.noise * jax.random.normal(key, states.shape)
        )


class Random(eqx.Module):
    def sample(self, key, states, z):
        return jax.random.uniform(key, states.shape, minval=-1.0)


def compose(policy, **settings):
    settings = {"horizons": (5, 20), "discount": 0.98, "search": Uniform(2), **settings}
    return CompPlan(Drift(), policy, proposal=GoalProposal(4), **settings)


def paths(success):
    return [np.stack(trace.states) for trace in success.traces]
