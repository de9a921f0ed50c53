import sys
from pathlib import Path

import pytest

from jumpyworld.evaluation.lockstep import Lockstep
from jumpyworld.evaluation.success import evaluate
from jumpyworld.policies import ScriptedGoalPolicy

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def policy():
    from drifting import MEDIUM

    return ScriptedGoalPolicy(MEDIUM.grid, noise=0.2)


@pytest.fixture(scope="module")
def run():
    """Return a function that evaluates in four environments, which all tests of a file share."""
    from drifting import MEDIUM

    with Lockstep(MEDIUM, 4, workers=1) as envs:

        def run(actor, **settings):
            settings = {"episodes": 1, "tasks": (1, 3), "max_steps": 6, "envs": envs, **settings}
            return evaluate(MEDIUM, actor, **settings)

        yield run
