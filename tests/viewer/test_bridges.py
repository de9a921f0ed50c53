"""Ways that the data know, among the page's candidates."""

import dataclasses

import numpy as np
import pytest
from served import BRIDGES, HORIZONS, QUICK
from stand_ins import drifting
from test_http import play

from jumpyworld.planning import find_traces
from jumpyworld.viewer.candidates import Horizons
from jumpyworld.viewer.opened import open_models
from jumpyworld.viewer.session import Session

FAR = [20.0, 12.0]  # across the medium maze
SHORT = {"horizons": [1.0] * 6, "discount": 0.5}


@pytest.fixture
def far(bridges):
    bridges.ask("reset", task=1, seed=0)
    bridges.ask("place", start=[0.0, 0.0])
    bridges.ask("goal", places=[FAR])
    return bridges


def test_bridges_are_offered_first_with_horizons_of_their_own(bridges):
    first, second = bridges.ask("scene")["proposals"]
    assert first == {**first, "name": "bridge", "needs_goal": True, "discount": 0.998}
    assert first["horizons"] == [150] * 6
    assert second == {**second, "name": "paper", "needs_goal": False}
    assert len(second["horizons"]) == 4


def test_a_bridge_reaches_a_goal_that_is_far(far):
    plan = far.ask("plan", seed=0, **BRIDGES)["plan"]
    assert plan["value"] > 0.01 and plan["proposal"] == "bridge" and not plan["all_zero"]
    candidates = plan["candidates"]
    # Nothing is remembered yet: proposed sequences stand in, and are called what they are.
    assert set(candidates["kinds"]) == {"bridge"} and len(candidates["kinds"]) == 4 + 4
    ends = np.asarray(candidates["places"])[:, -1, 0]
    assert (np.abs(ends - FAR).max(-1) < 0.01).any()
    assert any("base policy alone" in line for line in plan["why"]["words"])


def test_the_last_plan_stands_among_the_next_and_a_change_of_proposal_forgets_it(far):
    steer = {"count": 1, "replan_every": 1, "seed": 0}
    far.ask("step", **steer, **BRIDGES)
    kinds = far.ask("step", **steer, **BRIDGES)["plan"]["candidates"]["kinds"]
    assert kinds.count("remembered") == 4
    far.wait("paper")
    answer = far.ask("step", count=1, replan_every=1000, seed=0, **HORIZONS)
    assert answer["plan"]["proposal"] == "paper"  # at once, though no plan was due
    assert "remembered" not in answer["plan"]["candidates"]["kinds"]


def test_a_start_is_clicked_and_the_goal_reached_from_there(far):
    far.ask("place", start=[4.0, 8.0])
    plan = far.ask("plan", seed=0, **BRIDGES)["plan"]
    first = np.asarray(plan["candidates"]["places"])[:, 0, 0]
    assert plan["value"] > 0 and np.median(np.linalg.norm(first - [4.0, 8.0], axis=-1)) < 10
    frames, done = play(far, **BRIDGES)
    assert done == "the goal is reached" and frames[-1]["state"]["goal"] == [FAR]


def test_a_painted_reward_refuses_bridges_and_says_why(far):
    far.ask("paint", cells=[[3, 2, 1.0]])
    answer = far.post("plan", {"model": "m0", "seed": 0, **BRIDGES})
    assert answer.status_code == 422
    assert "a bridge leads to a goal, and a painted reward has none" in answer.json()["error"]
    assert "painted reward has none" in play(far, **BRIDGES)[1]
    far.wait("painting")
    assert far.ask("plan", seed=0, **HORIZONS)["plan"]["proposal"] == "paper"
    far.ask("paint", cells=[])
    assert far.ask("plan", seed=0, **BRIDGES)["plan"]["value"] > 0


def test_where_every_value_is_zero_the_page_says_so_and_what_helps(far):
    plan = far.ask("plan", seed=0, **{**BRIDGES, **SHORT})["plan"]
    said, helps = plan["why"]["words"]
    assert plan["all_zero"] and plan["chosen"] == 0 and said.startswith("Every value is zero")
    assert "The first bridge is followed" in said and "bridges above" not in helps
    far.wait("paper", "painting")
    paper = {**HORIZONS, "horizons": [1.0] * 4, "discount": 0.5}
    said, helps = far.ask("plan", seed=0, **paper)["plan"]["why"]["words"]
    assert "met the goal" in said and "The base policy acts alone" in said
    assert helps.startswith("What helps: bridges above, longer horizons")
    far.ask("paint", cells=[[6, 6, 1.0]])
    said, helps = far.ask("plan", seed=0, **paper)["plan"]["why"]["words"]
    assert "painted cell" in said and "bridges" not in helps


def test_without_data_zero_values_name_the_flag(maze):
    maze.ask("reset", task=1, seed=0)
    paper = {**HORIZONS, "horizons": [1.0] * 4, "discount": 0.5}
    words = maze.ask("plan", seed=0, **paper)["plan"]["why"]["words"]
    assert "--precedents DATA" in words[1]
    answer = maze.post("plan", {"model": "m0", "seed": 0, **BRIDGES})
    assert answer.status_code == 400 and answer.json()["error"] == "proposal: must be one of paper"


def test_jumps_without_a_precedent_are_refused_for_all_and_sliders_never_change_shapes(bridges):
    session = bridges.engine.session("m0")
    for source in session.thinker.sources.values():
        usual = source.usual
        other = Horizons(tuple(3.0 + 9 * k for k in range(len(usual.segments))), 0.99)
        known = [
            source.planner(True, session.stage.task_goal, horizons).repertoire.precedents
            for horizons in (usual, other)
        ]
        assert known[0].precedented.shape == (len(usual.segments), 40, 40)
        assert known[0].precedented.shape == known[1].precedented.shape
        assert known[0].betas.shape == known[1].betas.shape


def test_the_page_opens_on_a_task_with_a_plan(bridges):
    session = bridges.engine.session("m0")
    session.begin()
    plan = bridges.ask("plan", seed=0, **BRIDGES)["plan"]
    assert plan["value"] > 0 and session.stage.steps == 0


def test_the_weights_that_ship_open_on_a_plan_with_bridges():
    (opened,) = open_models([])
    session = Session(opened)
    session.begin()
    session.compiled.add("bridge")
    source = session.thinker.first
    plan = session.plan("bridge", source.usual, 0)["plan"]
    assert source.name == "bridge" and plan["value"] > 0.01
    assert plan["why"]["fresh"]["value"] > plan["why"]["base"]["value"]


def test_cubes_have_traces():
    opened = drifting("cube-2")
    rows = np.zeros((100, opened.domain.observation_dim), np.float32)
    rows[40:, 28] = np.minimum(2.0, 0.1 * np.arange(60))  # the second cube is carried for 20 steps
    known = find_traces(opened.domain, rows, np.asarray([99]))
    session = Session(dataclasses.replace(opened, known=known), QUICK)
    assert session.proposals == ("trace", "paper")
    session.compiled.add("trace")
    session.reset(2, 0)
    plan = session.plan("trace", session.thinker.first.usual, 0)["plan"]
    assert set(plan["candidates"]["kinds"]) == {"trace"} and len(plan["chain"]) == 6
