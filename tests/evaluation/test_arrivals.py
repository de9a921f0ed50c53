"""How often first subgoals are reached: by hand, and in episodes."""

import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.evaluation.arrivals import Arrivals

MEDIUM = domains.get("pointmaze-medium")


def walk(arrivals, places, plans):
    """One environment that is at places[t] after t steps; plans are {step: (z, found)}."""
    arrivals.begin(1)
    row = np.asarray([0])
    for t, place in enumerate(places):
        if t:
            arrivals.see(t, row, np.asarray([place], np.float32))
        if t in plans:
            z, found = plans[t]
            arrivals.plan(t, row, np.asarray([z], np.float32), np.asarray([found]))


def test_by_hand():
    """A point walks east by one tolerance a step; a plan has three steps to reach its subgoal."""
    step = MEDIUM.tolerance
    places = [(2 * step * t, 0.0) for t in range(9)]

    def east(t):
        return (2 * step * t, 0.0)

    arrivals = Arrivals(MEDIUM, 3.0)
    walk(
        arrivals,
        places,
        {
            0: (east(3), True),  # reached with the last of its three steps
            1: (east(5), True),  # one step too late
            2: (east(0), True),  # behind
            3: (east(4), False),  # no plan at all: does not count
            4: (east(5), True),  # reached with its first
            6: (east(7), True),  # reached, but the episode ends before its horizon does
        },
    )
    assert arrivals.share == pytest.approx(2 / 4)
    # What is still watched is forgotten, what was counted is not.
    walk(arrivals, places[:2], {0: (east(1), True)})
    assert arrivals.share == pytest.approx(2 / 4)


def test_a_subgoal_at_the_start_must_be_returned_to():
    """Being at z_1 when the plan is made is not reaching it."""
    far = 10 * MEDIUM.tolerance
    arrivals = Arrivals(MEDIUM, 2.0)
    walk(arrivals, [(0.0, 0.0), (far, 0.0), (2 * far, 0.0)], {0: ((0.0, 0.0), True)})
    assert arrivals.share == 0.0


def test_nothing_is_watched_without_a_horizon():
    arrivals = Arrivals(MEDIUM, None)
    walk(arrivals, [(0.0, 0.0)] * 3, {0: ((0.0, 0.0), True)})
    assert arrivals.share is None
