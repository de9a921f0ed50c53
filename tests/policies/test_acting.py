"""What policies do, against NumPy in float64 from their weights, their units and the same noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import load, policies
from jumpyworld.errors import ConfigError
from jumpyworld.policies.base import in_fewer_steps
from jumpyworld.viewer.opened import demo_folders

ROWS, STEPS, SUBGOALS = 32, 3, 8


@pytest.fixture(scope="module")
def make(walks, shaken):
    """A policy whose every weight counts, in standardised units."""

    def policy(name, **changes):
        algorithm = policies.get(name)
        steps = {} if name == "hiql" else {"flow_steps": STEPS}
        changes = {"normalise": "standard", **steps, **changes}
        config = algorithm.config.preset("debug", **changes)
        return shaken(lambda k: algorithm.inference_model(algorithm.init(k, config, walks[2])))

    return policy


@pytest.fixture(scope="module")
def places(walks):
    """States and goals that differ, in raw units."""
    observations = walks[0].observations
    return observations[:ROWS], observations[ROWS : 2 * ROWS]


def noise(keys, width):
    return np.asarray(jax.vmap(lambda k: jax.random.normal(k, (width,)))(keys), np.float64)


def carried(oracle, field, x, *condition):
    """Noise after Euler steps of a field."""
    for i in range(STEPS):
        time = np.full((*x.shape[:-1], 1), i / STEPS)
        x = x + oracle.net(field, x, time, *condition) / STEPS
    return x


def to_units(units, x):
    return (x - np.asarray(units.offset, np.float64)) / np.asarray(units.scale, np.float64)


def to_raw(units, x):
    return x * np.asarray(units.scale, np.float64) + np.asarray(units.offset, np.float64)


def cloned_action(oracle, policy, keys, s, z):
    """GC-BC's action, and the low level's."""
    condition = to_units(policy.normaliser, s), to_units(policy.normaliser, z)
    return carried(oracle, policy.field, noise(keys, 2), *condition)


def proposed(oracle, policy, keys, s, g):
    """The high level's subgoals, raw units."""
    units = policy.low.normaliser
    x = carried(oracle, policy.high, noise(keys, 3), to_units(units, s), to_units(units, g))
    return to_raw(units, x)


def halves(keys):
    """The keys of the high and of the low level."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]


def assert_clipped(got, free):
    """Actions are the free ones brought into [-1, 1], of which some need it and some do not."""
    assert 0 < (np.abs(free) > 1).mean() < 0.9, "these rows do not show whether actions are cut"
    np.testing.assert_allclose(got, np.clip(free, -1, 1), rtol=0, atol=1e-5)


def test_gcbc(make, places, key, oracle):
    policy = make("gcbc")
    want = cloned_action(oracle, policy, jax.random.split(key, ROWS), *places)
    assert_clipped(policy.sample(key, *places), want)


@pytest.mark.parametrize("name", ["crl", "gctd3", "gc1s"])
def test_one_step(make, places, key, oracle, name):
    policy = make(name)
    x0 = noise(jax.random.split(key, ROWS), 2)
    s, z = (to_units(policy.normaliser, x) for x in places)
    assert_clipped(policy.sample(key, *places), oracle.net(policy.student, x0, s, z))


def test_hfbc_and_its_levels(make, places, key, oracle):
    policy, (s, g) = make("hfbc"), places
    keys = jax.random.split(key, ROWS)
    high_keys, low_keys = halves(keys)
    assert_clipped(policy.low.sample(key, s, g), cloned_action(oracle, policy.low, keys, s, g))
    np.testing.assert_allclose(
        policy.propose(key, s, g), proposed(oracle, policy, keys, s, g), rtol=1e-5, atol=1e-5
    )
    way = proposed(oracle, policy, high_keys, s, g)
    assert_clipped(policy.sample(key, s, g), cloned_action(oracle, policy.low, low_keys, s, way))


def test_sharsa(make, places, key, oracle):
    policy, (s, g) = make("sharsa", num_subgoals=SUBGOALS), places
    units = policy.hierarchy.low.normaliser
    high_keys, low_keys = halves(jax.random.split(key, ROWS))
    draw_keys = jax.vmap(lambda k: jax.random.split(k, SUBGOALS))(high_keys)
    # One column of draws after the other: [SUBGOALS, ROWS, d].
    draws = np.stack(
        [proposed(oracle, policy.hierarchy, draw_keys[:, i], s, g) for i in range(SUBGOALS)]
    )
    judge = lambda w: oracle.ensemble(policy.critic, *(to_units(units, x) for x in (s, w, g)))  # noqa: E731
    score = np.stack([judge(w)[..., 0].min(0) for w in draws])
    best = draws[score.argmax(0), np.arange(ROWS)]
    got = jax.jit(jax.vmap(policy.subgoal))(high_keys, jnp.asarray(s), jnp.asarray(g))
    np.testing.assert_allclose(got, best, rtol=1e-5, atol=1e-5)
    want = cloned_action(oracle, policy.hierarchy.low, low_keys, s, best)
    assert_clipped(policy.sample(key, s, g), want)


def test_hiql(make, places, key, oracle):
    """Both levels are drawn about their means, as widely as the temperature says; 0 by default."""
    policy, width = make("hiql"), 2
    s, z = (to_units(policy.normaliser, x) for x in places)
    high_keys, low_keys = halves(jax.random.split(key, ROWS))

    def drawn(temperature):
        way = oracle.net(policy.high, s, z)
        way = way + temperature * noise(high_keys, way.shape[1])
        way *= np.sqrt(way.shape[1]) / np.linalg.norm(way, axis=1, keepdims=True)
        return oracle.net(policy.low, s, way) + temperature * noise(low_keys, width)

    assert_clipped(policy.sample_actions(*places, key, 0.7), drawn(0.7))
    np.testing.assert_allclose(policy.sample(key, *places), np.clip(drawn(0), -1, 1), atol=1e-5)


def halfway(oracle, field, x, *condition):
    """Noise after STEPS midpoint steps of a field."""
    for i in range(STEPS):
        time = np.full((*x.shape[:-1], 1), i / STEPS)
        middle = x + oracle.net(field, x, time, *condition) / (2 * STEPS)
        x = x + oracle.net(field, middle, time + 1 / (2 * STEPS), *condition) / STEPS
    return x


def test_in_fewer_steps(make, places, key, oracle):
    """GC-BC's flow, and both of a hierarchy's, by the midpoint rule; who has none says so."""
    s, g = places
    policy = in_fewer_steps(make("gcbc", flow_steps=9), STEPS)
    x0 = noise(jax.random.split(key, ROWS), 2)
    units = policy.normaliser
    want = halfway(oracle, policy.field, x0, to_units(units, s), to_units(units, g))
    assert_clipped(policy.sample(key, s, g), want)

    policy = in_fewer_steps(make("hfbc", flow_steps=9), STEPS)
    high_keys, low_keys = halves(jax.random.split(key, ROWS))
    units = policy.low.normaliser
    s, g = to_units(units, s), to_units(units, g)
    way = halfway(oracle, policy.high, noise(high_keys, 3), s, g)
    want = halfway(oracle, policy.low.field, noise(low_keys, 2), s, way)
    assert_clipped(policy.sample(key, *places), want)

    low = in_fewer_steps(make("sharsa"), 2).hierarchy.low
    assert (low.flow_steps, low.solver) == (2, "midpoint")
    with pytest.raises(ConfigError, match="policy_steps=2: OneStepPolicy has no flow"):
        in_fewer_steps(make("gc1s"), 2)
    with pytest.raises(ConfigError, match="policy_steps=0: must be at least 1"):
        in_fewer_steps(policy, 0)


def test_two_midpoint_steps_come_nearer_to_the_flow_than_ten_of_euler(key):
    """With the trained policy that ships, to goals up to a hundred moves away."""
    folder, _ = demo_folders()
    policy = load(folder)
    assert (policy.flow_steps, policy.solver) == (10, "euler")
    s = jnp.array([[0.0, 0.0], [8.0, 4.0], [16.0, 20.0], [32.0, 24.0]]).repeat(64, 0)
    z = s + 4 * jax.random.normal(key, s.shape)
    exact, two = (in_fewer_steps(policy, n).sample(key, s, z) for n in (100, 2))
    distance = lambda a: float(jnp.sqrt(jnp.mean((a - exact) ** 2)))  # noqa: E731
    assert distance(two) < distance(policy.sample(key, s, z)) < 0.15
