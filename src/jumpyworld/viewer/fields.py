"""Requests from the browser, checked by shape and range before anything is done.

No field is a path, a URL or code: ids, words from a list, and numbers within bounds.
"""

import json
import math
from typing import Any

from jumpyworld.errors import JumpyError
from jumpyworld.viewer.candidates import Horizons

MOST_CELLS = 2000
MOST_OBJECTS = 8
MOST_SEGMENTS = 32


class BadRequestError(JumpyError):
    """A request is not what the page sends; the message names the field."""


def parse(body: bytes | str) -> dict[str, Any]:
    """Return a JSON object; NaN, Infinity, doubled keys and endless nesting are refused."""
    try:
        found = json.loads(
            body, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"body: not readable as JSON ({type(error).__name__})") from error
    if not isinstance(found, dict):
        raise BadRequestError("body: must be an object")
    return found


class Fields:
    """The fields of a request; each is read once, and none may be left over."""

    def __init__(self, values: dict[str, Any]):
        """Keep them."""
        self._left = dict(values)

    def end(self) -> None:
        """Refuse what nobody asked for."""
        for name in self._left:
            raise BadRequestError(f"{str(name)[:40]!r}: no such field")

    def word(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of a few words."""
        value = self._take(name)
        if not isinstance(value, str) or value not in allowed:
            raise BadRequestError(f"{name}: must be one of {', '.join(allowed)}")
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        """Return a whole number within bounds."""
        value = self._take(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadRequestError(f"{name}: must be a whole number from {low} to {high}")
        return value

    def real(self, name: str, low: float, high: float) -> float:
        """Return a number within bounds."""
        return _real(name, self._take(name), low, high)

    def place(self, name: str) -> tuple[float, float]:
        """Return a place (x, y) in metres."""
        return _place(name, self._take(name))

    def places(self, name: str) -> list[tuple[float, float]]:
        """Return a few places."""
        return [_place(name, value) for value in self._list(name, 1, MOST_OBJECTS)]

    def cells(self, name: str) -> list[tuple[int, int, float]]:
        """Return painted cells (i, j, value) with values from -1 to 1."""
        cells = []
        for cell in self._list(name, 0, MOST_CELLS):
            good = isinstance(cell, list) and len(cell) == 3
            if not good or not all(type(value) is int for value in cell[:2]):
                raise BadRequestError(f"{name}: each must be [row, column, value]")
            cells.append((cell[0], cell[1], _real(name, cell[2], -1.0, 1.0)))
        return cells

    def horizons(self, segments: int) -> Horizons:
        """Return ``horizons`` and ``discount``; their number is fixed, as compiled."""
        values = self._list("horizons", 1, MOST_SEGMENTS)
        if len(values) != segments:
            raise BadRequestError(f"horizons: must be {segments} numbers")
        steps = tuple(_real("horizons", value, 1.0, 1e5) for value in values)
        return Horizons(steps, self.real("discount", 0.01, 0.99999))

    def _list(self, name: str, least: int, most: int) -> list[Any]:
        value = self._take(name)
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise BadRequestError(f"{name}: must be a list of {least} to {most}")
        return value

    def _take(self, name: str) -> Any:
        if name not in self._left:
            raise BadRequestError(f"{name}: is missing")
        return self._left.pop(name)


def _place(name: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise BadRequestError(f"{name}: a place is [x, y]")
    return _real(name, value[0], -1e3, 1e3), _real(name, value[1], -1e3, 1e3)


def _real(name: str, value: Any, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequestError(f"{name}: must be a number from {low:g} to {high:g}")
    return float(value)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found
