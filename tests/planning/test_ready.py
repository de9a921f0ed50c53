"""Planners that are ready to use."""

import equinox as eqx
import numpy as np
import pytest
from believers import Believer, Still

from jumpyworld import domains
from jumpyworld.data import Dataset
from jumpyworld.errors import ConfigError
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


def test_its_settings_can_be_changed():
    planner = made(horizons=(20, 40), candidates=8, when_all_zero="base", warm_start=1, places=None)
    assert planner.proposal.count == 8 and len(planner.betas) == 2
    assert planner.search == Elimination(((8, 8), (2, 24)))
    assert planner.when_all_zero == "base" and planner.warm_start == 1
    assert planner.repertoire.precedents is None
    assert made(search=Uniform(5)).search == Uniform(5)
    with pytest.raises(ConfigError, match="number=0"):
        made(candidates=0)
