"""The report on rows made by hand: means, intervals, gains, what is set aside, the same bytes."""

import json
import math
import re
from pathlib import Path

import pytest

from jumpyworld import cli
from jumpyworld.evaluation.stats import wilson
from jumpyworld.experiments import report, results, tables
from jumpyworld.experiments.cells import Cell
from jumpyworld.experiments.results import Row

ROOT = Path(__file__).parents[2]


def success(domain, policy, planner, rates, seed=0, n=20, **more):
    tasks = [
        {"task": i, "episodes": n, "successes": round(rate * n)} for i, rate in enumerate(rates, 1)
    ]
    head = {"kind": "success", "domain": domain, "policy": policy, "planner": planner}
    return {**head, "seed": seed, "tasks": tasks, "device": "cpu", "minutes": {"eval": 1.5}, **more}


def fidelity(objective, emd, seed=0, pairs="random", ci95=(0.0, 0.0), gamma=0.995):
    rows = [{"gamma": gamma, "emd": emd, "ci95": ci95, "floor": 0.25}]
    return {
        "kind": "fidelity", "domain": "cube-2", "policy": "gcbc", "objective": objective,
        "seed": seed, "pairs": pairs, "num_pairs": 8, "rollouts": 4, "samples": 16, "rows": rows,
        "device": "cpu",
    }  # fmt: skip


def collected(*rows):
    return results.collect([Row(f"f:{i}", row) for i, row in enumerate(rows, 1)])


def line(text, *starts):
    return next(found for found in text.splitlines() if found.startswith("| " + " | ".join(starts)))


def test_means_and_intervals_over_tasks_and_seeds():
    rows = [
        success("cube-2", "gcbc", "compplan", rates, seed, objective="td-hc")
        for seed, rates in enumerate(([1, 1, 1, 0.5, 0.5], [1, 1, 0, 0.5, 0.5]))
    ]
    found = collected(*rows)
    cell = Cell.make("cube-2", "gcbc", "compplan")
    measured = found.success[cell]
    assert measured.tasks == {1: (40, 40), 2: (40, 40), 3: (20, 40), 4: (20, 40), 5: (20, 40)}
    assert math.isclose(measured.mean, 0.7)
    # All tasks have 40 episodes, so the effective number of trials is all 200.
    assert measured.ci95 == pytest.approx(wilson(140, 200))
    # Means .8 and .6: sd = .1 * sqrt(2), se = .1.
    assert measured.over_seeds == pytest.approx((0.141421356, 0.1))
    text = report.markdown(found)
    low, high = (f"{end:.2f}".removeprefix("0") for end in wilson(140, 200))
    shown = line(text, "cube-2", "gcbc", "-", ".15")
    assert shown == (
        f"| cube-2 | gcbc | - | .15 | .70 [{low}, {high}] | .97 (.01) | 5x20x2 | .14 / .10 | - "
        "| cpu | 3.0 |"
    )
    # The same cell stands in the ablations, and task by task.
    assert f".70 [{low}, {high}] | .97 (.01) | - | .92 (.02) |" in text
    assert "| cube-2 | gcbc | compplan | 40/40 (1.00) | 40/40 (1.00) | 20/40 (1.00) |" in text


def test_rows_of_eval_find_their_cells():
    config = {"proposal": "goal", "replan_every": 5, "objective": "v", "policy": "ab", "seed": 0}
    row = success("cube-2", "gcbc", "compplan", [1] * 5, objective="td-flow", config=config)
    expected = Cell("cube-2", "gcbc", "compplan", "td-flow", "conditional", 5, "v")
    assert list(collected(row).success) == [expected]
    row = {**row, "policy": "hfbc"}
    assert next(iter(collected(row).success)).proposal == "goal"  # not its paper's proposal
    row["config"] = {**config, "proposal": "high-level"}
    assert next(iter(collected(row).success)).proposal == "conditional"
    # An older row: its config is the policy's, and it says nothing of planning.
    row = success("pointmaze-large-navigate-v0", "gcbc", "zero-shot", [1] * 5, config={"hidden": 3})
    assert list(collected(row).success) == [Cell("pointmaze-large", "gcbc", "zero-shot")]


def test_paired_gains_over_seeds():
    more = {"baseline": "zero-shot", "diff": 0.3, "diff_ci95": [0.2, 0.5]}
    rows = [success("cube-2", "gcbc", "compplan", [1] * 5, s, **more) for s in range(4)]
    found = collected(*rows)
    diff, ends = found.success[Cell.make("cube-2", "gcbc", "compplan")].paired
    assert (diff, *ends) == pytest.approx((0.3, 0.25, 0.4))
    assert "| +.30 [+.25, +.40] |" in report.markdown(found)
    # Seeds of unlike precision: variances add up, not widths.
    wide = [{**rows[0], "diff_ci95": [0.2, 0.4]}, {**rows[1], "diff_ci95": [0.0, 0.6]}]
    ends = collected(*wide).success[Cell.make("cube-2", "gcbc", "compplan")].paired[1]
    half = (0.1**2 + 0.3**2) ** 0.5 / 2
    assert ends == pytest.approx((0.3 - half, 0.3 + half))
    without = {k: v for k, v in rows[0].items() if k != "diff"}
    assert collected(*rows[1:], without).success[found.success.copy().popitem()[0]].paired is None


def test_relative_gains_as_the_paper_aggregates_them():
    def planners(domain, policy, zero, gpi, comp):
        names = {"zero-shot": zero, "gpi": gpi, "compplan": comp}
        return [success(domain, policy, name, [rate] * 5) for name, rate in names.items()]

    found = collected(
        *planners("cube-3", "gcbc", 0.1, 0.4, 0.8),  # + 100 %
        *planners("cube-4", "gcbc", 0.1, 0.5, 0.6),  # + 20 %
        *planners("antmaze-giant", "gcbc", 0.0, 0.0, 0.5),  # no ratio
        *planners("cube-1", "gcbc", 0.1, 0.1, 0.9),  # not a long-horizon domain
        *planners("pointmaze-giant", "gcbc", 0.1, 0.5, 0.75),  # + 50 %; not the paper's
    )
    claim = tables.claims()[0]
    assert report.gain(claim, found, claim.domains) == (pytest.approx(0.6), 2)
    text = report.markdown(found)
    # Any domain: 1, .2, 8 and .5.
    assert line(text, "compplan over gpi") == (
        "| compplan over gpi | +89% | +60% | 2 | +242% | 4 | antmaze-giant, cube-3, cube-4 |"
    )
    assert line(text, "compplan over actionplan").startswith(
        "| compplan over actionplan | +201% | - | 0 |"
    )


def test_fidelity_of_old_and_new_rows():
    found = collected(
        fidelity("td-hc", 1.0, 0, ci95=[0.7, 1.3]),
        fidelity("td-hc", 2.0, 1, ci95=[1.6, 2.4]),
        fidelity("td-flow", 1.5, ci95=0.25),
        fidelity("td-flow", 9.0, pairs="in-support"),
        fidelity("td-flow", 8.0, seed=1, gamma=0.9),
    )
    hc = found.accuracy[Cell.make("cube-2", "gcbc", None)]
    assert hc.emd == 1.5 and hc.floor == 0.25
    assert hc.ci95 == pytest.approx((1.25, 1.75))  # sqrt(.09 + .16) / 2
    text = report.markdown(found)
    assert line(text, "cube-2", "gcbc", "1.50 [").startswith(
        "| cube-2 | gcbc | 1.50 [1.25, 1.75] | 1.47 (.00) | 1.50 [1.25, 1.75] | 1.42 (.01) |"
        " 8x4x1, 16 samples; 8x4x2, 16 samples | 0.25 |"
    )
    assert text.count("in-support") == 1 and "0.9: 8.00/0.25" in text
    assert not found.aside


def test_what_is_set_aside_and_what_stays():
    last = success("cube-1", "crl", "zero-shot", [1] * 5, config={"a": 2})
    found = collected(
        success("cube-1", "crl", "zero-shot", [0] * 5, config={"a": 1}),
        success("cube-1", "crl", "zero-shot", [0] * 5, config={"a": 2}),
        last,
        {"kind": "expert"},
        {"nothing": 1},
        {"kind": "success", "domain": "cube-1"},
        success("mars", "crl", "zero-shot", [1] * 5),
        success("cube-1", "crl", "tea-leaves", [1] * 5),
        success("cube-1", "crl", "zero-shot", []),
        success("cube-1", "scripted", "compplan", [1] * 5),
        {"kind": "fidelity", "domain": "cube-1"},
        {"kind": "speed", "what": "a | b\nc", "ms": 3},
    )
    assert found.success[Cell.make("cube-1", "crl", "zero-shot")].mean == 1
    text = report.markdown(found)
    aside = text.split("## Rows set aside")[1]
    for why in (
        "other settings than the last row of its cell | 1 | f:1 |",
        "measured again later | 1 | f:2 |",
        "unknown kind expert | 1 | f:4 |",
        "unknown kind without a kind | 1 | f:5 |",
        "success row not understood: 'planner' is missing | 1 | f:6 |",
        "success row not understood: unknown domain 'mars'",
        "success row not understood: planner 'tea-leaves' | 1 | f:8 |",
        "tasks without episodes",
        "fidelity row not understood",
    ):
        assert why in aside, why
    assert len(found.aside) == 9
    assert "| cube-1 | scripted | compplan | td-hc, unconditional, every 1, q | 1.00" in text
    assert "| a / b c | - | ms 3 |" in text


def test_every_cell_of_the_paper_is_shown_without_any_result():
    text = report.markdown(collected())
    sections = dict(re.findall(r"## (.*?)\n(.*?)(?=\n## |\Z)", text, re.S))
    for name, title in report.TITLES.items():
        rows = [row for row in sections[title].splitlines() if re.match(r"\| (antmaze|cube)-", row)]
        expected = {"per-task": 70, "hierarchical": 21}.get(name, 35)
        assert len(rows) == expected, name
        assert "pointmaze" not in sections[title]
    assert "Rows set aside" not in text


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_same_rows_give_the_same_bytes(tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("a", "b"):
        folder = tmp_path / name
        row = success("cube-2", "gcbc", "compplan", [1, 1, 1, 0.5, 0], objective="td-hc")
        write(folder / "rows/x/success.jsonl", row)
        write(folder / "rows/y/fidelity.jsonl", fidelity("td-hc", 1.0, ci95=[0.9, 1.1]))
        write(folder / "rows/y/metrics.jsonl", {"step": 1})
        words = ["report", "--results", str(folder / "rows"), "--out", str(folder / "r.md")]
        assert cli.run([*words, "--figures", str(folder / "figures")]) == 0
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.[mp]*"))
    pictures = [path.name for path in files if path.suffix == ".png"]
    tables_drawn = ["consistency", "emd", "hierarchical", "main", "objective", "planners"]
    assert set(pictures) <= {f"{name}.png" for name in (*tables_drawn, "proposal", "replan")}
    assert {"main.png", "emd.png", "replan.png"} <= set(pictures)
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path
    assert "](figures/main.png)" in (tmp_path / "a/r.md").read_text()


def test_the_repositorys_own_results(tmp_path, capsys):
    out = tmp_path / "report.md"
    assert cli.run(["report", "--results", str(ROOT / "results"), "--out", str(out)]) == 0
    text = out.read_text()
    rows = map(json.loads, (ROOT / "results" / "success.jsonl").read_text().splitlines())
    rows = [r for r in rows if (r["domain"], r["planner"]) == ("pointmaze-large", "zero-shot")]
    # Seeds are pooled, the last row of each.
    last = {row["seed"]: row["mean"] for row in rows}
    mean = f"{sum(last.values()) / len(last):.2f}".lstrip("0")
    line = next(x for x in text.splitlines() if x.startswith("| pointmaze-large | gcbc | "))
    assert f"| {mean} [" in line and f"| 5x20x{len(last)} |" in line
    assert "unknown kind expert | 15 |" in text
    assert str(ROOT) not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--results", "nowhere"], "nowhere: no such file or folder"),
        (["--results", "empty"], "empty: holds no result rows"),
        (["--results", "bad.jsonl"], "bad.jsonl: line 2 is no JSON object"),
        (["--results", "good.jsonl", "--out", "good.jsonl/x"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("bad.jsonl").write_text('{"kind": "speed"}\n[1]\n')
    write(Path("good.jsonl"), {"kind": "speed"})
    assert cli.run(["report", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not Path("report.md").exists()
