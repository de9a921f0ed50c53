"""Make OGBench environments; needs the extra ``ogbench`` to be imported.

OGBench's ids are registered by importing its packages; nothing is downloaded.
"""

import contextlib
import copy
import os
import tempfile
import warnings
from typing import Any

import gymnasium
import mujoco
import numpy as np

from jumpyworld.domains.seeding import SeededReset

with warnings.catch_warnings():
    # MuJoCo's viewer, which OGBench imports and we never open, warns where there is no display.
    warnings.simplefilter("ignore")
    import ogbench.locomaze
    import ogbench.manipspace  # noqa: F401  (both imported for their registrations)
    from ogbench.manipspace.envs.cube_env import CubeEnv


class SeededCubeEnv(CubeEnv):
    """OGBench's cube scene with one action space that keeps its seed.

    Upstream makes a new, unseeded space at each access and draws two actions from it in ``reset``.
    """

    _space = None

    @property
    def action_space(self):
        """The same five-dimensional box at every access."""
        if self._space is None:
            self._space = gymnasium.spaces.Box(-1.0, 1.0, (5,), np.float32)
        return self._space


def make(env_id: str, seed: int, **kwargs) -> SeededReset:
    """Make an environment whose episodes ``seed`` fixes."""
    spec = copy.deepcopy(gymnasium.spec(env_id))
    if env_id.startswith("cube"):
        spec.entry_point = SeededCubeEnv
    env = gymnasium.make(spec, disable_env_checker=True, **kwargs)
    _remove_temporary_model(env)
    return SeededReset(env, seed)


def _remove_temporary_model(env: gymnasium.Env) -> None:
    """Delete the XML file that a maze writes for MuJoCo and forgets; the model is loaded by now."""
    path = getattr(env.unwrapped, "fullpath", None)
    if path and os.path.dirname(path) == tempfile.gettempdir():
        with contextlib.suppress(OSError):
            os.unlink(path)


def set_state(
    env: gymnasium.Env, qpos: np.ndarray, qvel: np.ndarray, *, at_reset: bool = False
) -> None:
    """Put an environment into a stored simulator state, so that stepping it repeats the data.

    A cube scene's controller reads the effector's pose as it was one physics step (2 ms) before the
    state: MuJoCo computes poses at the start of a step and positions at its end. Setting the state
    alone would bring the pose up to date and shift every action by the arm's motion in 2 ms. So the
    pose is computed from the positions one physics step back, which the velocities give exactly
    (MuJoCo integrates positions with the new velocity).

    Args:
        env: the environment.
        qpos: positions [nq].
        qvel: velocities [nv].
        at_reset: the state is an episode's first, where poses are up to date.
    """
    scene: Any = env.unwrapped
    qpos, qvel = np.asarray(qpos, np.float64), np.asarray(qvel, np.float64)
    scene.set_state(qpos, qvel)
    if isinstance(scene, CubeEnv) and not at_reset:
        model, data = scene.model, scene.data
        engine: Any = mujoco  # its compiled functions are unknown to type checkers
        engine.mj_integratePos(model, data.qpos, qvel, -model.opt.timestep)
        engine.mj_kinematics(model, data)
        data.qpos[:] = qpos
