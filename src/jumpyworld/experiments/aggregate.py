"""Numbers from many rows: over seeds, and relative gains over cells."""

import math
from collections.abc import Sequence


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
