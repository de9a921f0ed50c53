"""What a checkpoint says about itself: its description, its manifest, and how both are read.

``config.json`` describes what was trained (kind, settings, shapes, what it was trained on);
``manifest.json`` lists every file with its size and sha256, and carries a hash of itself, so that
no byte of a checkpoint can change unseen. Both are data with a fixed schema. File names come from
this module and never from a file's contents.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumpyworld._version import __version__
from jumpyworld.errors import CheckpointError
from jumpyworld.storage.schema import brief, to_json

FORMAT = 1
CONFIG, MANIFEST = "config.json", "manifest.json"
MODEL, STATE = "model.safetensors", "train_state.safetensors"
# Far above any real description (about 100 bytes an array), far below a memory bomb.
JSON_LIMIT = 16 * 2**20

_KIND = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Manifest:
    """The checked contents of ``manifest.json``."""

    kind: str
    step: int
    """Training steps done."""
    config_sha256: str
    """Hash of the description: two checkpoints with the same one were asked for alike."""
    fingerprints: dict[str, str | None]
    """What it was trained on: hashes of the data set and of the policy, where there is one, and the
    names of the data set's domain and the policy's algorithm."""
    environment: dict[str, Any]
    """Library versions and PRNG settings of the run that wrote it."""
    shards: int
    """0: a training checkpoint; n: inference weights in n files."""
    files: dict[str, dict[str, Any]]
    """Per file: sha256, size, and for array files the shape and dtype of each array."""


def model_files(shards: int) -> tuple[str, ...]:
    """Return the names of the files that hold the inference weights."""
    if shards == 0:
        return (MODEL,)
    return tuple(f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(1, shards + 1))


def file_names(shards: int) -> tuple[str, ...]:
    """Return the names of all files that the manifest must list, and no others."""
    return (CONFIG, *model_files(shards), *((STATE,) if shards == 0 else ()))


def make_document(
    kind: str,
    config: Any,
    spec: Mapping[str, Any],
    fingerprints: Mapping[str, str | None],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """Return the description of a run, ready for ``config.json``.

    Args:
        kind: which loader reads it back (``jumpyworld.loading``).
        config: the algorithm's settings, a dataclass or plain data.
        spec: shapes and whatever else the loader needs to build the model.
        fingerprints: hashes and names of what it is trained on, by role (``dataset``, ``domain``,
            ``policy``, ``policy_name``).
        seeds: one, or several trained at once; several means arrays with a leading axis.
    """
    document = {
        "format": FORMAT,
        "kind": kind,
        "config": to_json(config, "config"),
        "spec": to_json(dict(spec), "spec"),
        "fingerprints": to_json(dict(fingerprints), "fingerprints"),
        "seeds": list(seeds),
    }
    return check_document(document, Path(CONFIG))


def check_document(document: Any, path: Path) -> dict[str, Any]:
    """Return ``document`` if it is a description of the fixed form, or raise CheckpointError."""
    fields = ("format", "kind", "config", "spec", "fingerprints", "seeds")
    _check_fields(document, fields, path)
    _check_format(document, path)
    _check(_is_match(_KIND, document["kind"]), path, "kind", document["kind"])
    for name in ("config", "spec"):
        _check(isinstance(document[name], dict), path, name, document[name])
    _check_fingerprints(document["fingerprints"], path)
    seeds = document["seeds"]
    good = isinstance(seeds, list) and all(
        type(seed) is int and 0 <= seed < 2**32 for seed in seeds
    )
    _check(good and 0 < len(set(seeds)) == len(seeds), path, "seeds", seeds)
    return document


def environment() -> dict[str, Any]:
    """Return the versions and settings on which the bits of a run depend."""
    import importlib.metadata
    import platform

    import jax

    settings: Any = jax.config  # its flags are attributes that type checkers cannot see
    packages = ("jax", "jaxlib", "numpy", "equinox", "optax", "safetensors")
    return {
        "versions": {
            "python": platform.python_version(),
            "jumpyworld": __version__,
            **{name: importlib.metadata.version(name) for name in packages},
        },
        "prng": {
            "impl": str(settings.jax_default_prng_impl),
            "threefry_partitionable": bool(settings.jax_threefry_partitionable),
        },
        "backend": jax.default_backend(),
    }


def sha256_json(value: Any) -> str:
    """Return the sha256 of ``value`` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def seal(manifest: Manifest) -> dict[str, Any]:
    """Return ``manifest`` as JSON data with its own hash."""
    body = {"format": FORMAT, **to_json(manifest, "manifest")}
    return {**body, "sha256": sha256_json(body)}


def read_manifest(folder: Path) -> Manifest:
    """Read and check ``folder/manifest.json``.

    Raises:
        CheckpointError: missing, damaged, or not of the fixed form.
    """
    path = folder / MANIFEST
    body = parse_json(read_bytes(path, JSON_LIMIT), path)
    names = tuple(Manifest.__dataclass_fields__)
    _check_fields(body, ("format", *names, "sha256"), path)
    try:
        same = body.pop("sha256") == sha256_json(body)
    except RecursionError:
        same = False
    if not same:
        raise CheckpointError(f"{path}: damaged: its contents do not match its own sha256")
    _check_format(body, path)
    _check(_is_match(_KIND, body["kind"]), path, "kind", body["kind"])
    _check(type(body["step"]) is int and body["step"] >= 0, path, "step", body["step"])
    _check_fingerprints(body["fingerprints"], path)
    _check(isinstance(body["environment"], dict), path, "environment", body["environment"])
    shards, files = body["shards"], body["files"]
    _check(type(shards) is int and 0 <= shards <= 99_999, path, "shards", shards)
    good = isinstance(files, dict) and files.keys() == set(file_names(shards))
    _check(good, path, "files", files)
    for name, entry in files.items():
        good = isinstance(entry, dict) and _is_match(_SHA256, entry.get("sha256"))
        good = good and type(entry.get("size")) is int and entry["size"] >= 0
        good = good and (name == CONFIG or isinstance(entry.get("tensors"), dict))
        _check(good, path, f"files.{name}", entry)
    return Manifest(**{name: body[name] for name in names})


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's errors in a block that writes into a CheckpointError naming ``path``."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror})") from error


def open_file(path: Path) -> tuple[int, int]:
    """Open a plain file for reading and return (descriptor, size).

    Links are refused, so that a checkpoint from elsewhere cannot point out of its folder; so are
    pipes and devices, which could be read for ever.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError as error:
        reason = "a link" if path.is_symlink() else error.strerror
        raise CheckpointError(f"{path}: cannot be read ({reason})") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path}: cannot be read (not a plain file)")
    return descriptor, status.st_size


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the bytes of a plain file of at most ``limit`` bytes."""
    descriptor, size = open_file(path)
    with os.fdopen(descriptor, "rb") as file:
        if size > limit:
            raise CheckpointError(f"{path}: {size} bytes where at most {limit} are expected")
        try:
            return file.read(size + 1)
        except (OSError, MemoryError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error})") from error


def parse_json(content: bytes, path: Path) -> Any:
    """Return JSON data; doubled keys, NaN and endless nesting are refused like bad syntax."""
    try:
        return json.loads(
            content, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable as JSON ({error})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no value")
    return value


def _is_match(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _check(good: bool, path: Path, field: str, value: Any) -> None:
    if not good:
        raise CheckpointError(f"{path}: {field} is {brief(value)}, which is not valid")


def _check_fields(body: Any, fields: Sequence[str], path: Path) -> None:
    if not isinstance(body, dict):
        raise CheckpointError(f"{path}: holds {type(body).__name__}, not an object")
    for name in sorted(body.keys() ^ set(fields)):
        known = "unknown" if name in body else "missing"
        raise CheckpointError(f"{path}: {brief(name)} is {known}")


def _check_format(body: dict[str, Any], path: Path) -> None:
    if type(body["format"]) is not int or body["format"] != FORMAT:
        raise CheckpointError(
            f"{path}: format {brief(body['format'])}; this version of jumpyworld reads {FORMAT}"
        )


def _check_fingerprints(value: Any, path: Path) -> None:
    good = isinstance(value, dict)
    good = good and all(item is None or isinstance(item, str) for item in value.values())
    _check(good, path, "fingerprints", value)
