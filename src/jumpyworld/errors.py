"""Errors that a user can act on: one line that names the file or field, the value, and what to do.

The command line prints these without a traceback and exits with status 2. Anything else that
escapes is a defect of ours and keeps its traceback.
"""

from numbers import Integral, Real
from typing import Any


class JumpyError(Exception):
    """Base of every error that is the input's fault rather than ours."""


class DataError(JumpyError):
    """A dataset, or a file that should hold one, is wrong."""


class CheckpointError(JumpyError):
    """A checkpoint is damaged, incomplete, or belongs to another configuration."""


class ConfigError(JumpyError):
    """A setting is outside what the code can do."""


class PlanError(JumpyError):
    """A planning request cannot be answered."""


class MissingExtraError(JumpyError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str):
        super().__init__(
            f"{package} is not installed: pip install 'jumpyworld[{extra}]' (or: make install)"
        )


def data_error(source: object, text: str) -> DataError:
    """Build a DataError that stays on one line, whatever a damaged file or odd name contains."""
    message = f"{source}: {text}"
    return DataError("".join(c if c.isprintable() else "?" for c in message)[:600])


def unwritable(path: object, error: OSError) -> DataError:
    """Build the DataError for a disk that refused."""
    return data_error(path, f"cannot be written ({error.strerror or error})")


def brief(value: Any) -> str:
    """Return how a value is written, on one line and cut short."""
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else f"{words[:60]}.."


def check_whole(name: str, value: int, least: int) -> None:
    """Raise ConfigError unless a setting is a whole number, at least so large."""
    if not (isinstance(value, Integral) and value >= least):
        told = value if isinstance(value, Real) else brief(value)  # '2' is no 2
        raise ConfigError(f"{name}={told}: must be a whole number, at least {least}")
