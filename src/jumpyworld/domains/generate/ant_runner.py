"""Ants on an open floor: a plain MuJoCo vector to train the runner on, and its measurement.

The ant, its control step of 0.1 s and the noise at reset are OGBench's; the task is its
directional one: reward is the displacement along a direction that is drawn anew every 100 steps.
MuJoCo is stepped directly, since wrappers cost a third of the time.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from jumpyworld.domains.generate.ant_expert import canonical_features, motor_actions
from jumpyworld.errors import MissingExtraError

FRAME_SKIP = 5
STEP_SECONDS = 0.1
HEALTHY_Z = (0.2, 1.0)
TIME_LIMIT = 1000
DIRECTION_INTERVAL = 100
RESET_NOISE = 0.1

# Left and right exchanged, in the canonical frame: legs 1 and 4 swap, 2 and 3 swap, hips change
# sign. Spin is a pseudo-vector: its parts in the mirror plane change sign. (index, sign) pairs.
_LEG_INDEX = np.array([6, 7, 4, 5, 2, 3, 0, 1])
_LEG_SIGN = np.array([-1.0, 1.0] * 4)
ACTION_MIRROR = (_LEG_INDEX, _LEG_SIGN)
FEATURE_MIRROR = (
    np.concatenate([np.arange(10), 10 + _LEG_INDEX, 18 + _LEG_INDEX, [26, 27]]),
    np.concatenate([[1, 1, -1, 1, 1, -1, 1, -1, 1, -1], _LEG_SIGN, _LEG_SIGN, [1, -1]]),
)


def load_ant_model() -> tuple[Any, Any]:
    """Return the MuJoCo module and its model of OGBench's open-floor ant.

    Raises:
        MissingExtraError: ogbench or mujoco is not installed.
    """
    # Locating ogbench without importing it keeps dm_control, and a second, out.
    spec = importlib.util.find_spec("ogbench")
    if spec is None or spec.origin is None:
        raise MissingExtraError("ogbench", "ogbench")
    try:
        mujoco = importlib.import_module("mujoco")
    except ImportError as error:
        raise MissingExtraError("mujoco", "ogbench") from error
    xml = Path(spec.origin).parent / "online_locomotion" / "assets" / "ant.xml"
    return mujoco, mujoco.MjModel.from_xml_path(str(xml))


@dataclass(frozen=True)
class AntStep:
    """What one step of n ants returns.

    Attributes:
        features: successors [n, 28] under the direction that was being followed.
        rewards: metres along that direction [n].
        falls: episodes that ended because the ant left its healthy heights [n].
    """

    features: Float[np.ndarray, "n 28"]
    rewards: Float[np.ndarray, " n"]
    falls: Bool[np.ndarray, " n"]


class AntVector:
    """Ants that run side by side and restart by themselves.

    Attributes:
        features: what each ant sees now [n, 28], under its current direction.
        turns: quarter turns that belong to the features [n].
        directions: unit vectors being followed [n, 2].
    """

    features: Float[np.ndarray, "n 28"]
    turns: Int[np.ndarray, " n"]
    directions: Float[np.ndarray, "n 2"]

    def __init__(self, num: int, rng: np.random.Generator, *, rough_starts: float = 0.0):
        """Create and reset ants.

        Args:
            num: number of ants.
            rng: source of starts and directions.
            rough_starts: share of episodes that start tilted and tumbling instead of at rest.
        """
        mujoco, self.model = load_ant_model()
        self._mj_step = mujoco.mj_step
        self._mj_reset = mujoco.mj_resetData
        self.data = [mujoco.MjData(self.model) for _ in range(num)]
        # Views into the simulator's memory: they stay valid and save a lookup per step.
        self.qpos = [data.qpos for data in self.data]
        self.qvel = [data.qvel for data in self.data]
        self.num = num
        self._rng = rng
        self._rough_starts = rough_starts
        self._ages = np.zeros(num, int)
        self.directions = np.zeros((num, 2))
        self.features = np.zeros((num, 28), np.float32)
        self.turns = np.zeros(num, int)
        for i in range(num):
            self._restart(i)

    def _restart(self, i: int) -> None:
        self._mj_reset(self.model, self.data[i])
        rng, qpos, qvel = self._rng, self.qpos[i], self.qvel[i]
        qpos += rng.uniform(-RESET_NOISE, RESET_NOISE, qpos.size)
        qvel += RESET_NOISE * rng.standard_normal(qvel.size)
        if rng.random() < self._rough_starts:
            # Knocks from a maze's walls leave the ant tilted, spinning and bent.
            qpos[4:6] += rng.uniform(-0.3, 0.3, 2)
            qpos[7:] += rng.uniform(-0.4, 0.4, 8)
            qvel += rng.standard_normal(qvel.size)
        qpos[3:7] /= np.linalg.norm(qpos[3:7])
        self._ages[i] = 0
        self._redirect(i)

    def _redirect(self, i: int) -> None:
        angle = self._rng.uniform(-np.pi, np.pi)
        self.directions[i] = np.cos(angle), np.sin(angle)
        self._look(i)

    def _look(self, i: int) -> None:
        direction = self.directions[i]
        self.features[i], self.turns[i] = canonical_features(self.qpos[i], self.qvel[i], direction)

    def step_canonical(self, actions: Float[np.ndarray, "n 8"]) -> AntStep:
        """Advance by 0.1 s with actions [n, 8] in the frame of the features."""
        return self.step(motor_actions(actions, self.turns))

    def step(self, controls: Float[np.ndarray, "n 8"]) -> AntStep:
        """Advance by 0.1 s with motor commands [n, 8]; fallen and finished ants restart."""
        rewards = np.zeros(self.num, np.float32)
        falls = np.zeros(self.num, bool)
        for i, data in enumerate(self.data):
            x, y = self.qpos[i][:2].tolist()
            data.ctrl[:] = controls[i]
            self._mj_step(self.model, data, FRAME_SKIP)
            new_x, new_y, z = self.qpos[i][:3].tolist()
            gx, gy = self.directions[i].tolist()
            falls[i] = not (HEALTHY_Z[0] <= z <= HEALTHY_Z[1] and np.isfinite(data.qvel).all())
            reward = (new_x - x) * gx + (new_y - y) * gy
            rewards[i] = reward if np.isfinite(reward) else 0.0
            self._look(i)
        successors = np.nan_to_num(self.features)
        self._ages += 1
        for i in range(self.num):
            if falls[i] or self._ages[i] >= TIME_LIMIT:
                self._restart(i)
            elif self._ages[i] % DIRECTION_INTERVAL == 0:
                self._redirect(i)
        return AntStep(successors, rewards, falls)


@dataclass(frozen=True)
class Measurement:
    """How an expert runs.

    Attributes:
        speed: mean speed along the direction, metres per second, turning included.
        falls: episodes that ended early.
        flips: ants that were upside down at any time.
        num_envs: ants measured.
        num_steps: control steps each.
    """

    speed: float
    falls: int
    flips: int
    num_envs: int
    num_steps: int


def measure_expert(
    expert: Callable,
    *,
    num_envs: int = 8,
    num_steps: int = 400,
    noise: float = 0.0,
    seed: int = 0,
) -> Measurement:
    """Run an expert from OGBench's starts, with a new direction every 100 steps.

    Args:
        expert: ``expert(qpos [15], qvel [14], direction [2]) -> action [8]``.
        num_envs: ants.
        num_steps: control steps each.
        noise: standard deviation of Gaussian noise on the actions, which are clipped after.
        seed: of starts, directions and noise.
    """
    rng = np.random.default_rng([seed, 1])
    ants = AntVector(num_envs, np.random.default_rng([seed, 0]))
    distance, falls = 0.0, 0
    flipped = np.zeros(num_envs, bool)
    controls = np.zeros((num_envs, 8))
    for _ in range(num_steps):
        for i in range(num_envs):
            controls[i] = expert(ants.qpos[i], ants.qvel[i], ants.directions[i])
        if noise:
            controls += noise * rng.standard_normal(controls.shape)
        step = ants.step(np.clip(controls, -1.0, 1.0))
        distance += float(step.rewards.sum())
        falls += int(step.falls.sum())
        flipped |= step.features[:, 3] < 0.0
    speed = distance / (num_envs * num_steps * STEP_SECONDS)
    return Measurement(speed, falls, int(flipped.sum()), num_envs, num_steps)
