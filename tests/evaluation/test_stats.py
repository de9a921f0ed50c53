"""Intervals: against SciPy's, by hand, and how often they hold the truth."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest, multinomial, sem, t

from jumpyworld.evaluation.stats import Z95, mean_interval, mean_of_tasks, paired_difference, wilson


@pytest.mark.parametrize(("k", "n"), [(0, 20), (7, 20), (20, 20), (1, 1), (250, 1000)])
def test_wilson_is_scipys(k, n):
    theirs = binomtest(k, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson(k, n), (theirs.low, theirs.high), atol=1e-12)


def test_mean_of_tasks_by_hand():
    mean, interval = mean_of_tasks([(20, 20), (0, 20), (10, 20)])
    assert mean == pytest.approx(0.5)
    np.testing.assert_allclose(interval, wilson(30, 60))
    # Unequal numbers: tasks count alike; trials of the harmonic kind: 4 / (1/10 + 1/40) = 32.
    mean, interval = mean_of_tasks([(10, 10), (0, 40)])
    assert mean == pytest.approx(0.5)
    np.testing.assert_allclose(interval, wilson(16, 32))


@pytest.mark.parametrize("n", [2, 5, 256])
def test_the_interval_of_a_mean_is_students(n):
    values = np.random.default_rng(n).exponential(size=n)
    mean, half = mean_interval(values)
    theirs = t.interval(0.95, n - 1, values.mean(), sem(values))
    np.testing.assert_allclose((mean - half, mean + half), theirs, rtol=1e-9)
    with pytest.raises(ValueError, match="two values"):
        mean_interval(values[:1])


def test_the_interval_of_a_paired_difference_by_hand():
    # Of 10 episodes we win 4 that they lose, they win 1 that we lose: 12 with the added ones.
    ours = np.asarray([1, 1, 1, 1, 0, 1, 1, 0, 0, 0], bool)
    theirs = np.asarray([0, 0, 0, 0, 1, 1, 1, 0, 0, 0], bool)
    diff, (low, high) = paired_difference(ours, theirs)
    half = Z95 * np.sqrt((7 / 12 - (3 / 12) ** 2) / 12)
    assert diff == pytest.approx(0.3)
    np.testing.assert_allclose((low, high), (0.25 - half, 0.25 + half), rtol=1e-12)
    # The other way round it is the mirror image; the shape of the episodes does not matter.
    mirrored, (low2, high2) = paired_difference(theirs.reshape(5, 2), ours.reshape(5, 2))
    np.testing.assert_allclose((mirrored, low2, high2), (-diff, -high, -low))
    # No episode differs: an interval that still has a width, and more episodes narrow it.
    widths = []
    for n in (10, 100, 1000):
        diff, (low, high) = paired_difference(np.ones(n, bool), np.ones(n, bool))
        assert diff == 0 and low == -high < 0
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.01
    assert paired_difference([True] * 100, [False] * 100)[1][0] > 0.9
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference([True], [True, False])


@pytest.mark.parametrize("n", [50, 100])
@pytest.mark.parametrize("shares", [(0.1, 0), (0.02, 0), (0.1, 0.1), (0.3, 0.02), (0.9, 0)])
def test_the_interval_of_a_paired_difference_covers(n, shares):
    """Over all that can happen, it holds the truth 19 times of 20, or nearly so."""
    won, lost = shares
    truth, held = won - lost, 0.0
    for w, k in itertools.product(range(n + 1), range(n + 1)):
        chance = multinomial.pmf([w, k, n - w - k], n, [won, lost, 1 - won - lost])
        if w + k <= n and chance > 1e-6:
            ours, theirs = np.arange(n) < w, (np.arange(n) >= w) & (np.arange(n) < w + k)
            low, high = paired_difference(ours, theirs)[1]
            held += chance * (low <= truth <= high)
    assert held > 0.935
