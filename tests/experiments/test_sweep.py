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
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, capsys):
    assert cli.run(["sweep", *words, "--out", str(tmp_path / "sweep")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "sweep").exists()


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
