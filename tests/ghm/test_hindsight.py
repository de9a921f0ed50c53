"""Targets several steps ahead along the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import GHMConfig, init, mixture_weights, step
from jumpyworld.ghm.ahead import regressions_ahead
from jumpyworld.ghm.algorithm import sample_batch
from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.hindsight import spans, times_on_the_way
from jumpyworld.ghm.losses import regressions

KEY = jax.random.key(3)


class Reached:
    """A finite world without noise, a Markov behaviour, and the policies that imitate it.

    pi_z(a | s) is the behaviour's law of a at s, given that z is where it will be when a geometric
    clock of discount g rings: what GC-BC learns.
    """

    def __init__(self, seed, states=5, actions=2, g=0.8):
        rng = np.random.default_rng(seed)
        self.n, self.k, self.g = states, actions, g
        self.after = rng.integers(states, size=(states, actions))
        self.behaviour = rng.dirichlet(np.ones(actions), states)
        self.reach = self.measure(self.behaviour, g)  # [s, a, z]

    def measure(self, policy, gamma):
        """m_gamma [s, a, s'] of a policy [s, a]."""
        P = np.eye(self.n)[self.after].reshape(-1, self.n)
        Pi = np.zeros((self.n, self.n * self.k))
        for s in range(self.n):
            Pi[s, s * self.k : (s + 1) * self.k] = policy[s]
        m = (1 - gamma) * np.linalg.solve(np.eye(len(P)) - gamma * P @ Pi, P)
        return m.reshape(self.n, self.k, self.n)

    def imitation(self, z):
        joint = self.behaviour * self.reach[:, :, z]
        total = joint.sum(1, keepdims=True)
        return np.where(total > 1e-12, joint / np.maximum(total, 1e-12), self.behaviour)

    def trajectories(self, s, a, z, span):
        """Yield (chance, states 1 ... N) of what the data did next, given that they came to z."""
        there = self.after[s, a]
        rings = (1 - self.g) * (there == z) / self.reach[s, a, z]
        if span == 1:
            yield 1.0, [there]
            return
        if rings > 0:
            yield rings, [there]
        for b, chance in enumerate(self.imitation(z)[there]):
            if (1 - rings) * chance > 0:
                for rest, states in self.trajectories(there, b, z, span - 1):
                    yield (1 - rings) * chance * rest, [there, *states]


def looked_ahead(world, policy, s, a, z, span, beta, gamma):
    """The right-hand side: what targets of ``span`` steps are on average."""
    short, long = world.measure(policy, beta), world.measure(policy, gamma)
    near, far = ((policy[:, :, None] * m).sum(1) for m in (short, long))  # [s, s']
    total = np.zeros(world.n)
    for chance, states in world.trajectories(s, a, z, span):
        n = len(states)
        with jax.enable_x64(True):
            w = [float(x) for x in mixture_weights(*map(jnp.float64, (beta, gamma, n)))]
        k = gamma ** np.arange(n)
        met = (k / k.sum()) @ np.eye(world.n)[states]
        total += chance * (w[0] * met + w[1] * near[states[-1]] + w[2] * near[states[-1]] @ far)
    return total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("span", [1, 2, 5])
def test_in_hindsight_the_data_are_the_policys_own(seed, span):
    world = Reached(seed)
    z = int(np.argmax(world.reach.sum((0, 1))))  # one that is often met
    policy = world.imitation(z)
    for beta, gamma in [(0.5, 0.9), (0.95, 0.95), (0.0, 0.7)]:
        long = world.measure(policy, gamma)
        for s, a in zip(*np.nonzero(world.reach[:, :, z] > 1e-9), strict=True):
            right = looked_ahead(world, policy, s, a, z, span, beta, gamma)
            np.testing.assert_allclose(right, long[s, a], atol=1e-10)


def test_of_another_policy_they_are_not():
    world = Reached(0)
    z = int(np.argmax(world.reach.sum((0, 1))))
    other = np.eye(world.k)[np.zeros(world.n, int)]
    s, a = np.argwhere(world.reach[:, :, z] > 1e-9)[0]
    wrong = looked_ahead(world, other, s, a, z, 5, 0.9, 0.9) - world.measure(other, 0.9)[s, a]
    right = looked_ahead(world, other, s, a, z, 1, 0.9, 0.9) - world.measure(other, 0.9)[s, a]
    assert np.abs(wrong).sum() > 0.01 and np.abs(right).sum() < 1e-10


def test_spans_are_a_share_of_the_horizon_as_far_as_the_goal(data):
    # Trajectories are rows 0-50, 51-101, ...; horizons are 100, 100, 100, 10, 100, 100, 100.
    index = jnp.asarray([0, 0, 10, 0, 60, 45, 51], jnp.int32)
    goal = jnp.asarray([40, 4, 5, 40, 20, 50, 120], jnp.int32)
    gamma = jnp.asarray([0.99, 0.99, 0.99, 0.9, 0.99, 0.99, 0.99])
    found = spans(data, index, goal, gamma, 0.1, conditional=5)
    # far goal; goal 4 rows ahead; behind; short horizon; elsewhere; no z, five rows left; ten.
    np.testing.assert_array_equal(found, [10, 4, 1, 1, 1, 5, 10])
    np.testing.assert_array_equal(spans(data, index, goal, gamma, 0.0, conditional=5), 1)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99])
def test_states_on_the_way_are_drawn_by_their_weight(gamma):
    span = jnp.asarray(np.repeat([1, 2, 7], 20_000).astype(np.int32))
    drawn = np.asarray(times_on_the_way(KEY, span, jnp.full(span.shape, gamma, jnp.float32)))
    for n in (1, 2, 7) if gamma > 0 else (1,):
        k = drawn[np.asarray(span) == n]
        law = gamma ** np.arange(n)
        law = law / law.sum()
        assert k.min() >= 1 and k.max() <= n
        np.testing.assert_allclose(np.bincount(k, minlength=n + 1)[1:] / len(k), law, atol=0.015)


def rows_of(dataset, states):
    row_of = {row.tobytes(): i for i, row in enumerate(dataset.observations)}
    return np.asarray([row_of[np.asarray(row).tobytes()] for row in states])


def test_a_batch_looks_ahead_where_its_goal_is_its_own_future(config, change, data, dataset):
    config = change(config, batch_size=2000, hindsight=0.1, goal_discount=0.95)
    draws = sample_draws(KEY, config, 3)
    batch = sample_batch(data, KEY, config, 3, draws.gamma)
    once = sample_batch(data, KEY, config, 3)
    assert once.span is None and once.one_step is once.next_observations
    for name in ("observations", "actions", "z"):  # which rows are drawn does not depend on it
        np.testing.assert_array_equal(getattr(batch, name), getattr(once, name))
    s, z = rows_of(dataset, batch.observations), rows_of(dataset, batch.z)
    span = np.asarray(batch.span).astype(int)
    np.testing.assert_array_equal(rows_of(dataset, batch.next_observations), s + span)
    np.testing.assert_array_equal(batch.next_actions, dataset.actions[s + span])
    met = rows_of(dataset, batch.one_step) - s
    assert np.all((met >= 1) & (met <= span)) and np.any(met < span)
    c = config.layout.conditional
    own = (z > s) & (z // 51 == s // 51)
    assert np.all(span[:c][~own[:c]] == 1) and span[:c].max() > 3 and span[c:].max() > 3
    assert np.all((s + span)[:c][own[:c]] <= z[:c][own[:c]])


def test_terms_start_where_they_should(config, change, data, policy, make_model):
    config = change(config, hindsight=0.5)
    target = make_model(config)
    draws = sample_draws(KEY, config, 3)
    batch = sample_batch(data, KEY, config, 3, draws.gamma)
    plain = eqx.tree_at(lambda b: b.on_the_way, batch, batch.next_observations)
    one, beta, gamma = regressions(target, batch, draws, KEY, config, policy)
    other, same_beta, same_gamma = regressions(target, plain, draws, KEY, config, policy)
    met = target.state_normaliser.normalise(batch.on_the_way)
    np.testing.assert_allclose(one.velocity, met - draws.x0_one_step, rtol=1e-5)
    assert np.abs(one.velocity - other.velocity).max() > 0
    np.testing.assert_array_equal(beta.velocity, same_beta.velocity)
    np.testing.assert_array_equal(gamma.velocity, same_gamma.velocity)


def test_it_goes_with_jumps_ahead(config, change, spec, data, policy):
    config = change(config, hindsight=0.5, jumps="ahead")
    state = init(KEY, config, spec, policy)
    go = eqx.filter_jit(step)
    once, _ = go(state, data, jax.random.key(1), config, policy)
    assert jax.tree.structure(once) == jax.tree.structure(state)
    _, metrics = go(once, data, jax.random.key(2), config, policy)
    assert np.isfinite(metrics["loss"])
    draws = sample_draws(KEY, config, 3)
    fresh = sample_batch(data, KEY, config, 3, draws.gamma)
    batch, _, terms, after = regressions_ahead(
        once.target, fresh, draws, KEY, config, policy, once.jumped
    )
    hc = config.layout.hc
    np.testing.assert_array_equal(batch.span[:hc], once.jumped.batch.span)
    np.testing.assert_array_equal(batch.span[hc:], fresh.span[hc:])
    np.testing.assert_array_equal(after.batch.on_the_way, fresh.on_the_way[:hc])
    met = once.target.state_normaliser.normalise(batch.on_the_way)
    np.testing.assert_allclose(terms[0].velocity, met - draws.x0_one_step, rtol=1e-5)


def test_weights_of_several_steps():
    with jax.enable_x64(True):
        one, two, three = (float(w) for w in mixture_weights(*map(jnp.float64, (0.6, 0.9, 3.0))))
    assert one == pytest.approx(1 - 0.729)
    assert two == pytest.approx(0.729 * 0.1 / 0.4) and three == pytest.approx(0.729 * 0.3 / 0.4)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"hindsight": 1.5}, "hindsight=1.5"),
        ({"hindsight": -0.1}, "hindsight=-0.1"),
        ({"hindsight": 0.1, "z_source": "one_hot"}, "hindsight=0.1"),
        ({"hindsight": 0.1, "use_masks": True, "hc_fraction": 0.0}, "hindsight=0.1"),
        ({"hindsight": 0.1, "uncond_source": "trajectory"}, "uncond_source=trajectory"),
    ],
)
def test_what_does_not_go_with_it_is_named(changes, name):
    with pytest.raises(ConfigError, match=name):
        GHMConfig(**changes)
