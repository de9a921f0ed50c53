"""Progress for people: a live bar on a terminal, a line every few seconds elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator

PLAIN_INTERVAL_S = 5.0


@contextlib.contextmanager
def progress(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that shows progress, rate and time left.

    Work that was done before the first call (a run that continues) does not count in the rate.
    """
    from rich.console import Console

    console = Console(stderr=True)
    shown = _bar(console, title, unit) if console.is_terminal else _lines(console, title, unit)
    with shown as update:
        yield update


@contextlib.contextmanager
def _bar(console, title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}  {{task.fields[rate]}}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=None, rate="")
        clock = _Clock()

        def update(done: int, total: int) -> None:
            rate, _ = clock.read(done, total)
            bar.update(task, completed=done, total=total, rate=rate)

        yield update


@contextlib.contextmanager
def _lines(console, title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    clock = _Clock()
    last = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal last
        rate, left = clock.read(done, total)
        if done < total and time.monotonic() - last < PLAIN_INTERVAL_S:
            return
        last = time.monotonic()
        console.print(f"{title}: {done}/{total} {unit} {rate} {left}".rstrip(), highlight=False)

    yield update


class _Clock:
    """Rate and time left, counted from the first reading."""

    def __init__(self):
        self._first: tuple[float, int] | None = None

    def read(self, done: int, total: int) -> tuple[str, str]:
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        elapsed, made = now - self._first[0], done - self._first[1]
        if made <= 0 or elapsed <= 0:
            return "", ""
        rate = made / elapsed
        shown = f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
        return f"{shown}/s", f"{hours((total - done) / rate)} left"


def hours(seconds: float) -> str:
    """Return a time as hours:minutes:seconds; there may be hundreds of hours."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"
