"""``jumpy export``: inference weights, small enough to ship."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro

# jumpy export runs/ghm --out weights/ghm --dtype bf16


@dataclasses.dataclass(frozen=True)
class Export:
    """Write the inference weights of a run as a folder that jumpyworld.load reads."""

    run_folder: tyro.conf.Positional[Path]
    """Run folder (its newest verified checkpoint), or one checkpoint folder."""
    out: Path
    """Folder to make."""
    shard_mb: float = 15.0
    """Largest size of a file in MB, unless one array alone is larger."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What weights are stored as; loading takes them back to the model's own type."""
    weights: Literal["average", "online"] = "average"
    """The average over training, which every command uses, or the last ones (models only)."""
    seed: int | None = None
    """Which seed of several trained at once."""

    def run(self) -> None:
        """Export and say what was written."""
        from jumpyworld.cli.train_loop import warn
        from jumpyworld.loading import export

        folder = export(
            self.run_folder,
            self.out,
            self.shard_mb,
            self.dtype,
            weights=self.weights,
            seed=self.seed,
            warn=warn,
        )
        sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
        shards = "file" if len(sizes) == 1 else "files"
        print(f"{folder}: complete ({sum(sizes) / 1e6:.1f} MB in {len(sizes)} {shards} of weights)")
