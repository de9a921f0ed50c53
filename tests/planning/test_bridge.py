"""Sequences that are the data's own jumps, given that they get to the goal."""

import collections
import dataclasses
import functools
import itertools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from believers import Believer, Still, is_there, itself

from jumpyworld import domains
from jumpyworld.errors import ConfigError, PlanError
from jumpyworld.evaluation.planners import make_planner, planner_settings
from jumpyworld.planning import (
    BridgeProposal,
    CompPlan,
    OneZProposal,
    Places,
    Task,
    Uniform,
    find_places,
)
from jumpyworld.planning.bridge import arrivals
from jumpyworld.planning.estimate import Question
from jumpyworld.planning.repertoire import Repertoire

GEOMETRIC = functools.partial(BridgeProposal, stride=0)
"""Bridges of jumps of geometric length."""


def places_of(walks, points):
    """Return places at points, one state each, and walks that are sequences of their numbers."""
    points = np.asarray(points, np.float32).reshape(len(points), -1)
    ends = np.cumsum([len(walk) for walk in walks]) - 1
    return Places(points, np.concatenate(walks), ends, points[:, None], itself)


def random_walks(chances, walks=400, steps=12, seed=0):
    """Return walks of a Markov chain, begun anywhere."""
    rng, number = np.random.default_rng(seed), len(chances)
    found = []
    for _ in range(walks):
        walk = [rng.integers(number)]
        while len(walk) < steps:
            walk.append(rng.choice(number, p=chances[walk[-1]]))
        found.append(np.asarray(walk))
    return found


def bridges(proposal, state, goal, key):
    """Return the candidates [M, K, d] from a state to a goal."""
    state = jnp.asarray(np.atleast_1d(state), jnp.float32)
    segments = len(proposal.jumps_to)
    asked = Question(
        Repertoire(Believer(), Still()),
        Task(is_there, None if goal is None else np.atleast_1d(goal)),
        state,
        jnp.zeros(segments),
        jnp.ones(segments),
    )
    return np.asarray(eqx.filter_jit(proposal.sample)(key, asked))


def enumerate_bridges(chances, start, goal, patience):
    """Return the posterior of all sequences of places, by brute force.

    Args:
        chances: of the jumps of each segment [K, C, C].
        start: place of the state.
        goal: place of the goal.
        patience: chance to go on after each jump.
    """
    number = chances.shape[-1]
    beyond = np.eye(number)[goal]
    for _ in range(5000):
        beyond = np.where(np.arange(number) == goal, 1.0, patience * chances[-1] @ beyond)
    weights = {}
    for sequence in itertools.product(range(number), repeat=len(chances)):
        here, weight = start, 1.0
        for there, chance in zip(sequence, chances, strict=True):
            weight *= float(there == goal) if here == goal else patience * chance[here, there]
            here = there
        weights[sequence] = weight * beyond[here]
    total = sum(weights.values())
    return {sequence: weight / total for sequence, weight in weights.items()}


# 0, 1 and 2 are on the way, 3 is the goal, and nothing leaves 4.
CHAIN = np.asarray(
    [
        [0.2, 0.5, 0.1, 0.0, 0.2],
        [0.3, 0.1, 0.5, 0.1, 0.0],
        [0.1, 0.3, 0.2, 0.2, 0.2],
        [0.5, 0.0, 0.0, 0.5, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ]
)


@pytest.mark.parametrize("patience", [1.0, 0.4])
def test_bridges_are_the_posterior_of_the_datas_jumps_given_arrival(patience, key):
    """With endless patience, given that 4 is avoided; with little, sooner arrivals are likelier."""
    places, betas = places_of(random_walks(CHAIN), range(5)), np.asarray([0.0, 0.5, 0.3])
    number = 40_000
    z = bridges(GEOMETRIC(places, 1 / (1 - betas), number, patience=patience), 0, 3.2, key)[..., 0]
    assert ((z == np.float32(3.2)) | (z == np.round(z))).all() and not (z == 3).any()
    drawn = collections.Counter(tuple(row) for row in np.round(z).astype(int).tolist())
    counts = places.count(betas)
    expected = enumerate_bridges(counts / counts.sum(-1, keepdims=True), 0, 3, patience)
    assert set(drawn) <= {sequence for sequence, chance in expected.items() if chance > 0}
    for sequence, chance in expected.items():
        error = 4 * np.sqrt(chance * (1 - chance) / number) + 1 / number
        assert abs(drawn[sequence] / number - chance) < error, sequence


def test_arrivals_are_those_of_a_long_recursion():
    found = arrivals(CHAIN, 0.7)
    for goal in range(5):
        wanted = np.eye(5)[goal]
        for _ in range(300):
            wanted = np.where(np.arange(5) == goal, 1.0, 0.7 * CHAIN @ wanted)
        np.testing.assert_allclose(found[:, goal], wanted, rtol=1e-12)


def test_strides_are_shares_of_the_horizons_and_of_one_length(key):
    """Walks that go up by one each step, so that a place says how many steps there were."""
    places = places_of([np.arange(40)], range(40))
    horizons = (8, 4, 2)
    z = bridges(BridgeProposal(places, horizons, 5, stride=0.5), 0, 30, key)[..., 0]
    np.testing.assert_array_equal(z, np.tile([4.0, 6.0, 7.0], (5, 1)))
    z = bridges(BridgeProposal(places, horizons, 5, stride=0.1), 0, 30, key)[..., 0]
    np.testing.assert_array_equal(z, np.tile([1.0, 2.0, 3.0], (5, 1)))
    z = bridges(GEOMETRIC(places, horizons, 500), 0, 39, key)[:, 0, 0]
    assert len(np.unique(z)) > 1


def walk_in_two_rooms():
    """Return places of two rooms that a single door joins, and walks of single steps in them."""
    left = [(x, y) for x in (-2, -1) for y in (-1, 0, 1)]
    points = np.asarray([*left, (0, 0), *[(-x, y) for x, y in left]])
    near = (np.abs(points[:, None] - points[None]).sum(-1) == 1).astype(float)
    chances = near / near.sum(-1, keepdims=True)
    return places_of(random_walks(chances, steps=30), points), points


def test_every_bridge_passes_the_door_and_ends_with_the_goal(key):
    places, _ = walk_in_two_rooms()
    goal = np.asarray([2.1, -0.9], np.float32)
    z = bridges(BridgeProposal(places, np.ones(8), 500, patience=1e-3), [-2, 1], goal, key)
    assert (z == 0).all(-1).any(1).all()
    assert (z[:, 5:] == goal).all() and not (z[:, :5] == goal).all(-1).any()
    # All shortest ways, and not always the same one.
    assert len(np.unique(z[:, :5].reshape(500, -1), axis=0)) > 3
    # From the goal's own place there is nowhere to go.
    z = bridges(BridgeProposal(places, np.ones(8), 4), [2, -1], goal, key)
    assert (z == goal).all()


def test_towards_a_goal_that_nothing_leads_to_go_states_of_the_data(key):
    here, there = np.asarray([0, 1, 2, 1, 0] * 50), np.asarray([3, 4, 5, 4, 3] * 50)
    places = places_of([here, there], range(6))
    z = bridges(GEOMETRIC(places, np.full(3, 2.0), 200), 0, 5, key)
    assert set(np.unique(z)) == {0, 1, 2}
    # A place that the data only end in: a jump from there stays.
    ended = places_of([np.asarray([0, 1, 2])], range(3))
    z = bridges(BridgeProposal(ended, np.ones(3), 10), 2, 0, key)
    assert (z == 2).all()


def test_a_goal_far_beyond_the_plan_still_shows_the_way(key):
    """40 jumps away on a ring, by 1e-90: float32 ends at 1e-38, and the plan after 4 jumps."""
    angles = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    points = 10 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ways = [np.arange(300) % 100, np.arange(300)[::-1] % 100]
    proposal = BridgeProposal(places_of(ways, points), np.ones(4), 300, patience=0.01)
    assert float(proposal.arrival[0, 40]) < np.log(1e-80)
    for goal, way in ((40, [1, 2, 3, 4]), (60, [99, 98, 97, 96])):
        z = bridges(proposal, points[0], points[goal], key)
        right = np.abs(z - points[way]).max(-1) < 1e-5
        assert right.all(1).mean() > 0.99


def test_a_batch_of_other_states_and_goals_compiles_nothing(key):
    places, points = walk_in_two_rooms()
    traces = []

    def features(states):
        traces.append(states)
        return states

    places = dataclasses.replace(places, features=features)
    planner = CompPlan(
        Believer(),
        Still(),
        horizons=(1,) * 8,
        discount=0.9,
        proposal=BridgeProposal(places, np.ones(8), 16, patience=0.1),
        search=Uniform(1),
    )
    rng, keys = np.random.default_rng(0), jax.random.split(key, 5)
    planner.batch(keys, points[:5], Task(is_there, points[5:10]))
    seen = len(traces)
    assert seen > 0
    for _ in range(3):
        states, goals = rng.permutation(points)[:5], rng.permutation(points)[:5]
        plans = planner.batch(keys, states, Task(is_there, goals))
    assert len(traces) == seen
    for i in range(5):
        alone = planner(keys[i], states[i], Task(is_there, goals[i]))
        np.testing.assert_allclose(plans.candidate_values[i], alone.candidate_values, atol=1e-6)


def test_examples_are_states_of_their_place():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(500, 2)), np.arange(500)[:, None]], axis=1)
    # A second dimension that places are not made of; and more places than different positions.
    for x, number in ((rows, 20), (np.round(rows), 60)):
        places = find_places(x, np.asarray([499]), lambda states: states[..., :2], number=number)
        row = places.examples[..., 2].astype(int)
        np.testing.assert_array_equal(places.examples, x[row])
        full = np.isin(np.arange(number), places.labels)
        wanted = np.broadcast_to(np.arange(number)[:, None], row.shape)
        np.testing.assert_array_equal(places.labels[row][full], wanted[full])
        assert full.all() == (number == 20)


def test_planners_by_name_bridge_at_their_own_discounts(key):
    places, _ = walk_in_two_rooms()
    medium = domains.get("pointmaze-medium")
    asked = {"horizons": (5, 4, 4), "discount": 0.9, "candidates": 4, "samples": 2}
    settings = planner_settings(
        medium, "gcbc", proposal="bridge", patience=0.5, stride=0.5, **asked
    )
    chain = dataclasses.replace(settings, gpi_chain=True)
    for name, told in (("compplan", settings), ("gpi", settings), ("gpi", chain), ("ggpi", chain)):
        planner = make_planner(name, told, Still(), ghm=Believer(), places=places)
        made = planner.proposal.inner if name == "gpi" else planner.proposal
        assert isinstance(made, BridgeProposal) and float(made.patience) == 0.5
        # Planners differ in how they judge, and not in what they are proposed.
        wanted = BridgeProposal(places, told.horizons, 4, patience=0.5, stride=0.5)
        np.testing.assert_array_equal(made.jumps_to, wanted.jumps_to)
        plan = planner(key, np.zeros(2), Task(is_there, np.ones(2)))
        assert np.isfinite(plan.z).all() and plan.candidates.shape[0] == 4
        assert planner.repertoire.precedents is not None
    assert isinstance(
        make_planner("gpi", chain, Still(), ghm=Believer(), places=places).proposal, OneZProposal
    )
    asks = {"task": Task(is_there, np.ones(2)), "state": jnp.zeros(2)}
    drawn = {
        name: planner.proposal.sample(key, planner._question(**asks))
        for name in ("compplan", "gpi", "ggpi")
        for planner in [make_planner(name, settings, Still(), ghm=Believer(), places=places)]
    }
    np.testing.assert_array_equal(drawn["gpi"], drawn["compplan"][:, :1])
    np.testing.assert_array_equal(drawn["ggpi"], drawn["compplan"])
    for name in ("gpi", "ggpi"):
        assert settings.used_by(name)["proposal_horizons"] == (5, 4, 4)
    assert "proposal_horizons" not in settings.used_by("compplan")
    believing = dataclasses.replace(settings, refuse=False)
    planner = make_planner("compplan", believing, Still(), ghm=Believer(), places=places)
    assert planner.repertoire.precedents is None
    # What is told is recorded, and results from before there were bridges keep their names.
    assert believing.used_by("compplan")["refuse"] is False
    used = settings.used_by("compplan")
    assert (used["proposal"], used["patience"], used["stride"]) == ("bridge", 0.5, 0.5)
    others = planner_settings(medium, "gcbc", **asked).used_by("compplan")
    assert not {"patience", "stride", "refuse"} & set(others)


def test_what_cannot_be_bridged_is_refused(key):
    places, _ = walk_in_two_rooms()
    with pytest.raises(ConfigError, match="number=0"):
        BridgeProposal(places, np.ones(2), 0)
    for patience in (0.0, 1.5):
        with pytest.raises(ConfigError, match=f"patience={patience:g}: must be above 0"):
            BridgeProposal(places, np.ones(2), 4, patience=patience)
    with pytest.raises(ConfigError, match="stride=-1: must be"):
        BridgeProposal(places, np.ones(2), 4, stride=-1)
    for stride in (300, 1e30, 1e308):
        with pytest.raises(ConfigError, match=re.escape(f"stride={stride:g}: jumps of")):
            BridgeProposal(places, np.ones(2), 4, stride=stride)
    with pytest.raises(ConfigError, match="append_goal=True: a bridge ends"):
        planner_settings(
            domains.get("pointmaze-medium"), "gcbc", proposal="bridge", append_goal=True
        )
    with pytest.raises(PlanError, match="BridgeProposal: goal=None"):
        bridges(BridgeProposal(places, np.ones(2), 4), [0, 0], None, key)
    proposal = BridgeProposal(places, np.ones(2), 4)
    planner = CompPlan(Believer(), Still(), horizons=(1, 1, 1), discount=0.9, proposal=proposal)
    with pytest.raises(ConfigError, match="made for 2 horizons, asked for 3"):
        planner(key, np.zeros(2), Task(is_there, np.ones(2)))
    settings = planner_settings(domains.get("pointmaze-medium"), "gcbc", proposal="bridge")
    with pytest.raises(ConfigError, match="places is missing: bridges") as caught:
        make_planner("compplan", settings, Still(), ghm=Believer())
    assert "\n" not in str(caught.value)
