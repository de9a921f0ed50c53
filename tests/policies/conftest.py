"""What the tests of policies share: small data, and NumPy's own view of the networks."""

import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import policies
from jumpyworld.data import Dataset, device_data

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))

from loss_parts import DA, B, D


def make_dataset(seed=0, lengths=(30, 1, 47), d=3, da=2):
    """Random walks: lengths in transitions; the short ones end before any lookahead."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths) + len(lengths)
    terminals = np.zeros(rows)
    terminals[np.cumsum(np.array(lengths) + 1) - 1] = 1
    return Dataset.from_arrays(
        rng.normal(size=(rows, d)).astype(np.float32) * 5 + 3,
        rng.uniform(-1, 1, size=(rows, da)).astype(np.float32),
        terminals,
    )


def quick_jit(function):
    """Compile without optimisation: half the time, for programs that run three times."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(scope="session")
def quick():
    return quick_jit


@pytest.fixture(scope="session")
def walks():
    dataset = make_dataset()
    spec = policies.PolicySpec.from_arrays(dataset.observations, dataset.actions)
    return dataset, device_data(dataset), spec


@pytest.fixture(scope="session")
def briefly_trained(walks):
    """Each algorithm after three jitted steps of its debug preset, in standardised units."""
    _, data, spec = walks
    cache = {}

    def get(name):
        if name not in cache:
            algorithm = policies.get(name)
            config = algorithm.config.preset("debug", normalise="standard")
            step = quick_jit(lambda s, k: algorithm.step(s, data, k, config))
            init = quick_jit(lambda k: algorithm.init(k, config, spec))
            state = initial = init(jax.random.key(0))
            history = []
            for i in range(3):
                state, metrics = step(state, jax.random.key(i))
                history.append((state, metrics))
            cache[name] = SimpleNamespace(
                algorithm=algorithm,
                config=config,
                step=step,
                initial=initial,
                states=[state for state, _ in history],
                metrics=history[-1][1],
                policy=algorithm.inference_model(state),
            )
        return cache[name]

    return get


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def numpy_net(net, *inputs):
    """The network on rows, in float64, from its weights alone."""
    x = np.concatenate([np.asarray(i, np.float64) for i in inputs], axis=-1)
    for i, layer in enumerate(net.layers[:-1]):
        x = gelu(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias))
        if net.norms:
            mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
            x = (x - mean) / np.sqrt(var + 1e-5)
            x = x * np.asarray(net.norms[i].weight) + np.asarray(net.norms[i].bias)
    return x @ np.asarray(net.layers[-1].weight, np.float64) + np.asarray(net.layers[-1].bias)


def numpy_ensemble(ensemble, *inputs):
    """Each member on rows: [E, B, m]."""
    size = ensemble.members.layers[0].weight.shape[0]
    members = [jax.tree.map(lambda x, i=i: x[i], ensemble.members) for i in range(size)]
    return np.stack([numpy_net(member, *inputs) for member in members])


class Oracle:
    net = staticmethod(numpy_net)
    ensemble = staticmethod(numpy_ensemble)

    @staticmethod
    def normal(seed, *shape):
        return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="session")
def oracle():
    return Oracle


@pytest.fixture(scope="session")
def shaken():
    """Make a tree of networks and move every weight a little.

    So that biases and LayerNorms are not at 0 and 1.
    """

    def shake(make, seed=0):
        rng = np.random.default_rng(seed)
        return jax.tree.map(
            lambda x: (
                x
                if jnp.issubdtype(x.dtype, jnp.integer)
                else jnp.asarray(np.asarray(x) + 0.1 * rng.normal(size=x.shape).astype(np.float32))
            ),
            quick_jit(make)(jax.random.key(seed)),
        )

    return shake


@pytest.fixture(scope="session")
def norm():
    """The sum of absolute values over a tree of gradients."""
    return lambda tree: sum(np.abs(np.asarray(x)).sum() for x in jax.tree.leaves(tree))


@pytest.fixture(scope="module")
def rows(oracle):
    """States, goals, next states, subgoals, and two sets of actions."""
    s, g, s_next, w = (oracle.normal(i, B, D) for i in range(4))
    a, a_next = (np.clip(oracle.normal(i, B, DA), -1, 1) for i in (4, 5))
    return s, g, s_next, w, a, a_next
