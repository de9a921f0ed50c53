"""The one thread that computes, with a short queue in front of it.

JAX uses all cores for one plan, and MuJoCo's state has one owner: work one at a time is both right
and fastest. More than a few waiting requests are turned away at once, which a page understands
(it asks again with what the user wants *now*), rather than answered late.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jumpyworld.viewer.candidates import Effort
from jumpyworld.viewer.opened import Opened
from jumpyworld.viewer.session import NotReadyError, Program, Session

T = TypeVar("T")
WAITING = 6


class BusyError(Exception):
    """Too many requests wait already."""


class Engine:
    """Sessions by id, and the thread that they live on."""

    def __init__(self, opened: Sequence[Opened], effort: Effort | None = None):
        """Start nothing yet; ``warm_up`` does."""
        self.models = {model.id: model for model in opened}
        self._effort = effort
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="jumpy-view")
        self._lock = threading.Lock()
        self._waiting = 0
        self._sessions: dict[str, Session] = {}
        self._ready: set[str] = set()
        self._failed: dict[str, str] = {}
        self._doing, self._done, self._of = "starting", 0, 1
        self._begun, self._closed = time.monotonic(), False

    def warm_up(self) -> None:
        """Make sessions and compile their programs, in the background."""
        self._pool.submit(self._warm_up)

    def _warm_up(self) -> None:
        later: list[tuple[Session, Program]] = []
        for model in self.models.values():
            try:
                self._doing = "environment"
                session = self._sessions[model.id] = Session(model, self._effort)
                programs = session.programs()
                urgent = [program for program in programs if program.first]
                self._done, self._of = 0, len(urgent)
                for program in urgent:
                    if self._closed:
                        return
                    self._doing = program.name
                    program.call()
                    session.compiled.add(program.name)
                    self._done += 1
            except Exception as error:
                # A model that cannot start must not take the others with it; the page says why.
                self._failed[model.id] = _in_a_line(error)
            else:
                self._ready.add(model.id)
                later += [(session, program) for program in programs if not program.first]
        self._doing = "ready"
        # The rest compiles beside the page's first answers rather than before them.
        # A process that ends waits for the program in hand: XLA aborts one that does not.
        threading.Thread(target=self._compile, args=(later,), daemon=False).start()

    def _compile(self, programs: list[tuple[Session, Program]]) -> None:
        for session, program in programs:
            if self._closed:
                return
            try:
                program.call()
            except Exception as error:
                # The first view works without it, and the page must not wait for it for ever.
                session.failed[program.name] = _in_a_line(error)
            else:
                session.compiled.add(program.name)

    def status(self) -> dict[str, Any]:
        """Return how far the warm-up is."""
        return {
            "models": [
                {
                    "id": model.id,
                    "title": model.title,
                    "ready": model.id in self._ready,
                    "drawable": model.id in self._sessions,
                    "compiled": sorted(self._compiled(model.id)),
                    "failed": self._failed.get(model.id),
                    "failed_programs": self._failed_programs(model.id),
                }
                for model in self.models.values()
            ],
            "doing": self._doing,
            "done": self._done,
            "of": self._of,
            "seconds": round(time.monotonic() - self._begun, 1),
            "waiting": self._waiting,
        }

    def _compiled(self, model: str) -> set[str]:
        return self._sessions[model].compiled if model in self._sessions else set()

    def _failed_programs(self, model: str) -> dict[str, str]:
        return dict(self._sessions[model].failed) if model in self._sessions else {}

    def session(self, model: str) -> Session:
        """Return the session of a model that is ready.

        Raises:
            NotReadyError: it is not; the message says why.
        """
        if model in self._failed:
            raise NotReadyError(self._failed[model])
        if model not in self._ready:
            raise NotReadyError(f"warming up ({self._doing})")
        return self._sessions[model]

    def is_ready(self, model: str) -> bool:
        """Say whether everything is compiled."""
        return model in self._ready

    def drawing(self, model: str) -> Session | None:
        """Return a session that may still be compiling: enough to draw its scene."""
        return self._sessions.get(model)

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work on the thread, in turn.

        Raises:
            BusyError: too much is waiting.
        """
        with self._lock:
            if self._waiting >= WAITING:
                raise BusyError
            self._waiting += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._finished)
        # Whoever has gone away meanwhile need not be answered: what has not begun is dropped.
        return await asyncio.wrap_future(future)

    def _finished(self, _: Any) -> None:
        with self._lock:
            self._waiting -= 1

    def close(self) -> None:
        """Drop what waits, begin no further program; what runs ends by itself."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)


def _in_a_line(error: Exception) -> str:
    lines = f"{error}".strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
