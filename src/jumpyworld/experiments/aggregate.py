"""Numbers from many rows: over seeds, and relative gains over cells.

Rows of several models may be of the same episodes, which are then easy or hard for all of them.
Rows do not say how much their outcomes go together, so it is taken to be wholly: a mean over
models has no more episodes than one of them, and its interval is at least wide enough.
"""

import collections
import math
from collections.abc import Hashable, Iterable, Sequence

Rate = tuple[float, tuple[float, float]]
"""A mean and its 95 % interval."""


def mean_gain(pairs: Sequence[tuple[float, float]]) -> tuple[float | None, int]:
    """Return the mean relative gain of the first over the second, and how many pairs it is of.

    Paper: the gains stated in its text. Where its tables allow a check, they are the mean over
    cells of better / worse - 1, cells whose base is zero left out.

    Args:
        pairs: (better, worse) of each cell.
    """
    ratios = [better / worse - 1 for better, worse in pairs if worse > 0]
    return (math.fsum(ratios) / len(ratios), len(ratios)) if ratios else (None, 0)


def gain_interval(pairs: Sequence[tuple[Rate, Rate]]) -> tuple[float, float]:
    """Return the 95 % interval of ``mean_gain``, whose bases are all above zero.

    Distances to the ends add up in squares, as half widths of independent numbers do; each end has
    its own, since a ratio's interval reaches further up than down (Zou and Donner, 2008).

    Args:
        pairs: (better, worse) of each cell, each a rate and its interval.
    """
    ratios = [better[0] / worse[0] for better, worse in pairs]
    ends = [ratio_interval(better, worse) for better, worse in pairs]
    mean = math.fsum(ratios) / len(ratios) - 1
    below = math.hypot(*(r - low for r, (low, _) in zip(ratios, ends, strict=True))) / len(pairs)
    above = math.hypot(*(high - r for r, (_, high) in zip(ratios, ends, strict=True))) / len(pairs)
    return max(-1.0, mean - below), mean + above


def ratio_interval(better: Rate, worse: Rate) -> tuple[float, float]:
    """Return the 95 % interval of a ratio of two independent rates, from theirs.

    On a log scale, where a small base makes it wide and never negative. The base is above zero.
    """
    (a, (a_low, a_high)), (b, (b_low, b_high)) = better, worse
    if a <= 0:
        return 0.0, a_high / b_low
    below = math.hypot(math.log(a / a_low), math.log(b_high / b))
    above = math.hypot(math.log(a_high / a), math.log(b / b_low))
    return a / b * math.exp(-below), a / b * math.exp(above)


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
