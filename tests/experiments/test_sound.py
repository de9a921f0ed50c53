"""Odd rows are set aside with the field that is odd; none of them stops a report."""

import copy
import json
import math

import numpy as np
import pytest

from jumpyworld import cli
from jumpyworld.experiments import report, results
from jumpyworld.experiments.results import Row

TASKS = [{"task": i, "episodes": 4, "successes": 3} for i in (1, 2)]
SUCCESS = {
    "kind": "success", "domain": "cube-2", "policy": "gcbc", "planner": "compplan", "seed": 0,
    "objective": "td-hc", "tasks": TASKS, "device": "cpu", "minutes": {"eval": 1.5},
    "baseline": "zero-shot", "diff": 0.5, "diff_ci95": [0.25, 0.75], "model_steps": 9,
    "trained": {"policy": {"recipe": "p", "steps": 9, "seed": 0},
                "model": {"recipe": "m", "steps": 9, "seed": 0}},
    "config": {"proposal": "goal", "replan_every": 5, "objective": "q", "candidates": 64,
               "search": "elimination", "rounds": [[64, 4], [8, 8]], "horizons": [20.0, 80.0],
               "tasks": [1, 2], "append_goal": True, "precedents": "ab", "solver": None},
}  # fmt: skip
FIDELITY = {
    "kind": "fidelity", "domain": "cube-2", "policy": "gcbc", "objective": "td-hc", "seed": 0,
    "pairs": "random", "num_pairs": 8, "rollouts": 4, "samples": 16, "device": "cpu",
    "fingerprints": {"policy": "p", "ghm": "g"},
    "rows": [{"gamma": 0.995, "emd": 1.5, "ci95": [1.0, 2.0], "floor": 0.5}],
}  # fmt: skip
SPEED = {
    "kind": "speed", "what": "plan", "domain": "cube-2", "policy": "gcbc", "method": "fast",
    "network": "trained", "ghm": "0123456789", "changes": ["width=8"], "plan_ms": 3.5, "states": 9,
    "regret": 0.5, "regret_ci95": [0.25, 0.75], "regret_over_first": 0.1,
    "regret_over_first_ci95": 0.2, "agreement": 0.5, "agreement_ci95": [0.2, 0.8],
}  # fmt: skip
DEEP = json.loads("[" * 900 + "]" * 900)
ODD = (
    None, True, "x", "", "\ud800", -1, 0, 2.5, 10**400, math.inf, math.nan, [], [1], [1, "x"],
    [[1, 2], [3]], [None, None], {}, {"a": 1}, {"a": {"a": [[]]}},
)  # fmt: skip


def told(*rows):
    """Return the report, and why rows were set aside."""
    found = results.collect([Row(f"f.jsonl:{i}", row) for i, row in enumerate(rows, 1)])
    return report.markdown(found), [why for why, _ in found.aside]


def changed(row, path, value):
    row = copy.deepcopy(row)
    within = row
    for name in path[:-1]:
        within = within[name]
    within[path[-1]] = value
    return row


@pytest.mark.parametrize(
    ("row", "path", "value", "why"),
    [
        (SUCCESS, ["diff_ci95"], [-0.34], "diff_ci95 [-0.34]: must be [low, high]"),
        (SUCCESS, ["diff_ci95"], [0.3, 0.1], "diff_ci95 [0.3, 0.1]: must be [low, high]"),
        (SUCCESS, ["diff"], "x", 'diff "x": must be a number from -1 to 1'),
        (SUCCESS, ["tasks", 0, "task"], math.inf, "tasks[0].task: is inf, not a number"),
        (SUCCESS, ["tasks", 0, "task"], 10**400, "tasks[0].task: is inf, not a number"),
        (SUCCESS, ["tasks", 0, "task"], 99, "tasks[0].task 99: must be one of [1, 2, 3, 4, 5]"),
        (SUCCESS, ["tasks", 1, "task"], 1, "tasks[1].task 1: comes twice"),
        (SUCCESS, ["tasks", 1, "successes"], 5, "tasks[1].successes 5: must be 0 to 4"),
        (SUCCESS, ["tasks", 1], 3, "tasks[1] 3: must be an object"),
        (SUCCESS, ["config", "horizons"], [[1, 2], [3]], "config.horizons [[1, 2], [3]]: must be"),
        (SUCCESS, ["config", "proposal"], -1, "config.proposal -1: must be text"),
        (SUCCESS, ["objective"], True, "objective true: must be text"),
        (SUCCESS, ["policy"], None, "policy is missing"),
        (SUCCESS, ["trained", "model"], 1, "trained.model 1: must be an object"),
        (SUCCESS, ["device"], "\ud800", "device: holds text that is no Unicode"),
        (SUCCESS, ["device"], DEEP, "device: nested more than 20 deep"),
        (FIDELITY, ["rows"], -1, "rows -1: must be a list"),
        (FIDELITY, ["rows", 0, "emd"], "x", 'rows[0].emd "x": must be a number'),
        (SPEED, ["regret_ci95"], [1], "regret_ci95 [1]: must be [low, high] or a half width"),
    ],
)  # fmt: skip
def test_an_odd_row_is_left_out_with_its_field(row, path, value, why):
    text, aside = told(changed(row, path, value))
    assert len(aside) == 1 and aside[0].startswith(f"{row['kind']} row not understood: {why}")
    line = next(x for x in text.splitlines() if x.endswith("| 1 | f.jsonl:1 |"))
    assert line.startswith(f"| {row['kind']} row not understood: {path[0]}")


def test_good_rows_stay():
    assert not told(SUCCESS, FIDELITY, SPEED)[1]
    old = {**SPEED, "regret_ci95": 0.25}
    assert not told(old, {"kind": "speed"})[1]


def paths(value, before=()):
    """Yield the way to every value of a row."""
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield (*before, name)
            yield from paths(value[name], (*before, name))


def check(*rows):
    """A good row among odd ones stays what it is; what is set aside is named by a field."""
    text, aside = told(*rows, {**SUCCESS, "domain": "cube-3"})
    text.encode()
    assert "| cube-3 | gcbc |" in text, rows
    for why in aside:
        known = any(name in why for row in (SUCCESS, FIDELITY, SPEED) for name in row)
        assert "not understood" not in why or known, (why, rows)


@pytest.mark.parametrize("row", [SUCCESS, FIDELITY, SPEED], ids=lambda row: row["kind"])
def test_no_odd_value_stops_a_report(row):
    for path in paths(row):
        check(*(changed(row, path, copy.deepcopy(value)) for value in ODD))
    check(*({k: v for k, v in row.items() if k != name} for name in row))


def test_several_odd_values_do_not_either():
    rng = np.random.default_rng(0)

    def odd():
        row = (SUCCESS, FIDELITY, SPEED)[rng.integers(3)]
        for _ in range(rng.integers(2, 5)):
            ways = list(paths(row))
            value = copy.deepcopy(ODD[rng.integers(len(ODD))])
            row = changed(row, ways[rng.integers(len(ways))], value)
        return row

    for _ in range(30):
        check(*(odd() for _ in range(20)))


def test_the_command_says_where_an_odd_row_is(tmp_path, capsys):
    rows = [SUCCESS, {**SUCCESS, "seed": 1, "diff_ci95": [-0.34]}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "report.md"
    assert cli.run(["report", "--results", str(tmp_path), "--out", str(out)]) == 0
    assert "1 rows aside" in capsys.readouterr().out
    assert "diff_ci95 [-0.34]: must be [low, high] | 1 | rows.jsonl:2 |" in out.read_text()
