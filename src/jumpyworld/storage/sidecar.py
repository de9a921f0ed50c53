"""What a data set says of itself: ``NAME.json`` beside ``NAME.npz`` and ``NAME-val.npz``.

It records how the files were made (domain, seed, versions) and, for each, its size and sha256, so
that a file which is not the one that was written is never taken for it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jumpyworld.errors import data_error, unwritable
from jumpyworld.storage.files import sha256_file, write_json
from jumpyworld.storage.npz import READ_ERRORS, unreadable

MAX_SIDECAR = 2**20
SIDECAR_KEYS = ("domain", "seed", "versions", "files")


def file_entry(path: Path | str) -> dict[str, Any]:
    """Return what a sidecar's ``files`` stores about a file: its sha256 and its size."""
    try:
        return {"sha256": sha256_file(Path(path)), "bytes": Path(path).stat().st_size}
    except OSError as error:
        raise unreadable(path, error) from error


def write_sidecar(path: Path | str, contents: Mapping[str, Any]) -> None:
    """Write ``NAME.json`` atomically.

    Args:
        path: the sidecar, or the ``NAME.npz`` it belongs to.
        contents: at least ``domain``, ``seed``, ``versions`` and ``files``, which maps each file
            name to its ``file_entry``.
    """
    path = Path(path).with_suffix(".json")
    _check_sidecar(path, contents)
    try:
        write_json(path, dict(contents))
    except (TypeError, ValueError) as error:
        raise data_error(path, f"cannot be written as JSON ({error})") from error
    except OSError as error:
        raise unwritable(path, error) from error


def read_sidecar(path: Path | str) -> dict[str, Any]:
    """Read and check a sidecar.

    Raises:
        DataError: it is damaged or lacks a key.
    """
    try:
        with open(path, "rb") as handle:
            text = handle.read(MAX_SIDECAR + 1)
        if len(text) > MAX_SIDECAR:
            raise data_error(path, f"is longer than {MAX_SIDECAR} bytes: not a sidecar")
        contents = json.loads(text)
    except READ_ERRORS as error:
        raise unreadable(path, error) from error
    _check_sidecar(path, contents)
    return contents


def _check_sidecar(path: Path | str, contents: Any) -> None:
    if not isinstance(contents, Mapping):
        raise data_error(path, "is not a JSON object")
    for key in SIDECAR_KEYS:
        if key not in contents:
            raise data_error(path, f"lacks the key {key!r}")
    if not isinstance(contents["domain"], str | None):
        raise data_error(path, f"domain is {contents['domain']!r}, need a name")
    files = contents["files"]
    if not isinstance(files, Mapping) or not all(isinstance(e, Mapping) for e in files.values()):
        raise data_error(path, "files must map names to objects with sha256 and bytes")


def verify_file(path: Path, sidecar: Path) -> dict[str, Any]:
    """Compare a file with its sidecar and return the sidecar.

    Raises:
        DataError: size or sha256 differ, or the sidecar does not list the file.
    """
    contents = read_sidecar(sidecar)
    entry = contents["files"].get(path.name)
    if entry is None:
        raise data_error(path, f"is not listed in {sidecar.name}")
    found = file_entry(path)
    for key in ("bytes", "sha256"):
        if entry.get(key) != found[key]:
            raise data_error(
                path, f"{key} is {found[key]}, but {sidecar.name} records {entry.get(key)}"
            )
    return contents
