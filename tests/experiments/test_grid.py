"""Every cell of every table becomes commands that the real command line understands."""

from pathlib import Path

import pytest

from jumpyworld import cli
from jumpyworld.errors import ConfigError
from jumpyworld.experiments import grid, stages, tables
from jumpyworld.experiments.cells import OUR_DOMAINS, PAPER_DOMAINS, Cell

OUT = Path("sweep")
SCALES = tuple(stages.SCALES)


def planned(tables=(), filters=(), **request):
    return stages.plan(grid.select(tables, filters), stages.Request(OUT, **request))


@pytest.mark.parametrize("name", tables.NAMES)
def test_the_grid_has_every_cell_of_the_paper(name):
    paper = {each.cell for each in tables.load(name).cells}
    ours = {cell for domain, _, cells in grid.rows(name) for cell in cells}
    assert paper == {cell for cell in ours if cell.domain in PAPER_DOMAINS}
    assert {cell.domain for cell in ours - paper} == set(OUR_DOMAINS)


def test_the_same_measurement_is_one_cell_in_every_table():
    usual = Cell.make("cube-2", "gcbc", "compplan")
    assert usual == Cell("cube-2", "gcbc", "compplan", "td-hc", "unconditional", 1, "q")
    assert Cell.make("antmaze-large", "crl", "gpi").proposal == "conditional"
    assert Cell.make("cube-2", "gcbc", "zero-shot", replan_every=5, objective="td-flow") == (
        Cell("cube-2", "gcbc", "zero-shot")
    )
    for name in ("main", "replan", "objective", "proposal", "consistency", "planners"):
        assert usual in grid.select([name], ["domain=cube-2"])


def test_filters():
    found = grid.select(["main"], ["domain=pointmaze-*", "policy=gcbc,hfbc", "planner=compplan"])
    assert [(c.domain, c.policy) for c in found] == [
        (d, p) for d in OUR_DOMAINS for p in ("gcbc", "hfbc")
    ]
    assert {c.domain for c in grid.select(["main"])} == set(PAPER_DOMAINS)
    assert len(grid.select(["main", "per-task"])) == 70
    assert {c.replan_every for c in grid.select([], ["replan_every=5"])} == {5}
    for words, message in (
        (["domain=mars"], "domain=mars: no such cell; there is antmaze-giant"),
        (["colour=red"], "colour=red: must be FIELD=VALUE"),
        (["domain"], "domain: must be FIELD=VALUE"),
    ):
        with pytest.raises(ConfigError, match=message):
            grid.select(["main"], words)
    with pytest.raises(ConfigError, match="--table mian: must be one of main"):
        grid.select(["mian"])


def test_shared_stages_are_there_once_and_come_first():
    found = planned(["main", "planners", "consistency", "emd"], ["domain=cube-2"], seeds=(0, 1))
    names = [stage.name for stage in found]
    assert len(names) == len(set(names))
    seen = set()
    for stage in found:
        assert set(stage.needs) <= seen, stage
        seen.add(stage.name)
    count = lambda start: sum(name.startswith(start) for name in names)  # noqa: E731
    assert count("data/") == 1
    assert count("policies/") == 5  # one base policy for both seeds
    assert count("models/cube-2/world-model") == 2
    assert count("models/") - 2 == 5 * 2 * 2
    assert count("results/cube-2/gcbc/0/") == 6  # zero-shot, actionplan, gpi, 2 compplan, fidelity


def test_zero_shot_comes_before_all_that_is_paired_with_it():
    """Whatever the order of the tables: a planner that ran earlier would find no baseline."""
    found = planned(["replan", "main"], ["domain=pointmaze-large", "policy=gcbc,crl"])
    for policy in ("gcbc", "crl"):
        results = [s.name for s in found if f"results/pointmaze-large/{policy}/" in s.name]
        assert results[0].endswith("zero-shot") and len(results) == 3


def test_baselines_are_trained_anew_for_each_seed():
    names = [s.name for s in planned(["hierarchical"], ["domain=cube-1"], seeds=(0, 1))]
    policies = [name.removeprefix("policies/cube-1/") for name in names if "policies" in name]
    assert policies == ["hiql-0", "hiql-1", "sharsa-0", "sharsa-1", "hfbc-0"]


def command(name, **keywords):
    return next(" ".join(s.command) for s in planned(**keywords) if s.name == name)


def test_commands_carry_the_papers_settings():
    scale = {"scale": "paper"}
    line = command("results/antmaze-large/gcbc/0/compplan-td-hc-conditional-every1-maxq", **scale)
    assert line == (
        "eval --domain antmaze-large --policy sweep/policies/antmaze-large/gcbc-0 "
        "--ghm sweep/models/antmaze-large/gcbc-0/td-hc-0 --planner compplan --episodes 20 "
        "--replan-every 1 --discount 0.999 --candidates 256 --proposal goal --objective q "
        "--search uniform --solver euler --ode-steps 20 --samples 256 "
        "--horizons 50 50 100 100 200 --seed 0 --out sweep/results/antmaze-large/gcbc/0"
    )
    line = command("results/antmaze-giant/hfbc/0/compplan-td-hc-conditional-every1-maxq", **scale)
    assert "--proposal high-level " in line and "--candidates 32" in line
    assert "--policy sweep/policies/antmaze-giant/hfbc-0:low " in line
    assert f"--horizons {' '.join(['25'] * 24)} " in line
    line = command("results/cube-4/crl/0/compplan-td-flow-unconditional-every1-maxq", **scale)
    assert "models/cube-4/crl-0/td-flow-0" in line and "--horizons 20 20 20 20 80 " in line
    line = command("results/cube-4/crl/0/compplan-td-hc-unconditional-every5-maxq")
    assert "--search elimination" in line and "--samples" not in line and "--replan-every 5" in line
    line = command("models/cube-4/crl-0/td-flow-2", seeds=(2,), **scale)
    assert line == (
        "train ghm --policy sweep/policies/cube-4/crl-0 --objective td-flow "
        "--dataset sweep/data/cube-4 --preset paper --seed 2 "
        "--out sweep/models/cube-4/crl-0/td-flow-2"
    )
    line = command("results/cube-4/crl/0/actionplan-every1", scale="debug")
    assert "--world-model sweep/models/cube-4/world-model-0" in line and "--candidates 4" in line
    line = command("results/cube-4/crl/0/fidelity", **scale)
    assert line.count("--ghm") == 2 and "--pairs random --preset paper --gammas 0.99 0.995" in line


def test_settings_can_be_changed_by_kind():
    words = ["ghm.width=64", "ghm.steps=7", "policy.hidden=[8,8]", "eval.episodes=3",
             "eval.horizons=[10,20.5]", "data.episodes=2", "ghm.frame=moving"]  # fmt: skip
    changes = stages.read_changes(words)
    lines = {
        s.name: " ".join(s.command) for s in planned(["main"], ["domain=cube-1"], changes=changes)
    }
    assert "--episodes 2 " in lines["data/cube-1"]
    assert "--set hidden=[8,8] " in lines["policies/cube-1/crl-0"]
    assert "--steps 7 --set frame=moving width=64 " in lines["models/cube-1/crl-0/td-hc-0"]
    found = lines["results/cube-1/crl/0/compplan-td-hc-unconditional-every1-maxq"]
    assert "--episodes 3 " in found and "--horizons 10 20.5 " in found
    for word in ("ghm.width", "width=3", "ghm=3", "model.width=3"):
        with pytest.raises(ConfigError, match=f"--set {word}: must be KIND.FIELD=VALUE"):
            stages.read_changes([word])


def test_a_digest_follows_the_command_and_what_is_below_but_not_the_folder():
    cells = grid.select(["main"], ["domain=cube-1", "policy=crl"])

    def digests(out=OUT, **changes):
        request = stages.Request(out, changes=changes)
        return stages.fingerprints(stages.plan(cells, request), out)

    first = digests()
    assert first == digests(Path("/elsewhere/x"))
    changed = digests(policy={"steps": 3})
    differs = {name for name in first if first[name] != changed[name]}
    assert differs == set(first) - {"data/cube-1"}
    assert {n for n in first if first[n] != digests(eval={"episodes": 3})[n]} == {
        name for name in first if name.startswith("results/")
    }


def shape(command):
    """What decides whether a command can be parsed: its verb, flags and words, not paths."""
    return tuple(
        word for word in command if "/" not in word and not word.replace(".", "").isdigit()
    )  # fmt: skip


@pytest.mark.parametrize("scale", SCALES)
def test_the_real_command_line_understands_every_command(scale, monkeypatch):
    """Parsed, not run: of commands alike but for paths and numbers, the first."""
    from jumpyworld.cli import data, fidelity, train
    from jumpyworld.cli.eval import Eval

    parsed = []
    verbs = {"data": data.Data, "train": train.Train, "fidelity": fidelity.Fidelity, "eval": Eval}
    for verb in verbs.values():
        monkeypatch.setattr(verb, "run", lambda self: parsed.append(self))
    unlike = {}
    for stage in planned(filters=["domain=*"], scale=scale):
        domain = next(d for d in (*PAPER_DOMAINS, *OUR_DOMAINS) if d in stage.name)
        words = tuple(word for word in shape(stage.command) if word != domain)
        unlike.setdefault(words, stage.command)
    assert {words[0] for words in unlike} == set(verbs) and len(unlike) > 20
    for words in unlike.values():
        assert cli.run(words) == 0, words
    assert len(parsed) == len(unlike)
