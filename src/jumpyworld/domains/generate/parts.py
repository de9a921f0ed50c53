"""Episodes as files of their own, made by many processes.

Each episode is a function of (seed, split, index) alone and is written, complete or not at all, to
a part of its own; whoever makes it, and when, does not matter.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

import numpy as np

from jumpyworld.domains.generate.episodes import Episode, episode_generator, episode_maker
from jumpyworld.domains.generate.request import Request
from jumpyworld.domains.registry import get
from jumpyworld.errors import DataError, JumpyError
from jumpyworld.storage.files import atomic_file
from jumpyworld.storage.npz import read_npz

Progress = Callable[[int, int], None]
"""Called with the episodes made so far and the episodes asked for."""

ARRAYS = ("observations", "actions", "qpos", "qvel")


def part_path(parts: Path, split: str, index: int) -> Path:
    """Return where an episode is kept until all are there."""
    return parts / f"{split}-{index:06d}"


def make_parts(
    request: Request, parts: Path, workers: int, expert: Path | None, progress: Progress
) -> None:
    """Make every episode whose part is missing or damaged."""
    jobs = request.jobs()
    missing = [job for job in jobs if read_part(request, parts, job) is None]
    done = len(jobs) - len(missing)
    progress(done, len(jobs))
    if not missing:
        return
    # Processes are spawned, not forked: a fork of a process with JAX's threads may hang.
    pool = ProcessPoolExecutor(
        min(workers, len(missing)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(request, parts, expert),
    )
    with _interrupts_ignored():  # inherited by the workers: Ctrl-C is the parent's to handle
        futures = [pool.submit(_make_part, *job) for job in missing]
    try:
        for future in as_completed(futures):
            future.result()
            done += 1
            progress(done, len(jobs))
    except BaseException as error:
        # Parts are whole or absent, so workers may be stopped anywhere; waiting for their
        # episodes would leave a second Ctrl-C hanging.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise DataError(
                f"{parts}: a worker process was killed (out of memory?); the same command continues"
            ) from error
        raise
    finally:
        with _interrupts_ignored():
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C inside the block; only the main thread may, and elsewhere none arrives."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_worker(request: Request, parts: Path, expert: Path | None) -> None:
    """Prepare a worker process: it makes its environment once and keeps it."""
    global _work
    threading.Thread(target=exit_with_parent, daemon=True).start()
    try:
        maker = episode_maker(get(request.domain), request.steps, request.noise, expert)
    except Exception as error:
        # An error here would reach the parent as a broken pool, without its reason.
        maker = error
    _work = request, parts, maker


def exit_with_parent() -> None:
    """End this process when its parent has gone, even by a kill that told nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _make_part(split: str, index: int) -> None:
    request, parts, maker = _work
    if isinstance(maker, JumpyError):
        raise maker
    if isinstance(maker, Exception):
        raise DataError(f"{request.domain}: cannot make the environment: {maker}") from maker
    episode = maker(episode_generator(request.seed, split, index))
    with atomic_file(part_path(parts, split, index), durable=False) as file:
        np.savez(file, **asdict(episode))


def read_part(request: Request, parts: Path, job: tuple[str, int]) -> Episode | None:
    """Return a part, or None if it is missing or damaged and so has to be made (again)."""
    try:
        arrays = read_npz(part_path(parts, *job))
        rows = {key: arrays[key] for key in ARRAYS}
        episode = Episode(**rows, goals_reached=int(arrays["goals_reached"]))
    except (DataError, KeyError):
        return None
    return episode if len(episode.observations) == request.steps else None
