"""jumpyworld: plan by composing pre-trained policies with jumpy world models."""

from jumpyworld._version import __version__

__all__ = ["__version__"]
