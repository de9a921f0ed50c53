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
        """Train, measure with and without the data's noise, save."""
        from dataclasses import asdict

        from jumpyworld.cli.console import progress
        from jumpyworld.domains.generate.ant_expert import AntExpert, save_expert
        from jumpyworld.domains.generate.ant_runner import measure_expert
        from jumpyworld.domains.generate.sac import SACConfig, train_expert
        from jumpyworld.errors import ConfigError
        from jumpyworld.storage.files import write_json

        if self.minutes <= 0:
            raise ConfigError(f"minutes must be positive, not {self.minutes}")
        config = SACConfig()
        with progress("ant expert", "seconds") as update:
            weights, curve = train_expert(
                config,
                seed=self.seed,
                minutes=self.minutes,
                progress=lambda entry: update(round(entry["wall_s"]), round(60 * self.minutes)),
            )
        measured = {
            name: asdict(measure_expert(AntExpert(weights), num_envs=32, noise=noise, seed=2**40))
            for name, noise in (("clean", 0.0), ("noise_0.2", 0.2))
        }
        notes = {"seed": self.seed, "env_steps": curve[-1]["env_steps"], "measured": measured}
        save_expert(self.out, weights, notes)
        write_json(
            self.out.with_suffix(".json"),
            {**notes, "minutes": self.minutes, "config": asdict(config), "curve": curve},
        )
        clean, noisy = measured["clean"], measured["noise_0.2"]
        print(
            f"{self.out}: {clean['speed']:.2f} m/s, {clean['falls']} falls; "
            f"with action noise 0.2 {noisy['speed']:.2f} m/s, {noisy['falls']} falls"
        )
