"""What stands beside the proposed candidates: the last plan's sequences, from plan to plan."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bandit import TASK, bandit

from jumpyworld.planning import ListProposal, Memory, Uniform, decide

PROPOSED = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]
REMEMBERED = [[0.7, 0.8, 0.9], [0.65, 0.75, 0.85]]


@pytest.mark.parametrize("valid", [True, False])
def test_sequences_stand_as_they_were_and_one_segment_further_on(valid, key):
    planner = bandit(PROPOSED, Uniform(4), horizons=(2, 4, 10), warm_start=2)
    memory = Memory(jnp.asarray(REMEMBERED)[..., None], jnp.asarray(valid))
    plan = planner(key, np.zeros(1), TASK, memory)
    kept = REMEMBERED if valid else PROPOSED
    onward = [[second, third, third] for _, second, third in kept]
    np.testing.assert_allclose(plan.candidates[..., 0], [*kept, *onward, *PROPOSED])


def test_from_step_to_step_the_last_plans_are_remembered(key):
    """Each environment's own; the proposals have become poor in between."""
    planner = bandit([0.2, 0.9], Uniform(256), warm_start=1)
    poor = eqx.tree_at(lambda p: p.proposal.z, planner, planner.proposal.z / 9)
    keys, states = jax.random.split(key, 2), np.zeros((2, 1))
    _, plans = decide(planner, keys, states, TASK, step=0)
    begun = eqx.tree_at(lambda p: p.memory.valid, plans, jnp.asarray([True, False]))
    _, later = decide(poor, keys, states, TASK, step=1, plans=begun)
    np.testing.assert_allclose(plans.z[:, 0, 0], [0.9, 0.9], rtol=1e-6)
    np.testing.assert_allclose(later.z[:, 0, 0], [0.9, 0.1], rtol=1e-6)


drawn = []


class Counted(ListProposal):
    """Keeps count of how often it is traced."""

    def sample(self, key, question):
        drawn.append(question)
        return super().sample(key, question)


def test_plans_without_a_memory_do_not_trace_the_proposal_again(key):
    """It may chain the model, which takes far longer to trace than to run."""
    planner = bandit(PROPOSED, Uniform(4), horizons=(2, 4, 10), warm_start=1)
    planner = eqx.tree_at(lambda p: p.proposal, planner, Counted(planner.proposal.z))
    planner(key, np.zeros(1), TASK)
    before = len(drawn)
    planner(key, np.ones(1), TASK)
    assert len(drawn) == before > 0
