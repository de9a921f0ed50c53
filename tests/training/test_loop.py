import dataclasses
import json
import os
import shutil
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_regression import Toy, make_data, make_job
from toy_runs import final, log, run

from jumpyworld.errors import CheckpointError
from jumpyworld.storage import checkpoint, manifest, runs


def test_a_run_leaves_what_it_should(straight):
    names = {"config.json", "checkpoints", "metrics.jsonl", "metrics.csv", "lock"}
    assert {path.name for path in straight.iterdir()} == names
    assert runs.saved_steps(straight) == [20, 40, 60]
    settings = json.loads((straight / "config.json").read_text())
    assert settings["config"]["width"] == 32 and settings["training"]["steps"] == 60
    rows = log(straight)
    assert [row["step"] for row in rows] == [15, 30, 45, 60]
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert rows[0]["toy/count"] == 7.0, "the mean of 0 to 14"
    assert rows[0]["toy/nothing"] is None and rows[0]["skipped"] == 0
    document, weights = checkpoint.read(runs.resolve(straight))
    assert document["kind"] == "toy"
    state = checkpoint.read_state(runs.resolve(straight))[2]
    assert state["state/step"] == 60
    assert all(np.array_equal(w, state[f"state/target/{n}"]) for n, w in weights.items())


def test_the_same_seed_twice_gives_the_same_bytes(straight, tmp_path):
    run(tmp_path / "run")
    for path in runs.resolve(straight).iterdir():
        assert path.read_bytes() == (runs.resolve(tmp_path / "run") / path.name).read_bytes()
    assert log(tmp_path / "run") == log(straight)


@pytest.mark.parametrize(
    "settings", [{"chunk": 1, "save_every": 7}, {"chunk": 100, "save_every": 50}]
)
def test_chunks_and_saves_do_not_change_the_result(straight, tmp_path, settings):
    run(tmp_path / "run", **settings)
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


def test_steps_may_be_raised(straight, tmp_path):
    for steps in (17, 18, 41, 60):
        result, warnings = run(tmp_path / "run", steps=steps, log_every=15)
        assert (result.status, result.step, warnings) == ("finished", steps, [])
        assert result.checkpoint == runs.checkpoint_path(tmp_path / "run", steps)
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


def test_a_finished_run_is_left_alone(straight):
    def never(*_):
        raise AssertionError("a finished run needs no training")

    before = {p: p.stat().st_mtime_ns for p in straight.rglob("*") if p.name != "lock"}
    job = dataclasses.replace(make_job(Toy()), init=never, step=never)
    for steps in (60, 30):
        result, _ = run(straight, job, steps=steps)
        assert (result.status, result.step) == ("finished", 60)
        assert result.checkpoint == runs.resolve(straight)
    assert {p: p.stat().st_mtime_ns for p in straight.rglob("*") if p.name != "lock"} == before


def test_a_time_box_pauses_and_the_same_call_continues(straight, tmp_path):
    paused, steps = 0, 0
    while True:
        result, _ = run(
            tmp_path / "run", minutes=1e-5, progress=lambda done, total: time.sleep(0.001)
        )
        assert result.step > steps, "every call gets somewhere"
        steps = result.step
        if result.status == "finished":
            break
        assert result.status == "paused" and result.checkpoint is not None
        paused += 1
        if paused == 3:
            run(tmp_path / "run")
            break
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


def test_minutes_alone_are_an_end(tmp_path):
    began = time.monotonic()
    result, _ = run(tmp_path / "run", steps=None, minutes=0.05, save_every=10**6, log_every=10**6)
    assert result.status == "paused" and result.step > 1
    assert result.seconds >= 3.0 and time.monotonic() - began < 30.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_at_the_next_chunk(straight, tmp_path, number):
    before = signal.getsignal(number)

    def progress(done, total):
        if done == 30:
            os.kill(os.getpid(), number)

    result, _ = run(tmp_path / "run", progress=progress)
    assert (result.status, result.step) == ("interrupted", 30)
    assert runs.saved_steps(tmp_path / "run") == [20, 30]
    assert signal.getsignal(number) is before
    assert run(tmp_path / "run")[0].status == "finished"
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


def test_a_second_signal_stops_at_once(tmp_path):
    def progress(done, total):
        if done == 30:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", progress=progress)
    assert runs.saved_steps(tmp_path / "run") == [20]


def test_training_in_a_thread_works(straight, tmp_path):
    thread = threading.Thread(target=run, args=(tmp_path / "run",))
    thread.start()
    thread.join()
    assert final(tmp_path / "run") == final(straight)


def test_a_run_from_before_a_setting_existed_goes_on_with_its_default(straight, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Newer(Toy):
        patience: float = 0.25

    run(tmp_path / "run", steps=20)
    with pytest.raises(CheckpointError, match=r"config\.patience is 0\.25 there and 0\.5 here"):
        run(tmp_path / "run", make_job(Newer(patience=0.5)))
    result, _ = run(tmp_path / "run", make_job(Newer()))
    assert result.step == 60 and final(tmp_path / "run") == final(straight)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (make_job(Toy(width=16)), "config.width is 32 there and 16 here"),
        (make_job(Toy(gamma_max=0.9)), "config.gamma_max is 0.99 there and 0.9 here"),
        (make_job(Toy(), dataset="data-1"), "fingerprints.dataset is 'data-0' there and 'data-1'"),
        (make_job(Toy(), policy="abc"), "fingerprints.policy is None there and 'abc' here"),
        (dataclasses.replace(make_job(Toy()), kind="other"), "kind is 'toy' there and 'other'"),
        (dataclasses.replace(make_job(Toy()), spec={"inputs": 5}), "spec.inputs is 4 there and 5"),
    ],
)
@pytest.mark.parametrize("described", [True, False])
def test_another_job_is_refused_by_name(straight, tmp_path, job, field, described):
    shutil.copytree(straight, tmp_path / "run")
    if not described:  # the checkpoint itself knows
        (tmp_path / "run" / "config.json").unlink()
    before = final(straight)
    with pytest.raises(CheckpointError, match=field.replace(".", r"\.")):
        run(tmp_path / "run", job, steps=80)
    assert final(tmp_path / "run") == before


def test_other_seeds_are_refused(straight):
    with pytest.raises(CheckpointError, match="seeds"):
        run(straight, seed=1)
    with pytest.raises(CheckpointError, match="seeds"):
        run(straight, num_seeds=2)


def test_another_dtype_is_refused_by_name(straight, tmp_path):
    shutil.copytree(straight, tmp_path / "run")
    job = make_job(Toy())

    def init(key):
        state = job.init(key)
        return dataclasses.replace(state, half=state.half.astype("float32"))

    with pytest.raises(CheckpointError, match="state/half is stored with dtype bfloat16"):
        run(tmp_path / "run", dataclasses.replace(job, init=init), steps=80)


def test_another_jax_is_refused_unless_allowed(straight, tmp_path, monkeypatch):
    shutil.copytree(straight, tmp_path / "run")
    here = manifest.environment()
    versions = {**here["versions"], "jax": "9.9"}
    monkeypatch.setattr(manifest, "environment", lambda: {**here, "versions": versions})
    with pytest.raises(CheckpointError, match=r"versions\.jax was .* and is '9\.9' now"):
        run(tmp_path / "run", steps=61)
    result, warnings = run(tmp_path / "run", steps=61, any_versions=True)
    assert result.step == 61 and "not bit for bit" in warnings[0]
    other = {**here, "prng": {"impl": "rbg", "threefry_partitionable": True}}
    monkeypatch.setattr(manifest, "environment", lambda: other)
    with pytest.raises(CheckpointError, match=r"prng\.impl"):
        run(tmp_path / "run", steps=62)


def test_overwrite_starts_anew(straight, tmp_path):
    shutil.copytree(straight, tmp_path / "run")
    run(tmp_path / "run", seed=1, steps=20, overwrite=True)
    assert runs.saved_steps(tmp_path / "run") == [20]
    run(tmp_path / "run", overwrite=True)
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


def test_checkpoints_asked_for_are_made_and_kept(tmp_path):
    run(tmp_path / "run", save_every=10, keep=2, keep_steps=(13, 30))
    assert runs.saved_steps(tmp_path / "run") == [13, 30, 50, 60]


def test_a_run_in_use_is_refused(tmp_path):
    with runs.locked(tmp_path), pytest.raises(CheckpointError, match="another process"):
        run(tmp_path)


@pytest.mark.parametrize("name", ["train_state.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_costs_its_interval_and_no_more(straight, tmp_path, name):
    shutil.copytree(straight, tmp_path / "run")
    path = runs.checkpoint_path(tmp_path / "run", 60) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    result, warnings = run(tmp_path / "run")
    assert result.status == "finished" and name in warnings[0]
    assert "kept as step-000000060.damaged" in warnings[1]
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


def test_several_seeds_at_once(straight, tmp_path):
    """Batched products round otherwise: equal to 1e-5 after 60 steps, not bit for bit."""
    run(tmp_path / "three", num_seeds=3)
    run(tmp_path / "one", seed=1)
    for seed, single in ((0, straight), (1, tmp_path / "one")):
        _, batched = checkpoint.read(runs.resolve(tmp_path / "three"), seed=seed)
        _, alone = checkpoint.read(runs.resolve(single))
        assert batched.keys() == alone.keys()
        for name, array in alone.items():
            np.testing.assert_allclose(batched[name], array, rtol=1e-5, atol=1e-5)
    rows = log(tmp_path / "three")
    assert [row["seed"] for row in rows] == [0, 1, 2] * 4
    assert rows[0]["loss"] == pytest.approx(log(straight)[0]["loss"], rel=1e-5)
    assert rows[1]["loss"] == pytest.approx(log(tmp_path / "one")[0]["loss"], rel=1e-5)
    for steps in (25, 60):  # and they resume exactly
        run(tmp_path / "parts", num_seeds=3, steps=steps)
    assert final(tmp_path / "parts") == final(tmp_path / "three")


def test_a_row_is_the_mean_of_its_steps(straight, tmp_path):
    run(tmp_path / "run", log_every=1, steps=30)
    losses = [row["loss"] for row in log(tmp_path / "run")]
    for row, part in zip(log(straight), (losses[:15], losses[15:]), strict=False):
        assert row["loss"] == pytest.approx(np.mean(part), rel=1e-6)


@pytest.mark.parametrize(("steps", "logged", "mean"), [(10, [10], 4.5), (40, [15, 30, 40], 34.5)])
def test_the_last_row_is_of_the_steps_since_the_one_before(straight, tmp_path, steps, logged, mean):
    run(tmp_path / "run", steps=steps)
    rows = log(tmp_path / "run")
    assert [row["step"] for row in rows] == logged and rows[-1]["toy/count"] == mean
    table = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in table[1:]] == [str(step) for step in logged]
    run(tmp_path / "run")  # as if it had never stopped: that row goes
    assert final(tmp_path / "run") == final(straight)
    assert log(tmp_path / "run") == log(straight)


def test_every_seed_has_a_last_row(tmp_path):
    run(tmp_path / "run", steps=20, num_seeds=2)
    assert [(row["step"], row["seed"]) for row in log(tmp_path / "run")] == [
        (15, 0), (15, 1), (20, 0), (20, 1),
    ]  # fmt: skip


def test_minutes_end_with_a_row_and_an_interruption_without(tmp_path):
    result, _ = run(tmp_path / "paused", minutes=1e-5, log_every=1000)
    assert result.status == "paused"
    assert [row["step"] for row in log(tmp_path / "paused")] == [result.step]

    def progress(done, total):
        if done == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    result, _ = run(tmp_path / "stopped", progress=progress)
    assert (result.status, result.step) == ("interrupted", 20)
    assert [row["step"] for row in log(tmp_path / "stopped")] == [15]


def test_no_step_shares_a_key_with_the_initial_weights(tmp_path):
    seen = []
    job = make_job(Toy())

    def init(key):
        if not isinstance(key, jax.core.Tracer):
            seen.extend(jax.random.key_data(k).tolist() for k in (key, *jax.random.split(key, 4)))
        return job.init(key)

    run(tmp_path / "run", dataclasses.replace(job, init=init), steps=1)
    steps = [jax.random.fold_in(jax.random.key(0), k) for k in range(100)]
    assert seen and not {*map(tuple, seen)} & {
        tuple(jax.random.key_data(k).tolist()) for k in steps
    }


def test_data_of_other_types_is_put_on_the_device_once(tmp_path):
    job = make_job(Toy(), {**make_data(), "name": "not an array", "f": len})
    assert run(tmp_path / "run", job, steps=5)[0].status == "finished"


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_probe_adds_to_every_row_and_changes_nothing(straight, tmp_path, seeds):
    seen = jnp.asarray(
        [tuple(jax.random.key_data(jax.random.fold_in(jax.random.key(0), k))) for k in range(61)]
    )

    def probe(state, data, key):
        own = jnp.broadcast_to(jax.random.key_data(key), seen.shape)
        reused = jnp.any(jnp.all(own == seen, axis=1))
        return {"probe/step": state.step, "probe/key_of_a_step": reused, "probe/bad": jnp.nan}

    job = dataclasses.replace(make_job(Toy()), probe=probe)
    run(tmp_path / "run", job, num_seeds=seeds)
    rows = log(tmp_path / "run")
    assert [row["probe/step"] for row in rows] == [row["step"] for row in rows]
    assert all(row["probe/key_of_a_step"] == 0 and row["probe/bad"] is None for row in rows)
    if seeds == 1:
        assert final(tmp_path / "run") == final(straight)
