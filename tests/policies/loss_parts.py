"""What the tests of losses share."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.nn import Normaliser
from jumpyworld.policies.networks import Ensemble, Net, draw_flow
from jumpyworld.policies.settings import PolicySpec

SPEC = PolicySpec(3, 2, (0.0,) * 3, (1.0,) * 3)
B, D, DA = 12, 3, 2


def softplus(x):
    return np.logaddexp(0, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear_net(weights, biases):
    """A network without hidden layers, so that its outputs can be worked out by hand.

    Args:
        weights: one row per input, one column per output.
        biases: one per output.
    """
    weights, biases = jnp.asarray(weights, jnp.float32), jnp.asarray(biases, jnp.float32)
    net = Net(*weights.shape[:1], (), *weights.shape[1:], key=jax.random.key(0))
    return eqx.tree_at(lambda n: (n.layers[0].weight, n.layers[0].bias), net, (weights, biases))


def linear_ensemble(*weights):
    """Networks of one output each, without biases, from their lists of one weight per input."""
    nets = [linear_net([[w] for w in each], [0.0]) for each in weights]
    ensemble = Ensemble(len(nets), lambda k: nets[0], key=jax.random.key(0))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)
    return eqx.tree_at(lambda e: e.members, ensemble, stacked)


def fresh_optimiser(state):
    """The state with an optimiser that has made no step, however its networks were shaken."""
    return eqx.tree_at(lambda s: s.opt_state, state, jax.tree.map(jnp.zeros_like, state.opt_state))


def units_of(state, observations):
    """Observations in the networks' units, in float64."""
    is_units = lambda node: isinstance(node, Normaliser)  # noqa: E731
    units = next(n for n in jax.tree.leaves(state, is_leaf=is_units) if is_units(n))
    offset, scale = (np.asarray(part, np.float64) for part in (units.offset, units.scale))
    return (observations - offset) / scale


def flow_numpy(oracle, field, x0, t, x1, *condition):
    """The mean of |v(X_t, t | c) - (X_1 - X_0)|^2 over rows."""
    x0, t = np.asarray(x0, np.float64), np.asarray(t, np.float64)[:, None]
    velocity = oracle.net(field, (1 - t) * x0 + t * x1, t, *condition)
    return ((velocity - (x1 - x0)) ** 2).sum(1).mean()


def extraction_numpy(oracle, actors, climbed, rows, key, config):
    """What ``fql.extraction_loss`` measures on rows (s, a, g); ``climbed`` is of the action."""
    s, a, g = rows
    flow_key, noise_key = jax.random.split(key)
    x0, t = draw_flow(flow_key, jnp.zeros(a.shape))
    noise = np.asarray(jax.random.normal(noise_key, a.shape), np.float64)
    teacher, steps = noise, config.flow_steps
    for i in range(steps):
        time = np.full((len(a), 1), i / steps)
        teacher = teacher + oracle.net(actors.behaviour, teacher, time, s) / steps
    student = oracle.net(actors.student, noise, s, g)
    q = climbed(np.clip(student, -1, 1))
    distill = ((student - np.clip(teacher, -1, 1)) ** 2).mean()
    return {
        "behaviour_loss": flow_numpy(oracle, actors.behaviour, x0, t, a, s),
        "actor_distill": distill,
        "actor_q": q.mean(),
        "actor_loss": -q.mean() / np.abs(q).mean() + config.distill_coefficient * distill,
    }


def assert_target_moves(before, after, online, rate):
    """Each weight of the target goes ``rate`` of the way to the network of after the step."""
    leaves = (jax.tree.leaves(tree) for tree in (before, after, online))
    for old, new, goal in zip(*leaves, strict=True):
        old, goal = np.asarray(old, np.float64), np.asarray(goal, np.float64)
        np.testing.assert_allclose(new, old + rate * (goal - old), rtol=1e-5, atol=1e-6)
        assert np.abs(goal - old).max() > 1e-3, "a target at its network shows no rate"
