"""Numbers from many rows: over seeds, and relative gains over cells.

Rows of several models may be of the same episodes, which are then easy or hard for all of them.
Rows do not say how much their outcomes go together, so it is taken to be wholly: a mean over
models has no more episodes than one of them, and its interval is at least wide enough.
"""

import collections
import math
from collections.abc import Hashable, Iterable, Sequence


def mean_gain(pairs: Sequence[tuple[float, float]]) -> tuple[float | None, int]:
    """Return the mean relative gain of the first over the second, and how many pairs it is of.

    Paper: the gains stated in its text. Where its tables allow a check, they are the mean over
    cells of better / worse - 1, cells whose base is zero left out.

    Args:
        pairs: (better, worse) of each cell.
    """
    ratios = [better / worse - 1 for better, worse in pairs if worse > 0]
    return (math.fsum(ratios) / len(ratios), len(ratios)) if ratios else (None, 0)


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Return standard deviation (n - 1) and standard error of the mean; None of fewer than two."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return deviation, deviation / math.sqrt(len(values))


def pooled_half_width(halves: Sequence[tuple[Hashable, float]]) -> float:
    """Return the half width of a mean's interval from those of what it is the mean of.

    Half widths of the same episodes add up, as of numbers that vary together; squares of half
    widths of different episodes do, as of independent ones.

    Args:
        halves: (which episodes, half width) of each.
    """
    return math.hypot(*_by_episodes(halves)) / len(halves)


def distinct_trials(counts: Sequence[tuple[Hashable, int]]) -> float:
    """Return of how many independent episodes a pooled rate is worth: copies of one do not count.

    Args:
        counts: (which episodes, how many of them) of each row.
    """
    deviations = _by_episodes((which, math.sqrt(many)) for which, many in counts)
    return sum(many for _, many in counts) ** 2 / math.fsum(each**2 for each in deviations)


def _by_episodes(values: Iterable[tuple[Hashable, float]]) -> list[float]:
    """Return the sum over each set of episodes."""
    found: dict[Hashable, list[float]] = collections.defaultdict(list)
    for which, value in values:
        found[which].append(value)
    return [math.fsum(each) for each in found.values()]
