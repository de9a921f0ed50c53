"""Relative gains: their intervals, and whose policies and models the two sides are."""

import math

import numpy as np
import pytest

from jumpyworld.evaluation.stats import wilson
from jumpyworld.experiments import gains, report, results, tables
from jumpyworld.experiments.aggregate import gain_interval, ratio_interval
from jumpyworld.experiments.results import Row

CLAIMS = {claim.name: claim for claim in tables.claims()}


def row(planner, rate, model="m", policy="p", domain="cube-3", objective="td-hc", **config):
    tasks = [{"task": i, "episodes": 20, "successes": round(20 * rate)} for i in range(1, 6)]
    trained = {name: {"recipe": recipe, "steps": 9, "seed": 0}
               for name, recipe in (("policy", policy), ("model", model))}  # fmt: skip
    head = {"kind": "success", "domain": domain, "policy": "gcbc", "planner": planner, "seed": 0}
    return {**head, "tasks": tasks, "trained": trained, "objective": objective, "config": config}


def gain(name, *rows):
    found = results.collect([Row(f"f:{i}", each) for i, each in enumerate(rows)])
    return gains.gain(CLAIMS[name], found, ("cube-3", "cube-4"))


def test_ratios_by_hand():
    low, high = ratio_interval((0.5, (0.25, 0.75)), (0.25, (0.2, 0.5)))
    assert low == pytest.approx(2 * math.exp(-math.hypot(math.log(2), math.log(2))))
    assert high == pytest.approx(2 * math.exp(math.hypot(math.log(1.5), math.log(1.25))))
    assert ratio_interval((0.0, (0.0, 0.1)), (0.25, (0.2, 0.5))) == (0.0, pytest.approx(0.5))
    # One cell has its ratio's ends; two like it are nearer by a root.
    pair = ((0.5, (0.25, 0.75)), (0.25, (0.2, 0.5)))
    assert gain_interval([pair]) == pytest.approx((low - 1, high - 1))
    ends = (1 - (2 - low) / 2**0.5, 1 + (high - 2) / 2**0.5)
    assert gain_interval([pair, pair]) == pytest.approx(ends)


@pytest.mark.parametrize("base", [0.4, 0.15])
def test_the_interval_covers_the_gain(base):
    rng, size, times, covered = np.random.default_rng(0), 100, 1000, 0
    truth = np.mean([0.6 / base, 0.3 / base, 0.9 / base]) - 1
    for _ in range(times):
        counts = [rng.binomial(size, rate) for better in (0.6, 0.3, 0.9) for rate in (better, base)]
        rates = [(count / size, wilson(int(count), size)) for count in counts]
        low, high = gain_interval(list(zip(rates[::2], rates[1::2], strict=True)))
        covered += low <= truth <= high
    assert covered / times >= 0.93


def test_both_sides_are_of_one_policy_and_model():
    name = "compplan over gpi"
    last = [row("gpi", 0.2), row("compplan", 0.4), row("compplan", 0.8, model="other")]
    # What the tables show are two models: the gain is of the one that both sides have.
    ours = gain(name, *last)
    assert ours.mean == pytest.approx(1) and ours.unlike == 0
    assert ours.ci95[0] < 1 < ours.ci95[1]
    for odd in ({"model": "other"}, {"policy": "other"}):
        ours = gain(name, row("gpi", 0.2), row("compplan", 0.8, **odd))
        assert ours.mean is None and ours.ci95 is None and ours.unlike == 1
    found = results.collect([Row("f:1", row("gpi", 0.2)), Row("f:2", row("compplan", 1, "other"))])
    assert "| - | 0 (left out: 1 no common policy or model) |" in report.markdown(found)


def test_models_of_another_kind_have_no_recipe_in_common():
    """A world model is no GHM, and one objective's model is not the other's."""
    ours = gain("compplan over actionplan", row("actionplan", 0.2, "w"), row("compplan", 0.4))
    assert ours.mean == pytest.approx(1)
    flow = row("compplan", 0.4, "flow", objective="td-flow")
    assert gain("td-hc over td-flow", flow, row("compplan", 0.8)).mean == pytest.approx(1)
    other = row("compplan", 0.8, policy="other")
    assert gain("td-hc over td-flow", flow, other).unlike == 1


def test_older_rows_are_told_apart_by_hashes():
    both = [row("gpi", 0.2), row("compplan", 1)]
    for made in both:
        del made["trained"]  # and says nothing
    assert gain("compplan over gpi", *both).unlike == 1
    for made in both:
        made["config"] = {"policy": "a", "model": "b"}
    assert gain("compplan over gpi", *both).mean == pytest.approx(4)
    both[0]["config"] = {"policy": "a", "model": "c"}
    assert gain("compplan over gpi", *both).unlike == 1
