"""Make a data set with many processes: resumable, and the same file whoever made which part.

    OUT/NAME.npz, OUT/NAME-val.npz, OUT/NAME.json     the result: two sets and what they are
    OUT/.NAME.parts/                                  while it is being made: one file an episode

Each episode is a function of (seed, split, index) alone and is written, complete or not at all, to
a part of its own. An interrupted run finds the parts it had and makes the others. Only when all are
there are they copied, in order, into the final files, and the parts removed.
"""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from jumpyworld.domains.base import Domain
from jumpyworld.domains.generate.episodes import Episode, episode_generator, episode_maker
from jumpyworld.domains.registry import get
from jumpyworld.domains.versions import simulator_versions
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.storage.files import atomic_file, sha256_file, write_json
from jumpyworld.storage.npz import Column, read_npz, write_npz

Progress = Callable[[int, int], None]
"""Called with the episodes made so far and the episodes asked for."""

_ARRAYS = ("observations", "actions", "qpos", "qvel")


@dataclass(frozen=True)
class Request:
    """What decides the content of a data set; equal requests give equal files.

    Attributes:
        domain: OGBench's data set name.
        seed: any non-negative integer.
        episodes: training episodes; a tenth as many further ones are made for validation, and at
            least one, because OGBench's loader cannot read an empty set.
        steps: rows per episode.
        noise: see ``Collection``.
        versions: of the packages that the physics and the draws depend on.
    """

    domain: str
    seed: int
    episodes: int
    steps: int
    noise: float
    versions: dict[str, str]

    @classmethod
    def make(cls, domain: Domain, seed: int = 0, episodes: int | None = None) -> "Request":
        """Return the standard request for a domain, with OGBench's sizes as defaults."""
        standard = domain.collection
        episodes = standard.episodes if episodes is None else episodes
        if episodes < 1:
            raise ConfigError(f"episodes must be at least 1, not {episodes}")
        if seed < 0:
            raise ConfigError(f"seed must not be negative, not {seed}")
        versions = simulator_versions()
        if domain.name.startswith("antmaze"):
            from jumpyworld.domains.generate.ant_expert import DEFAULT_PATH

            versions["ant-expert"] = sha256_file(DEFAULT_PATH)[:16]
        return cls(domain.name, seed, episodes, standard.steps, standard.noise, versions)

    def jobs(self) -> list[tuple[str, int]]:
        """Return every episode as (split, index), in the order of the files."""
        counts = {"train": self.episodes, "val": max(1, self.episodes // 10)}
        return [(split, index) for split, count in counts.items() for index in range(count)]


def generate(
    request: Request,
    out: Path,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Make the data set that ``request`` describes and return the path of its training file.

    A finished set of the same request is kept as it is; one that was interrupted is continued.

    Args:
        request: see ``Request``.
        out: folder for the result.
        workers: processes; all cores by default.
        overwrite: discard what is there, finished or not.
        progress: see ``Progress``.

    Raises:
        DataError: the folder holds another set of that name, or cannot be written.
    """
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")
    target, sidecar = out / f"{request.domain}.npz", out / f"{request.domain}.json"
    parts = out / f".{request.domain}.parts"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if overwrite:
            _discard(target, sidecar, parts)
        elif sidecar.exists():
            _check_finished(request, sidecar)
            return target
        with _lock(parts):
            _check_parts(request, parts)
            _make_parts(request, parts, workers, progress or (lambda done, total: None))
            _assemble(request, parts, out)
            write_json(sidecar, _describe(request, parts, out))
            shutil.rmtree(parts)
    except OSError as error:
        where = error.filename or out
        raise DataError(f"{where}: cannot write the data set: {error.strerror}") from error
    return target


def _discard(target: Path, sidecar: Path, parts: Path) -> None:
    # The sidecar first: a set without it counts as unfinished, so no kill can leave a wrong pair.
    for path in (sidecar, target, validation_file(target)):
        path.unlink(missing_ok=True)
    shutil.rmtree(parts, ignore_errors=True)


def validation_file(target: Path) -> Path:
    """Return the name under which OGBench looks for a training file's validation set."""
    return target.with_name(f"{target.stem}-val.npz")


def _check_finished(request: Request, sidecar: Path) -> None:
    wanted = asdict(request)
    try:
        found = json.loads(sidecar.read_text())
        other = [key for key in wanted if found[key] != wanted[key]]
        hashes = {
            sidecar.with_name(Path(name).name): f["sha256"] for name, f in found["files"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{sidecar}: damaged ({error}); --overwrite makes the set anew") from error
    if other:
        raise DataError(
            f"{sidecar}: this set was made with {other[0]} {found[other[0]]}, not "
            f"{wanted[other[0]]}; choose another --out, or --overwrite"
        )
    for path, sha256 in hashes.items():
        if not path.exists() or sha256_file(path) != sha256:
            raise DataError(f"{path}: missing or damaged; --overwrite makes the set anew")


@contextlib.contextmanager
def _lock(parts: Path) -> Iterator[None]:
    """Keep a second process out; the system frees the lock when this one ends, however it ends."""
    import fcntl

    parts.mkdir(exist_ok=True)
    with open(parts / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(f"{parts}: another process is making this data set") from error
        yield


def _check_parts(request: Request, parts: Path) -> None:
    """Keep the parts of an interrupted run if they belong to this request.

    The number of episodes may differ: each episode is what it is whatever their number.
    """
    note = parts / "request.json"
    wanted = asdict(request) | {"episodes": None}
    try:
        same = not note.exists() or json.loads(note.read_text()) == wanted
    except ValueError:
        same = False
    if not same:
        raise DataError(
            f"{parts}: holds parts of an interrupted run with other settings; "
            "give that run's settings to continue it, or --overwrite"
        )
    write_json(note, wanted)


def _part_path(parts: Path, split: str, index: int) -> Path:
    return parts / f"{split}-{index:06d}"


def _make_parts(request: Request, parts: Path, workers: int, progress: Progress) -> None:
    jobs = request.jobs()
    missing = [job for job in jobs if _read_part(request, parts, job) is None]
    done = len(jobs) - len(missing)
    progress(done, len(jobs))
    if not missing:
        return
    # Processes are spawned, not forked: a fork of a process with JAX's threads may hang.
    pool = ProcessPoolExecutor(
        min(workers, len(missing)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(request, parts),
    )
    try:
        for future in as_completed([pool.submit(_make_part, *job) for job in missing]):
            future.result()
            done += 1
            progress(done, len(jobs))
    except BrokenProcessPool as error:
        raise DataError(
            f"{parts}: a worker process was killed (out of memory?); the same command continues"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(request: Request, parts: Path) -> None:
    """Prepare a worker process: it makes its environment once and keeps it."""
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    maker = episode_maker(get(request.domain), request.steps, request.noise)
    _work = request, parts, maker


def _exit_with_parent() -> None:
    """End this process when its parent has gone, even by a kill that told nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _make_part(split: str, index: int) -> None:
    request, parts, maker = _work
    episode = maker(episode_generator(request.seed, split, index))
    with atomic_file(_part_path(parts, split, index), durable=False) as file:
        np.savez(file, **asdict(episode))


def _read_part(request: Request, parts: Path, job: tuple[str, int]) -> Episode | None:
    """Return a part, or None if it is missing or damaged and so has to be made (again)."""
    try:
        arrays = read_npz(_part_path(parts, *job))
        episode = Episode(**{key: arrays[key] for key in (*_ARRAYS, "goals_reached")})
    except (DataError, KeyError):
        return None
    return episode if len(episode.observations) == request.steps else None


def _assemble(request: Request, parts: Path, out: Path) -> None:
    jobs = request.jobs()
    target = out / f"{request.domain}.npz"
    first = _read_part(request, parts, jobs[0])
    assert first is not None  # every part was made or verified just before
    for split, path in (("train", target), ("val", validation_file(target))):
        members = [job for job in jobs if job[0] == split]
        rows = len(members) * request.steps
        columns = {
            key: Column(
                (rows, getattr(first, key).shape[1]),
                np.dtype(np.float32),
                lambda key=key, members=members: (
                    _part_array(_part_path(parts, *job), key) for job in members
                ),
            )
            for key in _ARRAYS
        }
        ends = np.zeros(rows, bool)
        ends[request.steps - 1 :: request.steps] = True
        columns["terminals"] = Column((rows,), np.dtype(bool), lambda ends=ends: [ends])
        write_npz(path, columns)


def _part_array(path: Path, key: str) -> np.ndarray:
    return read_npz(path)[key]


def _describe(request: Request, parts: Path, out: Path) -> dict:
    """Return the sidecar: the request, and for each file its hash, size and what is in it."""
    files = {}
    target = out / f"{request.domain}.npz"
    for split, path in (("train", target), ("val", validation_file(target))):
        members = [job for job in request.jobs() if job[0] == split]
        goals = [int(_part_array(_part_path(parts, *job), "goals_reached")) for job in members]
        files[path.name] = {
            "sha256": sha256_file(path),
            "bytes": path.stat().st_size,
            "episodes": len(members),
            "transitions": len(members) * (request.steps - 1),
            "goals_reached": sum(goals),
        }
    return {"format": 1, **asdict(request), "files": files}
