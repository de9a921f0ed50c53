"""Intervals for success rates and means; no number is reported without one."""

import math
from collections.abc import Sequence

import numpy as np

Z95 = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion; sensible at 0, at 1 and for few trials."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} successes in {trials} trials")
    return _wilson(successes / trials, trials)


def mean_of_tasks(tasks: Sequence[tuple[int, int]]) -> tuple[float, tuple[float, float]]:
    """Return the mean success over tasks and its 95 % interval.

    Tasks count alike, whatever their number of episodes. The interval is Wilson's at the effective
    number of trials, the one whose binomial variance equals that of the stratified mean where
    every task has the mean rate. With equal numbers of episodes that is conservative, since tasks
    of different difficulty vary less; with unequal ones it is not where the task with the fewest is
    the least certain, as at 1 of 2 and 100 of 100. ``jumpy eval`` runs equal numbers.

    Args:
        tasks: (successes, episodes) of each task.
    """
    mean = sum(s / n for s, n in tasks) / len(tasks)
    effective = len(tasks) ** 2 / sum(1 / n for _, n in tasks)
    return mean, _wilson(mean, effective)


def paired_difference(
    ours: Sequence[bool] | np.ndarray, theirs: Sequence[bool] | np.ndarray
) -> tuple[float, tuple[float, float]]:
    """Return by how much we succeed more often in the same episodes, and its 95 % interval.

    Only episodes that one of the two solves and the other does not tell them apart. The interval is
    Bonett and Price's (2012): Wald's, after one such episode of each kind was added, so that it has
    a width where few or no outcomes differ. Episodes of all tasks are pooled, which is
    conservative: differences vary less within a task.

    Args:
        ours: whether each episode succeeded, any shape.
        theirs: the same episodes with the baseline, of the same shape.
    """
    a, b = np.asarray(ours, bool), np.asarray(theirs, bool)
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"outcomes of shapes {a.shape} and {b.shape} are no pairs")
    won, lost, trials = int((a & ~b).sum()), int((b & ~a).sum()), a.size + 2
    centre = (won - lost) / trials
    half = Z95 * math.sqrt(((won + lost + 2) / trials - centre**2) / trials)
    return (won - lost) / a.size, (max(-1.0, centre - half), min(1.0, centre + half))


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return the mean of independent values and the half width of its 95 % interval (Student's).

    Args:
        values: at least two.
    """
    from scipy.special import stdtrit

    values = np.asarray(values, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"an interval needs at least two values, not shape {values.shape}")
    quantile = float(stdtrit(len(values) - 1, 0.975))
    return float(values.mean()), quantile * float(values.std(ddof=1)) / math.sqrt(len(values))


def _wilson(p: float, trials: float) -> tuple[float, float]:
    z2 = Z95**2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 / (1 + z2 / trials) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)
