"""``jumpy data train-expert``: train the controller that antmaze data is made with."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro


@dataclasses.dataclass(frozen=True)
class TrainExpert:
    """Train a directional ant runner (SAC) for antmaze data. One ships with the package.

    Writes OUT (safetensors) and, beside it, a .json (settings, curve, measured quality).
    """

    body: tyro.conf.Positional[Literal["ant"]]
    """Which body."""
    out: Path = Path("ant_expert.safetensors")
    """File for the weights."""
    minutes: float = 10.0
    """Wall-clock budget; one CPU core passes 2 m/s in about seven minutes."""
    steps: int | None = None
    """Steps of the ants, instead of minutes: then a seed gives the same expert each time."""
    overwrite: bool = False
    """Replace OUT and its .json."""
    seed: int = 0
    """Fixes initial weights, starts and draws."""

    def run(self) -> None:
        """Train, measure with and without the data's noise, save."""
        from dataclasses import asdict

        from jumpyworld.cli.console import progress
        from jumpyworld.domains.generate.ant_expert import AntExpert, save_expert
        from jumpyworld.domains.generate.ant_runner import measure_expert
        from jumpyworld.domains.generate.sac import SACConfig, train_expert
        from jumpyworld.errors import ConfigError, unwritable
        from jumpyworld.storage.files import atomic_file, write_json

        for name in ("minutes", "steps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e9:
                raise ConfigError(f"{name} must be positive and finite, not {value}")
        if self.seed < 0:
            raise ConfigError(f"seed must not be negative, not {self.seed}")
        facts = self.out.with_suffix(".json")
        for path in (self.out, facts):
            if path.is_dir():
                raise ConfigError(f"{path}: is a folder; --out names a file")
            if path.exists() and not self.overwrite:
                raise ConfigError(f"{path}: exists; choose another --out, or --overwrite")
        try:  # before the minutes are spent
            probe = self.out.with_name(f".{self.out.name}.probe")
            with atomic_file(probe):
                pass
            probe.unlink()
        except OSError as error:
            raise unwritable(self.out, error) from error
        config = SACConfig()
        minutes = None if self.steps else self.minutes
        unit, total = ("steps", self.steps) if self.steps else ("seconds", 60 * self.minutes)
        with progress("ant expert", unit) as update:
            weights, curve = train_expert(
                config,
                seed=self.seed,
                minutes=minutes,
                env_steps=self.steps,
                progress=lambda entry: update(
                    round(entry["env_steps" if self.steps else "wall_s"]), round(total)
                ),
            )
        measured = {
            name: asdict(measure_expert(AntExpert(weights), num_envs=32, noise=noise, seed=2**40))
            for name, noise in (("clean", 0.0), ("noisy", 0.2))
        }
        budget = f"--steps {self.steps}" if self.steps else f"--minutes {self.minutes}"
        notes = {
            "command": f"jumpy data train-expert ant {budget} --seed {self.seed}",
            "seed": self.seed,
            "env_steps": curve[-1]["env_steps"],
            "measured": measured,
        }
        save_expert(self.out, weights, notes)
        write_json(
            facts,
            {**notes, "config": asdict(config), "curve": curve},
        )
        clean, noisy = measured["clean"], measured["noisy"]
        print(
            f"{self.out}: {clean['speed']:.2f} m/s, {clean['falls']} falls; "
            f"with action noise 0.2 {noisy['speed']:.2f} m/s, {noisy['falls']} falls"
        )
