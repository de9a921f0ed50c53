"""``jumpy data train-expert``: train the controller that antmaze data is made with."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro


@dataclasses.dataclass(frozen=True)
class TrainExpert:
    """Train a directional ant runner (SAC) for antmaze data. One ships with the package.

    Writes OUT (safetensors) and OUT.json (settings, learning curve, measured quality).
    """

    body: tyro.conf.Positional[Literal["ant"]]
    """Which body."""
    out: Path = Path("ant_expert.safetensors")
    """File for the weights."""
    minutes: float = 10.0
    """Wall-clock budget; one CPU core passes 2 m/s in about ten minutes."""
    seed: int = 0
    """Fixes initial weights, starts and draws; not the speed of your machine, so runs differ."""

    def run(self) -> None:
        """Train, measure, save."""
        from jumpyworld.cli.console import progress
        from jumpyworld.domains.generate.sac import SACConfig, train_and_save

        with progress("ant expert", "seconds") as update:
            facts = train_and_save(
                SACConfig(), self.out, seed=self.seed, minutes=self.minutes, progress=update
            )
        print(f"{self.out}: {facts}")
