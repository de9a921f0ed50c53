"""What a model must know about its data before it sees any: widths and statistics.

Shapes: N states, T trajectories, d state, da action and dz policy-encoding dimensions, H horizons.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from jumpyworld.errors import ConfigError
from jumpyworld.ghm.frame import HORIZONS, displacement_table


@dataclass(frozen=True, eq=False)
class GHMSpec:
    """Widths of the arrays and statistics in raw units; host arrays, used by ``init`` alone.

    Attributes:
        action_dim: da.
        mean: of each state dimension [d].
        std: of each state dimension [d].
        displacements: RMS displacement of the data at each of ``HORIZONS`` [H, d].
        z_mean: of each dimension of z [dz]; None where z is a state.
        z_std: of each dimension of z [dz]; None where z is a state.
    """

    action_dim: int
    mean: Float[np.ndarray, " d"]
    std: Float[np.ndarray, " d"]
    displacements: Float[np.ndarray, "H d"]
    z_mean: Float[np.ndarray, " dz"] | None = None
    z_std: Float[np.ndarray, " dz"] | None = None

    def __post_init__(self):
        d = self.mean.shape[0]
        if self.std.shape != (d,) or self.displacements.shape != (len(HORIZONS), d):
            raise ConfigError(
                f"spec: mean {self.mean.shape}, std {self.std.shape} and displacements "
                f"{self.displacements.shape} do not fit {len(HORIZONS)} horizons of {d} dimensions"
            )
        if (self.z_mean is None) != (self.z_std is None):
            raise ConfigError("spec: z_mean and z_std must be given together")

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.mean.shape[0]

    @property
    def z_is_state(self) -> bool:
        """Whether z shares the state's units and normaliser."""
        return self.z_mean is None

    @property
    def z_dim(self) -> int:
        """Width dz of a policy encoding."""
        return self.observation_dim if self.z_mean is None else self.z_mean.shape[0]

    def shapes(self) -> dict[str, int | None]:
        """Return the arguments of ``blank`` as plain values: all a loader must know beforehand."""
        return {
            "observation_dim": self.observation_dim,
            "action_dim": self.action_dim,
            "z_dim": None if self.z_is_state else self.z_dim,
        }

    @classmethod
    def blank(cls, observation_dim: int, action_dim: int, z_dim: int | None = None) -> "GHMSpec":
        """Return a spec of the right shapes and no knowledge, to build what a checkpoint fills.

        Args:
            observation_dim: d.
            action_dim: da.
            z_dim: dz of a z that is no state; None where z is a state.
        """
        d, z = observation_dim, None if z_dim is None else np.zeros(z_dim, np.float32)
        return cls(
            action_dim=action_dim,
            mean=np.zeros(d, np.float32),
            std=np.ones(d, np.float32),
            displacements=np.ones((len(HORIZONS), d), np.float32),
            z_mean=z,
            z_std=None if z is None else np.ones_like(z),
        )

    @classmethod
    def from_arrays(
        cls,
        observations: Float[np.ndarray, "N d"],
        starts: Int[np.ndarray, " T"],
        ends: Int[np.ndarray, " T"],
        action_dim: int,
        *,
        z_dim: int | None = None,
        seed: int = 0,
    ) -> "GHMSpec":
        """Measure the statistics of a dataset.

        Args:
            observations: states in raw units [N, d].
            starts: first row of each trajectory [T].
            ends: last row of each trajectory, inclusive [T].
            action_dim: da.
            z_dim: dz of a z that is no state, which is then left in its own units; None where z
                is a state.
            seed: of the pairs of states that displacements are measured on.
        """
        z = None if z_dim is None else np.zeros(z_dim, np.float32)
        return cls(
            action_dim=action_dim,
            # float64: sums of millions of float32 values lose digits.
            mean=observations.mean(0, dtype=np.float64).astype(np.float32),
            std=observations.std(0, dtype=np.float64).astype(np.float32),
            displacements=displacement_table(observations, starts, ends, seed=seed),
            z_mean=z,
            z_std=None if z is None else np.ones_like(z),
        )
