import os
import signal
import subprocess
import sys
import time

import pytest
from checkpoint_samples import make_document, save_step

from jumpyworld.errors import CheckpointError
from jumpyworld.storage import runs

HOLD = """
import sys, time
from jumpyworld.storage import runs
with runs.locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def flip(path):
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :])


@pytest.fixture
def run(tmp_path):
    for step in (10, 20, 30):
        save_step(tmp_path / "run", step)
    return tmp_path / "run"


FILES = ["config.json", "model.safetensors", "train_state.safetensors", "manifest.json"]


@pytest.mark.parametrize("name", FILES)
def test_the_one_before_steps_in_for_a_damaged_checkpoint(run, name):
    flip(runs.checkpoint_path(run, 30) / name)
    warnings = []
    assert runs.newest(run, warnings.append) == (20, runs.checkpoint_path(run, 20))
    assert len(warnings) == 1 and name in warnings[0] and "step-000000030" in warnings[0]
    assert runs.resolve(run, warnings.append) == runs.checkpoint_path(run, 20)
    with pytest.warns(UserWarning, match="step-000000030"):
        runs.resolve(run)
    with pytest.raises(CheckpointError, match=name):
        runs.resolve(runs.checkpoint_path(run, 30))


def test_nothing_that_verifies_is_an_error_and_not_a_fresh_start(run):
    for step in (10, 20, 30):
        flip(runs.checkpoint_path(run, step) / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"none of its checkpoints.*step-000000030"):
        runs.newest(run, lambda _: None)


def test_a_renamed_checkpoint_does_not_pass_for_another_step(run):
    runs.checkpoint_path(run, 30).rename(runs.checkpoint_path(run, 40))
    warnings = []
    assert runs.newest(run, warnings.append)[0] == 20
    assert "another step" in warnings[0]


def test_resolve(run, tmp_path):
    assert runs.resolve(run) == runs.checkpoint_path(run, 30)
    assert runs.resolve(runs.checkpoint_path(run, 10)) == runs.checkpoint_path(run, 10)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(CheckpointError, match=str(missing)):
            runs.resolve(missing)


def test_links_are_no_checkpoints(run):
    os.symlink(runs.checkpoint_path(run, 30), runs.checkpoint_path(run, 40))
    assert runs.saved_steps(run) == [10, 20, 30]


def test_the_last_few_and_those_asked_for_are_kept(run):
    for step in (40, 50):
        save_step(run, step)
    runs.prune(run, 2, {10, 99})
    assert runs.saved_steps(run) == [10, 40, 50]
    assert len(list((run / "checkpoints").iterdir())) == 3


def test_leftovers_go_and_other_files_stay(run):
    mine = ["notes.txt", ".config.json.tmp.swp", ".hidden.tmp"]
    for name in mine:
        (run / name).write_text("mine")
    left = [run / ".checkpoints.1.tmp", run / "checkpoints" / ".step-000000040.77.tmp"]
    for path in left:
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"half")
    (run / ".metrics.jsonl.abc.tmp").write_bytes(b"half")
    runs.prepare(run, make_document(), False, print)
    assert sorted(p.name for p in run.iterdir()) == sorted([*mine, "checkpoints"])
    assert runs.saved_steps(run) == [10, 20, 30]


def test_overwrite_removes_the_run_and_nothing_else(run):
    runs.write_config(run, make_document(), {"steps": 1})
    (run / "notes.txt").write_text("mine")
    (run / "metrics.csv").write_text("old")
    runs.prepare(run, make_document(kind="other"), True, print)
    assert sorted(p.name for p in run.iterdir()) == ["checkpoints", "notes.txt"]
    assert runs.saved_steps(run) == []


def test_another_description_is_refused_by_name(run):
    runs.write_config(run, make_document(), {"steps": 1})
    runs.prepare(run, make_document(), False, print)
    other = make_document(config={"width": 64, "rate": 1e-3}, fingerprints={"dataset": "d1"})
    with pytest.raises(CheckpointError) as error:
        runs.prepare(run, other, False, print)
    assert "config.width is 32 there and 64 here" in str(error.value)
    assert "fingerprints.dataset is 'd0' there and 'd1' here" in str(error.value)


def test_a_damaged_run_description_is_replaced_by_the_checkpoints(run, tmp_path):
    for folder in (run, tmp_path / "empty"):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{")
    warnings = []
    runs.prepare(run, make_document(), False, warnings.append)
    assert "going by the checkpoints" in warnings[0]
    with pytest.raises(CheckpointError, match=r"empty.config\.json"):
        runs.prepare(tmp_path / "empty", make_document(), False, print)


def test_a_checkpoint_is_no_place_for_a_run(run):
    folder = runs.checkpoint_path(run, 30)
    before = sorted(folder.iterdir())
    with pytest.raises(CheckpointError, match="not a run folder"), runs.locked(folder):
        pass
    assert sorted(folder.iterdir()) == before


def test_damaged_checkpoints_are_set_aside_and_kept(run):
    for _ in range(2):
        runs.set_aside_after(run, 20, lambda _: None)
        save_step(run, 30)
    runs.set_aside_after(run, 20, lambda _: None)
    names = sorted(p.name for p in (run / "checkpoints").iterdir())
    aside = [f"step-000000030.damaged{end}" for end in ("", "-2", "-3")]
    assert names == ["step-000000010", "step-000000020", *aside]


def test_a_live_process_holds_the_run_and_a_dead_one_does_not(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        for _ in range(10):
            with (
                pytest.raises(CheckpointError, match=rf"another process.*{other.pid}"),
                runs.locked(tmp_path),
            ):
                pass
        other.send_signal(signal.SIGKILL)
        other.wait()
    with runs.locked(tmp_path):
        assert f"process {os.getpid()}" in (tmp_path / "lock").read_text()
    with runs.locked(tmp_path):
        pass


def test_locking_takes_no_time(tmp_path):
    began = time.process_time()
    with runs.locked(tmp_path / "a" / "b"):
        pass
    assert time.process_time() - began < 1.0
