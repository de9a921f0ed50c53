"""The real environment behind the page, and pictures of it where rendering is installed.

One thread owns a stage: MuJoCo's drawing belongs to the thread that began it.
"""

import os
import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np

from jumpyworld.domains import Domain
from jumpyworld.errors import PlanError
from jumpyworld.viewer.scene import AbstractScene, MazeScene

FRAME = 320  # pixels, both ways
PROBE_SECONDS = 60


class Stage:
    """One environment, in the state that the page shows.

    Attributes:
        observation: where it is now [d].
        task_goal: goal observation of the task that it was reset to [d].
        task: its number, 1 to 5.
        steps: control steps since the reset.
    """

    def __init__(self, scene: AbstractScene):
        """Make the environment and reset it to its first task."""
        self.scene, self.domain = scene, scene.domain
        # An episode goes on at the goal: the page says when it is reached.
        options: dict[str, Any] = {"width": FRAME, "height": FRAME}
        if isinstance(scene, MazeScene):  # cube scenes know one way of rendering and need no name
            options["render_mode"] = "rgb_array"
        self._env: Any = self.domain.make_env(0, terminate_at_goal=False, **options)
        self._no_frames: str | None = None
        self._probed = False
        self.reset(1, 0)

    def reset(self, task: int, seed: int) -> None:
        """Begin an episode of one of the five tasks; the seed fixes where exactly."""
        observation, info = self._env.reset(seed=seed, options={"task_id": task})
        self.observation = np.asarray(observation, np.float32)
        self.task_goal = np.asarray(info["goal"], np.float32)
        self.task, self.seed, self.steps = task, seed, 0

    def place(self, xy: tuple[float, float]) -> None:
        """Put the body of a maze somewhere else, at rest; the episode begins anew.

        Raises:
            PlanError: the place is in a wall, or the scene has no body to move.
        """
        if not isinstance(self.scene, MazeScene):
            raise PlanError("start: cubes start where a task puts them; choose a task")
        self.scene.check_free(xy)
        self.reset(self.task, self.seed)
        self._env.unwrapped.set_xy(np.asarray(xy, np.float64))
        self.observation = np.asarray(self.domain.observe(self._env), np.float32)

    def step(self, action: np.ndarray) -> None:
        """Take one control step."""
        self.observation = np.asarray(self._env.step(np.asarray(action))[0], np.float32)
        self.steps += 1

    def frame(self) -> bytes:
        """Return a PNG picture of the scene.

        Raises:
            PlanError: rendering is not installed; the message says what is missing.
        """
        if not self._probed:
            self._no_frames, self._probed = why_no_rendering(self.domain), True
        if self._no_frames is not None:
            raise PlanError(f"no rendered frames: {self._no_frames}")
        return self.draw()

    def draw(self) -> bytes:
        """Return a PNG picture without asking first whether that can work."""
        return png(np.asarray(self._env.render()))

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()


def why_no_rendering(domain: Domain) -> str | None:
    """Return None where one frame can be drawn, or what is missing.

    It is tried in a process of its own, because drivers that are not there can end the process.
    """
    if not (os.environ.get("MUJOCO_GL") in ("egl", "osmesa") or os.environ.get("DISPLAY")):
        return "no display; start with MUJOCO_GL=egl (or osmesa) where that is installed"
    code = (
        "import sys; from jumpyworld import domains; from jumpyworld.viewer import scene, stage; "
        "s = stage.Stage(scene.scene_of(domains.get(sys.argv[1]))); s.draw()"
    )
    command = [sys.executable, "-c", code, domain.alias]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the attempt failed ({type(error).__name__})"
    if done.returncode == 0:
        return None
    lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
    return f"the attempt failed ({lines[-1][:200]})"


def png(pixels: np.ndarray) -> bytes:
    """Return an 8-bit RGB image [H, W, 3] as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.concatenate(
        [np.zeros((height, 1), np.uint8), pixels.astype(np.uint8).reshape(height, -1)], axis=1
    )

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows.tobytes(), 6))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")
