"""The ant's runner: its simulator, its network in NumPy, and its file."""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ant_copies import random_networks, random_state

from jumpyworld.domains.generate import sac
from jumpyworld.domains.generate.ant_expert import (
    AntExpert,
    canonical_features,
    motor_actions,
    save_expert,
)
from jumpyworld.errors import CheckpointError

pytest.importorskip("mujoco")
pytest.importorskip("ogbench")

from jumpyworld.domains.generate.ant_runner import AntVector, measure_expert


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
