"""The report: ours beside the paper's, table by table, as Markdown.

The same rows give the same bytes: nothing here looks at a clock, a path or a hash's order.
"""

import collections
from collections.abc import Callable, Sequence

from jumpyworld.experiments import gains, grid, listings, tables
from jumpyworld.experiments.cells import PAPER_DOMAINS, Cell
from jumpyworld.experiments.results import PAPER_GAMMA, PAPER_PAIRS, Collected
from jumpyworld.experiments.tables import PaperCell
from jumpyworld.experiments.words import NONE, STAR, details, machine, once, rate, success, table

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
    parts = [_head(found), gains.section(found)]
    for name in grid.TABLES:
        parts.append(f"## {TITLES[name]}")
        if name in pictures:
            parts.append(f"![{TITLES[name]}]({pictures[name]})")
        parts.append(_per_task(found) if name == "per-task" else _table(name, found))
    below = (listings.others, listings.fidelity, listings.speed, listings.aside)
    parts += [section(found) for section in below]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(found: Collected) -> str:
    rows = sum(len(each.rows) for each in (*found.success.values(), *found.others))
    return f"""# Ours beside the paper's

From {found.files} files: {rows} success rows of {len(found.success)} cells, {len(found.fidelity)} \
fidelity rows, {len(found.speed)} speed rows; {len(found.aside)} rows are set aside (last section).

Ours: mean over tasks and seeds with its 95 % interval over episodes; n is tasks x episodes x
seeds, of one recipe. Where several models met the same episodes, n says how many sets of episodes
there are, and intervals count an episode once, as if all models fared alike in it: wide enough
whatever they have in common. sd / se are over seeds, of two or more; in parentheses, whether those
of training, of episodes or of both vary. `{STAR}` marks what was not measured with the paper's
planner settings; below a table stands what differs. Paper: mean (spread as printed; it matches a
standard error of 3 seeds). Minutes are those that a cell's rows name (training and evaluation),
summed over seeds. `{NONE}` is a cell without a result, or one that the paper does not have."""


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
            words += [_accuracy(found, cell) if emd else _starred(found, cell)]
            words += [_paper(paper_value(name, cell))]
        words += [NONE] * 2 * (len(widest) - len(cells))
        words += _details(name, found, cells, pairs)
        lines.append(words)
    shown = table(["domain", "policy", *titles, "n", *extra, "device", "minutes"], lines)
    return shown if emd else shown + _notes(name, found, [cell for row in rows for cell in row[2]])


def _details(name: str, found: Collected, cells: list[Cell], pairs: bool) -> list[str]:
    """Return n, spread or floor, device and minutes of a row's cells."""
    if name != "emd":
        known = [found.success[cell] for cell in cells if cell in found.success]
        return details(known, [variant(name, each.cell) for each in known], pairs)
    models = [found.accuracy[cell] for cell in cells if cell in found.accuracy]
    counts = [listings.fidelity_count(each.rows) for each in models]
    floors = [f"{each.floor:.2f}" if each.floor is not None else NONE for each in models]
    return [once(counts), once(floors), *machine([each.rows for each in models])]


def _starred(found: Collected, cell: Cell) -> str:
    measured = found.success.get(cell)
    return success(measured) + (STAR if measured and measured.differs else "")


def _notes(name: str, found: Collected, cells: Sequence[Cell]) -> str:
    """Return under a table what differs from the paper's settings in which of its cells."""
    whose: dict[str, list[str]] = collections.defaultdict(list)
    for cell in cells:
        measured = found.success.get(cell)
        if measured and measured.differs:
            where = f"{cell.domain} {cell.policy} {variant(name, cell)}"
            whose[", ".join(measured.differs)].append(where)
    lines = [f"- \\{STAR} {what}: {', '.join(where)}" for what, where in sorted(whose.items())]
    return "\n\n" + "\n".join(lines) if lines else ""


def _per_task(found: Collected) -> str:
    lines = []
    rows = table_rows("per-task", found)
    for _, _, cells in rows:
        for cell in cells:
            measured = found.success.get(cell)
            star = STAR if measured and measured.differs else ""
            words = [cell.domain, cell.policy, f"{cell.planner}{star}"]
            for task in range(1, 6):
                paper = paper_value("per-task", cell, task)
                counts = measured.tasks.get(task) if measured else None
                ours = f"{counts[0]}/{counts[1]}" if counts else NONE
                words.append(f"{ours} ({rate(paper.mean) if paper else NONE})")
            lines.append([*words, measured.count if measured else NONE])
    note = "Ours as successes of episodes, in parentheses the paper's rate."
    titles = ["domain", "policy", "planner", *(f"task {n}" for n in range(1, 6)), "n"]
    notes = _notes("per-task", found, [cell for row in rows for cell in row[2]])
    return f"{note}\n\n{table(titles, lines)}{notes}"


def _accuracy(found: Collected, cell: Cell) -> str:
    known = found.accuracy.get(cell)
    if known is None:
        return NONE
    ends = "" if known.ci95 is None else f" [{known.ci95[0]:.2f}, {known.ci95[1]:.2f}]"
    return f"{known.emd:.2f}{ends}"


def _paper(value: PaperCell | None) -> str:
    if value is None:
        return NONE
    return rate(value.mean) + (f" ({rate(value.spread)})" if value.spread is not None else "")
