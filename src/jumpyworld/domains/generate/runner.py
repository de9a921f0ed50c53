"""Make a data set: resumable, and the same file whoever made which part.

    OUT/NAME.npz, OUT/NAME-val.npz, OUT/NAME.json     the result: two sets and what they are
    OUT/.NAME.parts/, OUT/.NAME.lock                  while it is being made: one file an episode

An interrupted run finds the parts it had and makes the others. Only when all are there are they
copied, in order, into the final files, and the parts removed. The sidecar comes last: a set without
it is not finished.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np

from jumpyworld.domains.generate.parts import ARRAYS, Progress, make_parts, part_path, read_part
from jumpyworld.domains.generate.request import Request
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.machine import available_cores
from jumpyworld.storage.files import TEMPORARY_SUFFIX, lock_file, write_json
from jumpyworld.storage.npz import Column, read_npz, write_npz
from jumpyworld.storage.sidecar import file_entry, read_sidecar, verify_file, write_sidecar

__all__ = ["Request", "generate", "validation_file"]


def generate(
    request: Request,
    out: Path,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    expert: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make the data set that ``request`` describes and return the path of its training file.

    A finished set of the same request is kept as it is; one that was interrupted is continued.

    Args:
        request: see ``Request``.
        out: folder for the result.
        workers: processes; all cores by default.
        overwrite: discard what is there, finished or not.
        expert: the weights that the request was made with.
        progress: see ``Progress``.

    Raises:
        DataError: the folder holds another set of that name, or cannot be written.
    """
    workers = available_cores() if workers is None else workers
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")
    target, sidecar = out / f"{request.domain}.npz", out / f"{request.domain}.json"
    parts = out / f".{request.domain}.parts"
    lock = out / f".{request.domain}.lock"
    try:
        out.mkdir(parents=True, exist_ok=True)
        with lock_file(lock, wait=False):
            _remove_leftovers(out, request.domain)
            if overwrite:
                _discard(target, sidecar, parts)
            elif sidecar.exists():
                _check_finished(request, sidecar)
                return target
            _check_foreign(target, parts)
            _check_space(request, out)
            _check_parts(request, parts)
            make_parts(request, parts, workers, expert, progress or (lambda done, total: None))
            _assemble(request, parts, out)
            write_sidecar(sidecar, _describe(request, parts, out))
            shutil.rmtree(parts)
    except BlockingIOError as error:
        raise DataError(f"{lock}: another process is making this data set") from error
    except OSError as error:
        where = error.filename or out
        raise DataError(f"{where}: cannot write the data set: {error.strerror}") from error
    return target


def validation_file(target: Path) -> Path:
    """Return the name under which OGBench looks for a training file's validation set."""
    return target.with_name(f"{target.stem}-val.npz")


def _remove_leftovers(out: Path, name: str) -> None:
    """Remove what a kill in the middle of writing a final file left behind."""
    for path in out.glob(f".{name}*{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)


def _discard(target: Path, sidecar: Path, parts: Path) -> None:
    # The sidecar first: a set without it counts as unfinished, so no kill can leave a wrong pair.
    for path in (sidecar, target, validation_file(target)):
        path.unlink(missing_ok=True)
    shutil.rmtree(parts, ignore_errors=True)


def _check_finished(request: Request, sidecar: Path) -> None:
    wanted, found = asdict(request), read_sidecar(sidecar)
    for field, value in wanted.items():
        if found.get(field) != value:
            raise DataError(
                f"{sidecar}: this set was made with {field} {found.get(field)}, not {value}; "
                "choose another --out, or --overwrite"
            )
    for name in found["files"]:
        verify_file(sidecar.with_name(Path(name).name), sidecar)


def _check_foreign(target: Path, parts: Path) -> None:
    """Refuse to replace a set that came from elsewhere, such as a downloaded one."""
    for path in (target, validation_file(target)):
        if path.exists() and not parts.exists():
            raise DataError(
                f"{path}: is there already, without a {target.stem}.json that says how it was "
                "made; choose another --out, or --overwrite"
            )


def _check_space(request: Request, out: Path) -> None:
    """Refuse what cannot fit: parts and final files are there together for a while."""
    needed, free = 2 * request.num_bytes, shutil.disk_usage(out).free
    if needed > free:
        raise DataError(
            f"{out}: {request.episodes} episodes need about {needed / 1e9:.1f} GB while they are "
            f"made; {free / 1e9:.1f} GB are free"
        )


def _check_parts(request: Request, parts: Path) -> None:
    """Keep the parts of an interrupted run if they belong to this request.

    The number of episodes may differ: each episode is what it is whatever their number.
    """
    parts.mkdir(exist_ok=True)
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


def _assemble(request: Request, parts: Path, out: Path) -> None:
    jobs = request.jobs()
    target = out / f"{request.domain}.npz"
    first = read_part(request, parts, jobs[0])
    assert first is not None  # every part was made or verified just before
    for split, path in (("train", target), ("val", validation_file(target))):
        members = [job for job in jobs if job[0] == split]
        rows = len(members) * request.steps
        columns = {
            key: Column(
                (rows, getattr(first, key).shape[1]),
                np.dtype(np.float32),
                lambda key=key, members=members: (
                    _part_array(part_path(parts, *job), key) for job in members
                ),
            )
            for key in ARRAYS
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
        goals = [int(_part_array(part_path(parts, *job), "goals_reached")) for job in members]
        files[path.name] = {
            **file_entry(path),
            "episodes": len(members),
            "transitions": len(members) * (request.steps - 1),
            "goals_reached": sum(goals),
        }
    return {"format": 1, **asdict(request), "files": files}
