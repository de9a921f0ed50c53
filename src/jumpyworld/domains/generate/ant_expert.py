"""A directional runner for the ant: the symmetric frame it sees, and its network, in NumPy only.

Processes that make data import this module and must stay light, so nothing here needs JAX; the
runner is trained by ``sac.py``. One call has to cost a few per cent of a simulator step, so:

    frame     Python floats and no trigonometry: cos and sin of the yaw come from the quaternion
    turn      quarter turns and leg relabelling are signed permutations; they are folded into the
              first and last weights once per turn, never applied to a state
    network   Linear, LayerNorm without affine, ReLU (twice), Linear, tanh. Centring is linear and
              is folded into the weights; ReLU is positively homogeneous, so the division by the
              standard deviation is one product with a number

The ant looks the same after a quarter turn if its legs are renamed. Features are therefore given
in a frame turned by yaw + k * 90 degrees, with k such that the wanted direction lies within 45
degrees of the front: the policy only ever learns to run ahead.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from jumpyworld.errors import CheckpointError
from jumpyworld.storage.files import atomic_file

FEATURE_DIM = 28
ACTION_DIM = 8
LAYER_NORM_EPS = 1e-5
FORMAT = "jumpyworld-ant-expert-1"
DEFAULT_PATH = Path(__file__).with_name("ant_expert.safetensors")

# Bending a leg upwards is a positive angle for legs 1 and 4 and a negative one for legs 2 and 3.
ANKLE_SIGNS = (1.0, -1.0, -1.0, 1.0)
# Motors are listed from leg 4; joints are listed from leg 1.
CONTROL_SLOT = (1, 2, 3, 0)
# Features: height, up 3, velocity 3, spin 3, (hip, ankle) x 4, their velocities, direction 2.
_JOINTS, _JOINT_VELOCITIES, _DIRECTION = 10, 18, 26


def _quarter_turn(k: int) -> Float[np.ndarray, "28 28"]:
    """Return the matrix that takes yaw-frame features to the frame turned by k * 90 degrees."""
    turn = np.zeros((FEATURE_DIM, FEATURE_DIM))
    turn[0, 0] = turn[3, 3] = turn[6, 6] = turn[9, 9] = 1.0
    c, s = ((1, 0), (0, 1), (-1, 0), (0, -1))[k]
    for start in (1, 4, 7, _DIRECTION):
        turn[start : start + 2, start : start + 2] = [[c, s], [-s, c]]
    for leg in range(4):
        source = (leg + k) % 4
        for start in (_JOINTS, _JOINT_VELOCITIES):
            turn[start + 2 * leg, start + 2 * source] = 1.0
            turn[start + 2 * leg + 1, start + 2 * source + 1] = ANKLE_SIGNS[source]
    return turn


def _control_turn(k: int) -> Float[np.ndarray, "8 8"]:
    """Return the matrix that takes a canonical action to the motors under turn k."""
    turn = np.zeros((ACTION_DIM, ACTION_DIM))
    for leg in range(4):
        target = (leg + k) % 4
        motor = 2 * CONTROL_SLOT[target]
        turn[motor, 2 * leg] = 1.0
        turn[motor + 1, 2 * leg + 1] = ANKLE_SIGNS[target]
    return turn


FEATURE_TURNS = np.stack([_quarter_turn(k) for k in range(4)])
CONTROL_TURNS = np.stack([_control_turn(k) for k in range(4)])


def _yaw_frame(qpos, qvel, direction) -> tuple[list[float], int]:
    """Return the features before the quarter turn, as 28 floats, and the turn itself.

    The yaw is the twist 2 * atan2(qz, qw). The angle of the body's x axis would not do: it does
    not commute with relabelling the legs once the torso tilts.
    """
    _, _, z, qw, qx, qy, qz, *joints = qpos.tolist()
    vx, vy, vz, wx, wy, wz, *joint_velocities = qvel.tolist()
    gx, gy = direction.tolist() if isinstance(direction, np.ndarray) else direction
    flat = qw * qw + qz * qz
    lean = qx * qx + qy * qy
    # Quaternions arrive unnormalised from a reset, hence the division.
    scale = 2.0 / (flat + lean)
    if flat > 1e-12:
        c, s = (qw * qw - qz * qz) / flat, 2.0 * qw * qz / flat
    else:  # exactly upside down: any yaw is as good as another
        c, s = 1.0, 0.0
    dx, dy = c * gx + s * gy, c * gy - s * gx
    k = (0 if dy <= dx else 1) if dx + dy > 0.0 else (2 if dy >= dx else 3)
    frame = [
        z,
        scale * (qx * qz - qw * qy),
        scale * (qy * qz + qw * qx),
        scale * flat - 1.0,
        c * vx + s * vy,
        c * vy - s * vx,
        vz,
        wx,
        wy,
        wz,
        *joints,
        *joint_velocities,
        dx,
        dy,
    ]
    return frame, k


def canonical_features(
    qpos: Float[np.ndarray, "15"], qvel: Float[np.ndarray, "14"], direction
) -> tuple[Float[np.ndarray, "28"], int]:
    """Return what the runner sees, and the quarter turn that relates it to the motors.

    Args:
        qpos: position [15]: x, y, z, quaternion wxyz, hip and ankle of legs 1 to 4.
        qvel: velocity [14]: linear in the world, angular in the body, joints.
        direction: unit vector [2] in the world.

    Returns:
        Features [28] (height, world's up in the body, linear velocity, body's angular velocity,
        joints, joint velocities, direction) and the turn k in 0..3.
    """
    frame, k = _yaw_frame(qpos, qvel, direction)
    return (FEATURE_TURNS[k] @ np.asarray(frame)).astype(np.float32), k


def motor_actions(
    actions: Float[np.ndarray, "n 8"], turns: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n 8"]:
    """Return canonical actions [n, 8] in the motors' own order and signs, given turns [n]."""
    return np.einsum("nij,nj->ni", CONTROL_TURNS[turns], actions)


class AntExpert:
    """The trained runner: state and direction in, eight motor commands out.

    Calls reuse buffers: share one expert between processes, not between threads.
    """

    def __init__(
        self, weights: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
    ):
        """Fold the weights for speed.

        Args:
            weights: ``w0`` [28, H], ``b0`` [H], ``w1`` [H, H], ``b1`` [H], ``w2`` [H, 8], ``b2``
                [8]; action means are ``tanh(relu(ln(relu(ln(x w0 + b0)) w1 + b1)) w2 + b2)``.
            metadata: notes kept with the weights.
        """
        self.weights = {name: np.asarray(weights[name], np.float32) for name in sorted(weights)}
        self.metadata = dict(metadata or {})
        w = {name: value.astype(np.float64) for name, value in self.weights.items()}
        w0, b0 = _centre(w["w0"]), _centre(w["b0"])
        w1, b1 = _centre(w["w1"]), _centre(w["b1"])
        self._width = w1.shape[0]
        # The last input is 1, which makes the first bias a row of the first matrix.
        self._first = [_f32(np.vstack([FEATURE_TURNS[k].T @ w0, b0])) for k in range(4)]
        # Halves: OpenBLAS hands a 128 x 128 product to several threads, and waking them costs more
        # than the product.
        half = self._width // 2
        self._left, self._right = _f32(w1[:, :half]), _f32(w1[:, half:])
        self._bias = _f32(b1)
        self._head = [_f32(w["w2"] @ CONTROL_TURNS[k].T) for k in range(4)]
        self._head_bias = [_f32(CONTROL_TURNS[k] @ w["b2"]) for k in range(4)]
        self._h0 = np.empty(self._width, np.float32)
        self._h1 = np.empty(self._width, np.float32)
        self._h1_left, self._h1_right = self._h1[:half], self._h1[half:]

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> "AntExpert":
        """Read an expert, by default the one that comes with the package.

        Raises:
            CheckpointError: the file is missing, damaged, or holds something else.
        """
        path = DEFAULT_PATH if path is None else Path(path)
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: cannot read the ant expert ({error})") from error
        if metadata.get("format") != FORMAT:
            found = metadata.get("format")
            raise CheckpointError(f"{path}: format is {found!r}, an ant expert has {FORMAT!r}")
        _check(weights, path)
        return cls(weights, metadata)

    def __call__(
        self, qpos: Float[np.ndarray, "15"], qvel: Float[np.ndarray, "14"], direction
    ) -> Float[np.ndarray, "8"]:
        """Return motor commands [8] in [-1, 1], float32, for a unit direction [2]."""
        frame, k = _yaw_frame(qpos, qvel, direction)
        frame.append(1.0)
        h0, h1, n = self._h0, self._h1, self._width
        np.dot(np.array(frame, np.float32), self._first[k], out=h0)
        scale = (float(np.dot(h0, h0)) / n + LAYER_NORM_EPS) ** -0.5
        np.maximum(h0, 0.0, out=h0)
        np.dot(h0, self._left, out=self._h1_left)
        np.dot(h0, self._right, out=self._h1_right)
        h1 *= scale
        h1 += self._bias
        scale = (float(np.dot(h1, h1)) / n + LAYER_NORM_EPS) ** -0.5
        np.maximum(h1, 0.0, out=h1)
        action = np.dot(h1, self._head[k])
        action *= scale
        action += self._head_bias[k]
        return np.tanh(action, out=action)


def save_expert(
    path: str | os.PathLike[str],
    weights: Mapping[str, np.ndarray],
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Write weights and notes to one file; a reader sees the old file or the new, never a part.

    Args:
        path: target, overwritten.
        weights: arrays as ``AntExpert`` takes them.
        metadata: notes, stored as JSON text unless they are text already.
    """
    path = Path(path)
    arrays = {name: _f32(value) for name, value in weights.items()}
    _check(arrays, path)
    notes = {k: v if isinstance(v, str) else json.dumps(v) for k, v in (metadata or {}).items()}
    with atomic_file(path) as file:
        file.write(save(arrays, metadata={**notes, "format": FORMAT}))


def _check(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise CheckpointError unless the arrays form one runner with finite weights."""
    width = weights["w1"].shape[-1] if "w1" in weights and weights["w1"].ndim else 0
    shapes = {
        "w0": (FEATURE_DIM, width),
        "b0": (width,),
        "w1": (width, width),
        "b1": (width,),
        "w2": (width, ACTION_DIM),
        "b2": (ACTION_DIM,),
    }
    found = {name: value.shape for name, value in weights.items()}
    if found != shapes:
        raise CheckpointError(f"{path}: arrays are {found}, an ant expert has {shapes}")
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise CheckpointError(f"{path}: {name} holds values that are not finite")


def _centre(array: np.ndarray) -> np.ndarray:
    """Subtract the mean over outputs: LayerNorm's centring, moved into the weights."""
    return array - array.mean(-1, keepdims=True)


def _f32(array) -> np.ndarray:
    return np.ascontiguousarray(array, np.float32)
