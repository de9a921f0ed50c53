"""What ``jumpy eval`` refuses before anything is loaded, and that nobody else asks for it."""

from dataclasses import fields
from pathlib import Path

import pytest

from jumpyworld import cli, domains
from jumpyworld.cli.eval import Eval
from jumpyworld.cli.eval_checks import check_flags
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.planners import PLANNING, planner_settings, takes
from jumpyworld.experiments import grid, stages

DATA, RUN = Path("data"), Path("run")
OTHERS = {
    "replan_every": 5, "reward": "indicator", "candidates": 8, "samples": 9, "horizons": (5.0, 9.0),
    "discount": 0.9, "solver": "midpoint", "ode_steps": 3, "precision": "bf16", "warm_start": 2,
    "policy_steps": 2, "include_base": True, "append_goal": True, "tail": "absorb",
    "objective": "v", "alpha": 0.1,
    "when_all_zero": "candidate", "gpi_chain": True, "action_horizon": 7, "max_rows": 64,
    "allow_extrapolation": True, "proposal": "mixture", "search": "elimination", "ghm_seed": 1,
}  # fmt: skip
"""Of each flag that needs nothing but its planner, a value that is not its default."""


def check(*planner, domain="pointmaze-medium", **asked):
    """Check a command that has all models which its planners need."""
    if set(planner) & {"compplan", "gpi", "ggpi"}:
        asked.setdefault("ghm", RUN)
    if "actionplan" in planner:
        asked.setdefault("world_model", RUN)
    policy = asked.pop("policy", "runs/gcbc")
    flags = Eval(domain=domain, policy=policy, planner=planner or ("compplan",), **asked)
    check_flags(flags, domains.get(domain))


@pytest.mark.parametrize("planner", ["zero-shot", *PLANNING])
@pytest.mark.parametrize("name", OTHERS)
def test_a_flag_that_the_planner_does_not_take_is_refused(planner, name):
    """And only then; a second planner that takes it is reason enough."""
    asked = {name: OTHERS[name]}
    if takes(planner, name):
        check(planner, **asked)
        return
    flag = name.replace("_", "-")
    with pytest.raises(ConfigError, match=f"^--{flag}.*: has no effect on {planner}; it is for"):
        check(planner, **asked)
    other = next(who for who in PLANNING if takes(who, name))
    check(planner, other, **asked)


def test_what_is_refused_is_what_a_result_does_not_depend_on():
    """Settings that ``used_by`` records are those that may be given, and no others."""
    domain = domains.get("pointmaze-medium")
    for name in ("zero-shot", *PLANNING):
        told = planner_settings(domain, "gcbc", append_goal=True, policy_steps=2)
        recorded = set(told.used_by(name))
        free = set(OTHERS) - {"max_rows", "allow_extrapolation", "ghm_seed", "replan_every"}
        # What one jump always was, and GGPI by definition, is recorded and nobody's to choose.
        free -= {"tail"} if name in ("gpi", "ggpi") else set()
        assert {flag for flag in free if takes(name, flag)} - {"reward"} == recorded & free


BRIDGE = {"proposal": "bridge", "precedents": DATA}
TRACE = {"proposal": "trace", "precedents": DATA, "domain": "cube-2"}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"stride": 0.4}, "--stride 0.4: has no effect without --proposal bridge or trace"),
        ({"patience": 0.2}, "--patience 0.2: has no effect without --proposal bridge"),
        ({"patience": 0.2, **TRACE}, "--patience 0.2: has no effect without --proposal bridge"),
        ({"append_goal": True, **BRIDGE}, "--append-goal: has no effect with --proposal bridge"),
        ({"refuse": False}, "--no-refuse: has no effect without --precedents"),
        ({"refuse": False, **TRACE}, "--no-refuse: has no effect with --proposal trace"),
        ({"refuse": False, "precedents": DATA}, "--precedents data: has no effect with --no-"),
        ({"precedent_share": 0.5}, "--precedent-share 0.5: has no effect without --precedents"),
        ({"precedent_share": 0.5, **TRACE}, "--precedent-share 0.5: has no effect with --proposal"),
        ({"precedent_share": 0.5, "refuse": False, **BRIDGE},
         "--precedent-share 0.5: has no effect with --no-refuse"),
        ({"rounds": ("8x2", "2x4")}, "--rounds 8x2 2x4: has no effect without --search elimin"),
        ({"samples": 3, "search": "elimination"}, "--samples 3: has no effect with --search elim"),
        ({"margin": 0.1}, "--margin 0.1: has no effect without --include-base or --warm-start"),
        ({"policy": "scripted:3", "policy_seed": 1}, "--policy-seed 1: has no effect with --pol"),
        (TRACE | {"domain": "antmaze-medium"},
         "--proposal trace: traces are ways of cubes, and antmaze-medium has none.*mazes.*bridge"),
        (BRIDGE | {"domain": "cube-2"},
         "--proposal bridge: bridges are ways through a maze, and cube-2 is none.*cube.*trace"),
        (TRACE | {"precedents": None}, "--proposal trace: needs --precedents DATA"),
        ({"rounds": ("8by2",), "search": "elimination"}, "--rounds 8by2: must be CANDIDATESxCH"),
        ({"rounds": ("4x0",), "search": "elimination"}, "--rounds 4x0: must have at least one can"),
    ],
)  # fmt: skip
def test_a_flag_that_another_leaves_without_effect_is_refused(asked, text):
    with pytest.raises(ConfigError, match=f"^{text}"):
        check("compplan", **asked)


@pytest.mark.parametrize(
    "asked",
    [
        {**BRIDGE, "stride": 0.4, "patience": 0.2, "precedent_share": 0.5},
        {**BRIDGE, "refuse": False},
        {**TRACE, "stride": 0.4},
        {"precedents": DATA, "precedent_share": 0.5},
        {"search": "elimination", "rounds": ("8x2",)},
        {"include_base": True, "margin": 0.1},
        {"warm_start": 1, "margin": 0.1},
        {"policy_seed": 1},
    ],
)
def test_what_has_an_effect_is_taken(asked):
    check("compplan", **asked)


def test_horizons_of_gpi_alone_are_its_chains():
    with pytest.raises(ConfigError, match=r"--horizons 5 9: .*compplan or ggpi, or --gpi-chain"):
        check("gpi", horizons=(5.0, 9.0))
    check("gpi", horizons=(5.0, 9.0), gpi_chain=True)


def test_a_flag_at_its_default_is_never_refused():
    default = {field.name: field.default for field in fields(Eval) if field.name in OTHERS}
    for planner in ("zero-shot", *PLANNING):
        check(planner, **default)


@pytest.mark.parametrize("scale", stages.SCALES)
def test_no_table_of_the_sweep_asks_for_what_is_refused(scale):
    """Of commands alike but for paths and numbers, the first; with changes that some cells take."""
    changes = stages.read_changes(["eval.horizons=[10,20]", "eval.workers=2", "eval.reward=count"])
    cells, unlike = grid.select(filters=["domain=*"]), {}
    for own in ({}, changes):
        request = stages.Request(Path("sweep"), scale, changes=own)
        for stage in stages.plan(cells, request):
            if stage.command[0] == "eval":
                words = (w for w in stage.command[3:] if "/" not in w and not w[0].isdigit())
                unlike.setdefault(tuple(words), stage.command)
    assert len(unlike) > 10
    for command in unlike.values():
        flags = cli.parse(command)
        check_flags(flags, domains.get(flags.domain))


def test_a_change_that_no_cell_of_the_sweep_takes_is_refused():
    cells = grid.select(["main"], ["domain=cube-1", "policy=gcbc"])
    request = stages.Request(Path("sweep"), changes={"eval": {"alpha": 0.1}})
    with pytest.raises(ConfigError, match=r"--set eval.alpha=0.1: no cell has it; it is for ggpi"):
        stages.plan(cells, request)
