"""``jumpy demo``: the story so far, on a CPU, in a minute."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Demo:
    """Make a small pointmaze data set and look at it.

    This grows into the whole story (train a policy and a model, plan, compare) with the package.
    """

    out: Path = Path("demo")
    """Folder for what the demo makes."""
    seed: int = 0
    """Fixes the demo."""
    overwrite: bool = False
    """Start anew."""

    def run(self) -> None:
        """Make the set, then inspect it."""
        from jumpyworld.cli.data import Generate
        from jumpyworld.cli.data_inspect import Inspect

        name = "pointmaze-medium-navigate-v0"
        Generate(name, out=self.out, episodes=100, seed=self.seed, overwrite=self.overwrite).run()
        Inspect(self.out / f"{name}.npz").run()
