"""The table that ``jumpy eval`` prints."""

import itertools
import sys
from typing import Any, Literal

_WIDE = 150
"""Columns that the whole table needs; a narrower terminal gets it in parts, nothing is cut off."""


def print_table(rows: list[dict[str, Any]], width: int | None = None) -> None:
    """Print mean success, paired difference, success per task and what planning was like.

    Args:
        rows: one per planner.
        width: of the console; the terminal's by default, and wide enough into a file or a pipe.
    """
    from rich.console import Console
    from rich.table import Table

    width = width or (None if sys.stdout.isatty() else 200)
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    parts = [[_tasks(row) for row in rows], [_success(row) for row in rows]]
    # Nobody should have to read a column of zeros about what should never happen.
    broken = any(row.get("all_invalid") for row in rows)
    parts.append([_planning(row) + (_invalid(row) if broken else []) for row in rows])
    if console.width >= _WIDE:
        parts = [[list(itertools.chain(*own)) for own in zip(*parts, strict=True)]]
    for cells in parts:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("planner", no_wrap=True)
        for title, _ in cells[0]:
            table.add_column(title, justify="right", no_wrap=True)
        for row, own in zip(rows, cells, strict=True):
            table.add_row(row["planner"], *(text for _, text in own))
        console.print(table)


Cells = list[tuple[str, str]]
"""Titles and texts."""


def _tasks(row: dict[str, Any]) -> Cells:
    tasks = row["tasks"]
    return [(f"task {own['task']}", f"{own['successes']}/{own['episodes']}") for own in tasks]


def _success(row: dict[str, Any]) -> Cells:
    return [
        ("mean", f"{row['mean']:.3f}"),
        ("95%", _interval(row.get("ci95"))),
        ("diff", f"{row['diff']:+.3f}" if "diff" in row else "-"),
        ("95%", _interval(row.get("diff_ci95"), "+")),
    ]


def _planning(row: dict[str, Any]) -> Cells:
    return [
        ("plan ms", f"{row['plan_ms']:.3g}" if "plan_ms" in row else "-"),
        ("all zero", _percent(row.get("all_zero"))),
        ("dithering", _percent(row.get("dithering"))),
        ("to z1", f"{row['z1_distance']:.3g}" if "z1_distance" in row else "-"),
        ("z1 reached", _percent(row.get("z1_reached"))),
    ]


def _invalid(row: dict[str, Any]) -> Cells:
    return [("invalid", _percent(row.get("all_invalid")))]


def _interval(ends: list[float] | None, sign: Literal["+", "-"] = "-") -> str:
    return "-" if ends is None else f"[{ends[0]:{sign}.2f}, {ends[1]:{sign}.2f}]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"
