"""Result rows: one JSON object per line, whole or not there.

A file is read and written anew as a whole, and nobody else writes it meanwhile: processes that add
to one file wait for each other, and none loses another's rows.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jumpyworld.errors import data_error, unwritable
from jumpyworld.storage.files import atomic_file, lock_file


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none where there is no file.

    Raises:
        DataError: a line is no JSON object; the message names it.
    """
    if not path.exists():
        return []
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise data_error(path, f"cannot be read ({error})") from error
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise data_error(path, f"line {number} is no JSON object")
        rows.append(row)
    return rows


def append_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to a file, and keep those that are there.

    Raises:
        DataError: the file cannot be read or written.
    """
    with _alone(path):
        _write(path, [*read_rows(path), *rows])


def replace_rows(path: Path, rows: Sequence[dict[str, Any]], same: Sequence[str]) -> None:
    """Add rows to a file; an older row that agrees with a new one in all of ``same`` goes.

    Raises:
        DataError: the file cannot be read or written.
    """

    def identity(row: dict[str, Any]) -> str:
        return json.dumps([row.get(name) for name in same])

    new = {identity(row) for row in rows}
    with _alone(path):
        kept = [row for row in read_rows(path) if identity(row) not in new]
        _write(path, [*kept, *rows])


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    # A file beside it, as the file itself is another one after each write.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock_file(path.with_name(f".{path.name}.lock"), wait=True):
            yield
    except OSError as error:
        raise unwritable(path, error) from error


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    try:
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    except ValueError as error:  # also where a row that is there holds NaN, which is no JSON
        raise data_error(
            path, f"cannot be written: a row holds a number that is not finite ({error})"
        ) from error
    with atomic_file(path) as file:
        file.write(text.encode())
