"""Versions of what the physics depends on; data of two versions are alike but not equal."""

from importlib import metadata

SIMULATOR = ("ogbench", "mujoco", "gymnasium", "numpy")


def simulator_versions() -> dict[str, str]:
    """Return the installed versions of the packages that decide what an episode looks like."""
    return {name: metadata.version(name) for name in SIMULATOR}
