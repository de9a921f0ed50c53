"""Atomic writes and content hashes.

A file appears under its final name only when every byte of it is on the disk: it is written beside
its destination, flushed, renamed, and the folder entry is flushed too. Whatever interrupts that (a
kill, a full disk, an exception) leaves the old file, or none, under the final name.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

TEMPORARY_SUFFIX = ".tmp"


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a binary file that becomes ``path`` if the block ends well and vanishes otherwise.

    Args:
        path: final name; missing parent folders are made.
        durable: flush to the disk, so that the file survives a power cut and not only a kill.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX
    )
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        # mkstemp makes files private to the user; a result file follows the user's umask.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        if durable:
            sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def lock_file(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold ``path``, a file for this alone, against everybody else; it is gone when nobody does.

    The system frees the lock when its process ends, however it ends: a file that a kill left
    behind locks nothing.

    Raises:
        BlockingIOError: somebody holds it, and ``wait`` is False.
    """
    import fcntl  # not on Windows, where the rest of this module still serves

    while True:
        file = open(path, "w")  # noqa: SIM115  (closed below, or by the retry)
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            file.close()
            raise
        # The holder before us removed the file it had locked: then ours locks nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(file.fileno()).st_ino:
                break
        file.close()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; NaN and infinity are refused."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    with atomic_file(path) as file:
        file.write(text.encode())


def sha256_file(path: Path) -> str:
    """Return the hexadecimal sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    if os.name == "nt":  # Windows cannot open folders; its renames are journalled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """Return the process's umask (the only way to read it is to set it)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
