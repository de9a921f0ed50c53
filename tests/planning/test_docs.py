"""The examples of docs/planning.md run as they stand."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from kinematic_maze import LARGE, KinematicMaze, centres

from jumpyworld.data import Dataset
from jumpyworld.planning import GoalProposal
from jumpyworld.policies import ScriptedGoalPolicy

PAGE = Path(__file__).parents[2] / "docs" / "planning.md"


@pytest.fixture(autouse=True)
def promotion_as_users_have_it():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_the_examples_run():
    policy = ScriptedGoalPolicy(LARGE.grid, reach=3)
    cells = [(3, 6), (3, 4), (5, 6), (3, 5)]
    state, left, below, forbidden = centres(LARGE.grid, cells)
    names = {
        "ghm": KinematicMaze(policy), "policy": policy, "state": state, "goal": below,
        "left": left, "below": below, "forbidden": forbidden,
    }  # fmt: skip
    goal, either, doubting = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(goal, names)
    assert not names["plan"].all_zero and names["plan"].value > 0
    exec(either, names)
    # What lies on the left is forbidden: it goes down.
    towards = (below - state) / np.abs(below - state).max()
    np.testing.assert_allclose(names["plan"].action, towards, atol=0.2)
    rows = np.random.default_rng(0).uniform(0, 4, (500, 2))
    names["dataset"] = Dataset.from_arrays(rows, np.zeros((500, 2)), np.arange(500) % 100 == 99)
    names["settings"] = {"horizons": (20,), "discount": 0.95, "proposal": GoalProposal(4)}
    exec(doubting, names)
    assert names["planner"].repertoire.precedents.precedented.shape == (1, 200, 200)
