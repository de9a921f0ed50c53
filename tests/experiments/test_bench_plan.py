"""``jumpy bench plan``: its planners, its rows and its refusals."""

import dataclasses
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dice import PRESET, Dice, Proposer

from jumpyworld.cli import bench_plan as cli_bench
from jumpyworld.cli import run
from jumpyworld.cli.bench import BenchPlan
from jumpyworld.errors import ConfigError
from jumpyworld.experiments import bench_plan, bench_train
from jumpyworld.experiments.bench_plan import (
    METHODS,
    make_planner,
    usual_methods,
)
from jumpyworld.planning import HighLevelProposal, UnconditionalProposal, fast_search
from jumpyworld.storage.rows import read_rows

MODEL = ["plan", "--ghm", "g", "--policy", "p", "--dataset", "d"]


class Hierarchy(Proposer):
    """A policy with a high level of its own."""

    def propose(self, key, states, goals):
        return goals


def test_conditional_proposals_of_a_hierarchy_are_its_high_levels():
    """As ``jumpy eval`` plans with HFBC; unconditional ones stay the model's."""
    whole = Hierarchy()
    parts = {"proposer": whole, "base": whole}
    planner = make_planner(METHODS[0], Dice(), Proposer(), PRESET, 2**16, **parts)
    assert isinstance(planner.proposal, HighLevelProposal) and planner.base is whole
    assert planner.proposal.policy is whole and planner.proposal.count == PRESET.candidates
    free = dataclasses.replace(PRESET, proposal="unconditional")
    planner = make_planner(METHODS[0], Dice(), Proposer(), free, 2**16, **parts)
    assert isinstance(planner.proposal, UnconditionalProposal)


class Flow(Proposer):
    """A policy that solves a flow; it knows in how many steps."""

    def with_flow_steps(self, num_steps):
        made = Flow()
        made.steps = num_steps
        return made


def test_the_policys_flow_is_solved_in_two_steps_in_chains_where_there_is_one():
    assert "fast-2p" in [method.name for method in usual_methods(Flow())]
    without = usual_methods(Proposer())
    assert [method for method in METHODS if method not in without] == [
        method for method in METHODS if method.name == "fast-2p"
    ]
    asked = next(method for method in METHODS if method.name == "fast-2p")
    asked = dataclasses.replace(asked, precision="fp32")  # a die has no layers to round
    repertoire = make_planner(asked, Dice(), Flow(), PRESET, 2**16).repertoire
    assert repertoire.chained.steps == 2 and not hasattr(repertoire.policy, "steps")
    with pytest.raises(ConfigError, match="policy_steps=2: Proposer has no flow"):
        make_planner(asked, Dice(), Proposer(), PRESET, 2**16)


@pytest.mark.parametrize("low", [True, False])
def test_the_command_plans_with_the_high_level_of_hfbc(low, monkeypatch):
    whole, policy = Hierarchy(), Proposer()
    found = SimpleNamespace(
        policy=policy if low else whole,
        whole=whole if low else None,
        name="hfbc",
        fingerprint="b",
    )
    model = SimpleNamespace(model=Dice(), fingerprint="a")
    rows = np.zeros((3, 2), np.float32)
    monkeypatch.setattr(cli_bench, "_trained", lambda *args: (model, found, rows, rows))
    seen = []
    times = {"plan_ms": 1.0}
    monkeypatch.setattr(
        bench_plan,
        "time_plans",
        lambda planners, *args, **more: seen.extend(planners.values()) or {"paper": times},
    )
    monkeypatch.setattr(
        bench_plan,
        "measure_regret",
        lambda reference, *args, opener, **more: (
            seen.extend((reference, opener)) or {"states": 3, "flat": 0, "broken": 0}
        ),
    )
    flags = BenchPlan(
        domain="pointmaze-medium", ghm=Path("g"), policy="p", dataset=Path("d"), only=("paper",)
    )
    cli_bench.bench_plan(flags, print)
    assert len(seen) == 3  # the method's, the reference's and who draws its candidates
    for planner in seen:
        assert isinstance(planner.proposal, HighLevelProposal)
        assert planner.proposal.policy is whole and planner.base is found.whole


@pytest.mark.parametrize(
    ("asked", "judged", "flat", "why"),
    [
        ({"minutes": 1e-5}, 0, 0, "0 of 50 states judged, two are needed (--minutes 1e-05 were"),
        ({"states": 1}, 1, 0, "1 of 1 states judged, two are needed (--states 1)"),
        ({"states": 3}, 1, 2, "in 2 of them all candidates are worth the same"),
    ],
)
def test_why_there_is_no_regret_is_one_line(asked, judged, flat, why):
    found = {"states": judged, "flat": flat, "broken": 0}
    line = cli_bench._why_no_regret(BenchPlan(**asked), found)
    assert why in line and line.startswith("no regret: ") and "\n" not in line


def test_the_command_writes_a_row_per_method(tmp_path, capsys):
    flags = "bench plan --domain pointmaze-medium --preset debug --candidates 8 --samples 4"
    only = ["--only", "paper", "fast", "--rounds", "2", "--out", str(tmp_path)]
    assert run([*flags.split(), *only]) == 0
    rows = read_rows(tmp_path / "speed.jsonl")
    assert [row["method"] for row in rows] == ["paper", "fast"]
    assert rows[0]["speedup"] == 1.0 and rows[0]["evaluations"] == (8 * 4 + 8) * 5 * 20
    # What was spent, not what was asked of others.
    assert (rows[0]["search"], rows[0]["samples"]) == ("uniform", 4) and "schedule" not in rows[0]
    assert rows[1]["search"] == "elimination" and "samples" not in rows[1]
    assert rows[1]["schedule"] == [list(each) for each in fast_search(8).rounds]
    assert "evaluations" in capsys.readouterr().out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Flags of the shipped model on a few states."""
    shipped, logged = resources.files("jumpyworld") / "demo", tmp_path_factory.mktemp("data") / "d"
    run(["data", "generate", "pointmaze-large", "--episodes", "2", "--out", str(logged)])
    flags = "bench plan --domain pointmaze-large --candidates 8 --samples 4 --rounds 1"
    flags += " --only paper --pairs in-support --reward neg-distance --reference-precision bf16"
    flags += f" --ghm {shipped / 'ghm'} --policy {shipped / 'gcbc'} --dataset {logged}"
    return flags.split()


def test_regret_of_a_trained_model_is_about_the_reward_that_was_asked_for(
    trained, tmp_path, capsys
):
    flags, kept = [*trained, "--states", "2"], tmp_path / "k"
    assert run([*flags, "--reference", str(kept), "--out", str(tmp_path)]) == 0
    (row,) = read_rows(tmp_path / "speed.jsonl")
    assert row["states"] == 2 and row["regret"] >= 0
    assert (row["reward"], row["reference_precision"]) == ("neg-distance", "bf16")
    values = [np.load(file)["values"] for file in kept.rglob("state-*.npz")]
    assert len(values) == 2 and np.all(np.concatenate(values) < 0)  # a count is never below 0
    # Means with their ends, stored and printed.
    shown = capsys.readouterr().out
    for name in ("regret", "regret_over_first", "agreement"):
        low, high = row[f"{name}_ci95"]
        assert low <= row[name] <= high
    low, high = row["agreement_ci95"]
    assert f"top-1 agreement {row['agreement']:.2f} [{low:.2f}, {high:.2f}]" in shown
    assert run([*flags, "--reference", str(kept), "--minutes", "0.00001"]) == 0
    said = capsys.readouterr()
    assert "regret" not in said.out
    assert said.err.splitlines()[-1].startswith("no regret: 0 of 2 states judged")


def test_candidates_do_not_depend_on_how_exactly_they_are_judged(trained, tmp_path):
    exact = [word if word != "bf16" else "fp32" for word in trained]
    found = []
    for words in (trained, exact):
        kept = tmp_path / words[words.index("--reference-precision") + 1]
        assert run([*words, "--states", "2", "--reference", str(kept)]) == 0
        found.append([np.load(file) for file in sorted(kept.rglob("state-*.npz"))])
    assert len(found[0]) == 2
    for rounded, full in zip(*found, strict=True):
        np.testing.assert_array_equal(rounded["z"], full["z"])
        np.testing.assert_array_equal(rounded["actions"], full["actions"])
        np.testing.assert_allclose(rounded["values"], full["values"], rtol=0.1)
        assert (rounded["values"] != full["values"]).any()


def test_a_reference_is_finished_over_several_runs(trained, tmp_path, monkeypatch):
    """Stopped after two states of four, the command judges the two others and no more."""
    judged, once = [], bench_plan._reference

    def reference(*args):
        if len(judged) == 2:
            raise KeyboardInterrupt
        judged.append(args)
        return once(*args)

    def command(folder):
        kept = ["--reference", str(tmp_path / folder), "--out", str(tmp_path / f"{folder}-rows")]
        return run([*trained, "--states", "4", *kept])

    monkeypatch.setattr(bench_plan, "_reference", reference)
    assert command("kept") != 0
    assert len(list(tmp_path.rglob("kept/*/state-*.npz"))) == len(judged) == 2
    monkeypatch.setattr(bench_plan, "_reference", lambda *args: judged.append(args) or once(*args))
    assert command("kept") == 0 and len(judged) == 4
    assert command("whole") == 0 and len(judged) == 8
    one, other = (read_rows(tmp_path / f"{name}-rows/speed.jsonl") for name in ("kept", "whole"))
    assert len(one) == len(other) == 1 and one[0]["states"] == 4
    names = [name for name in one[0] if name.startswith(("regret", "agreement"))]
    assert len(names) == 6
    assert [one[0][name] for name in names] == [other[0][name] for name in names]


@pytest.mark.parametrize("verb", ["train", "plan"])
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("file", "file/speed.jsonl"),
        ("folder", "folder/speed.jsonl: cannot be read"),
        ("damaged", "damaged/speed.jsonl: line 1 is no JSON object"),
        (
            "infinite",
            "infinite/speed.jsonl: cannot be written: a row holds a number that is not finite",
        ),
    ],
)
def test_a_folder_that_takes_no_rows_is_refused_before_anything_is_measured(
    verb, where, message, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder/speed.jsonl").mkdir(parents=True)
    for name, text in (("damaged", "half a fi"), ("infinite", '{"ms": Infinity}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed.jsonl").write_text(f"{text}\n")
    for module, name in ((bench_plan, "time_plans"), (bench_train, "bench_ghm")):
        monkeypatch.setattr(module, name, lambda *args, **more: pytest.fail("measured"))
    assert run(["bench", verb, "--out", str(tmp_path / where)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_reference_that_cannot_be_kept_is_refused_at_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(cli_bench, "_trained", lambda *args: pytest.fail("loaded"))
    assert run(["bench", *MODEL, "--reference", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert "file: cannot be written" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["plan", "--only", "magic"], "--only magic"),
        (["plan", "--rounds", "0"], "--rounds 0"),
        (["plan", "--minutes", "0"], "--minutes 0"),
        (["plan", "--policy", "scripted"], "give all three"),
        (["plan", "--seed", "-1"], "--seed -1: must not be negative"),
        ([*MODEL, "--preset", "paper"], "--preset paper: --ghm has its own network"),
        ([*MODEL, "--set", "width=8"], "--set width=8: --ghm has its own network"),
        (["plan", "--pairs", "in-support"], "--pairs in-support: has no effect without --ghm"),
        (["plan", "--reward", "indicator"], "--reward indicator: has no effect without --ghm"),
        (["plan", "--states", "20"], "--states 20: has no effect without --ghm"),
        (["plan", "--minutes", "3"], "--minutes 3: has no effect without --ghm"),
        (["plan", "--reference", "kept"], "--reference kept: has no effect without --ghm"),
        (["plan", "--only", "fast", "fast"], "--only fast: given twice"),
        (["plan", "--only", "fast", "--samples", "9"], "--samples 9: has no effect with --only fa"),
        (["plan", "--candidates", "0"], "--candidates 0"),
        (["plan", "--samples", "0"], "--samples 0"),
        (["plan", "--max-rows", "0"], "--max-rows 0"),
        (["train", "--only", "magic"], "--only magic"),
        (["train", "--only", "bf16", "bf16"], "--only bf16: given twice"),
        (["train", "--batches", "0"], "--batches 0: all must be above 0"),
        (["train", "--batches", "8", "8"], "--batches 8 8: one is given twice"),
        (["train", "--batches"], "--batches: nothing is named"),
        (["train", "--what"], "--what: nothing is named"),
        (["train", "--seconds", "nan"], "--seconds nan"),
        (["train", "--seconds", "inf"], "--seconds inf"),
    ],
)
def test_bad_flags_are_one_line(flags, message, capsys):
    assert run(["bench", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
