"""What ``jumpy eval`` says while a planner's episodes run: what they take, and how long still.

The first call of a planner compiles, and at the paper's sizes a processor works on it for minutes.
Nothing can be told of its progress, so that lines say that it goes on; and after a very long one
the next line says what is left at that pace, for the second call may be as long.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jumpyworld.planning import AbstractPlanner

STILL_S, LONG_S = 15.0, 60.0
"""Seconds between lines that say no more than that the first call goes on; and after which most of
a first call is not compiling, so that its pace tells something."""


def describe_work(
    planner: "AbstractPlanner", episodes: int, max_steps: int, replan_every: int, environments: int
) -> str:
    """Return in a phrase what an evaluation is going to compute.

    Args:
        planner: who acts.
        episodes: in all.
        max_steps: of an episode.
        replan_every: control steps between plans.
        environments: that run side by side.
    """
    from jumpyworld.planning import CompPlan

    work = f"{episodes} episodes of at most {max_steps} steps"
    if not isinstance(planner, CompPlan):
        return work
    segments = len(planner.betas)
    (count, samples), *later = planner.search.schedule(planner.num_candidates)
    work += ", a plan every step: " if replan_every == 1 else f", a plan every {replan_every}: "
    work += f"{count} candidates x {samples} samples x {segments} segments"
    work += "".join(f", then {count} x {samples} x {segments}" for count, samples in later)
    together = planner.environments_at_once
    return work + (f", for {together} at a time (--max-rows)" if together < environments else "")


@contextlib.contextmanager
def watched(name: str, work: str) -> Iterator[Callable[[int, int], None]]:
    """Say what begins, and yield a function of (done, total) that shows progress.

    Args:
        name: of the planner.
        work: what it is going to compute.
    """
    from jumpyworld.cli.console import hours, progress

    began, answered = time.monotonic(), threading.Event()
    # Held while a line is said and while the answer comes, so that none is said after it.
    telling = threading.Lock()
    say(f"{name}: {work}; compiling ...")

    def wait() -> None:
        while not answered.wait(STILL_S):
            with telling:
                if not answered.is_set():
                    spent = time.monotonic() - began
                    say(f"{name}: {spent:.0f} s, compiling or making the first plans")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    try:
        with progress(name, "steps") as show:

            def update(done: int, total: int) -> None:
                spent = time.monotonic() - began
                if not answered.is_set() and spent > LONG_S and 0 < done < total:
                    left = hours(spent * (total - done) / done)
                    say(f"{name}: {spent:.0f} s until the first plans; at that pace {left} left")
                with telling:
                    answered.set()
                show(done, total)

            yield update
    finally:
        answered.set()
        waiting.join()


def say(line: str) -> None:
    """Print a line beside the progress, at once."""
    print(line, file=sys.stderr, flush=True)
