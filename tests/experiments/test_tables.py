"""The paper's numbers: counts, spot values, where they agree with each other and where not."""

import collections
import dataclasses
import json
import math
from importlib import resources

import jsonschema
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.experiments import tables
from jumpyworld.experiments.cells import BASELINES, PAPER_DOMAINS, POLICIES, Cell

COUNTS = {
    "main": 70, "per-task": 350, "hierarchical": 28, "emd": 70, "replan": 70, "objective": 70,
    "proposal": 70, "consistency": 70,
}  # fmt: skip


@pytest.mark.parametrize("name", tables.NAMES)
def test_a_table_is_complete_and_no_cell_is_twice(name):
    table = tables.load(name)
    assert len(table.cells) == COUNTS[name] == len({(c.cell, c.task) for c in table.cells})
    assert {c.domain for c in table.cells} == set(PAPER_DOMAINS)
    assert {c.policy for c in table.cells} == (
        {"hfbc", *BASELINES} if name == "hierarchical" else set(POLICIES)
    )
    top = 10 if table.metric == "emd" else 1
    assert all(0 <= c.mean <= top and 0 <= (c.spread or 0) < 1 for c in table.cells)


@pytest.mark.parametrize(
    ("table", "domain", "policy", "planner", "said", "mean", "spread"),
    [
        ("main", "antmaze-medium", "crl", "zero-shot", {}, 0.88, None),
        ("main", "antmaze-large", "gcbc", "compplan", {}, 0.73, 0.02),
        ("main", "cube-4", "gcbc", "compplan", {}, 0.76, 0.03),
        ("main", "cube-2", "hfbc", "zero-shot", {}, 0.76, None),
        ("hierarchical", "antmaze-giant", "sharsa", "zero-shot", {}, 0.56, 0.07),
        ("hierarchical", "cube-1", "hiql", "zero-shot", {}, 0.15, 0.03),
        ("hierarchical", "cube-4", "hfbc", "compplan", {}, 0.67, 0.03),
        ("emd", "antmaze-giant", "gc1s", None, {"objective": "td-flow"}, 7.29, 0.69),
        ("emd", "antmaze-giant", "gc1s", None, {"objective": "td-hc"}, 5.25, 0.08),
        ("emd", "cube-4", "hfbc", None, {"objective": "td-hc"}, 1.61, 0.03),
        ("replan", "cube-4", "crl", "compplan", {"replan_every": 5}, 0.0, 0.0),
        ("replan", "antmaze-medium", "hfbc", "compplan", {"replan_every": 5}, 0.99, 0.01),
        ("replan", "antmaze-large", "gc1s", "compplan", {"replan_every": 1}, 0.61, 0.04),
        ("objective", "cube-3", "crl", "compplan", {"maximise": "v"}, 0.05, 0.01),
        ("objective", "antmaze-giant", "hfbc", "compplan", {"maximise": "v"}, 0.83, 0.02),
        ("proposal", "cube-4", "hfbc", "compplan", {"proposal": "conditional"}, 0.09, 0.04),
        ("proposal", "cube-1", "gc1s", "compplan", {"proposal": "unconditional"}, 0.66, 0.02),
        ("consistency", "cube-2", "hfbc", "compplan", {"objective": "td-flow"}, 0.84, 0.03),
        ("consistency", "cube-4", "crl", "compplan", {"objective": "td-flow"}, 0.36, 0.0),
    ],
)  # fmt: skip
def test_spot_values(table, domain, policy, planner, said, mean, spread):
    found = tables.load(table).find(Cell.make(domain, policy, planner, **said))
    assert found is not None and (found.mean, found.spread) == (mean, spread)


def test_spot_values_of_single_tasks():
    def rates(domain, policy, planner):
        cell = Cell.make(domain, policy, planner)
        return [tables.load("per-task").find(cell, task).mean for task in range(1, 6)]

    assert rates("cube-4", "hfbc", "compplan") == [1.0, 0.83, 0.77, 0.2, 0.57]
    assert rates("antmaze-large", "gcbc", "zero-shot") == [0.15, 0.1, 0.55, 0.0, 0.1]
    assert rates("antmaze-giant", "crl", "compplan") == [0.07, 0.67, 0.1, 0.23, 0.4]


def test_tasks_average_to_the_main_table_within_rounding():
    by_cell = collections.defaultdict(list)
    for each in tables.load("per-task").cells:
        by_cell[each.cell].append(each.mean)
    for cell, rates in by_cell.items():
        assert len(rates) == 5
        # A printed rate such as .97 stands for 29 of 30; each is off by at most .0034.
        assert abs(sum(rates) / 5 - tables.load("main").find(cell).mean) < 0.005 + 0.0034, cell


def test_the_hierarchical_table_contradicts_the_main_one_on_cubes():
    differs = {}
    for each in tables.load("hierarchical").cells:
        if each.policy == "hfbc":
            main = tables.load("main").find(each.cell)
            if (main.mean, main.spread) != (each.mean, each.spread):
                differs[each.domain, each.planner] = (each.mean, main.mean)
    assert differs == {
        ("cube-1", "zero-shot"): (0.84, 0.80),
        ("cube-2", "zero-shot"): (0.70, 0.76),
        ("cube-3", "zero-shot"): (0.54, 0.64),
        ("cube-4", "zero-shot"): (0.34, 0.24),
    }


@pytest.mark.parametrize("name", ["replan", "objective", "proposal", "consistency"])
def test_ablations_repeat_the_main_mean_and_grey_cells_repeat_one_value_twice(name):
    main, pairs = tables.load("main"), collections.defaultdict(list)
    for each in tables.load(name).cells:
        pairs[each.domain, each.policy].append(each)
        usual = main.find(each.cell)
        if usual is not None:
            assert usual.mean == each.mean, each
            assert usual.spread == each.spread or each.no_difference, each
    assert all(sum(main.find(c.cell) is not None for c in pair) == 1 for pair in pairs.values())
    for one, other in pairs.values():
        assert one.no_difference == other.no_difference
        assert one.no_difference == ((one.mean, one.spread) == (other.mean, other.spread))


def test_grey_cells_disagree_with_the_main_table_on_their_spread():
    found = set()
    for name in ("replan", "objective", "proposal", "consistency"):
        for each in tables.load(name).cells:
            usual = tables.load("main").find(each.cell)
            if each.no_difference and usual is not None and usual.spread != each.spread:
                found.add((name, each.domain, each.policy, each.spread, usual.spread))
    assert found == {
        ("replan", "cube-3", "gctd3", 0.02, 0.04),
        ("objective", "cube-2", "gc1s", 0.04, 0.09),
        ("proposal", "antmaze-medium", "gcbc", 0.04, 0.08),
        ("proposal", "antmaze-giant", "gcbc", 0.02, 0.01),
    }


def test_task_spreads_are_standard_errors_of_three_seeds_of_ten_episodes():
    """Not standard deviations, as the caption says: every one fits the former."""

    def rounded(value):
        return {math.floor(value * 100 + 0.5) / 100, round(value, 2)}

    def possible(total):
        for a in range(11):
            for b in range(a, 11):
                if b <= (c := total - a - b) <= 10:
                    m = total / 3
                    yield math.sqrt(sum((x - m) ** 2 for x in (a, b, c)) / 2 / 3) / 10

    for each in tables.load("per-task").cells:
        if each.planner == "compplan":
            total = round(each.mean * 30)
            assert any(each.spread in rounded(se) for se in possible(total)), each


def test_stated_gains_are_means_of_ratios_where_the_base_is_not_zero():
    """So the report aggregates ours the same way; the text rounds (about 20 %, about 70 %, 5 %)."""
    from jumpyworld.experiments.aggregate import mean_gain

    stated = {claim.name: claim for claim in tables.claims()}
    assert stated["compplan over gpi"].gain == 0.89
    assert stated["compplan over actionplan"].gain == 2.01
    assert all(set(claim.domains) <= set(PAPER_DOMAINS) for claim in stated.values())
    for claim in stated.values():
        if claim.table != "planners":
            pairs = collections.defaultdict(dict)
            for each in tables.load(claim.table).cells:
                pairs[each.domain, each.policy][getattr(each, claim.field)] = each.mean
            gain, used = mean_gain([(p[claim.better], p[claim.worse]) for p in pairs.values()])
            assert abs(gain - claim.gain) < 0.08 and used >= 33
    one, other = (
        tables.load("emd").find(Cell.make("antmaze-giant", "gc1s", None, objective=o)).mean
        for o in ("td-hc", "td-flow")
    )
    assert round(1 - one / other, 2) == 0.28


def test_the_schema_says_what_the_loader_reads():
    folder = resources.files("jumpyworld.experiments") / "paper"
    schema = json.loads((folder / "schema.json").read_text())
    assert set(schema["properties"]) == {f.name for f in dataclasses.fields(tables.PaperTable)}
    cell = schema["$defs"]["cell"]["properties"]
    assert set(cell) == {f.name for f in dataclasses.fields(tables.PaperCell)}
    files = {path.name for path in folder.iterdir()}
    assert files == {f"{n}.json" for n in (*tables.NAMES, "claims", "schema")}
    for name in tables.NAMES:
        for each in json.loads((folder / f"{name}.json").read_text())["cells"]:
            assert set(each) <= set(cell)


def test_every_table_is_valid_by_the_schema():
    folder = resources.files("jumpyworld.experiments") / "paper"
    schema = json.loads((folder / "schema.json").read_text())
    check = jsonschema.Draft202012Validator(schema)
    check.check_schema(schema)
    for name in tables.NAMES:
        table = json.loads((folder / f"{name}.json").read_text())
        check.validate(table)
        # And the schema refuses what is wrong: it is no empty permission.
        table["cells"][0]["mean"] = "high"
        assert not check.is_valid(table)


def test_an_unknown_table_is_refused():
    with pytest.raises(ConfigError, match="'mian': must be one of main"):
        tables.load("mian")
