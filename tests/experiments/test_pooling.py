"""Intervals over rows of several models, which may have met the same episodes."""

import copy

import numpy as np
import pytest

from jumpyworld.evaluation.stats import mean_of_tasks, paired_difference
from jumpyworld.experiments import likeness, report, results
from jumpyworld.experiments.aggregate import distinct_trials, pooled_half_width
from jumpyworld.experiments.cells import Cell
from jumpyworld.experiments.results import Measured, Row

CELL = Cell.make("cube-2", "gcbc", "compplan")


def row(seed, model, successes=(6, 12, 3), episodes=20, **more):
    tasks = [
        {"task": i, "episodes": episodes, "successes": k} for i, k in enumerate(successes, start=1)
    ]
    trained = {"policy": {"recipe": "p", "steps": 9, "seed": 0}}
    trained["model"] = {"recipe": "m", "steps": 9, "seed": model}
    head = {"kind": "success", "domain": "cube-2", "policy": "gcbc", "planner": "compplan"}
    return {**head, "objective": "td-hc", "seed": seed, "tasks": tasks, "trained": trained, **more}


def pooled(*rows):
    found = results.collect([Row(f"f:{i}", each) for i, each in enumerate(rows, 1)])
    assert not found.others and not found.aside
    return found.success[CELL]


def test_copies_of_one_evaluation_do_not_shrink_its_intervals():
    paired = {"baseline": "zero-shot", "diff": 0.3, "diff_ci95": [0.1, 0.4]}
    one, three = pooled(row(5, 0, **paired)), pooled(*(row(5, m, **paired) for m in range(3)))
    assert three.tasks == {1: (18, 60), 2: (36, 60), 3: (9, 60)} and three.mean == one.mean
    assert three.ci95 == pytest.approx(one.ci95)
    assert three.paired[1] == pytest.approx(one.paired[1]) == (0.1, 0.4)
    assert three.count == "3x20x3, 1 set of episodes"
    # Other episodes do: as many trials as there are.
    others = pooled(*(row(seed, seed, **paired) for seed in range(3)))
    assert others.ci95 == pytest.approx(mean_of_tasks(list(three.tasks.values()))[1])
    assert others.count == "3x20x3"
    # Two sets of episodes, three models on each.
    both = pooled(*(row(seed, m, **paired) for seed in (0, 1) for m in range(3)))
    assert both.count == "3x20x6, 2 sets of episodes"
    assert both.ci95 == pytest.approx(pooled(row(0, 0), row(1, 1)).ci95)


def test_half_widths_and_trials_by_hand():
    assert pooled_half_width([("a", 0.3), ("b", 0.4)]) == pytest.approx(0.25)
    assert pooled_half_width([("a", 0.3), ("a", 0.4)]) == pytest.approx(0.35)
    assert pooled_half_width([("a", 0.1), ("a", 0.2), ("b", 0.4)]) == pytest.approx(0.5 / 3)
    assert distinct_trials([("a", 20), ("a", 20), ("b", 20), ("b", 20)]) == pytest.approx(40)
    # Three of one set and one of another count for fewer than two sets weighted alike.
    assert distinct_trials([("a", 20)] * 3 + [("b", 20)]) == pytest.approx(32)


def test_pairs_that_several_models_met_are_pooled_alike():
    def fidelity(seed, model):
        trained = {"model": {"recipe": "m", "steps": 9, "seed": model}}
        rows = [{"gamma": 0.995, "emd": 1.0, "ci95": [0.6, 1.4], "floor": 0.5}]
        head = {"kind": "fidelity", "domain": "cube-2", "policy": "gcbc", "objective": "td-hc"}
        return {**head, "pairs": "random", "seed": seed, "rows": rows, "trained": trained}

    def ends(*rows):
        found = results.collect([Row(f"f:{i}", each) for i, each in enumerate(rows)])
        return found.accuracy[Cell.make("cube-2", "gcbc", None)].ci95

    assert ends(*(fidelity(0, model) for model in range(4))) == pytest.approx((0.6, 1.4))
    assert ends(*(fidelity(seed, seed) for seed in range(4))) == pytest.approx((0.8, 1.2))


def test_the_end_of_a_training_stands_for_its_earlier_checkpoints():
    """In whichever order its checkpoints were measured; another recipe's row counts by place."""
    half, whole, other = row(0, 0), row(0, 0, (9, 9, 9)), row(0, 0, (1, 1, 1))
    half["trained"]["model"]["steps"] = 4
    other["trained"]["model"] = {"recipe": "n", "steps": 2, "seed": 0}
    for rows in ((half, whole), (whole, half), (other, whole, half)):
        found = results.collect([Row(f"f:{i}", each) for i, each in enumerate(rows)])
        assert [group.data for group in found.success[CELL].rows] == [whole]
        assert len(found.others) == len(rows) - 1
    # A model of another checkpoint of the policy is of another policy, however long it was trained.
    other_policy = row(0, 0, (8, 8, 8))
    other_policy["trained"]["policy"]["steps"] = 900
    for rows in ((whole, half, other), (other_policy, half, whole)):
        found = results.collect([Row(f"f:{i}", each) for i, each in enumerate(rows)])
        assert found.success[CELL].rows[0].data == rows[2]


@pytest.mark.parametrize("figures", [None, []])
def test_a_fidelity_row_without_figures_is_set_aside(figures):
    head = {"kind": "fidelity", "domain": "cube-2", "policy": "gcbc", "objective": "td-hc"}
    found = results.collect([Row("f:1", {**head, "pairs": "random", "seed": 0, "rows": figures})])
    assert not found.accuracy and [each.source for _, each in found.aside] == ["f:1"]


def test_what_was_added_to_a_recipe_is_told():
    one = row(0, 0)
    one["trained"]["policy"]["recipe"] = "0123456789abcdef+lambda=0.4"
    assert likeness.training(one) == "policy 012345+lambda=0.4 9 steps, model m 9 steps"


@pytest.mark.parametrize("shared", [True, False])
def test_the_pooled_interval_covers_the_difference(shared):
    """Three models against one policy, in the same episodes or each in its own."""
    rng, times, size, covered = np.random.default_rng(0), 600, 100, 0
    for _ in range(times):
        rows, base = [], rng.uniform(size=size) < 0.5
        for model in range(3):
            if not shared:
                base = rng.uniform(size=size) < 0.5
            diff, ends = paired_difference(rng.uniform(size=size) < 0.6, base)
            paired = {"baseline": "zero-shot", "diff": diff, "diff_ci95": list(ends)}
            rows.append(Row("f", row(0 if shared else model, model, **paired)))
        low, high = Measured(CELL, {}, tuple(rows)).paired[1]
        covered += low <= 0.1 <= high
    assert covered / times >= 0.93


def test_the_spread_over_seeds_says_which_seeds_vary():
    cases = {
        "training": [row(0, 0), row(0, 1)],
        "episodes": [row(0, 0), row(1, 0)],
        "training and episodes": [row(0, 0), row(1, 1)],
    }
    for which, rows in cases.items():
        rows[0]["tasks"][0]["successes"] = 0
        text = report.markdown(results.collect([Row(f"f:{i}", r) for i, r in enumerate(rows)]))
        assert f".07 / .05 ({which}) |" in text
    # Older rows: of one model by its hash; or with one seed that is not said of what.
    old = [copy.deepcopy(each) for each in cases["training and episodes"]]
    for each in old:
        del each["trained"]
    assert likeness.varying(old) == "training or episodes"
    assert likeness.varying([{**each, "config": {"policy": "a"}} for each in old]) == "episodes"
