"""``jumpy fidelity`` on a tiny generated pointmaze set, with untrained models."""

import json

import equinox as eqx
import jax
import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.cli import run
from jumpyworld.cli.fidelity import Fidelity
from jumpyworld.data import load
from jumpyworld.domains.generate.runner import Request, generate
from jumpyworld.errors import CheckpointError
from jumpyworld.evaluation.samples import Samples
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.model import GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.loading import load_policy
from jumpyworld.storage import checkpoint
from jumpyworld.storage.manifest import make_document
from jumpyworld.storage.trees import to_arrays

NAME = "pointmaze-medium-navigate-v0"
TINY = ["--num-pairs", "3", "--num-rollouts", "2", "--num-samples", "8", "--rollout-steps", "6"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with a data set and two models of the policy ``scripted``."""
    home = tmp_path_factory.mktemp("fidelity")
    generate(Request.make(domains.get(NAME), 0, 10, None), home / "data", workers=1)
    data = load(home / "data")
    for name, share in (("hc", 0.25), ("flow", 0.0)):
        save_model(home / name, data, GHMConfig.preset("debug", hc_fraction=share))
    return home


def save_model(folder, data, config, policy="scripted", domain=NAME):
    spec = GHMSpec.from_arrays(data.observations, data.starts, data.ends, data.action_dim)
    model = GeometricHorizonModel(config, spec, key=jax.random.key(0))
    # A fresh network's output is zero; models must differ.
    shift = 0.01 * len(folder.name)
    moved = jax.tree.map(lambda x: x + shift if eqx.is_inexact_array(x) else x, model.field)
    arrays = to_arrays(eqx.tree_at(lambda m: m.field, model, moved))
    trained = {"domain": domain, "policy": load_policy(policy, NAME).fingerprint}
    document = make_document("ghm", config, spec.shapes(), trained, [0])
    checkpoint.save(folder, document, step=7, model=arrays, state=arrays)


def arguments(home, out, *more, models=("hc",), policy="scripted"):
    words = [word for name in models for word in ("--ghm", str(home / name))]
    words += ["--policy", policy, "--dataset", str(home / "data"), "--out", str(out)]
    return ["fidelity", *words, *TINY, "--workers", "1", *more]


def rows_of(out):
    return [json.loads(line) for line in (out / "fidelity.jsonl").read_text().splitlines()]


def test_a_study_from_end_to_end(home, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    discounts = ["--gammas", ".998", ".9", "--allow-extrapolation"]
    (home / "flow/metrics.jsonl").write_text('{"step": 7, "steps_per_second": 0.05}\n')
    assert run(arguments(home, out, *discounts, models=("hc", "flow"))) == 0
    printed = capsys.readouterr()
    words = ("td-hc", "td-flow", "floor", "in walls", "reward", "shift / spread", "picture:")
    for text in words:
        assert text in printed.out
    assert "rollouts: 36/36 steps" in printed.err and "EMD: 18/18 pairs" in printed.err

    hc, flow = rows_of(out)
    assert (hc["objective"], flow["objective"]) == ("td-hc", "td-flow")
    expected = {
        "kind": "fidelity", "domain": "pointmaze-medium", "policy": "scripted", "seed": 0,
        "pairs": "in-support", "num_pairs": 3, "rollouts": 2, "samples": 8, "steps": 7,
    }  # fmt: skip
    assert expected.items() <= hc.items()
    assert hc["device"] and hc["config"]["hc_fraction"] == 0.25 and hc["minutes"]["emd"] >= 0
    assert "ghm" not in hc["minutes"] and flow["minutes"]["ghm"] == 2.33  # one has a log alone
    near, far = hc["rows"]
    assert (near["gamma"], near["horizon"], far["gamma"]) == (0.9, 10.0, 0.998)
    assert near["ci95"][0] <= near["emd"] <= near["ci95"][1]
    assert near["floor_ci95"][0] <= near["floor"] <= near["floor_ci95"][1]
    assert far["clipped"] > 0.8 and near["truth_walls"] == 0.0 and 0 <= near["walls"] <= 1
    low, high = near["reward_diff_ci95"]
    assert low <= near["reward"] - near["truth_reward"] <= high and 0 <= near["truth_reward"] <= 1
    assert "place_emd" not in near  # a point's state is its place
    assert [fact["gamma"] for fact in hc["sensitivity"]] == [0.0, 0.8, 0.95]
    assert near["floor"] == flow["rows"][0]["floor"] and near["emd"] != flow["rows"][0]["emd"]

    (folder,) = (out / "samples").iterdir()
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["td-flow.npz", "td-hc.npz", "truth.npz"]
    saved = Samples.read(folder / "td-hc.npz")
    assert saved.samples.shape == (2, 3, 8, 2) and saved.samples.dtype == np.float32
    assert (out / f"{folder.name}.png").read_bytes().startswith(b"\x89PNG")

    # One model again: rollouts are found, a damaged block is made anew, the row is replaced.
    blocks = {path: path.stat().st_mtime_ns for path in (out / "rollouts").rglob("*.npz")}
    assert len(blocks) == 3
    damaged = next(iter(blocks))
    damaged.write_bytes(damaged.read_bytes()[:-10])
    assert run(arguments(home, out, *discounts, "--workers", "2")) == 0
    message = capsys.readouterr().err
    assert f"jumpy: warning: {damaged}: " in message and message.count("warning") == 1
    kept = {path for path in blocks if path.stat().st_mtime_ns == blocks[path]}
    assert kept == blocks.keys() - {damaged}
    again = {row["model"]: row for row in rows_of(out)}
    assert len(rows_of(out)) == 2 and again["td-hc"]["rows"] == hc["rows"]

    # A picture of another pair, from the saved samples alone.
    target = tmp_path / "one.png"
    words = ["--samples", str(folder), "--gammas", ".9", "--pair", "1", "--picture", str(target)]
    assert run(["fidelity", *words]) == 0
    assert "(pair 1)" in capsys.readouterr().out and target.stat().st_size > 1000


def refused(capsys, command, *texts):
    """Run a command that must fail with one line that holds the texts."""
    assert run(command) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("jumpy: error: ")
    for text in texts:
        assert text in lines[0]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--gammas", "1.2"], "--gammas 1.2"),
        (["--gammas", ".9", ".998"], "--gammas 0.998"),
        (["--num-pairs", "0"], "--num-pairs 0"),
        (["--num-rollouts", "1"], "--num-rollouts 1"),
        (["--domain", "antmaze-medium"], "not of antmaze-medium-navigate-v0"),
        (["--domain", "nowhere"], "unknown domain"),
        (["--dataset", "missing"], "missing"),
        (["--ghm", "missing"], "missing: no such folder"),
        (["--policy", "missing"], "missing: no such folder"),
        (["--policy", "scripted:2"], "trained for another policy"),
        (["--seed", "-1"], "seed"),
        (["--workers", "0"], "workers"),
        (["--picture", "x.pdf"], "PNG"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(home, tmp_path, capsys, more, text):
    refused(capsys, arguments(home, tmp_path / "out", *more), text)
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_named(capsys, home):
    refused(capsys, ["fidelity", "--policy", "scripted", "--dataset", "x"], "--ghm is missing")
    refused(capsys, ["fidelity", "--ghm", str(home / "hc")], "--policy is missing")


def test_a_model_of_another_maze_is_refused(home, tmp_path, capsys):
    config, data = GHMConfig.preset("debug"), load(home / "data")
    save_model(tmp_path / "far", data, config, domain="pointmaze-giant-navigate-v0")
    command = arguments(home, tmp_path / "out", "--ghm", str(tmp_path / "far"), models=())
    refused(capsys, command, "pointmaze-giant")


def test_models_of_one_objective_are_told_apart_by_their_folders(home, tmp_path):
    save_model(tmp_path / "wide", load(home / "data"), GHMConfig.preset("debug", target_rate=0.1))
    paths = (home / "hc", tmp_path / "wide", home / "flow")
    domain = domains.get(NAME)
    _, models = Fidelity(ghm=paths, policy="scripted")._policy_and_models(domain)
    assert list(models) == ["td-hc", "td-hc-wide", "td-flow"]
    with pytest.raises(CheckpointError, match="given twice"):
        Fidelity(ghm=(*paths, tmp_path / "wide"), policy="scripted")._policy_and_models(domain)


@pytest.mark.parametrize("damage", ["missing", "text", "other"])
def test_samples_that_are_none_are_refused(tmp_path, capsys, damage):
    path = tmp_path / "samples.npz"
    if damage == "text":
        path.write_text("no npz")
    elif damage == "other":
        np.savez(path, x=np.zeros(3))
    refused(capsys, ["fidelity", "--samples", str(path)], str(path))
    assert not (tmp_path / "fidelity.png").exists()
