"""Training that meets NaN, full disks and folders that cannot be written."""

import contextlib
import dataclasses
import os
import resource
import shutil
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from toy_regression import Toy, make_job
from toy_runs import final, log, run

from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.storage import checkpoint, runs
from jumpyworld.training import DivergedError


def assert_finite(folder):
    """Every checkpoint of a run, whole and without NaN."""
    for step in runs.saved_steps(folder):
        path = runs.checkpoint_path(folder, step)
        checkpoint.verify(path)
        for name, array in checkpoint.read_state(path)[2].items():
            if array.dtype.kind == "f":
                assert np.isfinite(array).all(), name


@pytest.mark.parametrize("settings", [{}, {"chunk": 1}, {"chunk": 100, "save_every": 24}])
def test_a_few_bad_steps_are_skipped_and_counted(tmp_path, settings):
    job = make_job(Toy(bad_from=22, bad_until=25))
    result, _ = run(tmp_path / "run", job, **settings)
    assert result.status == "finished" and result.step == 60
    assert [row["skipped"] for row in log(tmp_path / "run")] == [0, 3, 0, 0]
    state = checkpoint.read_state(runs.resolve(tmp_path / "run"))[2]
    assert state["state/step"] == 57, "a skipped step leaves the state as it was"
    assert_finite(tmp_path / "run")
    run(tmp_path / "parts", job, steps=23)
    run(tmp_path / "parts", job)
    assert final(tmp_path / "run") == final(tmp_path / "parts")
    assert log(tmp_path / "run") == log(tmp_path / "parts")


def test_a_resumed_run_remembers_what_it_skipped(tmp_path):
    job = make_job(Toy(bad_from=22, bad_until=26))
    run(tmp_path / "run", job, steps=24)
    with pytest.raises(DivergedError, match="4 steps in a row, the last step 25"):
        run(tmp_path / "run", job)
    assert runs.saved_steps(tmp_path / "run") == [20, 24]


@pytest.mark.parametrize(
    "toy", [Toy(bad_from=33, bad_until=60), Toy(bad_params_at=33)], ids=["batch", "weights"]
)
def test_lasting_nan_stops_the_run_and_is_not_saved(tmp_path, toy):
    with pytest.raises(DivergedError, match=r"seed 0: .* 4 steps in a row, the last step 36"):
        run(tmp_path / "run", make_job(toy))
    assert runs.saved_steps(tmp_path / "run") == [20]
    assert_finite(tmp_path / "run")


@pytest.mark.parametrize("settings", [{}, {"save_every": 1}, {"keep_steps": (2,)}])
def test_a_run_without_one_good_step_is_an_error(tmp_path, settings):
    """However short, and again when called again; with a good step later it goes on, exactly."""
    job = make_job(Toy(bad_from=0, bad_until=3))
    for _ in range(2):
        with pytest.raises(DivergedError, match=r"seed 0: .* in each of the 3 steps, so nothing"):
            run(tmp_path / "run", job, steps=3, **settings)
        assert not runs.saved_steps(tmp_path / "run")
    result, _ = run(tmp_path / "run", job, **settings)
    assert result.status == "finished"
    run(tmp_path / "straight", job)
    assert final(tmp_path / "run") == final(tmp_path / "straight")
    assert log(tmp_path / "run") == log(tmp_path / "straight")


def test_one_seed_without_a_good_step_is_named(tmp_path):
    job = make_job(Toy(bad_from=0, bad_until=2), seed=1)
    with pytest.raises(DivergedError, match=r"seed 1: .* in each of the 2 steps"):
        run(tmp_path / "run", job, steps=2, num_seeds=3)


def test_one_seed_of_several_is_skipped_alone(tmp_path):
    job = make_job(Toy(bad_from=22, bad_until=24), seed=1)
    run(tmp_path / "run", job, num_seeds=3)
    rows = log(tmp_path / "run")
    assert [row["skipped"] for row in rows if row["seed"] == 0] == [0, 0, 0, 0]
    assert [row["skipped"] for row in rows if row["seed"] == 1] == [0, 2, 0, 0]
    state = checkpoint.read_state(runs.resolve(tmp_path / "run"))[2]
    assert state["state/step"].tolist() == [60, 58, 60]


def test_bad_initial_weights_are_named(tmp_path):
    job = make_job(Toy())

    def init(key):
        return dataclasses.replace(job.init(key), half=jnp.full(3, jnp.inf, jnp.bfloat16))

    with pytest.raises(ConfigError, match="initial half is not finite"):
        run(tmp_path / "run", dataclasses.replace(job, init=init))


def test_a_step_that_keeps_python_numbers_in_its_state_is_refused(tmp_path):
    job = make_job(Toy())

    def init(key):
        return {"state": job.init(key), "count": 0}

    def step(state, data, key):
        new, metrics = job.step(state["state"], data, key)
        return {"state": new, "count": state["count"] + 1}, metrics

    with pytest.raises(TypeError, match="no array"):
        run(tmp_path / "run", dataclasses.replace(job, init=init, step=step))


def test_a_full_disk_stops_within_one_interval(straight, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def progress(done, total):
        if done == 30:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))

    try:
        with pytest.raises(CheckpointError, match=r"step-000000040: \d+ bytes could not be saved"):
            run(tmp_path / "run", progress=progress)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert runs.saved_steps(tmp_path / "run") == [20]
    assert_finite(tmp_path / "run")
    run(tmp_path / "run")
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


@contextlib.contextmanager
def reachable_folder():
    """A folder that an ordinary user can reach; root itself may write everywhere."""
    folder, root = Path(tempfile.mkdtemp()), os.geteuid() == 0
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for forbidden in (folder / "run", folder / "run" / "checkpoints"):
            if forbidden.exists():
                forbidden.chmod(0o755)
        shutil.rmtree(folder)


def forbid_writing(folder):
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)


def test_a_folder_that_cannot_be_written_is_named():
    with reachable_folder() as folder:
        (folder / "run").mkdir()
        forbid_writing(folder / "run")
        with pytest.raises(CheckpointError, match="run: cannot be written"):
            run(folder / "run", steps=20)
        assert not list((folder / "run").iterdir())


def test_checkpoints_that_cannot_be_written_stop_the_run():
    with reachable_folder() as folder:

        def progress(done, total):
            if done == 30:
                forbid_writing(folder / "run" / "checkpoints")

        with pytest.raises(CheckpointError, match=r"step-000000040: .*Permission denied"):
            run(folder / "run", progress=progress)
        assert runs.saved_steps(folder / "run") == [20]
        assert_finite(folder / "run")
