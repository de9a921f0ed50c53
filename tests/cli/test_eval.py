"""``jumpy eval`` in a small pointmaze, with untrained models of the scripted policy."""

import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import jumpyworld
from jumpyworld.cli import models as cli_models
from jumpyworld.cli import run
from jumpyworld.cli.eval import SETTINGS, Eval
from jumpyworld.cli.eval_table import print_table
from jumpyworld.data import Dataset
from jumpyworld.data.ogbench import write_npz
from jumpyworld.evaluation.planners import PlannerSettings
from jumpyworld.ghm import GHMConfig, WorldModelConfig
from jumpyworld.ghm.model import GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.ghm.world_model import WorldModel
from jumpyworld.loading import load_policy
from jumpyworld.policies.gcbc import GCBCConfig
from jumpyworld.storage import checkpoint
from jumpyworld.storage.manifest import make_document
from jumpyworld.storage.trees import to_arrays

NAME = "pointmaze-medium-navigate-v0"
TINY = ("--episodes", "2", "--tasks", "3", "5", "--max-steps", "4", "--workers", "1")
PLANNING = ("--candidates", "4", "--discount", ".95", "--ode-steps", "1")
COMPOSING = ("--samples", "2", "--horizons", "5", "10")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with a GHM of the policy ``scripted`` and a world model, both untrained."""
    home = tmp_path_factory.mktemp("eval")
    rng = np.random.default_rng(0)
    states = rng.uniform(0, 20, (100, 2)).astype(np.float32)
    spec = GHMSpec.from_arrays(states, np.asarray([0]), np.asarray([99]), 2)
    config = GHMConfig.preset("debug")
    policy = load_policy("scripted", NAME).fingerprint
    save(home / "ghm", "ghm", config, spec, GeometricHorizonModel, policy=policy)
    save(home / "far", "ghm", config, spec, GeometricHorizonModel, "cube-single-play-v0")
    save(home / "wm", "world-model", WorldModelConfig.preset("debug"), spec, WorldModel)
    return home


def save(folder, kind, config, spec, model_type, domain=NAME, **trained):
    model = model_type(config, spec, key=jax.random.key(0))
    moved = jax.tree.map(lambda x: x + 0.01 if eqx.is_inexact_array(x) else x, model.field)
    arrays = to_arrays(eqx.tree_at(lambda m: m.field, model, moved))
    document = make_document(kind, config, spec.shapes(), {"domain": domain, **trained}, [0])
    checkpoint.save(folder, document, step=7, model=arrays, state=arrays)


def command(home, out, *more, planner=("zero-shot",), policy="scripted"):
    words = ["--domain", "pointmaze-medium", "--policy", policy, "--out", str(out)]
    words += ["--planner", *planner, *TINY]
    words += PLANNING if set(planner) - {"zero-shot"} else ()
    if {"compplan", "gpi", "ggpi"} & set(planner):
        words += [*COMPOSING, "--ghm", str(home / "ghm")]
    if "actionplan" in planner:
        words += ["--action-horizon", "3", "--world-model", str(home / "wm")]
    return ["eval", *words, *more]


def rows_of(out):
    rows = [json.loads(line) for line in (out / "success.jsonl").read_text().splitlines()]
    return {row["planner"]: row for row in rows}


def test_all_planners_from_end_to_end(home, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out, planners = tmp_path / "out", ("zero-shot", "compplan", "gpi", "ggpi", "actionplan")
    assert run(command(home, out, "--frames", planner=planners)) == 0
    printed = capsys.readouterr()
    for text in (*planners, "task 3", "task 5", "mean", "diff", "plan ms", "all zero", "rows:"):
        assert text in printed.out
    assert "compplan: 16/16 steps" in printed.err
    many = "4 episodes of at most 4 steps"
    plans = f"{many}, a plan every step: 4 candidates x"
    assert f"zero-shot: {many}; compiling ...\n" in printed.err
    assert f"compplan: {plans} 2 samples x 2 segments; compiling ...\n" in printed.err
    assert f"actionplan: {plans} 1 samples x 3 segments; compiling ...\n" in printed.err
    rows = rows_of(out)
    assert tuple(rows) == planners
    for name, row in rows.items():
        expected = {"kind": "success", "domain": "pointmaze-medium", "policy": "scripted",
                    "planner": name, "seed": 0, "mean": 0.0}  # fmt: skip
        assert expected.items() <= row.items()
        counts = [{k: v for k, v in task.items() if k != "ci95"} for task in row["tasks"]]
        none = {"episodes": 2, "successes": 0, "solved": "00"}
        assert counts == [{"task": task, **none} for task in (3, 5)]
        assert all(0 == task["ci95"][0] < task["ci95"][1] < 1 for task in row["tasks"])
        assert row["ci95"][0] == 0.0 < row["ci95"][1] and row["plan_ms"] > 0 and row["device"]
        assert row["decisions"] == 16 and row["minutes"]["eval"] >= 0
        config = row["config"]
        assert (config["episodes"], config["tasks"], config["max_steps"]) == (2, [3, 5], 4)
        assert (out / "frames" / f"{name}-{row['id']}.png").read_bytes().startswith(b"\x89PNG")
        saved = json.loads((out / "episodes" / f"{name}-{row['id']}.json").read_text())
        assert saved["success"] == [[0, 0], [0, 0]] and saved["steps"] == [[4, 4], [4, 4]]
        assert ("diff" in row) == (name != "zero-shot")
    plan = rows["compplan"]
    assert (plan["objective"], plan["model_steps"], plan["baseline"]) == ("td-hc", 7, "zero-shot")
    assert plan["diff"] == 0.0 and plan["diff_ci95"][0] < 0 < plan["diff_ci95"][1]
    assert 0 <= plan["all_zero"] <= 1 and plan["all_invalid"] == 0
    # A way out has no subgoal, and such a model may have found nothing else.
    assert ("z1_distance" in plan) == (plan["all_zero"] < 1)
    assert plan["config"]["horizons"] == [5, 10] and plan["config"]["candidates"] == 4
    assert plan["evaluations"] == 4 * 2 * 2 + 4 * 2 and 0 < plan["weight_sum"] < 1
    assert "objective" not in rows["actionplan"] and "all_zero" not in rows["zero-shot"]
    assert rows["actionplan"]["evaluations"] == 4 * 3
    # What makes rows of other seeds comparable.
    assert rows["zero-shot"]["trained"] == {"policy": {"recipe": "scripted"}}
    recipes = {name: row["trained"].get("model", {}) for name, row in rows.items()}
    assert recipes["compplan"] == recipes["gpi"] != recipes["actionplan"]
    assert (recipes["compplan"]["steps"], recipes["compplan"]["seed"]) == (7, 0)


def test_finished_planners_are_skipped_and_a_stored_baseline_is_used(home, tmp_path, capsys):
    out = tmp_path / "out"
    more = ("--replan-every", "2")
    assert run(command(home, out, *more, planner=("compplan",))) == 0
    assert "diff" not in rows_of(out)["compplan"]  # nobody to compare with
    capsys.readouterr()
    # The zero-shot run has more episodes, of which the first are the same.
    assert run(command(home, out, "--episodes", "3", "--tasks", "1", "3", "5")) == 0
    capsys.readouterr()
    assert run(command(home, out, *more, planner=("compplan",))) == 0
    printed = capsys.readouterr()
    assert "compplan: already in" in printed.out and "are the baseline" in printed.out
    assert "steps" not in printed.err
    row = rows_of(out)["compplan"]
    assert row["baseline"] == "zero-shot" and row["diff"] == 0.0 and len(rows_of(out)) == 2
    assert row["config"]["replan_every"] == 2 and row["decisions"] == 8

    # Another setting is another row; --overwrite runs again and replaces.
    assert run(command(home, out, planner=("compplan",))) == 0
    assert len((out / "success.jsonl").read_text().splitlines()) == 3
    capsys.readouterr()
    assert run(command(home, out, *more, "--overwrite", planner=("compplan",))) == 0
    printed = capsys.readouterr()
    assert "already" not in printed.out and "compplan: 16/16 steps" in printed.err
    assert len((out / "success.jsonl").read_text().splitlines()) == 3


def test_an_interruption_keeps_what_is_finished(home, tmp_path, capsys, monkeypatch):
    from jumpyworld.evaluation import success

    out, planners, evaluate = tmp_path / "out", ("zero-shot", "compplan"), success.evaluate

    def until_the_second(domain, planner, **settings):
        if hasattr(planner, "betas"):
            raise KeyboardInterrupt
        return evaluate(domain, planner, **settings)

    monkeypatch.setattr(success, "evaluate", until_the_second)
    assert run(command(home, out, planner=planners)) == 130
    assert "the same command" in capsys.readouterr().err
    assert list(rows_of(out)) == ["zero-shot"]
    monkeypatch.setattr(success, "evaluate", evaluate)
    assert run(command(home, out, planner=planners)) == 0
    printed = capsys.readouterr()
    assert "zero-shot: already in" in printed.out and "zero-shot:" not in printed.err
    assert list(rows_of(out)) == ["zero-shot", "compplan"] and "diff" in rows_of(out)["compplan"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--episodes", "0"], "--episodes 0"),
        (["--tasks", "6"], "--tasks 6"),
        (["--tasks", "1", "1"], "each once"),
        (["--replan-every", "0"], "--replan-every 0"),
        (["--max-steps", "0"], "--max-steps 0"),
        (["--workers", "0"], "--workers 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--domain", "nowhere"], "unknown domain"),
        (["--policy", "missing"], "missing: no such folder"),
        (["--policy", "scripted:2"], "trained for another policy"),
        (["--policy", "SHIPPED", "--domain", "cube-1"], "its states have 2 values, those of cube"),
        (["--ghm", "missing"], "missing: no such folder"),
        (["--ghm", "HOME/far"], "trained on cube-single"),
        (["--ghm", "HOME/wm"], "is a world-model, not a ghm"),
        (["--world-model", "HOME/ghm"], "is a ghm, not a world-model"),
        (["--horizons", "5", "1000"], "1000 steps"),
        (["--margin", ".1"], "--margin 0.1: has no effect without --include-base"),
        (["--search", "elimination"], "--samples 2: has no effect with --search elimination"),
        (["--rounds", "4by2"], "--rounds 4by2"),
        (["--proposal", "high-level"], "no high level"),
        (["--proposal", "bridge"], "--proposal bridge: needs --precedents"),
        (["--proposal", "trace"], "--proposal trace: traces are ways of cubes"),
        (["--no-refuse"], "--no-refuse: has no effect without --precedents"),
        (["--planner", "compplan", "compplan"], "each once"),
        (["--discount", "1.5"], "1.5"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(home, tmp_path, capsys, more, text):
    shipped = Path(jumpyworld.__file__).parent / "demo" / "gcbc"
    more = [word.replace("HOME", str(home)).replace("SHIPPED", str(shipped)) for word in more]
    out = tmp_path / "out"
    assert run(command(home, out, *more, planner=("compplan", "actionplan"))) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert len(lines) == 1 and lines[0].startswith("jumpy: error: ")
    assert text in lines[0]
    assert not out.exists()


def test_missing_models_are_named(tmp_path, capsys):
    words = ["eval", "--domain", "pointmaze-medium", "--policy", "scripted"]
    words += ["--out", str(tmp_path / "out"), "--planner"]
    for planner, flag in (("gpi", "--ghm"), ("actionplan", "--world-model")):
        assert run([*words, planner]) == 2
        assert f"{flag} is missing: {planner}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_damaged_results_file_is_refused_before_anything_runs(home, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "success.jsonl").write_text("{\n")
    assert run(command(home, out)) == 2
    assert "line 1 is no JSON object" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["success.jsonl"]


def test_flags_are_the_settings_of_planners():
    fields = set(PlannerSettings.__dataclass_fields__)
    assert {*SETTINGS, "rounds"} == fields
    assert fields <= set(Eval.__dataclass_fields__)
    for name in ("patience", "stride", "refuse"):
        told, known = (kind.__dataclass_fields__[name].default for kind in (Eval, PlannerSettings))
        assert told == known


def test_a_narrow_terminal_gets_the_table_in_parts_and_all_of_it(capsys):
    tasks = [{"task": i, "episodes": 20, "successes": i} for i in range(1, 6)]
    row = {"planner": "compplan", "tasks": tasks, "mean": 0.15, "ci95": [0.1, 0.2], "diff": 0.05,
           "diff_ci95": [-0.01, 0.11], "plan_ms": 12.3, "all_zero": 0.5, "dithering": 0.25,
           "z1_distance": 4.5, "z1_reached": 0.75}  # fmt: skip
    print_table([row, {**row, "planner": "zero-shot"}], width=80)
    narrow = capsys.readouterr().out
    print_table([row, {**row, "planner": "zero-shot"}], width=200)
    wide = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 80 and "…" not in narrow
    assert len(narrow.splitlines()) == 9 and len(wide.splitlines()) == 3
    for text in ("5/20", "0.150", "[0.10, 0.20]", "+0.050", "[-0.01, +0.11]", "12.3", "75.0%"):
        assert narrow.count(text) == wide.count(text) == 2


def test_minutes_of_training_are_read_from_the_log(tmp_path):
    assert cli_models.training_minutes(tmp_path) is None
    lines = [{"step": 600, "steps_per_second": 10.0}, {"step": 1200, "steps_per_second": 5.0}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    assert cli_models.training_minutes(tmp_path) == 3.0
    # Until a checkpoint: one minute for 600 steps, and a third of the two that came then.
    document = make_document("gcbc", GCBCConfig.preset("debug"), {}, {}, [0])
    folder, arrays = tmp_path / "checkpoints/step-000000800", {"w": np.zeros(2, np.float32)}
    folder.parent.mkdir()
    checkpoint.save(folder, document, step=800, model=arrays, state=arrays)
    assert cli_models.training_minutes(folder) == 1.67
    # Of several seeds each has its row, and all of them trained in the same minutes.
    (tmp_path / "metrics.jsonl").write_text("".join(2 * (x + "\n") for x in text.splitlines()))
    assert cli_models.training_minutes(tmp_path) == 3.0


def test_precedents_change_what_is_run_and_must_be_of_the_domain(home, tmp_path, capsys):
    rows = np.random.default_rng(0).uniform(0, 20, (2, 400, 2)).astype(np.float32)
    ends = np.arange(400) % 100 == 99
    for name in (NAME, "pointmaze-large-navigate-v0"):
        write_npz(tmp_path / f"{name}.npz", Dataset.from_arrays(rows[0], rows[1] / 20, ends))
    own = ("--precedents", str(tmp_path / f"{NAME}.npz"))
    assert run(command(home, tmp_path / "out", *own, planner=("compplan",))) == 0
    assert f"reading --precedents {own[1]} ..." in capsys.readouterr().err
    assert rows_of(tmp_path / "out")["compplan"]["config"]["precedent_share"] == 0.9
    bridged = (*own, "--no-refuse", "--proposal", "bridge", "--patience", "0.2", "--stride", "0.4")
    assert run(command(home, tmp_path / "bridged", *bridged, planner=("compplan",))) == 0
    config = rows_of(tmp_path / "bridged")["compplan"]["config"]
    wanted = {"proposal": "bridge", "patience": 0.2, "stride": 0.4, "refuse": False}
    assert wanted.items() <= config.items() and "precedent_share" not in config
    hasty = (*bridged[:-3], "0", *bridged[-2:])
    assert run(command(home, tmp_path / "no", *hasty, planner=("compplan",))) == 2
    assert "--patience 0: must be above 0" in capsys.readouterr().err
    others = ("--precedents", str(tmp_path / "pointmaze-large-navigate-v0.npz"))
    assert run(command(home, tmp_path / "no", *others, planner=("compplan",))) == 2
    assert "--precedents" in capsys.readouterr().err
    deep = np.zeros((400, 5), np.float32)
    write_npz(tmp_path / "log.npz", Dataset.from_arrays(deep, rows[1] / 20, ends))
    log = ("--precedents", str(tmp_path / "log.npz"))
    assert run(command(home, tmp_path / "no", *log, planner=("compplan",))) == 2
    assert "log.npz: states of 5 dimensions, not the 2 of" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    wrong = (*own, "--precedent-share", "0")
    assert run(command(home, tmp_path / "no", *wrong, planner=("compplan",))) == 2
    assert "--precedent-share 0: must be above 0" in capsys.readouterr().err
