"""An ant in its maze: a body of 29 numbers, of which the page draws two."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

MEDIUM = """
########
#  ##  #
#  #   #
##   ###
#  #   #
# #  # #
#   #  #
########
"""  # OGBench's medium maze, its row of y = -4 first
FREE = [4.0, 8.0]


@pytest.fixture
def started(ants):
    ants.ask("reset", task=1, seed=0)
    return ants


@pytest.fixture
def wish(ants):
    """What the page asks for with its first choice of candidates."""
    first = ants.ask("scene")["proposals"][0]
    asked = {name: first[name] for name in ("horizons", "discount")}
    return {"proposal": first["name"], "seed": 0, **asked}


@pytest.fixture
def simulator(ants):
    return ants.engine.session("m0").stage._env.unwrapped


def test_the_maze_the_ant_and_its_goal_are_drawn_where_they_are(started, simulator):
    scene = started.ask("scene")
    assert scene["kind"] == "maze" and scene["domain"] == "antmaze-medium"
    walls = [[sign == " " for sign in line] for line in MEDIUM.split("\n")[1:-1]]
    np.testing.assert_array_equal(np.asarray(scene["free"], bool), walls)
    np.testing.assert_array_equal(scene["free"], simulator.maze_map == 0)
    assert scene["unit"] == 4 and scene["origin"] == [-4, -4] and scene["tolerance"] == 0.5
    assert scene["bounds"] == [-6, 26, -6, 26] and scene["max_steps"] == 1000
    assert scene["title"].startswith("antmaze-medium · gcbc")
    state = scene["state"]
    np.testing.assert_allclose(state["objects"], [simulator.get_xy()], atol=1e-3)
    np.testing.assert_allclose(state["goal"], [simulator.cur_goal_xy], atol=0.5)
    assert state["effector"] is None and not state["reached"] and len(scene["trail"]) == 1


def test_clicks_move_the_goal_and_the_ant(started, simulator):
    state = started.ask("goal", places=[FREE])["state"]
    assert state["goal"] == [FREE]
    state = started.ask("place", start=[0.0, 4.0])["state"]
    assert state["objects"] == [[0.0, 4.0]] and state["goal"] == [FREE]
    np.testing.assert_allclose(simulator.get_xy(), [0.0, 4.0])
    assert started.ask("place", start=FREE)["state"]["reached"]
    answer = started.post("place", {"model": "m0", "start": [8.0, 0.0]})
    assert answer.status_code == 422 and "wall" in answer.json()["error"]


def test_samples_are_the_positions_of_sampled_states(started):
    session = started.engine.session("m0")
    stage = session.stage
    shown = started.ask("samples", source="goal", horizon=20, seed=3)["samples"]
    states = session.thinker.samples(3, stage.observation, stage.task_goal, 20)
    assert states.shape == (32, 29)
    np.testing.assert_allclose(np.asarray(shown)[:, 0], states[:, :2], atol=1e-3)


def test_a_plan_is_made_of_places_where_the_data_went(started, wish):
    plan = started.ask("plan", **wish)["plan"]
    assert plan["proposal"] == "bridge" and plan["why"]["words"]
    places = np.asarray(plan["candidates"]["places"])
    segments = len(wish["horizons"])
    assert places.shape == (8, segments, 1, 2)
    goal = started.ask("scene")["state"]["goal"]
    known = started.engine.models["m0"].known
    visited = np.concatenate([known.examples[..., :2].reshape(-1, 2), goal])
    gaps = np.abs(places.reshape(-1, 1, 2) - visited).max(-1)
    assert gaps.min(-1).max() < 1e-3
    assert np.shape(plan["chain"]) == (segments, 1, 2)
    assert np.shape(plan["ghosts"]) == (segments, 8, 1, 2)


def test_steps_move_the_real_ant(started, wish, simulator):
    before = simulator.data.qpos.copy()
    answer = started.ask("step", count=5, replan_every=5, **wish)
    assert answer["plan"] and answer["state"]["step"] == 5 == len(answer["moved"])
    assert np.abs(simulator.data.qpos - before)[7:].max() > 0.01  # its joints, too
    np.testing.assert_allclose(answer["moved"][-1], simulator.get_xy(), atol=1e-3)
    np.testing.assert_allclose(answer["state"]["objects"], [simulator.get_xy()], atol=1e-3)


def test_a_frame_is_a_picture_or_says_what_is_missing(started):
    answer = started.post("frame", {"model": "m0"})
    if answer.status_code == 200:
        assert answer.content.startswith(b"\x89PNG")
    else:
        assert answer.status_code == 422 and "no rendered frames" in answer.json()["error"]


RENDER = """
import json, sys
import numpy as np
from jumpyworld import domains
from jumpyworld.viewer.scene import scene_of
from jumpyworld.viewer.stage import Stage, why_no_rendering

domain = domains.get("antmaze-medium")
if reason := why_no_rendering(domain):
    print(reason)
    sys.exit(3)
stage = Stage(scene_of(domain))
pictures = []
for place in json.loads(sys.argv[1]):
    stage.place(place)
    assert stage.frame().startswith(b"\\x89PNG")
    pictures.append(stage._env.render().astype(int))
changed = np.abs(pictures[1] - pictures[0]).max(-1) > 60
print(json.dumps(np.argwhere(changed).tolist()))
"""


@pytest.mark.parametrize("backend", ["egl", ""])
def test_the_rendered_ant_is_where_it_was_put(backend):
    """Either it draws, or it says in one line why not."""
    environment = {**os.environ, "MUJOCO_GL": backend}
    environment.pop("DISPLAY", None)
    spots = [[0.0, 0.0], FREE]
    command = [sys.executable, "-c", RENDER, json.dumps(spots)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode in (0, 3), done.stderr
    if done.returncode == 3:
        assert done.stdout.count("\n") == 1
        return
    # The camera shows the six inner rows and columns, 24 metres, on 320 pixels.
    row, column = np.asarray(json.loads(done.stdout)).T
    seen = np.stack([column * 24 / 320 - 2, 22 - row * 24 / 320], axis=-1)
    gaps = np.linalg.norm(seen[:, None] - np.asarray(spots), axis=-1)
    assert gaps.min(-1).max() < 2.5 and (gaps.min(0) < 0.5).all()
