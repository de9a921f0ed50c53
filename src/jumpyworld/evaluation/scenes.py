"""Cube scenes as the simulator draws them, from observations alone.

What is solid is where things are; arms and cubes that one can see through are where a model says
they may be (paper: the figure of frames of an episode). An observation tells all of it: joints of
the arm, opening of the gripper, positions and orientations of the cubes.

Drawing needs OpenGL: a display, or ``MUJOCO_GL=egl`` (a GPU) or ``osmesa`` (no GPU) in the
environment before the simulator is first imported.

Shapes: d state, R samples, H and W pixels.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from jumpyworld.domains import CubeDomain
from jumpyworld.domains.cube import ARM_DIM, CUBE_DIM
from jumpyworld.errors import JumpyError

SIZE = (240, 320)
CAMERA = "front"
GHOST_ALPHA = 0.12
MOST_GEOMS = 20_000
# Where things are in the simulator's positions: six joints, eight of the gripper, seven a cube.
JOINTS, OPENING, CUBES = 6, 17, 14
# The driver's angle is 0.8 when closed; OGBench observes three times the share of it.
CLOSED, OPENING_SCALE = 0.8, 3.0
# How joints follow the driver, right and left: itself, coupler, spring link, follower.
LINKAGE = np.asarray([1.0, 0.0, 1.0, -1.0] * 2)


class NoRendererError(JumpyError):
    """This machine cannot draw; the message says why."""


class Camera:
    """Draws observations of one domain; close it after use."""

    def __init__(self, domain: CubeDomain):
        """Open the scene.

        Raises:
            NoRendererError: there is no OpenGL here.
        """
        self._domain = domain
        self._env = domain.make_env(0)
        self._env.reset(seed=0)
        scene: Any = self._env.unwrapped
        import mujoco

        self._engine: Any = mujoco
        self._model, self._data = scene.model, scene.data
        self._targets = [int(mocap) for mocap in scene._cube_target_mocap_ids]
        self._model.vis.global_.offheight, self._model.vis.global_.offwidth = SIZE
        self._renderer = _renderer(self._engine, self._model)
        flags = self._engine.mjtRndFlag
        for flag in (flags.mjRND_SHADOW, flags.mjRND_REFLECTION):
            # A ghost casts no shadow, and without them a processor draws several times faster.
            self._renderer.scene.flags[flag] = False

    def picture(
        self,
        state: Float[np.ndarray, " d"],
        goal: Float[np.ndarray, " d"],
        ghosts: Float[np.ndarray, "R d"] | None = None,
    ) -> UInt8[np.ndarray, "H W 3"]:
        """Draw a state, the targets of a goal, and samples that one can see through."""
        data, scene = self._data, self._renderer.scene
        data.mocap_pos[self._targets] = self._domain.cube_positions(goal)
        self._pose(state)
        self._renderer.update_scene(data, camera=CAMERA)
        for ghost in () if ghosts is None else ghosts:
            solid = scene.ngeom
            self._pose(ghost)
            self._engine.mjv_addGeoms(
                self._model,
                data,
                self._engine.MjvOption(),
                self._engine.MjvPerturb(),
                self._engine.mjtCatBit.mjCAT_DYNAMIC,
                scene,
            )
            for geom in scene.geoms[solid : scene.ngeom]:
                geom.rgba[3] *= GHOST_ALPHA
        return self._renderer.render()

    def _pose(self, state: Float[np.ndarray, " d"]) -> None:
        """Put arm, gripper and cubes where an observation has them."""
        qpos = self._data.qpos
        qpos[:JOINTS] = state[:JOINTS]
        qpos[JOINTS:CUBES] = LINKAGE * np.clip(state[OPENING] / OPENING_SCALE, 0, 1) * CLOSED
        cubes = state[ARM_DIM:].reshape(self._domain.num_cubes, CUBE_DIM)
        places = qpos[CUBES:].reshape(self._domain.num_cubes, 7)
        places[:, :3] = self._domain.cube_positions(state)
        # A sample's quaternion has a length of its own.
        lengths = np.linalg.norm(cubes[:, 3:7], axis=1, keepdims=True)
        places[:, 3:] = cubes[:, 3:7] / np.maximum(lengths, 1e-6)
        self._engine.mj_forward(self._model, self._data)

    def close(self) -> None:
        """Give the drawing surface back."""
        self._renderer.close()
        self._env.close()


def _renderer(engine: Any, model: Any) -> Any:
    try:
        with _quiet_clean_up(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return engine.Renderer(model, *SIZE, max_geom=MOST_GEOMS)
    except Exception as error:  # whatever the platform's OpenGL says; there are many of them
        lines = f"{error}".strip().splitlines() or [type(error).__name__]
        raise NoRendererError(
            f"no OpenGL to draw with ({lines[0][:120]}); MUJOCO_GL=egl or osmesa may have one"
        ) from error


@contextlib.contextmanager
def _quiet_clean_up() -> Iterator[None]:
    """Keep to one line: half-made renderers complain when they are thrown away."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before
