"""Critics where the answer is known in closed form: a ring for TD, a chain for contrasts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import policies
from jumpyworld.data import Dataset, GoalMixture, device_data, sample_goal_indices
from jumpyworld.policies import PolicySpec, crl, gctd3
from jumpyworld.policies.networks import descend, start_optimiser

RING, ROWS = 5, 1001


def ring_data():
    """One walk round a ring of one-hot states; actions are noise and change nothing.

    So every state has a successor, every action is in the data wherever a policy may go, and the
    value is the same for any policy: GC-1S and GC-TD3 must agree.
    """
    state = np.arange(ROWS) % RING
    actions = np.random.default_rng(0).uniform(-1, 1, (ROWS, 1)).astype(np.float32)
    dataset = Dataset.from_arrays(np.eye(RING, dtype=np.float32)[state], actions, np.eye(ROWS)[-1])
    return device_data(dataset), PolicySpec.from_arrays(dataset.observations, dataset.actions)


def ring_values(discount, mask):
    """Solve the stated recursion for the stated goals: Q [state, goal].

    Equality with the goal is of rows. A goal drawn elsewhere may be the same state and another
    row, so the reward of (s, g) is a probability: how often G is S' given that G looks like g.
    """
    drawn, reached = np.zeros((RING, RING)), np.zeros((RING, RING))
    for row in range(ROWS - 1):
        law = np.zeros(ROWS)
        law[row + 1] += 0.2
        law[:-1] += 0.3 / (ROWS - 1)
        steps = np.arange(1, ROWS - row)
        future = (1 - discount) * discount ** (steps - 1.0)
        future[-1] = 1 - future[:-1].sum()
        law[row + 1 :] += 0.5 * future
        np.add.at(drawn[row % RING], np.arange(ROWS) % RING, law)
        reached[row % RING, (row + 1) % RING] += law[row + 1]
    r = reached / drawn
    q = np.zeros((RING, RING))
    for _ in range(200):
        q = r + discount * (1 - r * mask) * np.roll(q, -1, axis=0)
    return q


@pytest.mark.parametrize("name, mask", [("gc1s", False), ("gctd3", False), ("gc1s", True)])
def test_td_values_are_exact_on_a_ring(name, mask):
    """Without the mask (the paper) and with it, through the algorithm's own step."""
    discount, algorithm = 0.7, policies.get(name)
    data, spec = ring_data()
    config = algorithm.config.preset(
        "debug",
        discount=discount,
        mask_at_goal=mask,
        hidden=(32, 32),
        batch_size=128,
        learning_rate=3e-3,
        flow_steps=1,
    )

    @jax.jit
    def train(key):
        def body(i, state):
            return algorithm.step(state, data, jax.random.fold_in(key, i), config)[0]

        return jax.lax.fori_loop(0, 2000, body, algorithm.init(key, config, spec))

    # The average weights: the online ones still tremble with the draws.
    critic = train(jax.random.key(0)).target
    states, actions = jnp.eye(RING), jnp.linspace(-1, 1, 5)[:, None]

    def value(s, a, g):
        return jnp.mean(gctd3.critic_values(critic, s, a, g, "squared"))

    every = jax.vmap(jax.vmap(jax.vmap(value, (None, 0, None)), (None, None, 0)), (0, None, None))
    q = np.asarray(jax.jit(every)(states, actions, states))
    want = ring_values(discount, mask)
    print("error", np.abs(q - want[..., None]).max(), np.abs(q - want[..., None]).mean())
    np.testing.assert_allclose(q, np.broadcast_to(want[..., None], q.shape), atol=0.1)
    assert np.abs(q - want[..., None]).mean() < 0.03
    # Values are discounted sums of probabilities; with the mask at most one of them counts.
    assert q.min() > -0.1 and q.max() < (1.0 if mask else 1 / (1 - discount)) + 0.1


def test_values_may_begin_near_zero():
    """Both networks, online and target: from there they spread from the goal."""
    _, spec = ring_data()
    config = gctd3.GCTD3Config.preset("debug", critic_loss="bce", critic_bias=-5.0)
    state = gctd3.init(jax.random.key(0), config, spec)
    s, a = jnp.eye(RING)[0], jnp.zeros(1)
    for critic in (state.networks.critic, state.target):
        assert np.all(np.asarray(gctd3.critic_values(critic, s, a, s, "bce")) < 0.05)


def test_the_actor_may_climb_the_logarithm():
    """log Q, whose slope is that of Q over Q; it ends where Q is as good as zero."""
    _, spec = ring_data()
    s, a = jnp.eye(RING)[0], jnp.full(1, 0.3)

    def look(bias):
        config = gctd3.GCTD3Config.preset(
            "debug", critic_loss="bce", critic_bias=bias, actor_value="log"
        )
        critic = gctd3.init(jax.random.key(0), config, spec).networks.critic
        q = lambda a: jnp.mean(gctd3.critic_values(critic, s, a, s, "bce"))  # noqa: E731
        climbed = lambda a: gctd3.climbed_value(critic, s, a, s, config)  # noqa: E731
        return jax.value_and_grad(climbed)(a), jax.value_and_grad(q)(a)

    (climbed, slope), (q, q_slope) = look(-8.0)
    assert q < 1e-3 and climbed == pytest.approx(np.log(q), rel=1e-5)
    np.testing.assert_allclose(slope, q_slope / q, rtol=1e-4)
    assert abs(slope[0]) > 1e-4
    (climbed, slope), _ = look(-20.0)
    assert climbed == pytest.approx(np.log(gctd3.LEAST_VALUE)) and slope[0] == 0


N, DISCOUNT = 8, 0.8
AHEAD = np.triu(np.ones((N - 1, N), bool), 1)


@pytest.fixture(scope="module")
def chain():
    """One trajectory through eight one-hot states, so that rows and states are the same thing."""
    actions = np.linspace(-1, 1, N, dtype=np.float32)[:, None]
    dataset = Dataset.from_arrays(np.eye(N, dtype=np.float32), actions, np.eye(N)[-1])
    return device_data(dataset), PolicySpec.from_arrays(dataset.observations, dataset.actions)


def table(function, s, a, g):
    """function(s, a, g) for each transition and each goal: [7, 8]."""
    pairs = jax.vmap(jax.vmap(function, (None, None, 0)), (0, 0, None))
    return np.asarray(jax.jit(pairs)(s, a, g))


def test_contrastive_critic_is_a_log_density_ratio(chain):
    """f(s, a, g) = log p(g | s) - log p(g) + c(s), p(g | s) geometric and cut at the end."""
    data, spec = chain
    config = crl.CRLConfig(hidden=(64, 64), latent_dim=32)
    mixture = GoalMixture(0.0, 1.0, 0.0, 0.0, DISCOUNT)

    @jax.jit
    def train(key):
        critic = crl.ContrastiveCritic(config, spec, key=key)

        def body(i, carry):
            row_key, goal_key = jax.random.split(jax.random.fold_in(key, i))
            row = jax.random.randint(row_key, (256,), 0, N - 1)
            goal = sample_goal_indices(data, goal_key, row, mixture)
            x, a = data.observations, data.actions

            def loss(critic):
                return crl.contrastive_loss(critic.logits(x[row], a[row], x[goal]), config), {}

            critic, opt_state, _ = descend(loss, *carry, 1e-3)
            return critic, opt_state

        return jax.lax.fori_loop(0, 1000, body, (critic, start_optimiser(critic, 1e-3)))[0]

    critic = train(jax.random.key(0))
    x, a = data.observations, data.actions
    f = table(lambda *args: jnp.mean(critic.values(*args)), x[:-1], a[:-1], x)
    i, j = np.indices(f.shape)
    p = np.where(AHEAD, (1 - DISCOUNT) * DISCOUNT ** (j - i - 1.0), 0)
    p[:, -1] = 1 - p[:, :-1].sum(1)
    with np.errstate(divide="ignore"):
        want = np.log(p) - np.log(np.maximum(p.mean(0), 1e-9))[None]
    for row in range(N - 3):  # later rows have too few goals to compare
        got, truth = f[row, AHEAD[row]], want[row, AHEAD[row]]
        np.testing.assert_allclose(got - got.mean(), truth - truth.mean(), atol=0.3)
