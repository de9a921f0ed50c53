"""Plans against a clock that only their own parts move."""

import math

import numpy as np
import pytest
from bandit import TASK, bandit

from jumpyworld.planning import Elimination, Uniform, budget

OPENS_MS, ENDS_MS = 10, 1
ROUNDS = Elimination(((8, 4), (4, 16), (2, 64)), fresh=16)  # 32, 64 and 128 chains, then 16


class Clock:
    """Stands in for the ``time`` module."""

    now_ms = 0.0

    def perf_counter(self):
        return self.now_ms / 1e3


@pytest.fixture
def clock(monkeypatch):
    """A chain takes a millisecond, the beginning of a plan ten, the choice at its end one."""
    clock = Clock()

    def takes(name, milliseconds):
        play = getattr(budget, name)

        def timed(*args, **which):
            clock.now_ms += milliseconds(*args, **which)
            return play(*args, **which)

        monkeypatch.setattr(budget, name, timed)

    takes("_open", lambda *_: OPENS_MS)
    takes("_play", lambda planner, *_, number: math.prod(planner.search.schedule(8)[number]))
    takes("_play_some", lambda planner, *_, first, size: size * planner.search.samples)
    takes("_conclude", lambda planner, *others: ENDS_MS + others[-1] * planner.search.fresh)
    monkeypatch.setattr(budget, "time", clock)
    return clock


def planned(search, budget_ms, clock, key):
    """The plan, and the milliseconds that it took, once everything is compiled."""
    planner = bandit(np.linspace(0.1, 0.9, 8), search)
    planner(key, np.zeros(1), TASK, budget_ms=0)
    clock.now_ms = 0.0
    return planner(key, np.zeros(1), TASK, budget_ms=budget_ms), clock.now_ms


@pytest.mark.parametrize(
    ("budget_ms", "spent", "took_ms"),
    [
        (0, [32, 0, 0, 0], 43),
        # The second round would end after 106 ms; the fresh chains still fit.
        (105, [32, 0, 0, 16], 59),
        (107, [32, 64, 0, 0], 107),
        (np.float32(130), [32, 64, 0, 16], 123),
        (240, [32, 64, 128, 0], 235),
        (251, [32, 64, 128, 16], 251),
    ],
)
def test_rounds_are_played_while_the_plan_can_end_in_time(budget_ms, spent, took_ms, clock, key):
    plan, took = planned(ROUNDS, budget_ms, clock, key)
    assert plan.spent.sum(1).tolist() == spent and int(plan.evaluations) == sum(spent)
    assert took == took_ms and (took <= budget_ms + ENDS_MS or not budget_ms)
    assert plan.spent[sum(n > 0 for n in spent[:3]) - 1, plan.chosen] > 0  # of the last round


@pytest.mark.parametrize(("budget_ms", "parts"), [(20, 1), (49, 4), (51, 5), (75, 8)])
def test_candidates_of_a_uniform_search_are_judged_while_there_is_time(
    budget_ms, parts, clock, key
):
    plan, took = planned(Uniform(8), budget_ms, clock, key)
    assert np.asarray(plan.spent)[0].tolist() == [8] * parts + [0] * (8 - parts)
    assert int(plan.evaluations) == 8 * parts
    assert took == OPENS_MS + ENDS_MS + 8 * parts <= budget_ms + ENDS_MS
