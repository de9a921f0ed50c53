"""Critics on a chain of eight states, where the answer is known in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.data import Dataset, GoalMixture, device_data, sample_goal_indices
from jumpyworld.policies import PolicySpec, crl, gc1s, gctd3
from jumpyworld.policies.networks import descend, start_optimiser

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


@pytest.mark.parametrize("mask", [True, False])
def test_values_solve_the_stated_recursion(chain, mask):
    """GC-1S, through its own step.

    With the mask the value of a goal k steps ahead is discount^(k-1), by induction. Without it, as
    in the paper, nothing ends at the goal: Q(s, g) = 1{s' = g} + discount Q(s', g).
    """
    data, spec = chain
    config = gc1s.GC1SConfig.preset(
        "debug",
        discount=DISCOUNT,
        mask_at_goal=mask,
        hidden=(64, 64),
        batch_size=64,
        learning_rate=2e-3,
        flow_steps=1,
    )

    @eqx.filter_jit
    def train(key):
        def body(i, state):
            return gc1s.step(state, data, jax.random.fold_in(key, i), config)[0]

        return jax.lax.fori_loop(0, 3000, body, gc1s.init(key, config, spec))

    # The average weights: the online ones still tremble with the draws.
    critic = train(jax.random.key(0)).target

    def value(s, a, g):
        return jnp.mean(gctd3.critic_values(critic, s, a, g, "squared"))

    x, a = data.observations, data.actions
    q = table(value, x[:-1], a[:-1], x)
    if mask:
        i, j = np.indices(q.shape)
        assert np.abs(q - DISCOUNT ** (j - i - 1.0))[AHEAD].max() < 0.05
    else:
        residual = q - np.eye(N)[1:] - DISCOUNT * table(value, x[1:], a[1:], x)
        assert np.abs(residual).mean() < 0.02 and np.abs(residual).max() < 0.1


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
