"""``jumpy train`` again: it continues to the same bits, or says why it cannot."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from tiny_runs import TINY, contents, jumpy, refused, state, train_gcbc, train_ghm

from jumpyworld.cli import console
from jumpyworld.storage import runs

pytestmark = pytest.mark.usefixtures("programs")


def test_the_same_command_continues_to_the_same_bits(straight, data, tmp_path, capsys):
    out = tmp_path / "run"
    for steps in (1, 3, 4):
        assert train_gcbc(data, out, "--steps", steps, "--log-every", 2) == 0
    assert state(out) == state(straight)
    capsys.readouterr()
    before = contents(out)
    assert train_gcbc(data, out, "--steps", 4) == 0
    assert "already finished" in capsys.readouterr().out
    assert contents(out) == before
    assert train_gcbc(data, out, "--steps", 2, "--overwrite") == 0
    assert runs.saved_steps(out) == [2]


def test_what_is_usual_among_gradients_is_remembered(straight, data, tmp_path):
    # A ratio so small that many steps are clipped, of two seeds that clip on their own.
    words = ("--set", "grad_clip=1.01", "--num-seeds", 2)
    for steps in (3, 8):
        assert train_ghm(data, straight, tmp_path / "run", "--steps", steps, *words) == 0
    assert train_ghm(data, straight, tmp_path / "whole", "--steps", 8, *words) == 0
    assert state(tmp_path / "run") == state(tmp_path / "whole")


def test_steps_default_to_the_settings_and_kept_ones_stay(data, tmp_path):
    words = ("--set", "gradient_steps=6", "--save-every", 1, "--keep-steps", 1, 2)
    assert train_gcbc(data, tmp_path / "run", *words) == 0
    assert runs.saved_steps(tmp_path / "run") == [1, 2, 4, 5, 6]


def test_a_time_box_is_no_end(data, tmp_path, capsys):
    assert train_gcbc(data, tmp_path / "run", "--minutes", 0.0001) == 0
    assert "; time is up" in capsys.readouterr().out
    first = runs.newest(tmp_path / "run")[0]
    assert train_gcbc(data, tmp_path / "run", "--minutes", 0.0001) == 0
    assert runs.newest(tmp_path / "run")[0] > first


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--set", "discount=0.5"], "config.discount is 0.99 there and 0.5 here"),
        (["--set", "learning_rate=1"], "config.learning_rate"),
        (["--seed", 1], "seeds"),
        (["--dataset", "{place}/other"], "fingerprints.dataset"),
    ],
)
def test_another_description_is_refused_by_field(words, field, place, data, copied, capsys):
    before = contents(copied)
    words = [str(word).format(place=place) for word in words]
    assert train_gcbc(data, copied, "--steps", 9, *words) == 2
    refused(capsys, field, "choose another folder, or overwrite")
    assert contents(copied) == before


def test_another_width_is_refused_by_field(data, copied, capsys):
    words = ("--dataset", data, "--out", copied, "--preset", "debug", "--set", "hidden=[9]")
    assert jumpy("train", "policy", "gcbc", *words, "batch_size=4") == 2
    refused(capsys, "config.hidden is [8] there and [9] here")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--set", "gamma_max=0.9"], "config.gamma_max is 0.996 there and 0.9 here"),
        (["--objective", "td-flow"], "config.hc_fraction is 0.25 there and 0.0 here"),
        (["--dataset", "{place}/other"], "fingerprints.dataset"),
        (["--policy", "scripted:2"], "fingerprints.policy"),
    ],
)
def test_another_model_is_refused_by_field(words, field, place, data, straight, model, capsys):
    before = contents(model)
    words = [word.format(place=place) for word in words]
    assert train_ghm(data, straight, model, "--steps", 9, *words) == 2
    refused(capsys, field)
    assert contents(model) == before


def test_a_damaged_newest_checkpoint_falls_back_with_a_warning(data, straight, copied, capsys):
    newest = runs.checkpoint_path(copied, 4)
    content = bytearray((newest / "train_state.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "train_state.safetensors").write_bytes(content)
    assert train_gcbc(data, copied, "--steps", 4, "--log-every", 2) == 0
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("jumpy: warning: ")]
    assert len(lines) == 2 and "damaged" in lines[0] and "trying the checkpoint before" in lines[0]
    assert "step-000000004.damaged" in lines[1]
    assert "Warning:" not in error
    assert state(copied) == state(straight)


def test_an_interrupted_run_saves_says_so_and_continues(
    data, straight, tmp_path, capsys, monkeypatch
):
    class Impatient:
        def __call__(self, done, total):
            if done == 2:
                signal.raise_signal(signal.SIGINT)

        def say(self, text):
            assert text == "compiling"

    @contextlib.contextmanager
    def impatient(title, unit, deadline):
        yield Impatient()

    out, words = tmp_path / "run", ("--steps", 4, "--log-every", 2)
    with monkeypatch.context() as patch:
        patch.setattr(console, "progress", impatient)
        assert train_gcbc(data, out, *words) == 130
    error = capsys.readouterr().err
    assert error == "jumpy: interrupted at step 2 (the same command continues)\n"
    assert runs.newest(out)[0] == 2
    assert train_gcbc(data, out, *words) == 0
    assert state(out) == state(straight)


def test_an_interrupted_process_exits_with_130(data, tmp_path, programs):
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": programs,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    words = ["train", "policy", "gcbc", "--dataset", data, "--out", tmp_path / "run", *TINY]
    command = [sys.executable, "-m", "jumpyworld.cli", *map(str, words), "--steps", "100000000"]
    with subprocess.Popen(
        [*command, "--log-every", "50"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        log, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
        while not (log.is_file() and log.stat().st_size) and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 130 and not out
    assert error.splitlines()[-1].startswith("jumpy: interrupted at step ")
    assert runs.newest(tmp_path / "run")[0] >= 50
