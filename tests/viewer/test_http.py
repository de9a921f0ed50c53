"""The page's requests, over a real connection."""

import contextlib
import json
import math
import time

import numpy as np
import pytest
from served import HORIZONS, QUICK, Server
from stand_ins import exact
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from jumpyworld.errors import PlanError
from jumpyworld.viewer.engine import Engine
from jumpyworld.viewer.guard import Door
from jumpyworld.viewer.session import Program, Session

NEAR = [4.0, 8.0]  # a free place two cells from the start of task 1


@pytest.fixture
def started(maze):
    maze.ask("reset", task=1, seed=0)
    maze.ask("place", start=[0.0, 0.0])
    maze.ask("goal", places=[NEAR])
    return maze


def test_the_scene_says_what_to_draw(maze):
    scene = maze.ask("scene")
    assert scene["kind"] == "maze" and np.shape(scene["free"]) == (8, 8)
    assert scene["longest"] == pytest.approx(250) and scene["proposals"][0]["name"] == "paper"
    assert len(scene["proposals"]) == 1 and len(scene["proposals"][0]["horizons"]) == 4
    assert scene["state"]["objects"] and scene["trail"]


def test_a_goal_is_planned_for_and_the_plan_explains_itself(started):
    plan = started.ask("plan", seed=0, **HORIZONS)["plan"]
    candidates = plan["candidates"]
    many = 8 + 1 + 4  # proposed, the base policy's, and room for remembered ones
    assert np.shape(candidates["places"]) == (many, 4, 1, 2)
    assert len(candidates["values"]) == len(candidates["kinds"]) == many
    assert candidates["kinds"][0] == "base" and "behaviour" in candidates["kinds"]
    assert plan["chosen"] >= 0 and plan["value"] > 0.1
    assert plan["value"] == pytest.approx(candidates["values"][plan["chosen"]], abs=1e-5)
    assert np.shape(plan["chain"]) == (4, 1, 2) and np.shape(plan["ghosts"]) == (4, 8, 1, 2)
    assert [r["candidates"] for r in plan["rounds"]] == [many, 4, 2]
    assert [r["chains"] for r in plan["rounds"]] == [4, 8, 16]
    spent = sum(r["evaluations"] for r in plan["rounds"])
    assert spent < plan["evaluations"] == spent + 8 * 4  # and the proposals
    why = plan["why"]
    assert why["fresh"]["value"] == pytest.approx(
        sum(s["earns"] for s in plan["segments"]), abs=1e-4
    )
    assert why["runner_up"]["index"] != plan["chosen"] and len(why["words"]) == 3
    for part in plan["segments"]:
        assert part["beta"] == pytest.approx(0.995 * (1 - part["alpha"]), abs=1e-5)
        assert part["beta"] == pytest.approx(1 - 1 / part["horizon"], abs=1e-5)


def test_the_same_seed_gives_the_same_plan_and_another_seed_another(started):
    first, again, other = (
        started.ask("plan", seed=seed, **HORIZONS)["plan"]["candidates"] for seed in (3, 3, 4)
    )
    assert first == again != other


def test_samples_spread_with_the_horizon(started):
    def spread(source, horizon):
        found = started.ask("samples", source=source, horizon=horizon, seed=0)["samples"]
        assert np.shape(found) == (32, 1, 2)
        return float(np.linalg.norm(found, axis=-1).mean())

    for source in ("goal", "behaviour"):
        near, far = spread(source, 1), spread(source, 100)
        assert near < 0.5 < 2 < far
    started.ask("plan", seed=0, **HORIZONS)
    assert spread("plan", 1) < 0.5


def test_a_painted_reward_is_collected_and_erasing_brings_the_goal_back(started):
    cell = [3, 2, 1.0]
    state = started.ask("paint", cells=[cell, [1, 1, -1.0]])["state"]
    assert state["goal"] is None and sorted(state["painted"]) == [[1, 1, -1.0], cell]
    plan = started.ask("plan", seed=0, **HORIZONS)["plan"]
    assert "base" not in plan["candidates"]["kinds"] and plan["value"] > 0
    last = np.asarray(plan["ghosts"])[-1, :, 0]
    assert np.abs(last - [4.0, 8.0]).max(-1).min() < 2  # some chains end in the painted cell
    state = started.ask("paint", cells=[])["state"]
    assert state["painted"] is None and state["goal"] == [NEAR]


def test_stepping_moves_the_real_environment_and_replans(started):
    answer = started.ask("step", count=5, replan_every=5, seed=0, **HORIZONS)
    assert answer["plan"] and len(answer["moved"]) == 5 == answer["state"]["step"]
    answer = started.ask("step", count=5, replan_every=5, seed=0, **HORIZONS)
    assert answer["plan"]["candidates"]["kinds"].count("remembered") == 4
    assert "plan" not in started.ask("step", count=4, replan_every=1000, seed=0, **HORIZONS)
    for _ in range(6):
        answer = started.ask("step", count=50, replan_every=10, seed=0, **HORIZONS)
        if answer["state"]["reached"]:
            break
    assert answer["state"]["reached"] and answer["state"]["step"] < 200
    # Reached is reached: nothing moves any more.
    assert started.ask("step", count=5, replan_every=5, seed=0, **HORIZONS)["moved"] == []


@contextlib.contextmanager
def playing(server, **more):
    address = server.base.replace("http", "ws") + "api/play"
    with connect(address, origin=server.base.rstrip("/"), proxy=None) as socket:
        wish = {"model": "m0", "replan_every": 10, "seed": 0, "speed": 200, **HORIZONS, **more}
        socket.send(json.dumps(wish))
        yield socket


def play(server, **more):
    with playing(server, **more) as socket:
        frames = [json.loads(text) for text in socket]
    return frames[:-1], frames[-1]["done"]


def test_playing_streams_frames_until_the_goal(started):
    frames, done = play(started)
    assert done == "the goal is reached" and frames[-1]["state"]["reached"]
    assert frames[0]["plan"] and sum("plan" in frame for frame in frames) >= 3
    steps = [frame["state"]["step"] for frame in frames]
    assert steps == sorted(set(steps))


def test_play_refuses_what_it_cannot_do(maze):
    assert play(maze, model="m7")[1] == "model: must be one of m0"
    assert "speed" in play(maze, speed=1e9)[1]
    assert "no such field" in play(maze, path="x")[1]


def test_one_stage_plays_at_a_time(started):
    with playing(started, speed=1) as first:
        assert "state" in json.loads(first.recv(timeout=60))
        assert play(started)[1] == "the stage is playing already"


def test_text_that_is_no_text_ends_the_play_and_frees_the_stage(started):
    with playing(started, speed=1) as first:
        assert "state" in json.loads(first.recv(timeout=60))
        first.send(b"\xff", text=True)
        with pytest.raises(ConnectionClosed):
            first.recv(timeout=60)
    assert play(started)[1] == "the goal is reached"


def test_walls_and_horizons_are_refused_with_a_reason(maze):
    answer = maze.post("goal", {"model": "m0", "places": [[-4.0, -4.0]]})
    assert answer.status_code == 422 and "wall" in answer.json()["error"]
    too_long = {"model": "m0", "source": "goal", "horizon": 5000, "seed": 0}
    assert "250 steps" in maze.post("samples", too_long).json()["error"]
    long = {"model": "m0", "seed": 0, **HORIZONS, "discount": 0.9}
    answer = maze.post("plan", long)
    assert answer.status_code == 422 and "longer than" in answer.json()["error"]


def test_a_frame_is_a_picture_or_says_what_is_missing(maze):
    answer = maze.post("frame", {"model": "m0"})
    if answer.status_code == 200:
        assert answer.content.startswith(b"\x89PNG")
    else:
        assert answer.status_code == 422 and "no rendered frames" in answer.json()["error"]


def test_cubes_are_seen_from_above(cubes):
    cubes.ask("reset", task=2, seed=0)
    scene = cubes.ask("scene")
    assert scene["kind"] == "cubes" and len(scene["state"]["objects"]) == 2
    assert len(scene["state"]["effector"]) == 2
    moved = [[0.4, 0.1], [0.45, -0.1]]
    assert np.allclose(cubes.ask("goal", places=moved)["state"]["goal"], moved, atol=1e-3)
    (usual,) = scene["proposals"]
    usual = {
        "proposal": usual["name"],
        "horizons": usual["horizons"],
        "discount": usual["discount"],
    }
    plan = cubes.ask("plan", seed=0, **usual)["plan"]
    assert np.shape(plan["chain"]) == (3, 2, 2) and plan["value"] > 0
    answer = cubes.ask("step", count=2, replan_every=1, seed=0, **usual)
    assert len(answer["moved"]) == 2 and math.isfinite(answer["state"]["objects"][0][0])
    assert cubes.ask("paint", cells=[[9, 5, 1.0]])["state"]["painted"]
    cubes.wait("painting")
    assert cubes.ask("plan", seed=0, **usual)["plan"]["why"]["words"]
    for places, text in (([[0.4, 0.1]], "1 places for 2"), ([[0.4, 0.1], [9, 9]], "reach")):
        answer = cubes.post("goal", {"model": "m0", "places": places})
        assert answer.status_code == 422 and text in answer.json()["error"]
    assert cubes.post("place", {"model": "m0", "start": [0.4, 0.0]}).status_code == 422


def test_what_cannot_be_compiled_later_is_said_and_takes_nothing_else_with_it():
    session = Session(exact("pointmaze-medium"), QUICK)

    def broken():
        raise RuntimeError("no room\nfor this")

    later = [Program("painting", broken, False), Program("behaviour", lambda: None, False)]
    Engine([session.opened], QUICK)._compile([(session, program) for program in later])
    session.need("behaviour")
    with pytest.raises(PlanError, match=r"painting: cannot be compiled \(RuntimeError: no room\)"):
        session.need("painting")


def test_the_status_names_programs_that_cannot_be_compiled(monkeypatch):
    def broken():
        raise RuntimeError("no room")

    programs = [Program("samples", lambda: None, True), Program("painting", broken, False)]
    monkeypatch.setattr(Session, "programs", lambda self: programs)
    server = Server([exact("pointmaze-medium")], QUICK, Door(port=0))
    try:
        server.wait("samples")
        deadline, found = time.monotonic() + 20, {}
        while not found and time.monotonic() < deadline:
            (model,) = server.http.get("/api/status").json()["models"]
            found = model["failed_programs"]
        assert found == {"painting": "RuntimeError: no room"}
        assert model["failed"] is None and model["compiled"] == ["samples"]
    finally:
        server.stop()
