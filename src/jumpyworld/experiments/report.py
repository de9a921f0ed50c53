"""The report: ours beside the paper's, table by table, as Markdown.

The same rows give the same bytes: nothing here looks at a clock, a path or a hash's order.
"""

import collections
from collections.abc import Callable, Sequence

from jumpyworld.experiments import grid, tables
from jumpyworld.experiments.aggregate import mean_gain
from jumpyworld.experiments.cells import OUR_DOMAINS, PAPER_DOMAINS, Cell
from jumpyworld.experiments.results import PAPER_GAMMA, PAPER_PAIRS, Collected, Row
from jumpyworld.experiments.tables import Claim, PaperCell

NONE = "-"
TITLES = {
    "main": "Success: base policies alone and with CompPlan",
    "per-task": "Success per task",
    "hierarchical": "Hierarchical baselines and CompPlan on HFBC",
    "planners": "Planners: actions, one policy, sequences of policies",
    "emd": f"Accuracy of models: EMD at discount {PAPER_GAMMA}, {PAPER_PAIRS} pairs",
    "replan": "Replanning every step or every 5",
    "objective": "Maximising over the first action (Q) or not (V)",
    "proposal": "Proposals: conditional on the goal or not",
    "consistency": "Planning with models trained with horizon consistency or without",
}
_VARIANT = {
    "replan": lambda cell: f"every {cell.replan_every}",
    "objective": lambda cell: f"max {(cell.maximise or '').upper()}",
    "proposal": lambda cell: cell.proposal,
    "consistency": lambda cell: cell.objective,
    "emd": lambda cell: cell.objective,
}


def markdown(found: Collected, figures: Sequence[tuple[str, str]] = ()) -> str:
    """Return the report.

    Args:
        found: what was measured.
        figures: (table, path as the report should name it).
    """
    pictures = dict(figures)
    parts = [_head(found), _gains(found)]
    for name in grid.TABLES:
        parts.append(f"## {TITLES[name]}")
        if name in pictures:
            parts.append(f"![{TITLES[name]}]({pictures[name]})")
        parts.append(_per_task(found) if name == "per-task" else _table(name, found))
    parts += [_elsewhere(found), _fidelity(found), _speed(found), _aside(found)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(found: Collected) -> str:
    rows = sum(len(measured.rows) for measured in found.success.values())
    return f"""# Ours beside the paper's

From {found.files} files: {rows} success rows of {len(found.success)} cells, {len(found.fidelity)} \
fidelity rows, {len(found.speed)} speed rows; {len(found.aside)} rows are set aside (last section).

Ours: mean over tasks and seeds with its 95 % interval over episodes; n is tasks x episodes x
seeds; sd / se are over seeds, of two or more. Paper: mean (spread as printed; it matches a standard
error of 3 seeds). Minutes are those that a cell's rows name (training and evaluation), summed over
seeds. `{NONE}` is a cell without a result, or one that the paper does not have."""


def paper_value(table: str, cell: Cell, task: int | None = None) -> PaperCell | None:
    """Return the paper's number; its comparison of planners shares two columns with ``main``."""
    return tables.load("main" if table == "planners" else table).find(cell, task)


def table_rows(name: str, found: Collected) -> list[tuple[str, str, list[Cell]]]:
    """Return the rows of a table: all of the paper's, and of ours those with a result."""
    have = found.accuracy if name == "emd" else found.success
    return [
        (domain, policy, cells)
        for domain, policy, cells in grid.rows(name)
        if domain in PAPER_DOMAINS or any(cell in have for cell in cells)
    ]


def variant(name: str, cell: Cell) -> str:
    """Return what a table's column is called."""
    label: Callable[[Cell], str | None] = _VARIANT.get(name, lambda cell: cell.planner)
    return label(cell) or ""


def _table(name: str, found: Collected) -> str:
    rows = table_rows(name, found)
    widest = max((cells for _, _, cells in rows), key=len)
    titles = [word for cell in widest for word in (variant(name, cell), "paper")]
    emd = name == "emd"
    pairs = any(cell.planner == "zero-shot" for cell in widest)
    extra = ["floor"] if emd else ["sd / se", *(["paired gain"] if pairs else [])]
    lines = []
    for domain, policy, cells in rows:
        words = [domain, policy]
        for cell in cells:
            words += [_accuracy(found, cell) if emd else _success(found, cell)]
            words += [_paper(paper_value(name, cell))]
        words += [NONE] * 2 * (len(widest) - len(cells))
        words += _details(name, found, cells, pairs)
        lines.append(words)
    return _grid(["domain", "policy", *titles, "n", *extra, "device", "minutes"], lines)


def _details(name: str, found: Collected, cells: list[Cell], pairs: bool) -> list[str]:
    """Return n, spread or floor, device and minutes of a row's cells."""
    if name == "emd":
        known = [found.accuracy[cell] for cell in cells if cell in found.accuracy]
        counts = [_fidelity_count(each.rows) for each in known]
        extra = [_one(f"{each.floor:.2f}" if each.floor is not None else NONE for each in known)]
    else:
        known = [found.success[cell] for cell in cells if cell in found.success]
        counts = [each.count for each in known]
        labels = [variant(name, each.cell) for each in known]
        spreads = [each.over_seeds for each in known]
        shown = [s and f"{_rate(s[0])} / {_rate(s[1])}" for s in spreads]
        extra = [_labelled(labels, shown)]
        if pairs:
            gains = [each.paired for each in known]
            shown = [g and f"{_signed(g[0])} {_ends(*g[1], _signed)}" for g in gains]
            extra.append(_labelled(labels, shown))
    rows = [each.rows for each in known]
    devices = [str(row.data.get("device", NONE)) for group in rows for row in group]
    return [_one(counts), *extra, _one(devices), _one(_minutes(group) for group in rows)]


def _per_task(found: Collected) -> str:
    lines = []
    for _, _, cells in table_rows("per-task", found):
        for cell in cells:
            measured = found.success.get(cell)
            words = [cell.domain, cell.policy, cell.planner or ""]
            for task in range(1, 6):
                paper = paper_value("per-task", cell, task)
                counts = measured.tasks.get(task) if measured else None
                ours = f"{counts[0]}/{counts[1]}" if counts else NONE
                words.append(f"{ours} ({_rate(paper.mean) if paper else NONE})")
            lines.append([*words, measured.count if measured else NONE])
    note = "Ours as successes of episodes, in parentheses the paper's rate."
    titles = ["domain", "policy", "planner", *(f"task {n}" for n in range(1, 6)), "n"]
    return f"{note}\n\n{_grid(titles, lines)}"


def gain(claim: Claim, found: Collected, domains: Sequence[str]) -> tuple[float | None, int]:
    """Return our mean relative gain and over how many cells, where both sides are measured."""
    pairs = []
    for domain, _, cells in grid.rows(claim.table):
        side = {getattr(cell, claim.field): found.success.get(cell) for cell in cells}
        better, worse = side.get(claim.better), side.get(claim.worse)
        if domain in domains and better is not None and worse is not None:
            pairs.append((better.mean, worse.mean))
    return mean_gain(pairs)


def _gains(found: Collected) -> str:
    lines = []
    for claim in tables.claims():
        words = [claim.name, f"+{claim.gain:.0%}"]
        for domains in (claim.domains or PAPER_DOMAINS, (*PAPER_DOMAINS, *OUR_DOMAINS)):
            value, count = gain(claim, found, domains)
            words += [NONE if value is None else f"{value:+.0%}", str(count)]
        lines.append([*words, ", ".join(claim.domains) or "all seven"])
    note = (
        "Mean over cells of better / worse - 1, cells with a zero base left out: of the ways to\n"
        "aggregate, the one that gives the paper's stated gains from its own tables. Which\n"
        "domains it calls long-horizon is our reading."
    )
    titles = ["gain of", "paper", "ours", "cells", "ours, any domain", "cells", "paper's domains"]
    return f"## Relative gains\n\n{note}\n\n{_grid(titles, lines)}"


def _elsewhere(found: Collected) -> str:
    known = {cell for name in grid.TABLES for _, _, cells in grid.rows(name) for cell in cells}
    others = sorted((cell for cell in found.success if cell not in known), key=str)
    lines = []
    for cell in others:
        every = f"every {cell.replan_every}" if cell.replan_every else None
        said = [each for each in (cell.objective, cell.proposal, every, cell.maximise) if each]
        words = [cell.domain, cell.policy, cell.planner or "", ", ".join(said)]
        lines.append([*words, _success(found, cell), *_details("main", found, [cell], True)])
    titles = ["domain", "policy", "planner", "settings", "ours", "n", "sd / se", "paired gain"]
    head = "## Cells that no table of the paper has"
    return f"{head}\n\n{_grid([*titles, 'device', 'minutes'], lines)}" if lines else ""


def _fidelity(found: Collected) -> str:
    lines = []
    for row in found.fidelity:
        data = row.data
        facts = []
        for each in data.get("rows") or ():
            try:
                floor = f"/{each['floor']:.2f}" if each.get("floor") is not None else ""
                facts.append(f"{each['gamma']:g}: {each['emd']:.2f}{floor}")
            except (AttributeError, KeyError, TypeError, ValueError):
                facts.append("?")
        words = [str(data.get(k, NONE)) for k in ("domain", "policy", "objective", "pairs", "seed")]
        count = _fidelity_count((row,))
        lines.append([*words, ", ".join(facts), count, str(data.get("device", NONE))])
    titles = [
        "domain",
        "policy",
        "objective",
        "pairs",
        "seed",
        "discount: EMD/floor",
        "n",
        "device",
    ]
    return f"## All fidelity rows\n\n{_grid(titles, lines)}" if lines else ""


def _fidelity_count(rows: Sequence[Row]) -> str:
    data = rows[0].data
    pairs, rollouts = data.get("num_pairs", "?"), data.get("rollouts", "?")
    return f"{pairs}x{rollouts}x{len(rows)}, {data.get('samples', '?')} samples"


_SPEED = ("ms", "plan_ms", "samples_per_second", "steps_per_second", "speedup", "ratio", "seconds")
_SPEED_OF = ("domain", "policy", "variant", "preset", "batch")


def _speed(found: Collected) -> str:
    lines = []
    for row in found.speed:
        of = ", ".join(str(row.data[name]) for name in _SPEED_OF if name in row.data)
        figures = [f"{name} {row.data[name]}" for name in _SPEED if name in row.data]
        device = str(row.data.get("device", NONE))
        what = str(row.data.get("what", NONE))
        lines.append([what, of or NONE, ", ".join(figures) or NONE, device])
    titles = ["what", "of", "measured", "device"]
    return f"## Speed\n\n{_grid(titles, lines)}" if lines else ""


def _aside(found: Collected) -> str:
    if not found.aside:
        return ""
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for why, row in found.aside:
        reasons[why].append(row.source)
    lines = []
    for why, sources in sorted(reasons.items()):
        more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
        lines.append([why, str(len(sources)), ", ".join(sources[:3]) + more])
    return f"## Rows set aside\n\n{_grid(['why', 'rows', 'where'], lines)}"


def _success(found: Collected, cell: Cell) -> str:
    measured = found.success.get(cell)
    return NONE if measured is None else f"{_rate(measured.mean)} {_ends(*measured.ci95)}"


def _accuracy(found: Collected, cell: Cell) -> str:
    known = found.accuracy.get(cell)
    if known is None:
        return NONE
    ends = "" if known.ci95 is None else f" [{known.ci95[0]:.2f}, {known.ci95[1]:.2f}]"
    return f"{known.emd:.2f}{ends}"


def _paper(value: PaperCell | None) -> str:
    if value is None:
        return NONE
    return _rate(value.mean) + (f" ({_rate(value.spread)})" if value.spread is not None else "")


def _minutes(rows: Sequence[Row]) -> str:
    total, known = 0.0, False
    for row in rows:
        minutes = row.data.get("minutes")
        for value in minutes.values() if isinstance(minutes, dict) else ():
            if isinstance(value, int | float):
                total, known = total + value, True
    return f"{total:.1f}" if known else NONE


def _labelled(labels: Sequence[str], words: Sequence[str | None]) -> str:
    """Return those words that there are; where there are several, each with its column's name."""
    found = [(label, word) for label, word in zip(labels, words, strict=True) if word]
    if len(found) == len(labels) == 1:
        return found[0][1]
    return "; ".join(f"{label} {word}" for label, word in found) or NONE


def _one(words) -> str:
    """Return different words once each, in their order."""
    return "; ".join(dict.fromkeys(words)) or NONE


def _rate(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if 0 <= value < 1 else f"{value:.2f}"


def _signed(value: float) -> str:
    return ("-" if value < 0 else "+") + _rate(abs(value))


def _ends(low: float, high: float, form: Callable[[float], str] = _rate) -> str:
    return f"[{form(low)}, {form(high)}]"


def _grid(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def line(words: Sequence[str]) -> str:
        # A stray bar or line break would tear the table.
        return "| " + " | ".join(" ".join(w.replace("|", "/").split()) for w in words) + " |"

    return "\n".join([line(titles), "|" + "---|" * len(titles), *map(line, lines)])
