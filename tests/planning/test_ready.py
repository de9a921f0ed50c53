"""Planners that are ready to use."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import numpy as np
import pytest
from believers import Believer, Still

from jumpyworld import domains
from jumpyworld.cli import demo, parse
from jumpyworld.data import Dataset
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.evaluation.planners import make_planner
from jumpyworld.planning import (
    BridgeProposal,
    CompPlan,
    Elimination,
    GoalFeatures,
    Uniform,
    bridge_planner,
    find_places,
)

MAZE = domains.get("pointmaze-large")
WALKS = np.random.default_rng(0).uniform(0, 30, (600, 2)).astype(np.float32)
LOGGED = Dataset.from_arrays(WALKS, np.zeros((600, 2)), np.arange(600) % 200 == 199)


class Solved(Believer):
    """A model with an ODE, whose solver can be chosen."""

    solver: str = eqx.field(static=True, default="euler")
    eval_steps: int = eqx.field(static=True, default=20)


def made(**settings):
    return bridge_planner(Believer(), Still(), MAZE, LOGGED, **settings)


def test_it_is_the_planner_that_one_would_make_by_hand():
    places = find_places(LOGGED.observations, LOGGED.ends, GoalFeatures(MAZE))
    by_hand = CompPlan(
        Believer(), Still(), horizons=[50] * 8, discount=0.995, places=places,
        proposal=BridgeProposal(places, [50] * 8, 16), when_all_zero="candidate",
        search=Elimination(((16, 8), (4, 24))),
    )  # fmt: skip
    assert eqx.tree_equal(made(), by_hand)


def test_it_plans_as_the_demo_does(tmp_path):
    command = parse(demo.Demo(out=tmp_path).stages()[-1][1])
    places = find_places(LOGGED.observations, LOGGED.ends, GoalFeatures(MAZE))
    settings = command._settings(MAZE, SimpleNamespace(name="gcbc"))
    theirs = make_planner("compplan", settings, Still(), ghm=Solved(), places=places)
    assert theirs.repertoire.solver == "midpoint"  # or there were nothing to compare
    ours = bridge_planner(Solved(), Still(), MAZE, LOGGED)
    assert eqx.tree_equal(ours, theirs)


def test_a_model_that_is_no_ode_is_not_asked_to_solve_one():
    assert made().repertoire.solver is None and made().repertoire.num_steps is None
    own = bridge_planner(Solved(), Still(), MAZE, LOGGED, solver=None, num_steps=None)
    assert own.repertoire.solver is None and own.repertoire.num_steps is None


def test_its_bridges_can_be_changed():
    assert made(patience=0.5).proposal.patience == 0.5
    longer, usual = made(stride=1.0).proposal.jumps_to, made().proposal.jumps_to
    assert not np.array_equal(longer, usual)
    with pytest.raises(ConfigError, match="patience=2: must be above 0"):
        made(patience=2)


@pytest.mark.parametrize("setting", ["proposal", "horizon"])
def test_a_setting_that_it_has_not_is_told_in_one_line(setting):
    with pytest.raises(ConfigError, match=f"^{setting}=3: bridge_planner has no such setting$"):
        made(**{setting: 3})


def test_it_is_for_mazes_and_data_of_them():
    with pytest.raises(ConfigError, match=r"^cube-1: is no maze, .*$"):
        bridge_planner(Believer(), Still(), domains.get("cube-1"), LOGGED)
    ant = domains.get("antmaze-medium")
    medium = dataclasses.replace(LOGGED, domain="pointmaze-medium-navigate-v0")
    with pytest.raises(DataError, match=r"of pointmaze-medium-navigate-v0, not pointmaze-large-"):
        bridge_planner(Believer(), Still(), MAZE, medium)
    with pytest.raises(DataError, match=r"states of 2 dimensions, not the 29 of antmaze-medium$"):
        bridge_planner(Believer(), Still(), ant, LOGGED)


def test_its_settings_can_be_changed():
    planner = made(horizons=(20, 40), candidates=8, when_all_zero="base", warm_start=1, places=None)
    assert planner.proposal.count == 8 and len(planner.betas) == 2
    assert planner.search == Elimination(((8, 8), (2, 24)))
    assert planner.when_all_zero == "base" and planner.warm_start == 1
    assert planner.repertoire.precedents is None
    assert made(search=Uniform(5)).search == Uniform(5)
    with pytest.raises(ConfigError, match="number=0"):
        made(candidates=0)
