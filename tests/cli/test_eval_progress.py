"""What is said before and while episodes run."""

import threading
import time

from jumpyworld.cli import console, eval_progress
from jumpyworld.cli.eval_progress import describe_work, watched
from jumpyworld.planning import CompPlan, Elimination, GoalProposal, Uniform, ZeroShot


class Silent:
    """A model and a policy that are never asked."""

    def sample(self, *questions):
        raise AssertionError("asked")


def compplan(search, **settings):
    pair = Silent()
    return CompPlan(
        pair, pair, horizons=(5, 9), discount=0.95, proposal=GoalProposal(16), search=search,
        **settings,
    )  # fmt: skip


def test_the_work_of_a_planner_in_a_phrase():
    assert describe_work(ZeroShot(Silent()), 20, 300, 1, 20) == "20 episodes of at most 300 steps"
    begin = "20 episodes of at most 300 steps, a plan every"
    uniform = describe_work(compplan(Uniform(8)), 20, 300, 1, 20)
    assert uniform == f"{begin} step: 16 candidates x 8 samples x 2 segments"
    rounds = describe_work(compplan(Elimination(((16, 8), (4, 24)))), 20, 300, 5, 20)
    assert rounds == f"{begin} 5: 16 candidates x 8 samples x 2 segments, then 4 x 24 x 2"
    turns = describe_work(compplan(Uniform(8), max_rows=384), 20, 300, 1, 20)
    assert turns == f"{uniform}, for 3 at a time (--max-rows)"


def test_a_long_first_call_is_not_silent_and_gives_an_estimate(monkeypatch, capsys):
    monkeypatch.setattr(eval_progress, "STILL_S", 0.05)
    monkeypatch.setattr(eval_progress, "LONG_S", 0.2)
    monkeypatch.setattr(console, "PLAIN_INTERVAL_S", 0.0)
    with watched("compplan", "much") as update:
        assert capsys.readouterr().err.startswith("compplan: much; compiling ...\n")
        time.sleep(0.3)
        still = "compplan: 0 s, compiling or making the first plans\n"
        assert still in capsys.readouterr().err
        update(1, 3600 * 500)
        first = capsys.readouterr().err
        assert "compplan: 0 s until the first plans; at that pace " in first
        assert "compplan: 1/1800000 steps\n" in first
        time.sleep(0.1)
        update(2, 3600 * 500)
        later = capsys.readouterr().err
        assert "first plans" not in later and " left\n" in later


def test_nothing_is_said_of_compiling_after_the_first_plans(monkeypatch):
    monkeypatch.setattr(eval_progress, "STILL_S", 0.01)
    said, entered, delay = [], threading.Event(), threading.Event()

    def slowly(line):
        if "making the first plans" in line:
            entered.set()
            delay.wait(0.2)  # nobody sets it: the line takes long to say
        said.append(line)

    monkeypatch.setattr(eval_progress, "say", slowly)
    with watched("compplan", "much") as update:
        assert entered.wait(10)  # a line is on its way when the answer comes
        update(1, 2)
        before = len(said)
        time.sleep(0.3)
        assert len(said) == before == 2


def test_a_short_first_call_says_nothing_more(capsys):
    with watched("zero-shot", "little") as update:
        update(4, 8)
        update(8, 8)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "zero-shot: little; compiling ..." and len(lines) == 2
    assert lines[1].startswith("zero-shot: 8/8 steps")


def test_hours_may_be_hundreds():
    assert [console.hours(s) for s in (0, 59.6, 3661, 500 * 3600)] == [
        "00:00:00", "00:01:00", "01:01:01", "500:00:00",
    ]  # fmt: skip
