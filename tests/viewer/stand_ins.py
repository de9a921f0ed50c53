"""Models that need no training.

``ExactMaze`` is an exact geometric horizon model of the scripted policy: its plans lead somewhere.
A step adds the action times ``STEP``; the scripted policy never steers into a wall, so there are no
walls to hit. The model draws a geometric number of steps and takes them. Its unconditional branch
walks to a random free cell, as the data of navigation do.

``Drift`` and ``Still`` stand in for the model and policy of ants and cubes: a state drifts towards
z, and nothing is learnt of the simulator.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld import domains
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.model import GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.loading import LoadedPolicy, load_policy
from jumpyworld.planning import GoalFeatures, find_places
from jumpyworld.policies import ScriptedGoalPolicy
from jumpyworld.policies.scripted import STEP
from jumpyworld.storage import checkpoint
from jumpyworld.storage.manifest import make_document
from jumpyworld.storage.trees import to_arrays
from jumpyworld.viewer.opened import Opened

REACH = 4  # cells that the policy goes by itself
MOST_STEPS = 160


class ExactMaze(eqx.Module):
    policy: ScriptedGoalPolicy
    walker: ScriptedGoalPolicy
    places: jax.Array
    gamma_max: float = eqx.field(static=True, default=0.996)
    eval_steps: int = eqx.field(static=True, default=4)
    solver: str = eqx.field(static=True, default="euler")

    def sample(self, key, states, actions, z, gamma, num_steps=None, solver=None):
        walk_key, goal_key, time_key = jax.random.split(key, 3)
        if z is None:
            z = self.places[jax.random.randint(goal_key, states.shape[:1], 0, len(self.places))]
            actions, policy = jnp.zeros_like(states), self.walker
        else:
            policy = self.policy
        u = jax.random.uniform(time_key, states.shape[:1], minval=1e-7)
        steps = jnp.floor(jnp.log(u) / jnp.log(jnp.maximum(gamma, 1e-9))).astype(jnp.int32)

        def step(states, i):
            moved = states + STEP * policy.sample(jax.random.fold_in(walk_key, i), states, z)
            return jnp.where((i < steps)[:, None], moved, states), None

        return jax.lax.scan(step, states + STEP * actions, jnp.arange(MOST_STEPS))[0]


def exact(name="pointmaze-medium", number=0):
    domain = domains.get(name)
    policy = load_policy(f"scripted:{REACH}", name)
    places = [domain.grid.centre_of(cell) for cell in domain.grid.free_cells]
    model = ExactMaze(
        policy.policy, ScriptedGoalPolicy(domain.grid), jnp.asarray(places, jnp.float32)
    )
    return Opened(f"m{number}", f"{domain.alias} · exact", domain, policy, model, True)


def walks(domain, number=30, steps=300, seed=0):
    """Return walks of the scripted policy from one random free cell to the next, and their ends."""
    rng, walker = np.random.default_rng(seed), ScriptedGoalPolicy(domain.grid)
    cells = np.asarray([domain.grid.centre_of(c) for c in domain.grid.free_cells], np.float32)

    def step(carry, key):
        x, goals = carry
        arrived = jnp.abs(x - goals).max(-1) < 0.5
        drawn = jax.random.randint(key, arrived.shape, 0, len(cells))
        goals = jnp.where(arrived[:, None], jnp.asarray(cells)[drawn], goals)
        return (x + STEP * walker.sample(key, x, goals), goals), x

    begin = jnp.asarray(cells[rng.integers(0, len(cells), (2, number))])
    keys = jax.random.split(jax.random.key(seed), steps)
    rows = jax.lax.scan(step, (begin[0], begin[1]), keys)[1]
    rows = np.asarray(rows).swapaxes(0, 1).reshape(-1, 2)
    return rows, np.arange(1, number + 1) * steps - 1


def known(domain):
    rows, ends = walks(domain)
    return find_places(rows, ends, GoalFeatures(domain), number=40)


def bridged(name="pointmaze-medium", number=0):
    opened = exact(name, number)
    return dataclasses.replace(opened, known=known(opened.domain))


class Drift(eqx.Module):
    gamma_max: float = eqx.field(static=True, default=0.99)
    eval_steps: int = eqx.field(static=True, default=4)
    solver: str = eqx.field(static=True, default="euler")

    def sample(self, key, states, actions, z, gamma, num_steps=None, solver=None):
        noise = 0.1 * jax.random.normal(key, states.shape)
        share = jax.random.uniform(key, (len(states), 1)) * gamma
        return states + noise if z is None else states + share * (z - states) + 0.3 * noise


class Still(eqx.Module):
    action_dim: int = eqx.field(static=True)

    def sample(self, key, states, z):
        return 0.5 * jnp.tanh(jax.random.normal(key, (len(states), self.action_dim)))


def drifting(name, number=0):
    domain = domains.get(name)
    policy = LoadedPolicy(Still(domain.action_dim), "still", "0" * 64, domain.name)
    return Opened(f"m{number}", f"{domain.alias} · drift", domain, policy, Drift(), False)


def save_untrained(folder, states, action_dim, **trained):
    """Write a geometric horizon model as it is before its first step, and return its folder.

    Args:
        folder: where.
        states: one trajectory, which fixes the model's shapes and scales [N, d].
        action_dim: width of an action.
        trained: what its document says of its training: domain, policy, ...
    """
    ends = np.asarray([0]), np.asarray([len(states) - 1])
    spec = GHMSpec.from_arrays(states, *ends, action_dim)
    config = GHMConfig.preset("debug")
    arrays = to_arrays(GeometricHorizonModel(config, spec, key=jax.random.key(0)))
    document = make_document("ghm", config, spec.shapes(), trained, [0])
    checkpoint.save(folder, document, step=7, model=arrays, state=arrays)
    return str(folder)
