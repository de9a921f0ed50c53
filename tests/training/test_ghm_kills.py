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
    began = time.monotonic()
    with command(run) as process:
        said = process.communicate()[0].decode()
    assert process.returncode == 0, said
    return time.monotonic() - began


@pytest.mark.slow
def test_kills_leave_the_same_model(command, tmp_path):
    finish(command, tmp_path / "straight")
    seconds = finish(command, tmp_path / "again")  # this time nothing is compiled
    assert bits(tmp_path / "again") == bits(tmp_path / "straight")
    rng, killed = random.Random(0), 0
    while killed < 5:
        with command(tmp_path / "run") as process:
            time.sleep(rng.uniform(0.3, 0.9) * seconds)
            if process.poll() is not None:
                break  # it has finished
            process.send_signal(signal.SIGKILL)
            killed += 1
    finish(command, tmp_path / "run")
    assert killed >= 1
    assert bits(tmp_path / "run") == bits(tmp_path / "straight")
