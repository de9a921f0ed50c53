"""The report on rows made by hand: means, intervals, gains, what is set aside, the same bytes."""

import json
import math
import re
from pathlib import Path

import pytest

from jumpyworld import cli
from jumpyworld.evaluation.stats import wilson
from jumpyworld.experiments import gains, likeness, report, results, tables
from jumpyworld.experiments.cells import Cell
from jumpyworld.experiments.results import Row


def success(domain, policy, planner, rates, seed=0, n=20, **more):
    tasks = [
        {"task": i, "episodes": n, "successes": round(rate * n)} for i, rate in enumerate(rates, 1)
    ]
    head = {"kind": "success", "domain": domain, "policy": policy, "planner": planner}
    trained = {"policy": {"recipe": "p", "steps": 9, "seed": 0}}
    if planner != "zero-shot":
        trained["model"] = {"recipe": "m", "steps": 9, "seed": seed}
    head |= {"seed": seed, "tasks": tasks, "device": "cpu", "trained": trained}
    return {**head, "minutes": {"eval": 1.5}, **more}


def fidelity(objective, emd, seed=0, pairs="random", ci95=(0.0, 0.0), gamma=0.995):
    rows = [{"gamma": gamma, "emd": emd, "ci95": ci95, "floor": 0.25}]
    return {
        "kind": "fidelity", "domain": "cube-2", "policy": "gcbc", "objective": objective,
        "fingerprints": {"policy": "p", "ghm": objective},
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
        f"| cube-2 | gcbc | - | .15 | .70 [{low}, {high}] | .97 (.01) | 5x20x2 "
        "| .14 / .10 (training and episodes) | - | cpu | 3.0 |"
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


CELL = Cell.make("cube-2", "gcbc", "compplan")


def test_only_seeds_of_one_recipe_are_pooled():
    """Another recipe, other steps or other episodes are other measurements, not other seeds."""
    first, second = (success("cube-2", "gcbc", "compplan", [1] * 5, seed) for seed in (0, 1))
    found = collected(first, second)
    assert found.success[CELL].count == "5x20x2" and not found.others
    for what in ({"recipe": "n"}, {"steps": 8}):
        model = {**first["trained"]["model"], **what}
        other = {**first, "trained": {**first["trained"], "model": model}}
        found = collected(other, first, second)
        assert found.success[CELL].count == "5x20x2"
        assert [each.rows[0].data for each in found.others] == [other]
    few = success("cube-2", "gcbc", "compplan", [1] * 5, 2, n=4, config={"episodes": 4})
    assert collected(few, first).success[CELL].count == "5x20x1"
    # A second model of the recipe on the same episodes is another seed; the same again is not.
    model = {**first["trained"]["model"], "seed": 5}
    twin = {**first, "trained": {**first["trained"], "model": model}}
    assert collected(first, twin).success[CELL].count == "5x20x2, 1 set of episodes"
    found = collected(first, first)
    assert found.success[CELL].count == "5x20x1" and len(found.aside) == 1


def test_older_rows_are_pooled_only_with_the_same_models():
    def row(seed, rate, **config):
        row = success("cube-2", "gcbc", "compplan", [rate] * 5, seed, config=config)
        return {name: value for name, value in row.items() if name != "trained"}

    rows = [row(100, 0.4, policy="p", model="a"), row(400, 0.8, policy="p", model="b")]
    found = collected(*rows)
    assert found.success[CELL].mean == 0.8 and found.success[CELL].over_seeds is None
    assert [each.mean for each in found.others] == [0.4] and not found.aside
    assert "| policy p, model a | .40 [" in report.markdown(found)
    again = row(500, 0.6, policy="p", model="b")
    assert collected(*rows, again).success[CELL].count == "5x20x2"
    # Rows that say nothing of what they are made of are like no other.
    assert len(collected(row(0, 1), row(1, 1)).others) == 1
    # The policy's own settings and steps say enough.
    said = [{**row(seed, 1, hidden=[8]), "steps": 40} for seed in (0, 1)]
    assert not collected(*said).others
    assert len(collected(said[0], {**said[1], "steps": 50}).others) == 1


def test_fidelity_of_other_models_or_sizes_is_not_pooled():
    rows = [fidelity("td-hc", emd, seed, ci95=[0, 9]) for seed, emd in enumerate((1.0, 2.0))]
    assert len(collected(*rows).accuracy[Cell.make("cube-2", "gcbc", None)].rows) == 2
    other = {**rows[0], "fingerprints": {"policy": "p", "ghm": "another"}}
    for last in (other, {**rows[1], "num_pairs": 4}):
        found = collected(*rows, last)
        assert found.accuracy[Cell.make("cube-2", "gcbc", None)].rows[0].data is last
        assert {why for why, _ in found.aside} == {
            "fidelity of another recipe or size than the row that its cell shows"
        }


PAPERS = {
    "replan_every": 5, "proposal": "unconditional", "objective": "q", "candidates": 1024,
    "horizons": [20, 20, 80.0], "discount": 0.99, "search": "uniform", "samples": 128,
    "solver": "euler", "ode_steps": 20, "precision": "fp32", "include_base": False,
    "warm_start": 0, "margin": 0.0, "tail": "truncate", "when_all_zero": "base",
    "max_steps": 500, "tasks": [1, 2, 3, 4, 5],
}  # fmt: skip


def test_cells_of_the_paper_say_which_settings_are_not_its_own():
    changes = {"append_goal": True, "include_base": True, "candidates": 256}
    ours = success("cube-2", "gcbc", "compplan", [0] * 5, config={**PAPERS, **changes})
    same = success("cube-2", "gcbc", "compplan", [1] * 5, config=PAPERS)
    text = report.markdown(collected(ours))
    assert ".00 [.00, .04]* | .92 (.02) |" in text
    note = "append_goal, candidates 256, include_base: cube-2 gcbc every 5"
    assert f"\n- \\* {note}\n" in text
    text = report.markdown(collected(same))
    assert "1.00 [.96, 1.00] | .92 (.02) |" in text and "]* |" not in text and note not in text
    # What was measured as in the paper keeps its cell; the variant is listed.
    found = collected(same, ours)
    assert next(iter(found.success.values())).mean == 1
    listed = report.markdown(found).split("## Other measurements")[1]
    assert "every 5, q, append_goal, candidates 256, include_base | policy p 9 steps, mod" in listed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"search": "elimination", "rounds": [[1024, 4], [128, 8], [32, 32], [8, 128]]},
         ("search elimination",)),
        ({"search": "elimination", "rounds": [[1024, 4], [2, 8]]},
         ("rounds 1024x4 2x8", "search elimination")),
        ({"horizons": [50.0] * 6, "precedents": "ab12", "precedent_share": 0.9},
         ("horizons 6x50", "precedents")),
        ({"solver": None, "ode_steps": None}, ()),
        ({"solver": "midpoint", "ode_steps": 3}, ("ode_steps 3", "solver midpoint")),
        ({"max_steps": 20, "tasks": [1, 3]}, ("max_steps 20", "tasks 1 3")),
        ({"refuse": False, "horizons": "strange"}, ("horizons strange", "no refuse")),
        ({"candidates": 0, "search": "elimination", "rounds": [3]},
         ("candidates 0", "rounds 3", "search elimination")),
    ],
)  # fmt: skip
def test_differences_to_the_paper_as_words(change, words):
    cell = Cell.make("cube-2", "gcbc", "compplan", replan_every=5)
    assert likeness.differences(cell, {"config": {**PAPERS, **change}}) == words


def test_gains_with_other_settings_are_marked():
    rows = [
        success("cube-3", "gcbc", "gpi", [0.4] * 5),
        success("cube-3", "gcbc", "compplan", [0.8] * 5, config={"candidates": 8}),
    ]
    assert line(report.markdown(collected(*rows)), "compplan over gpi", "+89%").startswith(
        "| compplan over gpi | +89% | +100% [+56%, +162%]* | 1 | +100% [+56%, +162%]* | 1 |"
    )


def test_speed_of_plans_is_told_apart():
    row = {"kind": "speed", "what": "plan", "domain": "cube-4", "policy": "gctd3", "plan_ms": 3.5}
    regret = {"regret": 0.974, "regret_ci95": 0.1272, "states": 27, "network": "trained"}
    regret |= {"regret_over_first": -0.0521, "regret_over_first_ci95": 0.1585, "ghm": "34c19d03"}
    ends = {"regret_ci95": [0.85, 1.1], "regret_over_first_ci95": [-0.21, 0.11]}
    ends |= {"agreement": 0.5, "agreement_ci95": [0.3, 0.7]}
    text = report.markdown(
        collected(
            {**row, "method": "fast", "network": "paper", "changes": ["linear_mix=true"]},
            {**row, "method": "paper", **regret, "rounds": 30},
            {**row, "method": "fast", **regret, **ends},
            {"kind": "speed", "what": "ghm train step", "variant": "plain", "preset": "base"},
        )
    )
    lines = text.split("## Speed")[1].strip().splitlines()[2:]
    assert lines == [
        "| plan | cube-4, gctd3 | fast | paper linear_mix=true | - | plan_ms 3.5 | - | - | - | - |",
        "| plan | cube-4, gctd3 | paper | trained 34c19d | 30 | plan_ms 3.5 "
        "| 0.97 +- 0.13, 27 states | -0.05 +- 0.16 | - | - |",
        "| plan | cube-4, gctd3 | fast | trained 34c19d | - | plan_ms 3.5 "
        "| 0.97 [0.85, 1.10], 27 states | -0.05 [-0.21, +0.11] | 0.50 [0.30, 0.70] | - |",
        "| ghm train step | - | plain | base | - | - | - | - | - | - |",
    ]


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
    ours = gains.gain(claim, found, claim.domains)
    assert ours.mean == pytest.approx(0.6) and (len(ours.sides), ours.zero) == (3, 1)
    text = report.markdown(found)
    # Any domain: 1, .2, 8 and .5.
    assert re.sub(r" \[.*?\]", "", line(text, "compplan over gpi")) == (
        "| compplan over gpi | +89% | +60% | 2 (left out: 1 zero base) "
        "| +242% | 4 (left out: 1 zero base) | antmaze-giant, cube-3, cube-4 |"
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
        "measured again later | 1 | f:2 |",
        "unknown kind expert | 1 | f:4 |",
        "unknown kind without a kind | 1 | f:5 |",
        "success row not understood: planner is missing | 1 | f:6 |",
        "success row not understood: unknown domain 'mars'",
        "success row not understood: planner 'tea-leaves' | 1 | f:8 |",
        "success row not understood: tasks []: must be a list of tasks | 1 | f:9 |",
        "fidelity row not understood",
    ):
        assert why in aside, why
    assert len(found.aside) == 8 and [each.mean for each in found.others] == [0]
    assert (
        "| cube-1 | scripted | compplan | td-hc, unconditional, every 1, q | policy p 9 st" in text
    )
    assert "| a / b c | - | - | - | - | ms 3 | - | - | - | - |" in text


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
