"""Checkpoints: a folder that is complete and verified, or not there.

    config.json                what was trained, as data
    model.safetensors          the weights that inference needs
    train_state.safetensors    everything that training needs to go on, bit for bit
    manifest.json              size and sha256 of the others; written last

A save fills a hidden folder beside the destination, flushes every file and the folder, renames it,
and flushes the parent: a kill or a full disk at any instant leaves the earlier checkpoints as they
were and nothing under the new name. Nothing here imports JAX, casts, or runs what it reads.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jumpyworld.errors import CheckpointError
from jumpyworld.storage import manifest as manifests
from jumpyworld.storage.files import TEMPORARY_SUFFIX, sha256_file, sync_folder, write_json
from jumpyworld.storage.manifest import CONFIG, MANIFEST, MODEL, STATE, Manifest
from jumpyworld.storage.schema import brief
from jumpyworld.storage.tensors import (
    check_writable,
    digest,
    dtype_of,
    is_floating,
    read_tensors,
    write_tensors,
)

Arrays = Mapping[str, Any]
ROUNDED_FROM = "rounded_from"
"""Role, among fingerprints, of what an export with fewer bits was made from."""


def save(
    folder: Path,
    document: dict[str, Any],
    *,
    step: int,
    model: Arrays,
    state: Arrays,
    environment: dict[str, Any] | None = None,
) -> None:
    """Write a training checkpoint.

    Args:
        folder: its final name, which must be free; the parent folder must exist.
        document: the description (``manifest.make_document``).
        step: training steps done.
        model: inference weights by name (``trees.to_arrays``).
        state: the whole training state by name.
        environment: versions and PRNG settings; read from this process if not given.

    Raises:
        CheckpointError: an array is not finite, or the folder cannot be written.
    """
    _write(folder, document, {MODEL: model, STATE: state}, step, 0, environment)


def save_export(
    folder: Path,
    document: dict[str, Any],
    *,
    step: int,
    shards: Sequence[Arrays],
    dtypes: Mapping[str, str],
    environment: dict[str, Any] | None = None,
) -> None:
    """Write inference weights alone, in shards.

    ``dtypes`` gives for each array the dtype it has in the model, to which ``read`` takes it back.
    """
    names = manifests.model_files(len(shards))
    files = dict(zip(names, shards, strict=True))
    _write(folder, document, files, step, len(shards), environment, dtypes)


def verify(folder: Path) -> Manifest:
    """Check every file of a checkpoint against its manifest and return the manifest.

    Raises:
        CheckpointError: a file is missing, damaged, or not a plain file.
    """
    folder = Path(folder)
    manifest = manifests.read_manifest(folder)
    for name, entry in manifest.files.items():
        descriptor, size = manifests.open_file(folder / name)
        with os.fdopen(descriptor, "rb") as file:
            try:
                same_size = size == entry["size"]  # else its hash is not worth the reading
                found = hashlib.file_digest(file, "sha256").hexdigest() if same_size else ""
            except OSError as error:
                raise CheckpointError(f"{folder / name}: cannot be read ({error})") from error
        _match(folder / name, size, found, entry)
    read_document(folder, manifest)
    return manifest


def read(folder: Path, seed: int | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the inference weights of a checkpoint or an export.

    Args:
        folder: one checkpoint (``runs.resolve`` finds a run's newest).
        seed: which of several seeds trained at once; not needed for one.

    Raises:
        CheckpointError: a file is damaged, or the seed is not there.
    """
    folder = Path(folder)
    manifest = manifests.read_manifest(folder)
    document = read_document(folder, manifest)
    arrays: dict[str, np.ndarray] = {}
    for name in manifests.model_files(manifest.shards):
        for key, array in _read_arrays(folder, name, manifest).items():
            if key in arrays:
                raise CheckpointError(f"{folder}: {brief(key)} is stored in two shards")
            arrays[key] = array
    seeds = document["seeds"]
    if len(seeds) > 1 and seed is None:
        raise CheckpointError(f"{folder}: holds the seeds {seeds}: say which one (seed=)")
    if seed is not None and seed not in seeds:
        raise CheckpointError(f"{folder}: no seed {seed}; it holds {seeds}")
    if len(seeds) > 1:
        arrays = {name: array[seeds.index(seed)] for name, array in arrays.items()}
        document = {**document, "seeds": [seed]}
    return document, arrays


def read_state(folder: Path) -> tuple[Manifest, dict[str, Any], dict[str, np.ndarray]]:
    """Return the manifest, the description and the whole training state of a checkpoint."""
    folder = Path(folder)
    manifest = manifests.read_manifest(folder)
    if manifest.shards:
        raise CheckpointError(f"{folder}: exported weights, from which training cannot go on")
    return manifest, read_document(folder, manifest), _read_arrays(folder, STATE, manifest)


def read_document(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Return the checked ``config.json`` of a checkpoint."""
    path, entry = folder / CONFIG, manifest.files[CONFIG]
    content = manifests.read_bytes(path, manifests.JSON_LIMIT)
    _match(path, len(content), hashlib.sha256(content).hexdigest(), entry)
    document = manifests.check_document(manifests.parse_json(content, path), path)
    same = manifests.sha256_json(document) == manifest.config_sha256
    if not same or any(document[k] != getattr(manifest, k) for k in ("kind", "fingerprints")):
        raise CheckpointError(f"{path}: not the description that {MANIFEST} belongs to")
    return document


def fingerprint(document: dict[str, Any], arrays: Arrays) -> str:
    """Return a hash of what ``read`` returned: kind, settings, shapes and weights.

    A model trained on a policy stores the policy's fingerprint, so that it is never run with
    another one. Runs, checkpoints and float32 exports of the same weights share it.
    """
    described = {name: document[name] for name in ("kind", "config", "spec")}
    return manifests.sha256_json([described, digest(arrays)])


def stands_for(document: dict[str, Any], arrays: Arrays) -> str:
    """Return the fingerprint of what weights were rounded from; their own if they were not."""
    return document["fingerprints"].get(ROUNDED_FROM) or fingerprint(document, arrays)


def _write(
    folder: Path,
    document: dict[str, Any],
    files: dict[str, Arrays],
    step: int,
    shards: int,
    environment: dict[str, Any] | None,
    dtypes: Mapping[str, str] | None = None,
) -> None:
    folder = Path(folder)
    manifests.check_document(document, folder / CONFIG)
    for arrays in files.values():
        check_writable(arrays, folder)
    if folder.exists():
        raise CheckpointError(f"{folder}: already there; checkpoints are never written over")
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        write_json(temporary / CONFIG, document)
        path = temporary / CONFIG
        entries = {CONFIG: {"sha256": sha256_file(path), "size": path.stat().st_size}}
        for name, arrays in files.items():
            entries[name] = write_tensors(temporary / name, arrays)
            for key, cell in entries[name]["tensors"].items():
                cell["model_dtype"] = dtypes[key] if dtypes else cell["dtype"]
        manifest = Manifest(
            kind=document["kind"],
            step=step,
            config_sha256=manifests.sha256_json(document),
            fingerprints=document["fingerprints"],
            environment=manifests.environment() if environment is None else environment,
            shards=shards,
            files=entries,
        )
        write_json(temporary / MANIFEST, manifests.seal(manifest))
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        size = sum(a.size * a.dtype.itemsize for arrays in files.values() for a in arrays.values())
        raise CheckpointError(
            f"{folder}: {size} bytes could not be saved ({error.strerror}); "
            "earlier checkpoints are as they were"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _read_arrays(folder: Path, name: str, manifest: Manifest) -> dict[str, np.ndarray]:
    path, entry = folder / name, manifest.files[name]
    content = manifests.read_bytes(path, entry["size"])
    _match(path, len(content), hashlib.sha256(content).hexdigest(), entry)
    arrays = read_tensors(content, path)
    if arrays.keys() != entry["tensors"].keys():
        raise CheckpointError(f"{path}: holds other arrays than {MANIFEST} lists")
    return {key: _checked(path, key, arrays[key], entry["tensors"][key]) for key in arrays}


def _checked(path: Path, name: str, array: np.ndarray, cell: Any) -> np.ndarray:
    """Return ``array`` in the model's dtype, after comparing it with the manifest's table."""
    try:
        same = cell["shape"] == list(array.shape) and cell["dtype"] == array.dtype.name
        wanted = dtype_of(cell["model_dtype"])
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: {MANIFEST} describes {brief(name)} badly") from error
    same = same and (wanted == array.dtype or (is_floating(wanted) and is_floating(array.dtype)))
    if not same:
        raise CheckpointError(
            f"{path}: {brief(name)} is not of the shape and dtype {MANIFEST} says"
        )
    # Only an export stores another dtype than the model's, and says so: weights rounded to 16 bits
    # go back to 32 without further change.
    return array if wanted == array.dtype else array.astype(wanted)


def _match(path: Path, size: int, sha256: str, entry: dict[str, Any]) -> None:
    if size != entry["size"]:
        raise CheckpointError(f"{path}: damaged: {size} bytes, not {entry['size']}")
    if sha256 != entry["sha256"]:
        raise CheckpointError(f"{path}: damaged: its bytes do not match their sha256")
