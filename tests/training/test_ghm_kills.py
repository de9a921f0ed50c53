"""A geometric horizon model, trained by the command and killed at random moments: the same bits."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from jumpyworld.data import Dataset
from jumpyworld.data.ogbench import write_npz
from jumpyworld.storage import checkpoint, runs
from jumpyworld.storage.tensors import digest

STEPS = 4000


@pytest.fixture(scope="module")
def command(tmp_path_factory, compiled_once):
    """Return a function that starts the training of a run folder."""
    place = tmp_path_factory.mktemp("ghm")
    rng = np.random.default_rng(0)
    ends = np.arange(400) % 100 == 99
    states = rng.uniform(0, 20, (400, 2)).astype(np.float32)
    dataset = Dataset.from_arrays(
        states, rng.uniform(-1, 1, (400, 2)), ends, domain="pointmaze-large"
    )
    write_npz(place / "pointmaze-large-navigate-v0.npz", dataset)
    words = ["--dataset", place, "--policy", "scripted:3", "--preset", "debug"]
    words += ["--set", "width=8", "embed_dim=4", "batch_size=16", "jumps=ahead"]
    words += ["--steps", STEPS, "--save-every", 100, "--log-every", 100]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(compiled_once),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def start(run):
        call = [sys.executable, "-m", "jumpyworld.cli", "train", "ghm", *words, "--out", run]
        return subprocess.Popen(
            list(map(str, call)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )

    return start


def bits(run):
    """Return a hash of every array of the last training state."""
    step, folder = runs.newest(run)
    assert step == STEPS
    return digest(checkpoint.read_state(folder)[2])


def finish(command, run):
    with command(run) as process:
        said = process.communicate()[0].decode()
    assert process.returncode == 0, said


@pytest.fixture(scope="module")
def straight(command, tmp_path_factory):
    """Bits of a run that nothing interrupted."""
    run = tmp_path_factory.mktemp("straight") / "run"
    finish(command, run)
    return bits(run)


def saved(run):
    return max(runs.saved_steps(run), default=0)


def kill(command, run, rng):
    """Start, and kill at a random moment once another checkpoint has been saved."""
    before = saved(run)
    with command(run) as process:
        while saved(run) <= before:
            assert process.poll() is None, process.stdout.read().decode()
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1))
        assert process.poll() is None, "it finished first: more steps are needed"
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_leave_the_same_model(command, straight, tmp_path, kills):
    rng = random.Random(kills)
    for _ in range(kills):
        kill(command, tmp_path / "run", rng)
    finish(command, tmp_path / "run")
    assert bits(tmp_path / "run") == straight
