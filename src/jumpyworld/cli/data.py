"""``jumpy data``: make, look at and convert data sets."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jumpyworld.cli.data_inspect import Convert, Inspect, List
from jumpyworld.cli.data_train_expert import TrainExpert

# jumpy data generate pointmaze-large --out data
# jumpy data inspect data


@dataclasses.dataclass(frozen=True)
class Generate:
    """Make a domain's standard data set: OGBench's navigate (mazes) or play (cubes) behaviour.

    Writes OUT/NAME.npz, OUT/NAME-val.npz and OUT/NAME.json. The same seed gives the same files for
    any number of workers. Interrupted, the same command continues.
    """

    name: tyro.conf.Positional[str]
    """Domain: an OGBench name (antmaze-large-navigate-v0) or an alias (antmaze-large, cube-3)."""
    out: Path = Path("data")
    """Folder for the result."""
    episodes: int | None = None
    """Training episodes (default: OGBench's number); a tenth as many are added for validation."""
    workers: int | None = None
    """Processes (default: all cores)."""
    seed: int = 0
    """Fixes the data set."""
    expert: Path | None = None
    """Weights of the ant's controller, from train-expert (default: the packaged ones)."""
    overwrite: bool = False
    """Start anew, whatever the folder holds of this name."""

    def run(self) -> None:
        """Make the set and say where it is."""
        from jumpyworld import domains
        from jumpyworld.cli.console import progress
        from jumpyworld.domains.generate.runner import Request, generate

        request = Request.make(domains.get(self.name), self.seed, self.episodes, self.expert)
        try:
            with progress(request.domain, "episodes") as update:
                path = generate(
                    request,
                    self.out,
                    workers=self.workers,
                    overwrite=self.overwrite,
                    expert=self.expert,
                    progress=update,
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("(the same command continues)") from None
        print(f"{path}: complete ({path.stat().st_size / 1e6:.1f} MB)")


@dataclasses.dataclass(frozen=True)
class Data:
    """Make, look at and convert data sets."""

    command: Annotated[Generate | Inspect | Convert | List | TrainExpert, tyro.conf.arg(name="")]

    def run(self) -> None:
        """Run the chosen command."""
        self.command.run()
