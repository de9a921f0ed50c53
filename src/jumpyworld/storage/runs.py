"""Run folders: what a training run leaves behind, and how it is found again.

    run/config.json                      what is trained, and for how long
    run/checkpoints/step-000001000/      complete, verified checkpoints
    run/metrics.jsonl, metrics.csv       the log (``metrics.py``)
    run/lock                             held by the live process

The newest checkpoint that verifies is the run's. One that does not is never deleted and never used:
it is reported, and the one before it steps in.
"""

import contextlib
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from jumpyworld.errors import CheckpointError
from jumpyworld.storage import checkpoint
from jumpyworld.storage import manifest as manifests
from jumpyworld.storage.files import TEMPORARY_SUFFIX, sync_folder, write_json
from jumpyworld.storage.schema import brief, differences

CHECKPOINTS, LOCK = "checkpoints", "lock"
METRICS = ("metrics.jsonl", "metrics.csv")
DAMAGED_SUFFIX = ".damaged"
_STEP = re.compile(r"step-(\d{9,12})")

Warn = Callable[[str], None]


def python_warning(message: str) -> None:
    """Report through Python's ``warnings``: what a caller gets who does not say otherwise."""
    warnings.warn(message, stacklevel=3)


def checkpoint_path(run: Path, step: int) -> Path:
    """Return where the checkpoint of ``step`` lies."""
    return Path(run) / CHECKPOINTS / f"step-{step:09d}"


def saved_steps(run: Path) -> list[int]:
    """Return the steps of a run's checkpoints in rising order, verified or not."""
    folder = Path(run) / CHECKPOINTS
    if not folder.is_dir():
        return []
    found = [_STEP.fullmatch(entry.name) for entry in folder.iterdir() if not entry.is_symlink()]
    return sorted(int(match[1]) for match in found if match)


def newest(run: Path, warn: Warn = python_warning) -> tuple[int, Path] | None:
    """Return step and path of the newest checkpoint that verifies, or None if there are none.

    Raises:
        CheckpointError: there are checkpoints and none of them verifies.
    """
    run, reason = Path(run), None
    for step in reversed(saved_steps(run)):
        path = checkpoint_path(run, step)
        try:
            if checkpoint.verify(path).step != step:
                raise CheckpointError(f"{path}: holds another step than its name says")
        except CheckpointError as error:
            reason = reason or error
            warn(f"{error}; trying the checkpoint before it")
        else:
            return step, path
    if reason is not None:
        raise CheckpointError(f"{run}: none of its checkpoints can be read; the newest: {reason}")
    return None


def resolve(path: Path, warn: Warn = python_warning) -> Path:
    """Return the verified checkpoint that ``path`` means.

    Args:
        path: a run folder (its newest verified checkpoint), or one checkpoint or export itself.
        warn: called with one line for each damaged checkpoint passed over.

    Raises:
        CheckpointError: nothing there can be loaded.
    """
    path = Path(path)
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such folder")
    if (path / manifests.MANIFEST).exists():
        checkpoint.verify(path)
        return path
    found = newest(path, warn)
    if found is None:
        raise CheckpointError(f"{path}: no checkpoint here (neither a run nor a checkpoint folder)")
    return found[1]


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run folder, made if missing, against every other process.

    The system drops the lock when its process ends, however it ends: there are no stale locks.

    Raises:
        CheckpointError: a live process holds it, it is a checkpoint itself, or it cannot be
            written.
    """
    import fcntl  # not on Windows, where the rest of this module still serves readers

    run = Path(run)
    if (run / manifests.MANIFEST).exists():
        raise CheckpointError(f"{run}: a checkpoint, not a run folder; choose another")
    with manifests.writing(run):
        run.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(run / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = " ".join(file.read(200).split())
            raise CheckpointError(f"{run}: another process trains here ({holder})") from error
        with manifests.writing(run):
            file.truncate(0)
            file.write(f"process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
            file.flush()
        yield


def prepare(
    run: Path,
    document: dict[str, Any],
    overwrite: bool,
    warn: Warn,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Make a locked run folder ready to start or go on with ``document``.

    Leftovers of interrupted saves are removed. With ``overwrite`` the old run goes too (its own
    files only, whatever else the folder holds). ``defaults`` is as for ``check_same``.

    Raises:
        CheckpointError: the folder belongs to a run of another description.
    """
    run = Path(run)
    with manifests.writing(run):
        if overwrite:
            _discard(run)
        _remove_leftovers(run)
        (run / CHECKPOINTS).mkdir(exist_ok=True)
    path = run / manifests.CONFIG
    if not path.exists():
        return
    try:
        stored = manifests.parse_json(manifests.read_bytes(path, manifests.JSON_LIMIT), path)
        if not isinstance(stored, dict):
            raise CheckpointError(f"{path}: not the description of a run")
        stored.pop("training", None)
        manifests.check_document(stored, path)
    except CheckpointError as error:
        # The checkpoints hold the same description under a hash; without one, nobody can say
        # what this folder was for.
        if not saved_steps(run):
            raise
        warn(f"{error}; going by the checkpoints")
        return
    check_same(run, stored, document, defaults)


def write_config(run: Path, document: dict[str, Any], training: dict[str, Any]) -> None:
    """Write the run's ``config.json``: the description, and how long and how often."""
    path = Path(run) / manifests.CONFIG
    with manifests.writing(path):
        write_json(path, {**document, "training": training})


def check_same(
    where: Path,
    stored: dict[str, Any],
    asked: dict[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Refuse to go on with another description than the stored one.

    Args:
        where: what is refused, for the message.
        stored: description of the run.
        asked: description of what is to be done.
        defaults: of the settings; a run from before a setting existed has its default.

    Raises:
        CheckpointError: naming each field that differs with both values.
    """
    stored = {**stored, "config": {**(defaults or {}), **stored["config"]}}
    found = [
        f"{field} is {brief(old)} there and {brief(new)} here"
        for field, old, new in differences(stored, asked)
    ]
    if found:
        more = f" (and {len(found) - 4} more)" if len(found) > 4 else ""
        raise CheckpointError(
            f"{where}: {'; '.join(found[:4])}{more}: choose another folder, or overwrite this run"
        )


def set_aside_after(run: Path, step: int, warn: Warn) -> None:
    """Rename checkpoints newer than ``step``, all of them damaged, out of the way of new ones."""
    for later in saved_steps(run):
        if later > step:
            path = checkpoint_path(run, later)
            aside, count = path.with_name(path.name + DAMAGED_SUFFIX), 1
            while aside.exists():
                count += 1
                aside = path.with_name(f"{path.name}{DAMAGED_SUFFIX}-{count}")
            with manifests.writing(path):
                path.rename(aside)
            warn(f"{path}: damaged, kept as {aside.name}")


def prune(run: Path, keep: int, keep_steps: Collection[int]) -> None:
    """Remove all checkpoints but the last ``keep`` and those of ``keep_steps``."""
    for step in saved_steps(run)[:-keep]:
        if step not in keep_steps:
            path = checkpoint_path(run, step)
            # Hidden first: a reader, or a kill half-way, never meets half a checkpoint.
            hidden = path.with_name(f".{path.name}.old{TEMPORARY_SUFFIX}")
            with manifests.writing(path):
                path.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)


def _discard(run: Path) -> None:
    """Remove a run; after a kill at any point the folder is the old run or an empty one."""
    checkpoints = run / CHECKPOINTS
    (run / manifests.CONFIG).unlink(missing_ok=True)
    if checkpoints.is_dir():
        hidden = run / f".{CHECKPOINTS}.{os.getpid()}{TEMPORARY_SUFFIX}"
        shutil.rmtree(hidden, ignore_errors=True)
        checkpoints.rename(hidden)
        sync_folder(run)
    for name in METRICS:
        (run / name).unlink(missing_ok=True)


def _remove_leftovers(run: Path) -> None:
    """Remove what interrupted writes left: hidden names that only this package makes."""
    names = "|".join(re.escape(n) for n in (CHECKPOINTS, manifests.CONFIG, *METRICS))
    leftover = re.compile(rf"\.({names}|step-\d+)\..*{re.escape(TEMPORARY_SUFFIX)}")
    for folder in (run, run / CHECKPOINTS):
        for entry in folder.iterdir() if folder.is_dir() else ():
            if not leftover.fullmatch(entry.name):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
