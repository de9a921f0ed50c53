"""Versions of what an episode depends on; data of two versions are alike but not equal."""

from importlib import metadata

from jumpyworld._version import __version__
from jumpyworld.errors import MissingExtraError

SIMULATOR = ("ogbench", "mujoco", "gymnasium", "dm-control", "numpy", "scipy")


def simulator_versions() -> dict[str, str]:
    """Return the versions of the packages that decide what an episode looks like, ours included."""
    try:
        versions = {name: metadata.version(name) for name in SIMULATOR}
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(str(error.name), "ogbench") from error
    return versions | {"jumpyworld": __version__}
