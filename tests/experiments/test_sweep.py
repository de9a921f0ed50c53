"""``jumpy sweep`` itself: the commands it prints, what it refuses, and one sweep end to end."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jumpyworld import cli
from jumpyworld.experiments import grid, runner, stages

CELLS = ["--cells", "domain=pointmaze-medium", "policy=gcbc"]


def test_a_dry_run_prints_commands_in_order_and_runs_nothing(tmp_path, capsys):
    out = tmp_path / "sweep"
    words = ["sweep", "--table", "main", *CELLS, "--scale", "debug", "--out", str(out)]
    assert cli.run([*words, "--dry-run", "--set", "ghm.steps=7"]) == 0
    shown = capsys.readouterr()
    lines = [shlex.split(line) for line in shown.out.splitlines()]
    verbs = ["data generate", "train policy", "eval --domain", "train ghm", "eval --domain"]
    assert [" ".join(line[1:3]) for line in lines] == verbs
    assert all(line[0] == "jumpy" for line in lines) and "--steps" in lines[3]
    assert shown.err == "5 stages, 5 to run\n" and not out.exists()


def test_a_dry_run_may_be_of_all_tables(tmp_path, capsys):
    assert cli.run(["sweep", "--out", str(tmp_path / "s"), "--dry-run"]) == 0
    commands = capsys.readouterr().out.splitlines()
    for domain in ("antmaze-giant", "cube-4"):
        for stage in ("data generate", "train policy", "train ghm", "eval", "fidelity"):
            assert any(f"jumpy {stage}" in line and domain in line for line in commands)
    assert not (tmp_path / "s").exists()


def test_a_dry_run_tells_what_is_finished(tmp_path, capsys):
    words = ["sweep", "--table", "main", *CELLS, "--out", str(tmp_path), "--dry-run"]
    assert cli.run(words) == 0
    first = capsys.readouterr().out.splitlines()[0]
    stage = stages.Stage(
        "data/pointmaze-medium", tuple(shlex.split(first)[1:]), (), "data/pointmaze-medium"
    )
    (tmp_path / stage.folder).mkdir(parents=True)
    record = tmp_path / "stages/data/pointmaze-medium.json"
    record.parent.mkdir(parents=True)
    digest = stages.fingerprints([stage], tmp_path)[stage.name]
    record.write_text(json.dumps({"digest": digest}))
    assert runner.is_finished(stage, digest, tmp_path)
    assert cli.run(words) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == f"# finished: {first}"
    assert shown.err == "5 stages, 4 to run\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--table or --cells is missing"),
        (["--cells", "domain=mars"], "--cells domain=mars: no such cell; there is antmaze-giant"),
        (["--cells", "colour=red"], "--cells colour=red: must be FIELD=VALUE"),
        (["--table", "emd", "--cells", "planner=gpi"], "planner=gpi: no such cell"),
        (["--table", "main", "--set", "width=3"], "--set width=3: must be KIND.FIELD=VALUE"),
        (["--table", "main", "--seeds", "1", "1"], "--seeds (1, 1): must be different"),
        (["--table", "main", "--jobs", "0"], "--jobs 0: must be at least 1"),
        (["--table", "main", "--set", "eval.candidate=4"], "jumpy eval has no --candidate"),
        (["--table", "main", "--set", "eval.samples=64"], "--samples 64: has no effect with"),
        (["--table", "main", "--set", "eval.episodes=0"], "--episodes 0: must be at least 1"),
        (["--table", "main", "--set", "eval.candidates=4", "eval.candidates=8"], "given twice"),
        *((["--table", "replan", "--set", word], message) for word, message in (
            ("eval.replan_every=5", "replan_every=5: cannot be set; choose it with --cells replan"),
            ("eval.replan-every=5", "cannot be set; choose it with --cells replan_every=..."),
            ("eval.domain=cube-1", "eval.domain=cube-1: cannot be set; choose it with --cells dom"),
            ("eval.objective=v", "cannot be set; choose it with --cells maximise=..."),
            ("eval.ghm=x", "eval.ghm=x: cannot be set; the sweep trains"),
            ("eval.seed=3", "eval.seed=3: cannot be set; choose seeds with --seeds"),
            ("eval.out=x", "eval.out=x: cannot be set; choose the folder with --out"),
            ("data.out=x", "data.out=x: cannot be set; choose the folder with --out"),
            ("fidelity.pairs=in-support", "cannot be set; the table is of random pairs"),
            ("ghm.nonsense=3", "--set ghm: GHMConfig has no field 'nonsense'"),
            ("ghm.seed=3", "--set ghm: GHMConfig has no field 'seed'"),
            ("ghm.width=wide", "--set ghm.width: 'wide' is not int"),
            ("ghm.steps=0", "--set ghm: --steps 0: must be at least 1"),
            ("ghm.hc_fraction=0", "--set ghm: --set hc_fraction=0 is not --objective td-hc"),
            ("ghm.gamma_max=0.9", "--set eval: --horizons 50 50 100 100 200: 50 steps (beta=0.98)"),
            ("policy.hidden=[]", "hidden=(): must be one or more widths"),
            ("eval.horizons=0", "--set eval: --horizons 0: must be"),
            ("eval.warm_start=999", "--set eval: --warm-start 999: exceeds"),
            ("data.episodes=0", "--set data: --episodes 0: must be at least 1"),
            ("data.nonsense=1", "--set data.nonsense=1: jumpy data generate has no --nonsense"),
        )),
        *((["--table", "main", "--set", word, "eval.include_base=true", "--dry-run"], message)
          for word, message in (
            ("eval.margin=Infinity", "--set eval.margin=Infinity: must be finite"),
            ("eval.margin=-Infinity", "--set eval.margin=-Infinity: must be finite"),
            ("eval.margin=inf", "--set eval.margin=inf: must be finite"),
            ("eval.margin=1e999", "--set eval.margin=1e999: must be finite"),
            ("eval.horizons=[50,NaN]", "--set eval.horizons=[50,NaN]: must be finite"),
            ('eval.horizons=[50,"nan"]', "must be finite"),
            ("ghm.learning-rate=NaN", "--set ghm.learning_rate=NaN: must be finite"),
            ("policy.minutes=inf", "--set policy.minutes=inf: must be finite"),
        )),
        (["--table", "emd", "--set", "fidelity.num_pairs=1"], "--set fidelity: --num-pairs 1"),
        (["--table", "emd", "--set", "fidelity.gammas=0.9999"], "--set fidelity: --gammas 0.9999"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(words, message, tmp_path, capsys):
    assert cli.run(["sweep", *words, "--out", str(tmp_path / "sweep")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "sweep").exists()


def test_the_command_in_the_documentation_is_taken(tmp_path, capsys):
    """The sweep whose rows are in the repository, as it stands there."""
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    block = next(part for part in text.split("```") if part.strip().startswith("jumpy sweep"))
    command = block.replace("\\\n", " ").strip().splitlines()[0]
    words = shlex.split(command)[1:]
    words[words.index("--out") + 1] = str(tmp_path / "sweep")
    assert cli.run([*words, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "10 stages, 10 to run" in shown.err and "--candidates 64" in shown.out


def test_a_failed_stage_ends_in_status_1(tmp_path, capsys, monkeypatch):
    def run(planned, out, prefix, **keywords):
        keywords["say"]("data: failed after 1 s")
        return runner.Outcome(failed={"data": "why"}, blocked=["policy"])

    monkeypatch.setattr(runner, "run", run)
    with pytest.raises(SystemExit) as status:
        cli.run(["sweep", "--table", "main", *CELLS, "--out", str(tmp_path)])
    assert status.value.code == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].endswith("0 stages done, 0 were finished, 1 failed, 1 skipped")


@pytest.mark.slow
def test_a_whole_sweep_and_its_report(tmp_path):
    """Every kind of stage, at sizes of seconds: then again, and nothing is done twice."""

    def jumpy(*words):
        command = [sys.executable, "-m", "jumpyworld.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tables = ["planners", "replan", "objective", "proposal", "consistency", "emd"]
    words = ["sweep", "--table", *tables, *CELLS, "--scale", "debug", "--out", "sweep"]
    first = jumpy(*words)
    request = stages.Request(Path("sweep"), "debug")
    count = len(stages.plan(grid.select(tables, CELLS[1:]), request))
    assert f"{count} stages done, 0 were finished, 0 failed, 0 skipped" in first
    assert f"0 stages done, {count} were finished" in jumpy(*words)
    jumpy("report", "--results", "sweep/results", "--out", "report.md")
    text = (tmp_path / "report.md").read_text()
    assert text.count("| pointmaze-medium | gcbc |") >= 8
    assert "Rows set aside" not in text
