"""The ant's runner: its symmetry, its network in NumPy, and the SAC that trains it."""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from scipy.stats import norm

from jumpyworld.domains.generate import sac
from jumpyworld.domains.generate.ant_expert import (
    AntExpert,
    canonical_features,
    motor_actions,
    save_expert,
)
from jumpyworld.errors import CheckpointError, ConfigError

pytest.importorskip("mujoco")
pytest.importorskip("ogbench")

from jumpyworld.domains.generate.ant_runner import (
    ACTION_MIRROR,
    FEATURE_MIRROR,
    AntVector,
    measure_expert,
)

# ---------------------------------------------------------------- states and their copies


def random_state(seed, upright=False):
    rng = np.random.default_rng(seed)
    qpos = rng.normal(size=15)
    qpos[3:7] /= np.linalg.norm(qpos[3:7])
    qpos[7:] *= 0.5
    if upright:
        yaw, tilt = rng.uniform(-np.pi, np.pi), rng.uniform(-0.3, 0.3, 2)
        quat = (Rotation.from_euler("z", yaw) * Rotation.from_euler("xy", tilt)).as_quat()
        qpos[2], qpos[3:7] = 0.6, np.roll(quat, 1)
        qpos[7:] = np.array([0, 0.9, 0, -0.9, 0, -0.9, 0, 0.9]) + rng.uniform(-0.3, 0.3, 8)
    angle = rng.uniform(-np.pi, np.pi)
    return qpos, rng.normal(size=14), np.array([np.cos(angle), np.sin(angle)])


def rename_legs(qpos, qvel):
    """The same posture, with the body frame a quarter turn further and leg 2 called leg 1."""
    turn = Rotation.from_euler("z", 90, degrees=True)
    new_qpos, new_qvel = qpos.copy(), qvel.copy()
    new_qpos[3:7] = np.roll((Rotation.from_quat(np.roll(qpos[3:7], -1)) * turn).as_quat(), 1)
    new_qvel[3:6] = turn.inv().apply(qvel[3:6])
    for array, source, start in ((new_qpos, qpos, 7), (new_qvel, qvel, 6)):
        legs = source[start:].reshape(4, 2) * np.array([[1, 1], [1, -1], [1, -1], [1, 1]])
        # Rolling brings leg 2 to slot 1; signs are each slot's own.
        legs = np.roll(legs, -1, axis=0) * np.array([[1, 1], [1, -1], [1, -1], [1, 1]])
        array[start:] = legs.ravel()
    return new_qpos, new_qvel


def turn_world(qpos, qvel, direction):
    """The whole scene turned by 90 degrees about the origin."""
    turn = Rotation.from_euler("z", 90, degrees=True)
    new_qpos, new_qvel = qpos.copy(), qvel.copy()
    new_qpos[:3] = turn.apply(qpos[:3])
    new_qpos[3:7] = np.roll((turn * Rotation.from_quat(np.roll(qpos[3:7], -1))).as_quat(), 1)
    new_qvel[:3] = turn.apply(qvel[:3])
    return new_qpos, new_qvel, turn.apply([*direction, 0.0])[:2]


def mirror_world(qpos, qvel, direction):
    """The scene seen in a mirror along the x axis."""
    new_qpos = qpos * np.array([1, -1, 1, 1, -1, 1, -1] + [-1, 1] * 4)
    new_qvel = qvel * np.array([1, -1, 1, -1, 1, -1] + [-1, 1] * 4)
    for array, start in ((new_qpos, 7), (new_qvel, 6)):
        array[start:] = array[start:].reshape(4, 2)[[3, 2, 1, 0]].ravel()
    return new_qpos, new_qvel, direction * np.array([1, -1])


@pytest.fixture(scope="module")
def expert():
    return AntExpert.load()


# ---------------------------------------------------------------- frame and symmetry


@pytest.mark.parametrize("seed", range(20))
def test_features_match_rotation_matrices(seed):
    qpos, qvel, direction = random_state(seed)
    features, k = canonical_features(qpos, qvel, direction)
    body = Rotation.from_quat(np.roll(qpos[3:7], -1))
    heading = 2 * np.arctan2(qpos[6], qpos[3]) + k * np.pi / 2
    world_to_frame = Rotation.from_euler("z", -heading)
    body_to_frame = Rotation.from_euler("z", -k * np.pi / 2)
    np.testing.assert_allclose(features[0], qpos[2], rtol=1e-6)
    up = body_to_frame.apply(body.inv().apply([0, 0, 1]))
    np.testing.assert_allclose(features[1:4], up, atol=1e-6)
    np.testing.assert_allclose(features[4:7], world_to_frame.apply(qvel[:3]), atol=1e-6)
    np.testing.assert_allclose(features[7:10], body_to_frame.apply(qvel[3:6]), atol=1e-6)
    np.testing.assert_allclose(features[26:], world_to_frame.apply([*direction, 0])[:2], atol=1e-6)
    assert features[26] >= np.sqrt(0.5) - 1e-6  # within 45 degrees of the front
    unnormalised = qpos.copy()
    unnormalised[3:7] *= 1.7
    np.testing.assert_allclose(
        canonical_features(unnormalised, qvel, direction)[0], features, atol=1e-6
    )


@pytest.mark.parametrize("seed", range(10))
def test_renamed_and_turned_copies_look_alike(seed, expert):
    qpos, qvel, direction = random_state(seed)
    features, k = canonical_features(qpos, qvel, direction)
    action = expert(qpos, qvel, direction)
    renamed, turned, renamed_action = (qpos, qvel), (qpos, qvel, direction), action
    for quarter in range(1, 5):
        renamed = rename_legs(*renamed)
        turned = turn_world(*turned)
        other, other_k = canonical_features(*renamed, direction)
        np.testing.assert_allclose(other, features, atol=2e-6)
        assert other_k == (k - quarter) % 4
        # Motors are listed leg 4, 1, 2, 3 with ankle signs + + - -.
        legs = renamed_action.reshape(4, 2) * np.array([[1, 1], [1, 1], [1, -1], [1, -1]])
        legs = np.roll(legs, -1, axis=0) * np.array([[1, 1], [1, 1], [1, -1], [1, -1]])
        renamed_action = legs.ravel()
        np.testing.assert_allclose(expert(*renamed, direction), renamed_action, atol=1e-4)
        other, other_k = canonical_features(*turned)
        np.testing.assert_allclose(other, features, atol=2e-6)
        assert other_k == k
        np.testing.assert_allclose(expert(*turned), action, atol=1e-4)
    np.testing.assert_allclose(renamed_action, action)


def run_copies(states, expert, num_steps):
    """Features [copies, steps, 28] and headings of ants that start in the given states."""
    ants = AntVector(len(states), np.random.default_rng(0))
    for i, (qpos, qvel, direction) in enumerate(states):
        ants.qpos[i][:], ants.qvel[i][:], ants.directions[i] = qpos, qvel, direction
    trail = []
    for _ in range(num_steps):
        controls = [
            expert(q, v, d) for q, v, d in zip(ants.qpos, ants.qvel, ants.directions, strict=True)
        ]
        trail.append(ants.step(np.stack(controls)).features)
        assert np.all([d.time > 0 for d in ants.data])
    return np.stack(trail, 1)


@pytest.mark.parametrize("kind", ["renamed", "turned"])
def test_four_copies_stay_equal_when_simulated(kind, expert):
    qpos, qvel, direction = random_state(3, upright=True)
    states = [(qpos, qvel, direction)]
    for _ in range(3):
        qpos, qvel, direction = states[-1]
        renamed = (*rename_legs(qpos, qvel), direction)
        states.append(renamed if kind == "renamed" else turn_world(qpos, qvel, direction))
    trail = run_copies(states, expert, 20)
    assert np.ptp(trail[0], axis=0).max() > 0.5  # the ant does move
    for copy in trail[1:]:
        np.testing.assert_allclose(copy, trail[0], atol=2e-4)


def test_mirrored_copy_stays_mirrored_when_simulated():
    index, sign = FEATURE_MIRROR
    state = random_state(5, upright=True)
    mirrored = mirror_world(*state)
    features, k = canonical_features(*state)
    other, other_k = canonical_features(*mirrored)
    np.testing.assert_allclose(other, features[index] * sign, atol=1e-6)
    ants = AntVector(2, np.random.default_rng(0))
    for i, (qpos, qvel, direction) in enumerate((state, mirrored)):
        ants.qpos[i][:], ants.qvel[i][:], ants.directions[i] = qpos, qvel, direction
    ants.turns[:] = k, other_k
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, 8)
        action_index, action_sign = ACTION_MIRROR
        step = ants.step_canonical(np.stack([action, action[action_index] * action_sign]))
        np.testing.assert_allclose(step.features[1], step.features[0][index] * sign, atol=2e-4)


# ---------------------------------------------------------------- simulator


def test_steps_are_those_of_ogbench():
    gymnasium = pytest.importorskip("gymnasium")
    from ogbench.online_locomotion.ant import AntEnv
    from ogbench.online_locomotion.wrappers import GymXYWrapper

    env = GymXYWrapper(gymnasium.wrappers.TimeLimit(AntEnv(), 1000))
    env.reset(seed=0)
    ants = AntVector(1, np.random.default_rng(0))
    start = env.unwrapped.data
    ants.qpos[0][:], ants.qvel[0][:], ants.directions[0] = start.qpos, start.qvel, env.z
    rng = np.random.default_rng(1)
    for _ in range(5):
        action = rng.uniform(-1, 1, 8)
        _, reward, terminated, _, _ = env.step(action)
        step = ants.step(action[None])
        np.testing.assert_allclose(step.rewards[0], reward, atol=1e-6)
        assert bool(step.falls[0]) == terminated
        np.testing.assert_allclose(ants.qpos[0], start.qpos, atol=1e-8)
    env.close()


def test_ants_restart_after_a_fall_and_turn_every_hundred_steps():
    ants = AntVector(2, np.random.default_rng(0))
    first = ants.directions.copy()
    for _ in range(99):
        ants.step(np.zeros((2, 8)))
    np.testing.assert_array_equal(ants.directions, first)
    ants.qpos[0][2] = 3.0
    step = ants.step(np.zeros((2, 8)))
    assert step.falls.tolist() == [True, False]
    assert not np.allclose(ants.directions, first)
    assert 0.6 < ants.qpos[0][2] < 0.9
    assert step.features[0, 0] > 1.0  # the successor is the fall, not the new start
    ants.qvel[1][0] = np.nan
    step = ants.step(np.zeros((2, 8)))
    assert np.isfinite(step.features).all() and np.isfinite(ants.features).all()


def test_packaged_expert_runs(expert):
    clean = measure_expert(expert)
    assert clean.speed > 1.5
    assert clean.falls == clean.flips == 0
    noisy = measure_expert(expert, noise=0.2, seed=1)
    assert noisy.speed > 1.3


def test_call_is_cheap_next_to_a_step(expert):
    ants = AntVector(1, np.random.default_rng(0))
    qpos, qvel, direction = ants.qpos[0].copy(), ants.qvel[0].copy(), ants.directions[0]
    control = np.zeros((1, 8))

    def best(call):
        times = []
        for _ in range(100):
            start = time.perf_counter()
            for _ in range(5):
                call()
            times.append(time.perf_counter() - start)
        return min(times)

    ratio = best(lambda: expert(qpos, qvel, direction)) / best(lambda: ants.step(control))
    assert ratio < 0.12  # 0.05 when measured; the whole generator may add 0.15


def test_expert_needs_no_jax():
    code = (
        "import sys, jumpyworld.domains.generate.ant_runner as r;"
        "r.AntVector; assert 'jax' not in sys.modules, 'jax was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- network and file


def random_networks(seed=0, width=128):
    """Networks with every weight and bias drawn, without compiling an initialiser."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(sac.init_sac, jax.random.key(0), sac.SACConfig(width=width))

    def draw(leaf):
        scale = 1.0 / np.sqrt(leaf.shape[0]) if leaf.ndim == 2 else 0.1
        return (scale * rng.normal(size=leaf.shape)).astype(np.float32)

    return jax.tree.map(draw, (shapes.actor, shapes.critics, shapes.target_critics))


def test_numpy_expert_equals_jax_network():
    actor = random_networks()[0]
    expert = AntExpert(sac.expert_weights(actor))
    mean_fn = jax.jit(lambda x: jnp.tanh(actor(x)[:, :8]))
    for seed in range(50):
        state = random_state(seed)
        features, k = canonical_features(*state)
        mean = np.asarray(mean_fn(features[None]))
        action = expert(*state)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, motor_actions(mean, np.array([k]))[0], atol=1e-5)


def test_calls_do_not_share_their_results(expert):
    first = expert(*random_state(0))
    kept = first.copy()
    expert(*random_state(1))
    np.testing.assert_array_equal(first, kept)


def test_file_keeps_weights_and_notes(tmp_path):
    path = tmp_path / "new" / "expert.safetensors"
    weights = sac.expert_weights(random_networks(width=64)[0])
    save_expert(path, weights, {"seed": 3, "note": "text"})
    loaded = AntExpert.load(path)
    assert loaded.metadata["seed"] == "3" and loaded.metadata["note"] == "text"
    for name, value in weights.items():
        np.testing.assert_array_equal(loaded.weights[name], value)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="w0"):
        save_expert(path, {**weights, "w0": weights["w0"] * np.nan})
    assert path.read_bytes() == before and len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "header", "other", "shape"])
def test_damaged_file_is_named(tmp_path, damage):
    from safetensors.numpy import save_file

    path = tmp_path / "expert.safetensors"
    weights = sac.expert_weights(random_networks(width=32)[0])
    save_expert(path, weights)
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        save_file({"w": np.zeros(3, np.float32)}, path)
    elif damage == "shape":
        notes = {"format": "jumpyworld-ant-expert-1"}
        save_file({**weights, "b2": np.zeros(7, np.float32)}, path, metadata=notes)
    else:
        path.write_bytes({"empty": b"", "cut": whole[:-100], "header": b"x" + whole[1:]}[damage])
    with pytest.raises(CheckpointError, match=r"expert\.safetensors"):
        AntExpert.load(path)


# ---------------------------------------------------------------- SAC


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
