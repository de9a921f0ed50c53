"""Progress for people: a live bar on a terminal, a line every few seconds elsewhere."""

import abc
import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

PLAIN_INTERVAL_S = 5.0


class Shown(abc.ABC):
    """Progress as it is shown; called with (done, total), total None where only time ends it."""

    @abc.abstractmethod
    def __call__(self, done: int, total: int | None) -> None:
        """Show how far the work is."""

    @abc.abstractmethod
    def say(self, text: str) -> None:
        """Show what is done before there is anything to count."""


@contextlib.contextmanager
def progress(title: str, unit: str, deadline: float | None = None) -> Iterator[Shown]:
    """Yield what shows progress, rate and time left.

    Work that was done before the first call (a run that continues) does not count in the rate.

    Args:
        title: of the work.
        unit: what is counted.
        deadline: when the work ends at the latest, by ``time.monotonic``.
    """
    from rich.console import Console

    console = Console(stderr=True)
    clock = _Clock(deadline)
    if not console.is_terminal:
        yield _Lines(console, title, unit, clock)
        return
    with _bar(console, unit, clock) as bar:
        yield _Bar(bar, title, clock)


def _bar(console: Any, unit: str, clock: "_Clock") -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Deadline(ProgressColumn):
        """The smaller of what the rate promises and what the clock allows, every refresh."""

        def render(self, task: Any) -> Text:
            estimate = math.inf if task.time_remaining is None else task.time_remaining
            return Text(hours(min(estimate, clock.allowed)), style="progress.remaining")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}  {{task.fields[rate]}}"),
        TimeRemainingColumn() if math.isinf(clock.allowed) else Deadline(),
        TextColumn("left"),
    )
    return Progress(*columns, console=console)


class _Bar(Shown):
    def __init__(self, bar: Any, title: str, clock: "_Clock"):
        self._bar, self._clock = bar, clock
        self._task = bar.add_task(title, total=None, rate="")

    def __call__(self, done: int, total: int | None) -> None:
        rate, _ = self._clock.read(done, total)
        self._bar.update(self._task, completed=done, total=total, rate=rate)

    def say(self, text: str) -> None:
        self._bar.update(self._task, rate=text)


class _Lines(Shown):
    def __init__(self, console: Any, title: str, unit: str, clock: "_Clock"):
        self._console, self._title, self._unit, self._clock = console, title, unit, clock
        self._last = time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        rate, left = self._clock.read(done, total)
        over = self._clock.allowed <= 0 or (total is not None and done >= total)
        now = time.monotonic()
        if not over and now - self._last < PLAIN_INTERVAL_S:
            return
        self._last = now
        count = f"{done}" if total is None else f"{done}/{total}"
        self.say(f"{count} {self._unit} {rate} {left}".rstrip())

    def say(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False)


class _Clock:
    """Rate and time left, counted from the first reading."""

    def __init__(self, deadline: float | None):
        self._deadline = math.inf if deadline is None else deadline
        self._first: tuple[float, int] | None = None

    @property
    def allowed(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline - time.monotonic())

    def read(self, done: int, total: int | None) -> tuple[str, str]:
        """Return the rate and the time left as words; empty while there is nothing to tell."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        elapsed, made = now - self._first[0], done - self._first[1]
        if made <= 0 or elapsed <= 0:
            return "", ""
        rate = made / elapsed
        shown = f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
        needed = math.inf if total is None else (total - done) / rate
        left = min(needed, self.allowed)
        return f"{shown}/s", "" if math.isinf(left) else f"{hours(left)} left"


def hours(seconds: float) -> str:
    """Return a time as hours:minutes:seconds; there may be hundreds of hours."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"
