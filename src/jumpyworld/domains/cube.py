"""cube-1 to cube-4: put every cube in its place."""

from dataclasses import dataclass

import numpy as np

from jumpyworld.domains.base import Domain

ARM_DIM = 19  # joints, joint velocities, effector, gripper
EFFECTOR = slice(12, 15)  # position of the arm's end, after six joints and their velocities
GRIPPER = slice(17, 19)  # how far it is closed, and whether it touches anything
CUBE_DIM = 9  # position, quaternion, cos and sin of the yaw
POSITION_SCALE = 10.0  # OGBench observes (xyz - CENTRE) * 10
CENTRE = (0.425, 0.0, 0.0)


@dataclass(frozen=True)
class CubeDomain(Domain):
    """A UR5e arm and some cubes. Success: every cube's centre within 4 cm of its target.

    Neither the arm nor the orientation of the cubes counts.
    """

    @property
    def num_cubes(self) -> int:
        """Number of cubes in the scene."""
        return (self.observation_dim - ARM_DIM) // CUBE_DIM

    @property
    def tolerance(self) -> float:
        """Four centimetres in observation units."""
        return 0.04 * POSITION_SCALE

    @property
    def simulator_dim(self) -> int:
        """Fourteen joints of arm and gripper; a free cube has 7 positions and 6 velocities."""
        return 2 * 14 + self.num_cubes * (7 + 6)

    @property
    def reward_offset(self) -> int:
        """OGBench's single-task reward is minus the number of cubes out of place."""
        return self.num_cubes

    def goal_features(self, observations):
        """Return the cubes' positions in observation units: [..., num_cubes, 3]."""
        cubes = observations[..., ARM_DIM:]
        cubes = cubes.reshape((*cubes.shape[:-1], self.num_cubes, CUBE_DIM))
        return cubes[..., :3]

    def cube_positions(self, observations):
        """Return the cubes' positions in metres: [..., num_cubes, 3]."""
        scaled = self.goal_features(observations) / POSITION_SCALE
        return scaled + np.asarray(CENTRE, dtype=scaled.dtype)

    def effector_position(self, observations):
        """Return the position of the arm's end in metres: [..., 3]."""
        scaled = observations[..., EFFECTOR] / POSITION_SCALE
        return scaled + np.asarray(CENTRE, dtype=scaled.dtype)
