"""What a person sees of the progress of a long command."""

import functools
import io
import itertools
import time

import pytest
import rich.console

from jumpyworld.cli import console


@pytest.fixture
def seen(monkeypatch):
    """Return a function that makes the console a terminal or not, and returns its file."""

    def watch(terminal):
        file = io.StringIO()
        console_of = functools.partial(
            rich.console.Console, file=file, force_terminal=terminal, width=100
        )
        monkeypatch.setattr(rich.console, "Console", lambda stderr: console_of())
        return file

    return watch


@pytest.fixture
def each_line(monkeypatch):
    monkeypatch.setattr(console, "PLAIN_INTERVAL_S", 0.0)


@pytest.fixture
def a_second_each(monkeypatch):
    """Let a second pass with every look at the clock."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))


def test_lines_say_what_is_done_how_fast_and_how_long_it_takes(seen, each_line):
    file = seen(terminal=False)
    with console.progress("gcbc", "steps") as show:
        show.say("compiling")
        for done in (0, 10, 40):
            time.sleep(0.01)
            show(done, 40)
    compiling, first, second, last = file.getvalue().splitlines()
    assert compiling == "gcbc: compiling" and first == "gcbc: 0/40 steps"
    assert second.startswith("gcbc: 10/40 steps ") and second.endswith("left")
    assert last.startswith("gcbc: 40/40 steps ") and last.endswith("00:00:00 left")


def test_where_only_time_ends_the_work_no_total_is_guessed(seen, each_line):
    file = seen(terminal=False)
    with console.progress("ghm", "steps", time.monotonic() + 600) as show:
        for done in (0, 10, 1000):
            time.sleep(0.01)
            show(done, None)
    first, second, third = file.getvalue().splitlines()
    assert first == "ghm: 0 steps"
    assert second.startswith("ghm: 10 steps ") and third.startswith("ghm: 1000 steps ")
    for line in (second, third):  # however fast it goes
        assert line.endswith(("00:10:00 left", "00:09:59 left", "00:09:58 left"))


@pytest.mark.parametrize(("minutes", "left"), [(60, "00:00:27"), (0.25, "00:00:0")])
def test_of_steps_and_minutes_the_earlier_end_counts(seen, each_line, a_second_each, minutes, left):
    file = seen(terminal=False)
    with console.progress("ghm", "steps", time.monotonic() + 60 * minutes) as show:
        show(0, 10)
        show(1, 10)
    assert left in file.getvalue().splitlines()[-1]


@pytest.mark.parametrize("total", [100, None])
def test_the_last_line_is_shown_when_the_clock_ends_the_work(seen, total):
    file = seen(terminal=False)
    with console.progress("ghm", "steps", time.monotonic()) as show:
        show(40, total)
    (last,) = file.getvalue().splitlines()
    assert last.startswith("ghm: 40")


def test_a_terminal_shows_the_same(seen):
    file = seen(terminal=True)
    with console.progress("ghm", "steps", time.monotonic() + 600) as show:
        show.say("compiling")
        time.sleep(0.2)
        assert "compiling" in file.getvalue() and "0/0" not in file.getvalue()
        show(0, None)
        time.sleep(0.01)
        show(25, None)
    assert "25/?" in file.getvalue() and "00:10:00" in file.getvalue()
