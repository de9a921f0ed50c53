"""jumpyworld: plan by composing pre-trained policies with jumpy world models."""

from typing import TYPE_CHECKING, Any

from jumpyworld._version import __version__

if TYPE_CHECKING:
    from jumpyworld.loading import load

__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import ``load`` when it is asked for: a bare ``import jumpyworld`` needs no library."""
    if name == "load":
        from jumpyworld.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
