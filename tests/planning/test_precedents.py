"""Jumps that the data have made, and a planner that believes no others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from believers import Believer, Still, is_there, itself

from jumpyworld import domains
from jumpyworld.errors import ConfigError
from jumpyworld.planning import CompPlan, ListProposal, Task, Uniform, find_places
from jumpyworld.planning.precedents import GoalFeatures, count_jumps, usual_places

STEPS = 12
"""Steps along each of the three arms of a U."""


def u_shaped_walks(walks=20):
    """Return walks from one tip of a U, over both corners, to the other, and back."""
    down = [(0.0, 3 - 3 * i / STEPS) for i in range(STEPS)]
    along = [(3 * i / STEPS, 0.0) for i in range(STEPS)]
    up = [(3.0, 3 * i / STEPS) for i in range(STEPS + 1)]
    way = np.asarray(down + along + up, np.float32)
    rows = np.concatenate([way, way[::-1]] * (walks // 2))
    return rows, np.arange(1, walks + 1) * len(way) - 1


def test_jumps_are_counted_with_geometric_lengths_and_never_across_trajectories():
    labels = np.tile([0, 1, 2], 20_000)
    ends = np.arange(2, len(labels), 3)
    counts = count_jumps(labels, ends, 0.5, 3, np.random.default_rng(0))
    # From 0 a length of 1 (chance 1/2) leads to 1 and of 2 (1/4) to 2; longer ones leave.
    assert (np.tril(counts) == 0).all()
    np.testing.assert_allclose(counts[0, 1] / counts[0, 2], 2.0, rtol=0.02)
    np.testing.assert_allclose(counts[0, 1], counts[1, 2], rtol=0.02)
    one_step = count_jumps(labels, ends, 0.0, 3, np.random.default_rng(0))
    assert one_step[0].tolist() == [0, 20 * 20_000, 0]


def test_usual_places_are_the_fewest_that_hold_the_share():
    counts = np.asarray([[5, 80, 15], [0, 0, 0], [50, 50, 0]])
    assert usual_places(counts, 0.8).tolist() == [
        [True, True, False],
        [False, True, False],
        [True, True, True],
    ]
    assert usual_places(counts, 0.81)[0].tolist() == [True, True, True]
    assert usual_places(counts, 1.0)[2].tolist() == [True, True, True]
    assert not usual_places(counts, 0.5)[2, 1]


def test_a_jump_without_a_precedent_is_refused_and_every_other_kept():
    rows, ends = u_shaped_walks()
    precedents = find_places(rows, ends, itself, number=12).precedents(np.asarray([0.8]))
    here = jnp.asarray([[0.0, 3.0]] * 4)
    to = jnp.asarray([[0.0, 2.0], [3.0, 3.0], [0.4, 3.2], [jnp.nan, 3.0]])
    kept = np.asarray(precedents.keep(here, to, jnp.asarray(0.8)))
    np.testing.assert_array_equal(kept[[0, 2, 3]], to[jnp.asarray([0, 2, 3])])
    np.testing.assert_array_equal(kept[1], here[1])


def test_a_planner_with_places_goes_round_what_its_model_believes_it_can_cross(key):
    rows, ends = u_shaped_walks()
    places = find_places(rows, ends, itself, number=12)
    goal = jnp.asarray([3.0, 3.0])
    straight = [[3.0, 3.0]] * 3
    round_about = [[0.0, 0.0], [3.0, 0.0], [3.0, 3.0]]
    task = Task(is_there, goal)
    chosen = {}
    for name, known in (("believing", None), ("doubting", places)):
        planner = CompPlan(
            Believer(),
            Still(),
            horizons=(STEPS,) * 3,
            discount=0.99,
            proposal=ListProposal([straight, round_about]),
            search=Uniform(1),
            places=known,
        )
        plan = planner(key, jnp.asarray([0.0, 3.0]), task)
        chosen[name] = int(plan.chosen)
        if known is not None:
            assert float(plan.candidate_values[0]) == 0
            np.testing.assert_allclose(plan.candidate_values[1], planner.weights[2], rtol=1e-6)
    assert chosen == {"believing": 0, "doubting": 1}


def test_places_of_a_domain_are_made_of_what_decides_its_tasks():
    cube = domains.get("cube-2")
    states = np.random.default_rng(0).normal(size=(5, cube.observation_dim))
    features = GoalFeatures(cube)(states)
    np.testing.assert_array_equal(features.reshape(5, 2, 3), cube.goal_features(states))
    assert GoalFeatures(cube) == GoalFeatures(domains.get("cube-2"))
    traced = jax.jit(GoalFeatures(domains.get("pointmaze-large")))(jnp.ones((3, 2)))
    assert traced.shape == (3, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.0}, "share=0: must be above 0"),
        ({"share": 1.5}, "share=1.5: must be"),
        ({"number": 0}, "0 places: must be at least 1"),
        ({"number": 10**6}, "1000000 places: must be at least 1 and at most 740"),
    ],
)
def test_numbers_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        find_places(*u_shaped_walks(), itself, **settings)
