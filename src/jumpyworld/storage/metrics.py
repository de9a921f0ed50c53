"""The log of a training run: ``metrics.jsonl`` for programs, ``metrics.csv`` for spreadsheets.

Rows are appended and flushed as they come. A run that goes on from step k first drops what was
logged after k, and a row of k that only stood for the steps so far, so that its log ends up as that
of a run that never stopped; the fields in ``WALL_CLOCK`` alone differ. The JSON lines are the
record; the CSV file is made from them.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jumpyworld.storage.files import atomic_file
from jumpyworld.storage.manifest import writing

WALL_CLOCK = ("steps_per_second",)


class MetricsLog:
    """Appends rows to the two files of a run folder; use as a context manager."""

    def __init__(self, run: Path, columns: Sequence[str], step: int, *, early: bool = False):
        """Open the log of ``run`` for a run that has done ``step`` steps.

        Args:
            run: the run folder.
            columns: field names of a row, in the order of the CSV file; ``step`` is one of them.
            step: rows of later steps are dropped.
            early: a row of this very step came before its time, and is dropped too.
        """
        self._paths = Path(run) / "metrics.jsonl", Path(run) / "metrics.csv"
        self._columns = tuple(columns)
        last = step - 1 if early else step
        kept = [row for row in read_rows(self._paths[0]) if row["step"] <= last]
        with writing(Path(run)):
            with atomic_file(self._paths[0]) as file:
                file.write("".join(map(_json_line, kept)).encode())
            with atomic_file(self._paths[1]) as file:
                header = _csv_lines([self._columns])
                file.write((header + _csv_lines(map(self._cells, kept))).encode())
            self._files = tuple(path.open("a", encoding="utf-8") for path in self._paths)

    def write(self, row: dict[str, Any]) -> None:
        """Append one row; values that are not finite become null and an empty cell."""
        row = {name: _plain(value) for name, value in row.items()}
        lines = _json_line(row), _csv_lines([self._cells(row)])
        for path, file, line in zip(self._paths, self._files, lines, strict=True):
            with writing(path):
                file.write(line)
                file.flush()

    def sync(self) -> None:
        """Flush to the disk, before a checkpoint that claims these rows."""
        for path, file in zip(self._paths, self._files, strict=True):
            with writing(path):
                os.fsync(file.fileno())

    def close(self) -> None:
        """Close both files."""
        for file in self._files:
            file.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cells(self, row: dict[str, Any]) -> list[Any]:
        return [row.get(name) for name in self._columns]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a ``metrics.jsonl``; lines cut short by a crash are left out."""
    if not Path(path).exists():
        return []
    rows = []
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line, parse_constant=lambda _: None)
        except ValueError:
            continue
        if isinstance(row, dict) and type(row.get("step")) is int:
            rows.append(row)
    return rows


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
