"""More candidates and chains than fit into memory are taken in turns."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from beeline import GOAL, drifting, near

import jumpyworld
from jumpyworld.planning import GoalProposal, Task, UnconditionalProposal, Uniform, base


def test_more_candidates_than_fit_are_taken_in_turns(key):
    task, state = Task(near, GOAL), np.zeros(2)
    whole = drifting()(key, state, task)
    turns = drifting(max_rows=12)(key, state, task)
    np.testing.assert_allclose(whole.candidate_values, turns.candidate_values, atol=1e-6)
    assert whole.chosen == turns.chosen


def test_chains_beyond_any_memory_need_no_more_than_those_alive(key):
    """A trillion chains: all at once, one of their arrays alone would be 8 TB."""

    def temporary_bytes(candidates, samples):
        planner = drifting(proposal=GoalProposal(candidates), search=Uniform(samples))
        program = base._plan.lower(planner, key, jnp.zeros(2), Task(near, GOAL), None)
        return program.compile().compiled.memory_analysis().temp_size_in_bytes

    few = temporary_bytes(2**4, 2**16)
    assert temporary_bytes(2**24, 2**16) < few + 2**24 * 2**8


def test_candidates_of_a_network_need_no_more_than_those_alive(key):
    """Its inner layers are what takes memory: at once, 16 KB for each candidate."""
    home = Path(jumpyworld.__file__).parent / "demo"
    model, policy = jumpyworld.load(home / "ghm"), jumpyworld.load(home / "gcbc")

    def temporary_bytes(candidates):
        planner = drifting(
            model=model, policy=policy, horizons=(4,), proposal=GoalProposal(candidates),
            search=Uniform(1), max_rows=2**10,
        )  # fmt: skip
        program = base._plan.lower(planner, key, jnp.zeros(2), Task(near, GOAL), None)
        return program.compile().compiled.memory_analysis().temp_size_in_bytes

    assert temporary_bytes(2**16) < temporary_bytes(2**10) + 2**16 * 2**8


@pytest.mark.parametrize("proposal", [GoalProposal(50), UnconditionalProposal(50)])
def test_more_candidates_than_fit_are_all_drawn_each_on_its_own(proposal, key):
    whole, turns = (
        drifting(proposal=proposal, max_rows=rows)(key, np.zeros(2), Task(near, GOAL))
        for rows in (2**16, 8)
    )
    for plan in (whole, turns):
        assert plan.candidates.shape == (50, 2, 2) and plan.invalid == 0
        assert len(np.unique(plan.candidates[:, 0, 0])) == 50
    # Other draws of the same law.
    for a, b in zip(whole.candidates.mean(0), turns.candidates.mean(0), strict=True):
        np.testing.assert_allclose(a, b, atol=0.4)
