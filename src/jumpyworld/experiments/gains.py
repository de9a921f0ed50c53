"""Relative gains, as the paper states them in its text: ours beside its own.

Both sides of a cell are of one policy, and of one model where they plan with the same kind of it:
what is compared is how they plan, not whose luck in training was better.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from jumpyworld.experiments import grid, likeness, tables
from jumpyworld.experiments.aggregate import gain_interval, mean_gain
from jumpyworld.experiments.cells import OUR_DOMAINS, PAPER_DOMAINS, WITH_MODEL, Cell
from jumpyworld.experiments.results import Collected, Measured
from jumpyworld.experiments.tables import Claim
from jumpyworld.experiments.words import NONE, STAR, table

_NOTE = """Mean over cells of better / worse - 1, cells with a zero base left out: of the ways to
aggregate, the one that gives the paper's stated gains from its own tables. Both sides of a cell are
of one policy, and of one model where both plan with one of the same objective; if those in the
tables are not, of the last that are. In brackets the 95 % interval over episodes: each ratio's from
the intervals of its two rates on a log scale, then over cells, both as if independent (sides that
share episodes are closer than that). Which domains it calls long-horizon is our reading."""


@dataclass(frozen=True)
class Gain:
    """A relative gain of ours.

    Attributes:
        mean: over cells, as a share; None where no cell has both sides.
        ci95: its 95 % interval.
        sides: (better, worse) of each cell with both, zero bases included.
        zero: how many of these have a zero base, and are left out.
        unlike: cells left out because no two measurements are of one policy and model.
    """

    mean: float | None
    ci95: tuple[float, float] | None
    sides: tuple[tuple[Measured, Measured], ...]
    zero: int
    unlike: int


def gain(claim: Claim, found: Collected, domains: Sequence[str]) -> Gain:
    """Return our gain for a claim of the paper, over the cells of some domains."""
    sides, unlike = [], 0
    for domain, _, cells in grid.rows(claim.table):
        side = {getattr(cell, claim.field): cell for cell in cells}
        better, worse = (side.get(each) for each in (claim.better, claim.worse))
        if domain not in domains or better not in found.success or worse not in found.success:
            continue
        both = itertools.product(_measured(found, better), _measured(found, worse))
        pair = next((each for each in both if _same_makers(*each)), None)
        unlike += pair is None
        sides += [] if pair is None else [pair]
    used = [(better, worse) for better, worse in sides if worse.mean > 0]
    mean, count = mean_gain([(better.mean, worse.mean) for better, worse in used])
    rates = [((b.mean, b.ci95), (w.mean, w.ci95)) for b, w in used]
    ends = gain_interval(rates) if rates else None
    return Gain(mean, ends, tuple(sides), len(sides) - count, unlike)


def _measured(found: Collected, cell: Cell) -> list[Measured]:
    """Return what was measured of a cell: what its tables show, then the others, last one first."""
    return [found.success[cell], *(each for each in found.others[::-1] if each.cell == cell)]


def _same_makers(one: Measured, other: Measured) -> bool:
    """Say whether two measurements are of one policy, and of one model where both have the kind."""
    mine, theirs = (likeness.makers(each.rows[-1].data) for each in (one, other))
    names = ["policy"]
    cells = (one.cell, other.cell)
    if all(each.planner in WITH_MODEL for each in cells):
        names += ["model"] * (cells[0].objective == cells[1].objective)
    return all(mine[name] is not None and mine[name] == theirs[name] for name in names)


def section(found: Collected) -> str:
    """Return the report's section."""
    lines = []
    for claim in tables.claims():
        words = [claim.name, f"+{claim.gain:.0%}"]
        for domains in (claim.domains or PAPER_DOMAINS, (*PAPER_DOMAINS, *OUR_DOMAINS)):
            words += _words(gain(claim, found, domains))
        lines.append([*words, ", ".join(claim.domains) or "all seven"])
    titles = ["gain of", "paper", "ours", "cells", "ours, any domain", "cells", "paper's domains"]
    return f"## Relative gains\n\n{_NOTE}\n\n{table(titles, lines)}"


def _words(ours: Gain) -> list[str]:
    """Return a gain with its interval, and of how many cells it is."""
    left_out = {"zero base": ours.zero, "no common policy or model": ours.unlike}
    without = ", ".join(f"{many} {why}" for why, many in left_out.items() if many)
    count = f"{len(ours.sides) - ours.zero}" + (f" (left out: {without})" if without else "")
    if ours.mean is None or ours.ci95 is None:
        return [NONE, count]
    star = STAR if any(each.differs for pair in ours.sides for each in pair) else ""
    return [f"{ours.mean:+.0%} [{ours.ci95[0]:+.0%}, {ours.ci95[1]:+.0%}]{star}", count]
