"""The version, read by the build and by ``jumpy info``."""

__version__ = "0.1.0"
