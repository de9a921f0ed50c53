"""``jumpy train`` and ``jumpy export`` as a user meets them: lines, exit status, files."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import jumpyworld
from jumpyworld import loading, policies
from jumpyworld.cli import console, run
from jumpyworld.cli.train import GHM
from jumpyworld.cli.train_loop import TrainCommand, read_changes
from jumpyworld.data import Dataset, load
from jumpyworld.data.ogbench import write_npz
from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.ghm import GeometricHorizonModel
from jumpyworld.storage import checkpoint, runs
from jumpyworld.storage.tensors import digest
from jumpyworld.training import TrainingConfig

TINY = ("--preset", "debug", "--set", "hidden=[8]", "batch_size=4")
TINY_MODEL = ("--preset", "debug", "--set", "width=8", "embed_dim=4", "batch_size=12")


@pytest.fixture(scope="module", autouse=True)
def programs(keep_programs):
    """Compile each program once: tests train the same few models again and again."""
    with keep_programs() as folder:
        yield folder


def write_walks(path, d=2, da=2, seed=0):
    rng = np.random.default_rng(seed)
    terminals = np.zeros((3, 40), bool)
    terminals[:, -1] = True
    states = 4 + rng.normal(size=(3, 40, d)).cumsum(1) / 10
    actions = rng.uniform(-1, 1, (120, da))
    dataset = Dataset.from_arrays(states.reshape(120, d), actions, terminals.reshape(-1))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_npz(path, dataset)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A pointmaze's data, other data of the same shape, and data of another shape."""
    folder = tmp_path_factory.mktemp("place")
    write_walks(folder / "pointmaze-medium-navigate-v0.npz")
    write_walks(folder / "other" / "pointmaze-medium-navigate-v0.npz", seed=1)
    write_walks(folder / "wide.npz", d=5, da=3)
    return folder


@pytest.fixture(scope="module")
def data(place):
    return place / "pointmaze-medium-navigate-v0.npz"


@pytest.fixture(scope="module")
def straight(place, data):
    """GC-BC after four steps without a stop; a checkpoint after each."""
    out = place / "straight"
    words = ("train", "policy", "gcbc", "--dataset", data, "--out", out, *TINY)
    assert jumpy(*words, "--steps", 4, "--save-every", 1, "--log-every", 2) == 0
    return out


@pytest.fixture(scope="module")
def model(place, data, straight):
    """A geometric horizon model of that policy."""
    out = place / "model"
    assert train_ghm(data, straight, out, "--steps", 2) == 0
    return out


@pytest.fixture
def copied(straight, tmp_path):
    """A run of one's own to go on with, or to damage."""
    return Path(shutil.copytree(straight, tmp_path / "run"))


def jumpy(*words):
    return run([str(word) for word in words])


def train_gcbc(data, out, *words):
    return jumpy("train", "policy", "gcbc", "--dataset", data, "--out", out, *TINY, *words)


def train_ghm(data, policy, out, *words):
    words = ("--dataset", data, "--policy", policy, "--out", out, *TINY_MODEL, *words)
    return jumpy("train", "ghm", *words)


def state(out):
    """Return a hash of everything in the newest checkpoint."""
    return digest(checkpoint.read_state(runs.newest(out)[1])[2])


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def refused(capsys, *parts):
    """Check that the error was one line with these parts."""
    error = capsys.readouterr().err
    assert error.startswith("jumpy: error: ") and error.count("\n") == 1, error
    assert "Traceback" not in error
    for part in parts:
        assert part in error


@pytest.mark.parametrize("name", policies.ALGORITHMS)
def test_every_policy_trains_and_loads_back(name, data, tmp_path, capsys):
    words = ("--dataset", data, "--out", tmp_path / "run", *TINY, "--steps", 2)
    assert jumpy("train", "policy", name, *words) == 0
    out, error = capsys.readouterr()
    assert out.startswith(f"{tmp_path / 'run'}: 2 steps, ") and out.endswith("; finished\n")
    assert "step-000000002" in out and "loss " in out and out.count("\n") == 1
    assert f"{name}: 2/2 steps" in error
    actions = jumpyworld.load(tmp_path / "run").sample(
        jax.random.key(0), np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    )
    assert actions.shape == (3, 2) and np.isfinite(actions).all()
    found = loading.load_policy(tmp_path / "run")
    assert (found.name, found.domain) == (name, data.stem)
    assert loading.describe(tmp_path / "run")["config"]["hidden"] == [8]
    if name == "hfbc":  # the level whose z is a subgoal has a name of its own
        low = loading.load_policy(f"{tmp_path / 'run'}:low")
        assert type(low.policy) is type(low.whole.low) and low.whole.propose is not None
        assert low.fingerprint == found.fingerprint + ":low" and found.whole is None
    if name == "gcbc":
        with pytest.raises(CheckpointError, match="no low level"):
            loading.load_policy(f"{tmp_path / 'run'}:low")


def test_a_model_trains_and_loads_back(model, straight, data):
    ghm = jumpyworld.load(model)
    s, a = np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)
    samples = ghm.sample(jax.random.key(0), s, a, s, np.full(3, 0.9, np.float32))
    assert samples.shape == (3, 2) and np.isfinite(samples).all()
    assert loading.describe(model)["fingerprints"] == {
        "dataset": load(data).fingerprint(),
        "domain": data.stem,
        "policy": loading.fingerprint(straight),
        "policy_name": "gcbc",
    }


def test_a_world_model_trains_and_loads_back(data, tmp_path, capsys):
    words = ("--dataset", data, "--out", tmp_path / "run", *TINY_MODEL, "--steps", 2)
    assert jumpy("train", "world-model", *words) == 0
    assert "2 steps" in capsys.readouterr().out
    s, a = np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)
    assert jumpyworld.load(tmp_path / "run").sample(jax.random.key(0), s, a).shape == (3, 2)


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


def test_two_seeds_train_at_once_and_load_apart(data, straight, tmp_path, capsys):
    assert train_gcbc(data, tmp_path / "run", "--steps", 4, "--num-seeds", 2) == 0
    assert " | " in capsys.readouterr().out
    first, second = (jumpyworld.load(tmp_path / "run", seed=seed) for seed in (0, 1))
    alone = jumpyworld.load(straight)
    leaves = [jax.tree.leaves(policy) for policy in (first, second, alone)]
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(leaves[0], leaves[2], strict=True))
    assert any(not np.allclose(a, b) for a, b in zip(leaves[0], leaves[1], strict=True))
    assert train_ghm(data, tmp_path / "run", tmp_path / "ghm", "--steps", 1) == 2
    refused(capsys, "holds the seeds [0, 1]")
    assert not (tmp_path / "ghm").exists()


def test_a_model_may_start_from_another(model, data, straight, tmp_path, capsys):
    out, words = tmp_path / "tuned", ("--steps", 1, "--start-from", model)
    assert train_ghm(data, straight, out, *words) == 0
    assert loading.describe(out)["fingerprints"]["start"] == loading.fingerprint(model)
    capsys.readouterr()
    words = ("--steps", 1, "--start-from", straight)
    assert train_ghm(data, straight, tmp_path / "other", *words) == 2
    refused(capsys, "no geometric horizon model")
    assert not (tmp_path / "other").exists()


def test_an_export_loads_as_the_run_does(model, tmp_path, capsys):
    words = ("--shard-mb", 0.005, "--dtype", "fp32")
    assert jumpy("export", model, "--out", tmp_path / "w", *words) == 0
    assert "complete" in capsys.readouterr().out
    assert len(list((tmp_path / "w").glob("*.safetensors"))) > 1
    assert loading.fingerprint(tmp_path / "w") == loading.fingerprint(model)
    assert jumpy("export", model, "--out", tmp_path / "online", "--weights", "online") == 0
    assert loading.fingerprint(tmp_path / "online") != loading.fingerprint(model)
    assert isinstance(jumpyworld.load(tmp_path / "online"), GeometricHorizonModel)
    assert jumpy("export", model, "--out", tmp_path / "w") == 2
    refused(capsys, "already there")
    assert jumpy("export", tmp_path / "none", "--out", tmp_path / "v") == 2
    refused(capsys, "no such folder")
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hiden=[8]"], "GCBCConfig has no field 'hiden': did you mean hidden?"),
        (["zzz=1"], "GCBCConfig has no field 'zzz': it has hidden, batch_size"),
        (["batch_size=2.5"], "--set.batch_size: 2.5 is not int"),
        (["batch_size=many"], "--set.batch_size: 'many' is not int"),
        (["learning_rate=NaN"], "--set.learning_rate: 'NaN' is not float"),
        (["hidden=8"], "--set.hidden: 8 is not tuple"),
        (["normalise=sometimes"], "--set.normalise: 'sometimes' is not"),
        (["discount=1"], "discount=1.0: must be in [0, 1)"),
        (["batch_size"], "--set batch_size: must be FIELD=VALUE"),
        (["batch_size=2", "batch_size=3"], "--set batch_size: given twice"),
    ],
)
def test_a_bad_setting_is_one_line(words, message, data, tmp_path, capsys):
    words = ("--dataset", data, "--out", tmp_path / "run", "--set", *words)
    assert jumpy("train", "policy", "gcbc", "--preset", "debug", *words) == 2
    refused(capsys, message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy", "gcbd"], "unknown policy 'gcbd': choose one of gcbc"),
        (["policy", "gcbc", "--dataset", "{out}/none.npz"], "none.npz: no such file"),
        (["policy", "gcbc", "--steps", "0"], "--steps 0"),
        (["policy", "gcbc", "--num-seeds", "0"], "--num-seeds 0"),
        (["policy", "gcbc", "--out", "{data}"], "cannot be written"),
        (["policy", "gcbc", "--out", "{straight}/checkpoints/step-000000004"], "not a run folder"),
        (["ghm", "--policy", "{out}/none"], "none: no such folder"),
        (["ghm", "--policy", "{place}"], "neither a run nor a checkpoint"),
        (["ghm", "--policy", "{model}"], "kind 'ghm' is no policy"),
        (["ghm", "--policy", "scripted:x"], "scripted:x: no such folder"),
        (["ghm", "--policy", "{straight}", "--policy-seed", "7"], "no seed 7; it holds [0]"),
        (
            ["ghm", "--policy", "{straight}", "--dataset", "{place}/wide.npz"],
            "the policy's observation_dim is 2, but",
        ),
        (
            ["ghm", "--policy", "scripted", "--dataset", "{place}/wide.npz"],
            "policy scripted: needs a pointmaze",
        ),
        (
            ["ghm", "--policy", "scripted", "--objective", "td-flow", "--set", "hc_fraction=0.1"],
            "--set hc_fraction=0.1 is not --objective td-flow",
        ),
        (
            ["ghm", "--policy", "scripted", "--set", "hc_fraction=0"],
            "--set hc_fraction=0 is not --objective td-hc",
        ),
        (["world-model", "--dataset", "{out}"], "need exactly one dataset"),
    ],
)
def test_bad_input_is_one_line(words, message, place, data, straight, model, tmp_path, capsys):
    before = contents(place)
    capsys.readouterr()
    places = {"place": place, "data": data, "straight": straight, "model": model, "out": tmp_path}
    words = [word.format(**places) for word in words]
    out = () if "--out" in words else ("--out", tmp_path / "run")
    dataset = () if "--dataset" in words else ("--dataset", data)
    assert jumpy("train", *words, *out, *dataset, "--preset", "debug") == 2
    refused(capsys, message)
    assert not list(tmp_path.iterdir()) and contents(place) == before


def test_scripted_policies_and_td_flow(data, capsys, tmp_path):
    words = {"dataset": data, "out": tmp_path, "preset": "debug"}
    job = GHM(policy="scripted:3", objective="td-flow", **words).job(load(data))
    assert job.config.hc_fraction == 0 and job.data[1].reach == 3
    assert job.fingerprints["policy_name"] == "scripted:3"
    free = GHM(policy="scripted", **words).job(load(data))
    assert free.config.hc_fraction == 0.25
    assert free.fingerprints["policy"] != job.fingerprints["policy"]
    with pytest.raises(ConfigError, match="not cube-1"):
        loading.load_policy("scripted", "cube-1")
    with pytest.raises(ConfigError, match="not antmaze-medium"):
        loading.load_policy("scripted", "antmaze-medium")


def test_a_policy_of_another_domain_of_the_same_shape_is_pointed_out(
    data, straight, tmp_path, capsys
):
    moved = write_walks(tmp_path / "pointmaze-large-navigate-v0.npz")
    GHM(policy=str(straight), dataset=moved, out=tmp_path, preset="debug").job(load(moved))
    assert "trained on pointmaze-medium-navigate-v0, but" in capsys.readouterr().err


def test_values_of_settings_are_json_or_words():
    words = ("a=1", "b=1.5", "c=true", "d=null", "e=[1, 2]", "f=moving", 'g="2"', "h=x=y", "i=")
    assert read_changes(words) == {
        "a": 1, "b": 1.5, "c": True, "d": None, "e": [1, 2], "f": "moving", "g": "2", "h": "x=y",
        "i": "",
    }  # fmt: skip


def test_flags_have_the_defaults_of_the_loop():
    ours = {field.name: field.default for field in dataclasses.fields(TrainCommand)}
    theirs = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
    assert theirs.keys() - ours.keys() == {"keep", "chunk"}
    shared = (ours.keys() & theirs.keys()) - {"steps"}
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_help_names_every_policy(capsys):
    with pytest.raises(SystemExit):
        jumpy("train", "policy", "--help")
    text = capsys.readouterr().out
    assert all(name in text for name in policies.ALGORITHMS)


def test_importing_the_package_imports_no_library():
    code = (
        "import sys, jumpyworld\n"
        "assert not {'numpy', 'jax'} & sys.modules.keys()\n"
        "assert jumpyworld.load.__module__ == 'jumpyworld.loading'\n"
        "assert not hasattr(jumpyworld, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
