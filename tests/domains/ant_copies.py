"""Random ants, and their copies: renamed, turned and mirrored; and networks to steer them."""

import jax
import numpy as np
from scipy.spatial.transform import Rotation

from jumpyworld.domains.generate import sac


def random_state(seed, upright=False):
    rng = np.random.default_rng(seed)
    qpos = rng.normal(size=15)
    qpos[3:7] /= np.linalg.norm(qpos[3:7])
    qpos[7:] *= 0.5
    if upright:
        yaw, tilt = rng.uniform(-np.pi, np.pi), rng.uniform(-0.3, 0.3, 2)
        quat = (Rotation.from_euler("z", yaw) * Rotation.from_euler("xy", tilt)).as_quat()
        qpos[2], qpos[3:7] = 0.6, np.roll(quat, 1)
        qpos[7:] = np.array([0, 0.9, 0, -0.9, 0, -0.9, 0, 0.9]) + rng.uniform(-0.3, 0.3, 8)
    angle = rng.uniform(-np.pi, np.pi)
    return qpos, rng.normal(size=14), np.array([np.cos(angle), np.sin(angle)])


def rename_legs(qpos, qvel):
    """The same posture, with the body frame a quarter turn further and leg 2 called leg 1."""
    turn = Rotation.from_euler("z", 90, degrees=True)
    new_qpos, new_qvel = qpos.copy(), qvel.copy()
    new_qpos[3:7] = np.roll((Rotation.from_quat(np.roll(qpos[3:7], -1)) * turn).as_quat(), 1)
    new_qvel[3:6] = turn.inv().apply(qvel[3:6])
    for array, source, start in ((new_qpos, qpos, 7), (new_qvel, qvel, 6)):
        legs = source[start:].reshape(4, 2) * np.array([[1, 1], [1, -1], [1, -1], [1, 1]])
        # Rolling brings leg 2 to slot 1; signs are each slot's own.
        legs = np.roll(legs, -1, axis=0) * np.array([[1, 1], [1, -1], [1, -1], [1, 1]])
        array[start:] = legs.ravel()
    return new_qpos, new_qvel


def turn_world(qpos, qvel, direction):
    """The whole scene turned by 90 degrees about the origin."""
    turn = Rotation.from_euler("z", 90, degrees=True)
    new_qpos, new_qvel = qpos.copy(), qvel.copy()
    new_qpos[:3] = turn.apply(qpos[:3])
    new_qpos[3:7] = np.roll((turn * Rotation.from_quat(np.roll(qpos[3:7], -1))).as_quat(), 1)
    new_qvel[:3] = turn.apply(qvel[:3])
    return new_qpos, new_qvel, turn.apply([*direction, 0.0])[:2]


def mirror_world(qpos, qvel, direction):
    """The scene seen in a mirror along the x axis."""
    new_qpos = qpos * np.array([1, -1, 1, 1, -1, 1, -1] + [-1, 1] * 4)
    new_qvel = qvel * np.array([1, -1, 1, -1, 1, -1] + [-1, 1] * 4)
    for array, start in ((new_qpos, 7), (new_qvel, 6)):
        array[start:] = array[start:].reshape(4, 2)[[3, 2, 1, 0]].ravel()
    return new_qpos, new_qvel, direction * np.array([1, -1])


def random_networks(seed=0, width=128):
    """Networks with every weight and bias drawn, without compiling an initialiser."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(sac.init_sac, jax.random.key(0), sac.SACConfig(width=width))

    def draw(leaf):
        scale = 1.0 / np.sqrt(leaf.shape[0]) if leaf.ndim == 2 else 0.1
        return (scale * rng.normal(size=leaf.shape)).astype(np.float32)

    return jax.tree.map(draw, (shapes.actor, shapes.critics, shapes.target_critics))
