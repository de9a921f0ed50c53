"""Every script of ``examples/`` runs as it stands, and shows what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples"
NUMBER = r"[+-]?\d+\.\d+"


def run(name):
    # Programs this small take longer to optimise than to run; one worker process is enough.
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", FOLDER / f"{name}.py"],
        capture_output=True, text=True, timeout=500, env={**os.environ, **quick},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def numbers(text):
    return [float(word) for word in re.findall(NUMBER, text)]


def test_every_script_has_a_test():
    tested = set(re.findall(r'run\("(\w+)"\)', Path(__file__).read_text()))
    assert tested == {path.stem for path in FOLDER.glob("*.py")} - {"maze_model"}


def test_own_environment():
    text = run("own_environment")
    alone, planned = numbers(text)[-2:]
    assert "plan: by way of" in text
    assert alone < 0 < planned and planned > alone + 0.3


def test_custom_reward():
    _, west, south = run("custom_reward").splitlines()
    # What is forbidden in the west sends it south, and the other way round.
    assert "go by [20. 16.]" in west and "go by [12.  8.]" in south
    for line in (west, south):
        value, median = numbers(line)[-2:]
        assert value > median


def test_outside_policy():
    text = run("outside_policy")
    rows = [
        list(map(float, line.split())) for line in text.splitlines() if line[:7].strip().isdigit()
    ]
    assert [row[0] for row in rows] == [1, 2, 5, 10]
    _, x, y, true_x, true_y = rows[0]
    assert abs(x - true_x) < 0.1 and abs(y - true_y) < 0.1
    # It moves on with the horizon, as the controller does.
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert len(numbers(text.splitlines()[-1])) >= 1


def test_measure_fidelity():
    lines = run("measure_fidelity").splitlines()
    rows = [line.split() for line in lines[lines.index(next(x for x in lines if "EMD" in x)) + 1 :]]
    emd = {(int(row[0]), int(row[1])): float(row[2]) for row in rows}
    floor = {int(row[1]): float(row[5]) for row in rows}
    assert len(emd) == 6
    for horizon in (1, 5, 20):
        assert emd[500, horizon] < emd[20, horizon]
    assert emd[500, 1] < 2 * floor[1]


def test_compare_planners():
    header, *rows = run("compare_planners").splitlines()
    assert header.split()[:2] == ["planner", "successes"]
    wins = {row.split()[0]: int(row.split()[1].split("/")[0]) for row in rows}
    assert list(wins) == ["zero-shot", "gpi", "compplan"]
    assert wins["zero-shot"] == wins["gpi"] == 0 and wins["compplan"] >= 3
