"""Frames of episodes: cubes rendered with ghosts where that is possible, drawn where it is not."""

import os
import subprocess
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.evaluation import frames, scenes
from jumpyworld.evaluation.decisions import Trace
from jumpyworld.planning import CompPlan, ListProposal, Uniform, ZeroShot

CUBE = domains.get("cube-2")
pytest.importorskip("matplotlib")


class Pushes(eqx.Module):
    """A model whose samples move the first cube by 10 cm with every segment."""

    def sample(self, key, states, actions, z, gamma):
        return states.at[..., 19].add(1.0)


class Still(eqx.Module):
    def sample(self, key, states, z):
        return jnp.zeros((*states.shape[:-1], 5), states.dtype)


@pytest.fixture(scope="module")
def episode():
    env = CUBE.make_env(0)
    start, info = env.reset(seed=1, options={"task_id": 2})
    start = np.float32(start)
    z = np.stack([start] * 3)
    states = [start, np.float32(env.step(np.zeros(5, np.float32))[0])]
    env.close()
    return Trace(2, np.float32(info["goal"]), False, states, [0], [z], [np.zeros(5, np.float32)])


def planner(episode):
    return CompPlan(
        Pushes(), Still(), horizons=(5, 5, 5), discount=0.99,
        proposal=ListProposal(episode.z[0][None]), search=Uniform(1),
    )  # fmt: skip


def test_ghosts_are_samples_of_the_first_policy(episode):
    """As in the paper's figure; later segments would crowd the scene."""
    seen = frames.imagine(CUBE, planner(episode), episode, 0, 4)
    assert seen.shape == (4, CUBE.observation_dim)
    moved = CUBE.cube_positions(seen) - CUBE.cube_positions(episode.states[0])
    np.testing.assert_allclose(moved[:, 0], [[0.1, 0, 0]] * 4, atol=1e-6)
    np.testing.assert_allclose(moved[:, 1], 0, atol=1e-6)


def test_without_opengl_one_line_says_so_and_the_scene_is_drawn(episode, tmp_path, monkeypatch):
    def no_camera(domain):
        raise scenes.NoRendererError("no OpenGL to draw with (a reason)")

    monkeypatch.setattr(frames, "Camera", no_camera)
    said, pictures = [], []
    for who in (planner(episode), ZeroShot(Still())):
        path = tmp_path / f"{type(who).__name__}.png"
        frames.draw_episodes(CUBE, who, [episode, episode], path, "cubes", warn=said.append)
        pictures.append(path.read_bytes())
    assert said == ["no OpenGL to draw with (a reason); cubes are drawn from above instead"] * 2
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert pictures[0] != pictures[1]  # the model's dots


# In a process of its own: which OpenGL the simulator takes is settled when it is imported.
RENDER = """
import sys
import numpy as np
from jumpyworld import domains
from jumpyworld.evaluation.scenes import Camera, NoRendererError
domain = domains.get("cube-2")
env = domain.make_env(0)
start, info = env.reset(seed=1, options={"task_id": 2})
try:
    camera = Camera(domain)
except NoRendererError as error:
    print(error)
    sys.exit(3)
moved = start.copy()
moved[[19, 20]] += [-1.0, 1.5]
goal = info["goal"]
plain, ghosts = camera.picture(start, goal), camera.picture(start, goal, moved[None])
there = camera.picture(moved, goal)
camera.close()
assert plain.shape == (240, 320, 3) and plain.std() > 10
ghost, solid = (np.abs(x.astype(int) - plain).max(-1) for x in (ghosts, there))
# A ghost shows through where the cube may be, and takes nothing away from where it is.
assert 0 < ghost.max() < solid.max() / 2
assert 0.2 < (ghost[solid > 40] > 2).mean() < 0.8
"""


@pytest.mark.parametrize("backend", ["egl", ""])
def test_rendering(backend):
    """Either it draws, or it says in one line why not; nothing else is printed."""
    environment = {**os.environ, "MUJOCO_GL": backend}
    environment.pop("DISPLAY", None)
    done = subprocess.run(
        [sys.executable, "-c", RENDER], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode in (0, 3), done.stderr
    if done.returncode == 3:
        assert done.stdout.startswith("no OpenGL to draw with") and done.stdout.count("\n") == 1
        assert done.stderr == ""
