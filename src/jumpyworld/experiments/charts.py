"""Bar charts of the tables: ours beside the paper's."""

from pathlib import Path

from jumpyworld.experiments import grid
from jumpyworld.experiments.cells import Cell
from jumpyworld.experiments.report import TITLES, paper_value, table_rows, variant
from jumpyworld.experiments.results import Collected
from jumpyworld.experiments.words import STAR
from jumpyworld.storage.figures import new_figure, write_png

COLOURS = ("#8a94a3", "#2f6fb3", "#c2732e", "#3d8f5f")
"""One for each column of a table; the paper's bars are the pale ones."""
PALE, DPI = 0.35, 110


def draw(found: Collected, folder: Path) -> list[tuple[str, Path]]:
    """Draw every table that has a result of ours; return (table, file).

    The same rows give the same bytes.

    Raises:
        MissingExtraError: matplotlib is not installed.
        DataError: the folder cannot be written.
    """
    files = []
    for name in grid.TABLES:
        have = found.accuracy if name == "emd" else found.success
        rows = [(d, p, c) for d, p, c in table_rows(name, found)]
        if name == "per-task" or not any(cell in have for _, _, cells in rows for cell in cells):
            continue
        path = folder / f"{name}.png"
        write_png(_figure(name, rows, found), path)
        files.append((name, path))
    return files


def _figure(name: str, rows, found: Collected):
    """Return one panel per policy with a measured cell, domains along the bottom."""
    have = found.accuracy if name == "emd" else found.success
    policies = [p for p in dict.fromkeys(p for _, p, _ in rows)]
    policies = [p for p in policies if any(c in have for _, q, cs in rows if q == p for c in cs)]
    figure = new_figure((9, 2.6 * len(policies)), dpi=DPI)
    panels = figure.subplots(len(policies), 1, squeeze=False)[:, 0]
    for axes, policy in zip(panels, policies, strict=True):
        mine = [(domain, cells) for domain, p, cells in rows if p == policy]
        columns = max(len(cells) for _, cells in mine)
        width = 0.8 / (2 * columns)
        for place, (_, cells) in enumerate(mine):
            for column, cell in enumerate(cells):
                left = place - 0.4 + 2 * column * width
                _bars(axes, name, cell, found, left, width, COLOURS[column % len(COLOURS)])
        for column, cell in enumerate(max((cells for _, cells in mine), key=len)):
            for alpha, whose in ((PALE, "paper"), (1.0, "ours")):
                label = f"{variant(name, cell)}, {whose}"
                axes.bar([0], [0], width, color=COLOURS[column], alpha=alpha, label=label)
        axes.set_xticks(range(len(mine)), [domain for domain, _ in mine], fontsize=8)
        axes.set_ylabel("EMD" if name == "emd" else "success", fontsize=8)
        axes.set_title(policy, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
        if name != "emd":
            axes.set_ylim(0, 1.05)
    panels[0].legend(
        fontsize=7, frameon=False, ncols=4, loc="upper right", bbox_to_anchor=(1, 1.25)
    )
    title = TITLES[name] if name == "emd" else f"{TITLES[name]} ({STAR} not the paper's settings)"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure


def _bars(axes, name: str, cell: Cell, found: Collected, left, width, colour) -> None:
    """Draw the paper's bar, pale, and ours with its interval."""
    paper = paper_value(name, cell)
    if paper is not None:
        axes.bar([left + width / 2], [paper.mean], width, color=colour, alpha=PALE)
    star = False
    if name == "emd":
        known = found.accuracy.get(cell)
        mean, ends = (known.emd, known.ci95) if known else (None, None)
    else:
        measured = found.success.get(cell)
        mean, ends = (measured.mean, measured.ci95) if measured else (None, None)
        star = measured is not None and bool(measured.differs)
    if mean is None:
        return
    place = left + 1.5 * width
    if star:  # beside the foot, where no interval is
        axes.text(place + 0.6 * width, 0.01, STAR, fontsize=9)
    axes.bar([place], [mean], width, color=colour)
    if ends is not None:
        reach = [[max(0.0, mean - ends[0])], [max(0.0, ends[1] - mean)]]
        axes.errorbar([place], [mean], yerr=reach, color="#20262e", linewidth=0.8, capsize=1.5)
