"""Training killed with SIGKILL at random moments: the end result has the same bits."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_runs import final, log

SETTINGS = {"steps": 300, "save_every": 20, "log_every": 30, "chunk": 7}


def start(folder, programs, settings=SETTINGS):
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": programs,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    script = Path(__file__).with_name("toy_regression.py")
    command = [sys.executable, str(script), str(folder), json.dumps(settings)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish(folder, programs):
    """Train to the end; return how long the training took after the first step could begin."""
    with start(folder, programs) as process:
        first = process.stdout.readline()
        began = time.monotonic()
        assert (first + process.stdout.read()).endswith("finished\n")
        assert process.wait() == 0
    return time.monotonic() - began


@pytest.fixture(scope="module")
def reference(tmp_path_factory, compiled_once):
    """An uninterrupted run in a process of its own, and the seconds it trained."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    return folder, finish(folder, compiled_once)


def kill(folder, programs, seconds, rng):
    """Start, kill at a random moment, and return the last step that was reported, if any."""
    with start(folder, programs) as process:
        if rng.random() < 0.1:  # somewhere in the start: imports, restoring, compiling
            time.sleep(rng.uniform(0.0, 2.0))
        else:
            process.stdout.readline()
            time.sleep(rng.uniform(0.0, seconds))
        process.send_signal(signal.SIGKILL)
        reported = process.stdout.read().split()
        process.wait()
    return reported[-1] if reported else "nothing"


def test_three_kills_in_one_run(reference, tmp_path, compiled_once):
    straight, seconds = reference
    rng = random.Random(0)
    for _ in range(3):
        kill(tmp_path / "run", compiled_once, seconds / 3, rng)
    finish(tmp_path / "run", compiled_once)
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)
    hidden = [p for p in (tmp_path / "run").rglob(".*") if p.name.endswith(".tmp")]
    assert not hidden


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_twenty_runs_killed_once(reference, tmp_path, compiled_once, seed):
    straight, seconds = reference
    kill(tmp_path / "run", compiled_once, seconds, random.Random(seed))
    finish(tmp_path / "run", compiled_once)
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)
    shutil.rmtree(tmp_path / "run")


@pytest.mark.slow  # test_loop.py sends the signals to this process
def test_sigterm_saves_and_the_same_command_goes_on(reference, tmp_path, compiled_once):
    straight, _ = reference
    with start(tmp_path / "run", compiled_once) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        ended = process.stdout.read().split()
    # A fast machine may have finished before the signal came.
    assert ended[-1] in ("interrupted", "finished")
    finish(tmp_path / "run", compiled_once)
    assert final(tmp_path / "run") == final(straight)
