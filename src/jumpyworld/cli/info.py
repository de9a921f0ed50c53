"""``jumpy info``: what is installed where, to paste into a report."""

import dataclasses
import json as json_module

PACKAGES = (
    "jumpyworld", "jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "safetensors", "tyro",
    "ogbench", "mujoco", "gymnasium", "dm-control", "matplotlib", "POT", "minari", "h5py",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Info:
    """Print versions, devices and folders."""

    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Print the facts."""
        facts = collect()
        if self.json:
            print(json_module.dumps(facts, indent=2))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(show_header=False, box=None)
        for group, entries in facts.items():
            for key, value in entries.items():
                table.add_row(group, key, value)
                group = ""
        Console().print(table)


def collect() -> dict[str, dict[str, str]]:
    """Return versions, devices and folders."""
    import platform
    import sys
    from importlib import metadata
    from pathlib import Path

    import jax

    import jumpyworld
    from jumpyworld.machine import available_cores

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "not installed"

    return {
        "system": {
            "python": f"{platform.python_version()} ({sys.executable})",
            "platform": platform.platform(),
            "cores": str(available_cores()),
        },
        "packages": {name: version(name) for name in PACKAGES},
        "devices": {str(d.id): f"{d.platform} {d.device_kind}" for d in jax.devices()},
        "folders": {
            "package": str(Path(jumpyworld.__file__).parent),
            "working": str(Path.cwd()),
        },
    }
