"""A small world for tests of the model: three dimensions far from unit scale, two-dimensional
actions, and a policy that moves."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.data.dataset import Dataset
from jumpyworld.data.sampling import device_data
from jumpyworld.ghm import GeometricHorizonModel, GHMBatch, GHMConfig, GHMSpec

OFFSET = np.asarray([50.0, -20.0, 1000.0], np.float32)
SPREAD = np.asarray([5.0, 2.0, 100.0], np.float32)


class TowardsPolicy(eqx.Module):
    """a = gain * tanh of the first two dimensions of (z - s), plus noise, in raw units."""

    gain: float = 0.5
    noise: float = 0.1

    def sample(self, key, states, z):
        way = (z[:, :2] - states[:, :2]) / jnp.broadcast_to(
            jnp.asarray(SPREAD[:2], z.dtype), (len(z), 2)
        )
        noise = jax.random.normal(key, (len(z), 2), z.dtype)
        return self.gain * jnp.tanh(way) + self.noise * noise


@pytest.fixture
def policy():
    return TowardsPolicy()


@pytest.fixture
def policy_class():
    return TowardsPolicy


@pytest.fixture(scope="session")
def dataset():
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(4, 51, 3)).cumsum(1) / 10
    observations = (OFFSET + SPREAD * steps).reshape(-1, 3).astype(np.float32)
    actions = rng.uniform(-1, 1, (204, 2)).astype(np.float32)
    terminals = np.zeros((4, 51), np.int64)
    terminals[:, -1] = 1
    return Dataset.from_arrays(observations, actions, terminals.reshape(-1))


@pytest.fixture(scope="session")
def data(dataset):
    return device_data(dataset)


@pytest.fixture(scope="session")
def spec(dataset):
    return GHMSpec.from_arrays(dataset.observations, dataset.starts, dataset.ends, 2)


@pytest.fixture(scope="session")
def config():
    return GHMConfig.preset(
        "debug", width=16, embed_dim=8, batch_size=12, train_steps=2, eval_steps=3
    )


def shaken(tree, seed=0):
    """Move every weight, so that the field is not zero as it is at first."""
    rng = np.random.default_rng(seed)

    def move(w):
        return w + jnp.asarray(0.1 * rng.normal(size=w.shape), w.dtype)

    return eqx.tree_at(lambda m: m.field, tree, jax.tree.map(move, tree.field))


@pytest.fixture(scope="session")
def shake():
    return shaken


@pytest.fixture(scope="session")
def make_model(spec):
    def make(config, seed=0, spec=spec):
        return shaken(GeometricHorizonModel(config, spec, key=jax.random.key(seed)), seed)

    return make


@pytest.fixture(scope="session")
def make_batch():
    def make(config, z_dim=3, seed=0):
        rng = np.random.default_rng(seed)
        k = config.batch_size

        def states():
            return jnp.asarray(OFFSET + SPREAD * rng.normal(size=(k, 3)), jnp.float32)

        def actions():
            return jnp.asarray(rng.uniform(-1, 1, (k, 2)), jnp.float32)

        z = states() if z_dim == 3 else jnp.eye(z_dim)[rng.integers(0, z_dim, k)]
        return GHMBatch(states(), actions(), states(), actions(), z)

    return make


@pytest.fixture
def change():
    return dataclasses.replace
