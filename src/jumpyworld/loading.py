"""Turn a folder back into the object it describes, and write that object's weights for others.

Which code builds an object is decided by the table below. A file only says which row of the table
it belongs to; a kind that is not there is an error and never something to import.
"""

import importlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.storage import checkpoint, manifest, runs
from jumpyworld.storage.schema import brief
from jumpyworld.storage.tensors import dtype_of, is_floating

BUILDERS = {
    **{
        name: f"jumpyworld.policies.{name}:from_checkpoint"
        for name in ("gcbc", "hfbc", "crl", "gctd3", "gc1s", "hiql", "sharsa")
    },
    "ghm": "jumpyworld.ghm.algorithm:from_checkpoint",
    "world-model": "jumpyworld.ghm.world_model:from_checkpoint",
}
"""kind -> "module:function"; the function takes the description (``config.json``: kind, config,
spec, fingerprints, seeds) and the inference weights by name, and returns the object."""

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def load(
    path: Path | str, *, seed: int | None = None, warn: runs.Warn = runs.python_warning
) -> Any:
    """Return the policy, GHM or world model in a run, checkpoint or export folder.

    Args:
        path: a run folder (its newest verified checkpoint), or a checkpoint or export itself.
        seed: which of several seeds trained at once; not needed for one.
        warn: called with one line for each damaged checkpoint passed over.

    Raises:
        CheckpointError: nothing there can be loaded; the message names the file.
    """
    folder = runs.resolve(Path(path), warn)
    document, arrays = checkpoint.read(folder, seed)
    if document["kind"] not in BUILDERS:
        known = ", ".join(BUILDERS)
        raise CheckpointError(f"{folder}: kind {brief(document['kind'])} is not one of {known}")
    module, function = BUILDERS[document["kind"]].split(":")
    return getattr(importlib.import_module(module), function)(document, arrays)


def fingerprint(path: Path | str, *, seed: int | None = None) -> str:
    """Return the hash by which other checkpoints refer to the object in ``path``."""
    return checkpoint.fingerprint(*checkpoint.read(runs.resolve(Path(path)), seed))


def export(
    run: Path | str,
    out: Path | str,
    shard_mb: float = 512.0,
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32",
    *,
    seed: int | None = None,
    warn: runs.Warn = runs.python_warning,
) -> Path:
    """Write the inference weights of ``run`` to ``out``, a new folder that ``load`` reads.

    Args:
        run: a run or checkpoint folder.
        out: the folder to make.
        shard_mb: largest size of a file in MB, unless one array alone is larger.
        dtype: what floating-point weights are stored as. ``load`` takes them back to the model's
            own dtype; what 16 bits rounded away stays away.
        seed: which of several seeds trained at once.
        warn: called with one line for each damaged checkpoint passed over.

    Raises:
        CheckpointError: nothing to export, ``out`` is there, or a weight does not fit the dtype.
    """
    if dtype not in _DTYPES:
        raise ConfigError(f"dtype is {dtype!r}: choose one of {', '.join(_DTYPES)}")
    if not shard_mb > 0:
        raise ConfigError(f"shard_mb is {shard_mb}: it must be above 0")
    folder, out = runs.resolve(Path(run), warn), Path(out)
    document, arrays = checkpoint.read(folder, seed)
    target = dtype_of(_DTYPES[dtype])
    with np.errstate(over="ignore"):  # an overflow is infinite, and refused by name on saving
        stored = {
            name: array.astype(target) if is_floating(array.dtype) else array
            for name, array in arrays.items()
        }
    with manifest.writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.save_export(
        out,
        document,
        step=manifest.read_manifest(folder).step,
        shards=_shards(stored, int(shard_mb * 1e6)),
        dtypes={name: array.dtype.name for name, array in arrays.items()},
    )
    return out


def _shards(arrays: dict[str, np.ndarray], limit: int) -> list[dict[str, np.ndarray]]:
    """Split arrays, in the order of their names, into groups of at most ``limit`` bytes."""
    shards: list[dict[str, np.ndarray]] = [{}]
    size = 0
    for name in sorted(arrays):
        if shards[-1] and size + arrays[name].nbytes > limit:
            shards.append({})
            size = 0
        shards[-1][name] = arrays[name]
        size += arrays[name].nbytes
    return shards
