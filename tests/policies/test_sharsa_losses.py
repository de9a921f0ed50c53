"""Losses of SHARSA, against hand and NumPy in float64 from the networks' weights."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_parts import SPEC, B, linear_ensemble, linear_net, sigmoid, softplus

from jumpyworld.policies import sharsa


def test_sharsa_targets_by_hand():
    target = jax.vmap(sharsa.critic_target, (0, 0, 0, None))
    steps, reached = jnp.array([0, 2, 2, 3]), jnp.array([True, True, False, False])
    got = target(steps, reached, jnp.full(4, 0.4), 0.5)
    np.testing.assert_allclose(got, [1.0, 0.25, 0.1, 0.05], rtol=1e-6)
    assert sharsa.cross_entropy(jnp.array(0.0), jnp.array(0.3)) == pytest.approx(math.log(2))
    # A probability of 3/4 where it is 1/4.
    want = -(0.25 * math.log(0.75) + 0.75 * math.log(0.25))
    assert sharsa.cross_entropy(jnp.log(3.0), jnp.array(0.25)) == pytest.approx(want)


def test_sharsa_values_by_hand():
    """One dimension each: Q's logits are s + w and g, the targets' w and 0, V's is s + g."""
    critic, target = linear_ensemble([1, 1, 0], [0, 0, 1]), linear_ensemble([0, 1, 0], [0, 0, 0])
    networks = sharsa.SHARSANetworks(None, None, linear_net([[1], [1]], [0]), critic)
    log3, column = math.log(3), lambda x: jnp.array([x], jnp.float32)
    row = sharsa.ValueBatch(column(0.0), column(0.0), column(log3), jnp.array(2), jnp.array(False))
    config = sharsa.SHARSAConfig(discount=0.5, target_aggregation="min")
    total, metrics = sharsa.value_losses(networks, target, row, config)
    # V(w, g) = 3/4 two steps on: a target of 3/16 for Q, which says 3/4 and 1/2.
    says = lambda p, y: -(y * math.log(p) + (1 - y) * math.log(1 - p))  # noqa: E731
    critic_loss = (says(0.75, 3 / 16) + says(0.5, 3 / 16)) / 2
    # The targets say 3/4 and 1/2, of which V(s, g) = 1/2 learns the smaller.
    value_loss = says(0.5, 0.5)
    assert metrics["critic/target"] == pytest.approx(3 / 16)
    assert metrics["value/target"] == pytest.approx(0.5)
    assert metrics["critic/loss"] == pytest.approx(critic_loss)
    assert metrics["value/loss"] == pytest.approx(value_loss)
    assert total == pytest.approx(critic_loss + value_loss)


@pytest.fixture(scope="module")
def sharsa_setting(rows, shaken, quick):
    s, g, _, w, _, _ = rows
    config = sharsa.SHARSAConfig(hidden=(16, 16), discount=0.9)
    state = shaken(lambda k: sharsa.init(k, config, SPEC))
    steps = jnp.arange(B, dtype=jnp.int32)
    return config, state, sharsa.ValueBatch(*map(jnp.asarray, (s, g, w)), steps, steps % 3 == 0)


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_sharsa_against_numpy(sharsa_setting, oracle, quick, aggregation):
    config, state, b = sharsa_setting
    config = dataclasses.replace(config, target_aggregation=aggregation)
    next_v = sigmoid(oracle.net(state.value, b.w, b.g)[:, 0])
    y = 0.9 ** np.arange(B) * np.where(np.arange(B) % 3 == 0, 1, next_v)
    logits = oracle.ensemble(state.policy.critic, b.s, b.w, b.g)[..., 0]
    critic = (softplus(logits) - y * logits).mean(0)
    q = sigmoid(oracle.ensemble(state.target, b.s, b.w, b.g)[..., 0])
    q = q.mean(0) if aggregation == "mean" else q.min(0)
    v = oracle.net(state.value, b.s, b.g)[:, 0]
    value = softplus(v) - q * v
    nets = state.networks
    each = quick(jax.vmap(lambda r: sharsa.value_losses(nets, state.target, r, config)))
    losses, metrics = each(b)
    np.testing.assert_allclose(metrics["critic/loss"], critic, atol=1e-5)
    np.testing.assert_allclose(metrics["value/loss"], value, atol=1e-5)
    np.testing.assert_allclose(losses, critic + value, atol=1e-5)


def test_sharsa_stop_gradients(sharsa_setting, norm, quick):
    config, state, batch = sharsa_setting

    def gradient(name):
        def total(both):
            return jnp.sum(
                jax.vmap(lambda r: sharsa.value_losses(*both, r, config)[1][name])(batch)
            )

        return quick(jax.grad(total))((state.networks, state.target))

    online, target = gradient("critic/loss")
    assert norm(online.value) == norm(target) == 0 < norm(online.critic)
    online, target = gradient("value/loss")
    assert norm(online.critic) == norm(target) == 0 < norm(online.value)


def test_sharsa_value_batches(walks, key):
    dataset, data, _ = walks
    index = jnp.full(50_000, 40, jnp.int32)
    config = sharsa.SHARSAConfig(lookahead=10)
    batch = sharsa.draw_value_batch(data, key, index, config, lambda x: x)
    steps, reached = np.asarray(batch.steps), np.asarray(batch.reached)
    assert steps.min() == 0 and steps.max() == 10
    assert reached[steps < 10].all()
    np.testing.assert_array_equal(batch.w, dataset.observations[40 + steps])
    # Reached: the state itself, or a uniform or random goal among the next ten rows.
    chance = 0.3 / dataset.num_transitions
    assert np.mean(steps == 0) == pytest.approx(0.2 + chance, abs=0.01)
    assert np.mean(reached) == pytest.approx(0.2 + 0.5 * 10 / 40 + 11 * chance, abs=0.01)


def test_sharsa_takes_the_best_subgoal(sharsa_setting, oracle):
    config, state, b = sharsa_setting
    policy, s, g, key = state.policy, b.s[0], b.g[0], jax.random.key(5)
    keys = jax.random.split(key, config.num_subgoals)
    draw = jax.vmap(lambda k: policy.hierarchy.subgoal(k, s, g))
    draws, best = jax.jit(lambda: (draw(keys), policy.subgoal(key, s, g)))()
    tile = lambda x: np.tile(np.asarray(x), (config.num_subgoals, 1))  # noqa: E731
    score = oracle.ensemble(policy.critic, tile(s), draws, tile(g))[..., 0].min(0)
    np.testing.assert_array_equal(best, draws[score.argmax()])
