"""The SAC that trains the ant's runner."""

import jax
import numpy as np
import pytest
from ant_copies import random_networks
from scipy.stats import norm

from jumpyworld.domains.generate import sac
from jumpyworld.errors import ConfigError

pytest.importorskip("mujoco")
pytest.importorskip("ogbench")

from jumpyworld.domains.generate.ant_runner import FEATURE_MIRROR


def numpy_mlp(mlp, x):
    layers = [
        (np.asarray(w, np.float64), np.asarray(b, np.float64))
        for w, b in zip(mlp.weights, mlp.biases, strict=True)
    ]
    for w, b in layers[:-1]:
        h = np.array([row @ w + b for row in x])
        x = np.maximum((h - h.mean(1)[:, None]) / np.sqrt(h.var(1) + 1e-5)[:, None], 0)
    return x @ layers[-1][0] + layers[-1][1]


def numpy_sample(key, actor, features):
    out = numpy_mlp(actor, features)
    mean, std = out[:, :8], np.exp(np.clip(out[:, 8:], -5, 2))
    u = mean + std * np.asarray(jax.random.normal(key, mean.shape), np.float64)
    density = norm.logpdf(u, mean, std) - np.log(1 - np.tanh(u) ** 2)
    return np.tanh(u), density.sum(1)


def numpy_q(critics, features, actions):
    x = np.concatenate([features, actions], 1)
    return np.stack([numpy_mlp(c, x)[:, 0] for c in critics])


def random_batch(seed=0, size=6):
    rng = np.random.default_rng(seed)
    return sac.Batch(
        rng.normal(size=(size, 28)).astype(np.float32),
        rng.uniform(-1, 1, (size, 8)).astype(np.float32),
        rng.normal(size=size).astype(np.float32),
        rng.normal(size=(size, 28)).astype(np.float32),
        (np.arange(size) % 3 > 0).astype(np.float32),
    )


def test_losses_match_numpy():
    key = jax.random.key(7)
    actor, critics, targets = random_networks(5, width=32)
    batch, alpha, gamma = random_batch(), 0.3, 0.9

    loss, info = jax.jit(sac.critic_loss)(critics, key, targets, actor, alpha, batch, gamma)
    next_action, next_log_prob = numpy_sample(key, actor, batch.next_features)
    next_q = numpy_q(targets, batch.next_features, next_action).min(0)
    target = batch.rewards + gamma * batch.alive * (next_q - alpha * next_log_prob)
    q = numpy_q(critics, batch.features, batch.actions)
    expected = ((q - target) ** 2).mean(1).sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(info["critic/q"], q.mean(), rtol=1e-4, atol=1e-5)

    loss, info = jax.jit(sac.actor_loss)(actor, key, critics, alpha, batch.features)
    action, log_prob = numpy_sample(key, actor, batch.features)
    expected = (alpha * log_prob - numpy_q(critics, batch.features, action).min(0)).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(info["actor/entropy"], -log_prob.mean(), rtol=1e-4)

    # log alpha 0.5, entropy -6, target -4: 0.5 * (-6 + 4) = -1, and alpha has to grow.
    value, grad = jax.value_and_grad(sac.temperature_loss)(0.5, -6.0, -4.0)
    assert (float(value), float(grad)) == (-1.0, -2.0)


def test_critic_loss_stops_at_its_target():
    actor, critics, targets = random_networks(width=16)
    grad_fn = jax.jit(jax.grad(sac.critic_loss, argnums=(2, 3), has_aux=True))
    grads, _ = grad_fn(critics, jax.random.key(1), targets, actor, 0.1, random_batch(), 0.9)
    assert all(not np.any(g) for g in jax.tree.leaves(grads))


# One small configuration for both tests that compile the update, so that it compiles once.
SMALL = sac.SACConfig(
    width=16, batch_size=32, warmup_steps=160, num_envs=4, eval_steps=400, gamma=0.5
)


def test_updates_fit_a_fixed_batch():
    state = sac.init_sac(jax.random.key(0), SMALL)
    batch = random_batch(size=32)
    first_actor = jax.tree.map(np.array, state.actor)
    batches = sac.Batch(*(np.repeat(x[None], SMALL.updates_per_round, axis=0) for x in batch))
    losses = []
    for i in range(60):
        state, info = sac.sac_steps(state, batches, jax.random.key(i), np.float32(3e-3), SMALL)
        losses.append(float(info["critic/loss"]))
    assert np.mean(losses[-5:]) < 0.3 * losses[0]

    def value(actor):
        mean = np.tanh(numpy_mlp(actor, batch.features)[:, :8])
        return numpy_q(state.critics, batch.features, mean).min(0).mean()

    assert value(state.actor) > value(first_actor) + 0.1
    # The policy starts wider than its target entropy, so the temperature has fallen.
    assert float(state.log_alpha) < np.log(SMALL.initial_temperature)


def test_replay_mirrors_half_and_overwrites():
    replay = sac.Replay(8)
    batch = random_batch(size=5)
    rows = batch.features, batch.next_features, batch.actions, batch.rewards, batch.alive
    replay.add(*rows)
    index, sign = FEATURE_MIRROR
    drawn = replay.sample(np.random.default_rng(0), (2, 40))
    assert drawn.features.shape == (2, 40, 28) and drawn.rewards.shape == (2, 40)
    for row in range(40):
        source = int(np.flatnonzero(batch.rewards == drawn.rewards[1, row])[0])
        expected = batch.features[source]
        expected = expected if row < 20 else expected[index] * sign
        np.testing.assert_allclose(drawn.features[1, row], expected, rtol=1e-6)
    replay.add(*rows)
    drawn = replay.sample(np.random.default_rng(0), (1, 500))
    assert len(np.unique(drawn.rewards)) == 5  # 8 kept of 10 added, all 5 values still there


def test_short_training_is_reproducible():
    seen = []
    weights, curve = sac.train_expert(SMALL, seed=3, env_steps=480, progress=seen.append)
    again, _ = sac.train_expert(SMALL, seed=3, env_steps=480)
    assert seen == curve and [e["env_steps"] for e in curve] == [400, 480]
    assert {"wall_s", "env_steps", "speed", "falls"} <= set(curve[0])
    for name, value in weights.items():
        np.testing.assert_array_equal(value, again[name])
    with pytest.raises(ConfigError, match="minutes or env_steps"):
        sac.train_expert(SMALL, seed=0)


@pytest.mark.slow
def test_training_learns_to_run():
    _, curve = sac.train_expert(sac.SACConfig(), seed=0, env_steps=60_000)
    assert curve[-1]["speed"] > 1.0
