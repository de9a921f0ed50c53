"""Ways of single cubes in the data, laid over the segments of a plan."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from believers import Believer, Still

from jumpyworld import data, domains
from jumpyworld.domains.generate.runner import Request, generate
from jumpyworld.errors import ConfigError, PlanError
from jumpyworld.evaluation.planners import make_planner, planner_settings
from jumpyworld.planning import Task, TraceProposal, find_traces, goal_task
from jumpyworld.planning.estimate import Question
from jumpyworld.planning.repertoire import Repertoire
from jumpyworld.planning.trace import arrivals_at_rest

CUBE = domains.get("cube-2")
ARM, SLOT = 19, 9


def scene(first, second, arm=0.0):
    """Return a state with two cubes at positions, all other numbers of it alike."""
    state = np.full(37, 7.0, np.float32)
    state[:ARM], state[17:19] = arm, 0
    state[19:22], state[28:31] = first, second
    return state


def carry(path, lies=20, rests=25):
    """Return positions of a cube that lies, follows a path a row each, and rests."""
    path = np.asarray(path, np.float32)
    return np.concatenate([np.repeat(path[:1], lies, 0), path, np.repeat(path[-1:], rests, 0)])


def one_move(start, end, steps=40, other=(5, 5, 0)):
    """Return a trajectory in which the second cube moves; the arm counts the rows."""
    way = carry(np.linspace(start, end, steps + 1))
    return np.stack([scene(other, p, arm=0.001 * i) for i, p in enumerate(way)])


def ask(proposal, state, goal, key):
    """Return the candidates [M, K, d] from a state to a goal."""
    segments = len(proposal.steps)
    question = Question(
        Repertoire(Believer(), Still()),
        goal_task(CUBE, jnp.asarray(goal)),
        jnp.asarray(state),
        jnp.full(segments, 0.9),
        jnp.ones(segments),
    )
    return np.asarray(eqx.filter_jit(proposal.sample)(key, question))


def test_rows_know_where_their_cube_next_comes_to_rest():
    still, on = np.zeros(80), np.arange(1, 11) * 0.1
    # 80 rows at rest, 10 steps, 30 at rest; a pause of 10 steps is not a rest; then it rests again.
    x = np.concatenate([still, on, np.full(30, on[-1]), [1.2], np.full(9, 1.2), [1.5]])
    x = np.concatenate([x, np.full(20, 1.5)])
    positions = np.stack([x, np.zeros_like(x), np.zeros_like(x)], 1)
    two = np.concatenate([positions, positions])
    ends = np.repeat([len(x) - 1, 2 * len(x) - 1], len(x))
    found = arrivals_at_rest(two, ends)
    np.testing.assert_array_equal(
        found[len(x) :], np.where(found < 0, -1, found + len(x))[: len(x)]
    )
    wanted = np.full(len(x), -1)
    wanted[19:89] = 89  # from 60 rows before it moves, at 79, until it lies where it was put
    wanted[89:130] = 130  # its next rest is after the pause
    np.testing.assert_array_equal(found[: len(x)], wanted)


def test_a_cube_that_is_only_touched_has_not_arrived_anywhere():
    # It is touched at row 30 and lies 8 mm off, then carried at row 60, to its rest at row 72.
    x = np.concatenate([np.zeros(31), np.full(30, 0.08), np.arange(1, 12) * 0.3, np.full(40, 3.6)])
    positions = np.stack([x, np.zeros_like(x), np.zeros_like(x)], 1)
    found = arrivals_at_rest(positions, np.full(len(x), len(x) - 1))
    np.testing.assert_array_equal(found, np.where(np.arange(len(x)) < 72, 72, -1))


def test_a_plan_follows_the_trace_with_our_cube_in_the_place_of_its_own(key):
    start, end = np.array([0.0, 0, 0]), np.array([4.0, 0, 0])
    rows = one_move(start, end)
    traces = find_traces(CUBE, rows, np.array([len(rows) - 1]))
    # The hand lets go three rows after the cube rests, at row 60; only the second cube ever moved.
    assert set(traces.slot) == {1} and set(traces.last) == {63}
    np.testing.assert_array_equal(traces.first, np.arange(60))
    # Our first cube lies a little beside, and has to go as far; the second must not move.
    state, goal = scene([0, 0.1, 0], [3, 3, 0], arm=0.005), scene([4, 0.1, 0], [3, 3, 0], arm=9.0)
    proposal = TraceProposal(traces, (10, 10, 20, 20, 10), 3)
    z = ask(proposal, state, goal, key)
    assert z.shape == (3, 5, 37)
    first = int(traces.first[np.argmin(np.asarray(proposal.gaps(state, goal))[0])])
    reached = first + np.array([10, 20, 40, 60])
    np.testing.assert_allclose(z[0, :4, 0], 0.001 * np.minimum(reached, 63), atol=1e-7)
    np.testing.assert_array_equal(z[0, :, 28:], np.broadcast_to(state[28:], (5, 9)))
    moved = rows[reached[:3], 28:37]
    assert first == 5  # so that the trace's cube still lies at the first of these rows
    np.testing.assert_array_equal(z[0, 0, ARM : ARM + SLOT], state[ARM : ARM + SLOT])
    np.testing.assert_array_equal(z[0, 1:3, ARM : ARM + SLOT], moved[1:])
    np.testing.assert_array_equal(z[0, 3, ARM : ARM + SLOT], goal[ARM : ARM + SLOT])
    np.testing.assert_array_equal(z[0, 4], goal)


def test_gaps_are_the_scaled_squares_that_the_module_says(key):
    rows = one_move([0, 0, 0], [4, 0, 0])
    traces = find_traces(CUBE, rows, np.array([len(rows) - 1]))
    state, goal = scene([0.3, 0, 0], [1, 1, 0], arm=0.6), scene([4, 0.6, 0], [1, 2, 0], arm=0)
    state[17:19] = [0.5, 1.0]
    gaps = np.asarray(TraceProposal(traces, (5,), 1).gaps(jnp.asarray(state), jnp.asarray(goal)))
    assert gaps.shape == (2, 60)
    # Of the first trace, at row 0: three arm coordinates 1 apart, gripper 1 and 2 apart, the cube
    # 1 apart now and 2 then; for our second cube (1, 1, 0) / .3 now and (-3, 2, 0) / .3 then.
    np.testing.assert_allclose(gaps[0, 0], 3 + 1 + 4 + 1 + 4, rtol=1e-5)
    np.testing.assert_allclose(gaps[1, 0], 3 + 1 + 4 + (2 + 13) / 0.09, rtol=1e-5)


def test_the_first_candidate_is_the_nearest_and_the_rest_follow_their_gaps(key):
    ends = np.array([[4, 0, 0], [4, 0.35, 0], [4, -0.5, 0], [4, 0, 0.6]], np.float32)
    walks = [one_move([0, 0, 0], end) for end in ends]
    traces = find_traces(CUBE, np.concatenate(walks), np.cumsum([len(w) for w in walks]) - 1)
    at_zero = np.isin(traces.first, np.arange(4) * len(walks[0]))  # one trace of each walk
    few = type(traces)(*(v[at_zero] if k in ("keys", "first", "last", "slot") else v
                         for k, v in vars(traces).items()))  # fmt: skip
    proposal = TraceProposal(few, (60, 60), 2)
    state, goal = scene([0, 0, 0], [0, 0, 0]), scene([4, 0.1, 0], [9, 9, 9])
    goal[28:31] = state[28:31]  # the second cube is in its place
    gaps = np.asarray(proposal.gaps(jnp.asarray(state), jnp.asarray(goal)))[0]
    question = Question(Repertoire(Believer(), Still()), goal_task(CUBE, jnp.asarray(goal)),
                        jnp.asarray(state), jnp.full(2, 0.9), jnp.ones(2))  # fmt: skip
    draws = 4000
    z = eqx.filter_vmap(proposal.sample, in_axes=(0, None))(jax.random.split(key, draws), question)
    arms = np.asarray(few.states)[few.first + 60, 0]  # alike in all walks, so tell them by the cube
    assert np.ptp(arms) == 0
    cubes = np.asarray(few.states)[few.first + 60, 28:31]
    which = np.abs(np.asarray(z)[:, :, 0, None, 19:22] - cubes).sum(-1).argmin(-1)
    assert (which[:, 0] == gaps.argmin()).all()
    wanted = np.where(np.arange(4) == gaps.argmin(), 0, np.exp(-0.5 * gaps))  # it is there already
    wanted = wanted / wanted.sum()
    share = np.bincount(which[:, 1], minlength=4) / draws
    error = np.sqrt(wanted * (1 - wanted) / draws)
    assert (np.abs(share - wanted) < 4 * error + 1e-3).all()


def test_where_all_cubes_are_in_place_the_goal_is_all_there_is(key):
    rows = one_move([0, 0, 0], [4, 0, 0])
    traces = find_traces(CUBE, rows, np.array([len(rows) - 1]))
    goal = scene([1, 0, 0], [3, 3, 0], arm=2.0)
    near = scene([1.2, 0, 0], [3, 3.2, 0])
    z = ask(TraceProposal(traces, (10, 10), 4), near, goal, key)
    np.testing.assert_array_equal(z, np.broadcast_to(goal, z.shape))
    assert not (ask(TraceProposal(traces, (10, 10), 4), near + 1, goal, key) == goal).all()


def test_traces_of_real_play_end_where_cubes_rest(tmp_path):
    path = generate(Request.make(domains.get("cube-1"), 0, 2), tmp_path, workers=2)
    found, domain = data.load(path), domains.get("cube-1")
    traces = find_traces(domain, found.observations, found.ends)
    # The collector lifts the cube 11 times in an episode of a thousand steps (docs/data.md).
    arrivals = np.unique(traces.last)
    assert 12 <= len(arrivals) <= 32
    assert 20 < (traces.last - traces.first).mean() < 90
    cube = domain.cube_positions(found.observations)[:, 0]
    later = np.minimum(traces.last + 5, found.ends[np.searchsorted(found.ends, traces.last)])
    assert np.median(np.linalg.norm(cube[later] - cube[traces.last], axis=1)) < 1e-3
    ended = np.searchsorted(found.ends, traces.first) == np.searchsorted(found.ends, traces.last)
    assert ended.all()


def test_planners_take_traces_by_name(key):
    rows = one_move([0, 0, 0], [4, 0, 0])
    traces = find_traces(CUBE, rows, np.array([len(rows) - 1]))
    asked = {"horizons": (20, 20), "discount": 0.99, "candidates": 4, "samples": 2}
    settings = planner_settings(CUBE, "gcbc", proposal="trace", **asked)
    assert settings.stride == 1 and settings.used_by("compplan")["stride"] == 1
    assert "patience" not in settings.used_by("compplan")
    planner = make_planner("compplan", settings, Still(), ghm=Believer(), traces=traces)
    goal = scene([4, 0, 0], [3, 3, 0])
    plan = planner(key, scene([0, 0, 0], [3, 3, 0]), goal_task(CUBE, goal))
    assert plan.candidates.shape == (4, 2, 37)
    # One cube is in its place all the time, and who arrives where it is sent puts the other there.
    assert float(plan.value) > float(plan.weight_sum)


def test_what_cannot_be_traced_is_refused(key):
    rows = one_move([0, 0, 0], [4, 0, 0])
    ends = np.array([len(rows) - 1])
    traces = find_traces(CUBE, rows, ends)
    with pytest.raises(ConfigError, match="pointmaze-medium: traces are ways of cubes"):
        find_traces(domains.get("pointmaze-medium"), np.zeros((5, 2)), np.array([4]))
    with pytest.raises(ConfigError, match="no cube is moved"):
        find_traces(CUBE, np.zeros((50, 37)), np.array([49]))
    for number in (0, 61):
        with pytest.raises(
            ConfigError, match=f"number={number}; must be at least 1 and at most 60"
        ):
            TraceProposal(traces, (5,), number)
    with pytest.raises(ConfigError, match=r"shape \(5, 2\): cube-2 has states of 37"):
        find_traces(CUBE, np.zeros((5, 2)), np.array([4]))
    for stride in (5e9, 1e308):
        assert int(TraceProposal(traces, (50, 50), 1, stride=stride).steps[-1]) == len(rows)
    for stride in (0.0, np.inf):
        with pytest.raises(ConfigError, match=re.escape(f"stride={stride:g}: must be finite")):
            TraceProposal(traces, (5,), 1, stride=stride)
    with pytest.raises(ConfigError, match="append_goal=True: a trace ends"):
        planner_settings(CUBE, "gcbc", proposal="trace", append_goal=True)
    settings = planner_settings(CUBE, "gcbc", proposal="trace", candidates=4)
    with pytest.raises(ConfigError, match="traces is missing"):
        make_planner("compplan", settings, Still(), ghm=Believer())
    proposal = TraceProposal(traces, (5, 5), 1)
    planner = make_planner("compplan", settings, Still(), ghm=Believer(), traces=traces)
    question = Question(planner.repertoire, goal_task(CUBE, rows[0]), jnp.asarray(rows[0]),
                        jnp.full(3, 0.9), jnp.ones(3))  # fmt: skip
    with pytest.raises(ConfigError, match="made for 2 horizons, asked for 3"):
        proposal.sample(key, question)
    with pytest.raises(PlanError, match="goal=None"):
        planner(key, rows[0], Task(lambda states: states[..., 0]))
