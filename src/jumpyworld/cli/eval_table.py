"""The table that ``jumpy eval`` prints."""

import sys
from typing import Any, Literal


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print success per task, mean, paired difference and what planning was like."""
    from rich.console import Console
    from rich.table import Table

    # Into a file or a pipe a table is as wide as it needs to be; nothing is cut off.
    width = None if sys.stdout.isatty() else 200
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("planner", no_wrap=True)
    titles = [f"task {task['task']}" for task in rows[0]["tasks"]]
    titles += ["mean", "95%", "diff", "95%", "plan ms", "all zero", "dithering"]
    titles += ["to z1", "z1 reached"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        tasks = [f"{task['successes']}/{task['episodes']}" for task in row["tasks"]]
        table.add_row(
            row["planner"],
            *tasks,
            f"{row['mean']:.3f}",
            _interval(row.get("ci95")),
            f"{row['diff']:+.3f}" if "diff" in row else "-",
            _interval(row.get("diff_ci95"), "+"),
            f"{row['plan_ms']:.3g}" if "plan_ms" in row else "-",
            *(_percent(row.get(name)) for name in ("all_zero", "dithering")),
            f"{row['z1_distance']:.3g}" if "z1_distance" in row else "-",
            _percent(row.get("z1_reached")),
        )
    console.print(table)


def _interval(ends: list[float] | None, sign: Literal["+", "-"] = "-") -> str:
    return "-" if ends is None else f"[{ends[0]:{sign}.2f}, {ends[1]:{sign}.2f}]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"
