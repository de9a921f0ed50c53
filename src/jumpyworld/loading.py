"""Turn a folder back into the object it describes, and write that object's weights for others.

``load`` takes any kind of object; ``load_policy`` also knows the policies that need no folder.
Which code builds an object is decided by the table below. A file only says which row of the table
it belongs to; a kind that is not there is an error and never something to import.
"""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.storage import checkpoint, manifest, runs
from jumpyworld.storage.schema import brief
from jumpyworld.storage.tensors import dtype_of, is_floating

POLICIES = ("gcbc", "hfbc", "crl", "gctd3", "gc1s", "hiql", "sharsa")
BUILDERS = {
    **{name: f"jumpyworld.policies.{name}:from_checkpoint" for name in POLICIES},
    "ghm": "jumpyworld.ghm.algorithm:from_checkpoint",
    "world-model": "jumpyworld.ghm.world_model:from_checkpoint",
}
"""kind -> "module:function"; the function takes the description (``config.json``: kind, config,
spec, fingerprints, seeds) and the inference weights by name, and returns the object."""

_SCRIPTED = re.compile(r"scripted(?::(\d{1,6}))?")
_LOW = ":low"
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
    return _build(folder, *checkpoint.read(folder, seed))


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy, and what results and models made with it say of it."""

    policy: Any
    """A ``jumpyworld.policies.AbstractPolicy``."""
    name: str
    """Its algorithm: ``gcbc``, ``scripted``, ``scripted:3``."""
    fingerprint: str
    """Hash of its settings and weights."""
    domain: str | None
    """OGBench dataset name of the domain it was made for, if known."""
    rounded_from: str | None = None
    """Fingerprint of the policy that these weights are rounded from: models of it are models of
    this one."""
    whole: Any = None
    """The hierarchy that ``policy`` is the low level of, if it is one."""


def is_scripted(source: Path | str) -> bool:
    """Say whether a policy that a user names was not trained: ``scripted``, ``scripted:REACH``."""
    return _SCRIPTED.fullmatch(str(source)) is not None


def load_policy(
    source: Path | str,
    domain: str | None = None,
    *,
    seed: int | None = None,
    warn: runs.Warn = runs.python_warning,
) -> LoadedPolicy:
    """Return the policy that a user names.

    Args:
        source: a run, checkpoint or export folder; the same with ``:low`` for the low level of a
            hierarchy, whose z is a subgoal; or ``scripted``, the point that follows the shortest
            way, or ``scripted:REACH``, which stands still for goals more than that many cells
            away. (A folder of that name is ``./scripted``.)
        domain: the maze of a scripted policy, name or alias.
        seed: which of several seeds trained at once.
        warn: called with one line for each damaged checkpoint passed over.

    Raises:
        CheckpointError: nothing there can be loaded, or it is no policy.
        ConfigError: a scripted policy for something that is no pointmaze.
    """
    if match := _SCRIPTED.fullmatch(str(source)):
        return _scripted(str(source), None if match[1] is None else int(match[1]), domain)
    if str(source).startswith("scripted:"):
        raise ConfigError(f"policy {source}: REACH counts cells, as in scripted:3")
    name, low, _ = str(source).partition(_LOW)
    folder = runs.resolve(Path(name), warn)
    document, arrays = checkpoint.read(folder, seed)
    if document["kind"] not in POLICIES:
        known = ", ".join(POLICIES)
        raise CheckpointError(
            f"{folder}: kind {brief(document['kind'])} is no policy; policies are {known}"
        )
    policy = _build(folder, document, arrays)
    from jumpyworld.policies.base import AbstractPolicy  # here: loading a policy has imported it

    if low and not isinstance(getattr(policy, "low", None), AbstractPolicy):
        raise CheckpointError(f"{source}: {document['kind']} has no low level of its own")
    return LoadedPolicy(
        policy.low if low else policy,
        document["kind"],
        checkpoint.fingerprint(document, arrays) + low,
        document["fingerprints"].get("domain"),
        rounded_from=_low_of(document["fingerprints"].get(checkpoint.ROUNDED_FROM), low),
        whole=policy if low else None,
    )


def _low_of(fingerprint: str | None, low: str) -> str | None:
    return None if fingerprint is None else fingerprint + low


def describe(path: Path | str, warn: runs.Warn = runs.python_warning) -> dict[str, Any]:
    """Return what a run, checkpoint or export folder says of itself, without its weights.

    The keys are kind, config, spec, fingerprints (hashes and names of what it was trained on) and
    seeds.
    """
    folder = runs.resolve(Path(path), warn)
    return checkpoint.read_document(folder, manifest.read_manifest(folder))


def stands_for(path: Path | str, *, seed: int | None = None) -> str:
    """Return the hash of what the weights in ``path`` were rounded from, or else their own."""
    return checkpoint.stands_for(*checkpoint.read(runs.resolve(Path(path)), seed))


def fingerprint(path: Path | str, *, seed: int | None = None) -> str:
    """Return the hash by which other checkpoints refer to the object in ``path``."""
    return checkpoint.fingerprint(*checkpoint.read(runs.resolve(Path(path)), seed))


def export(
    run: Path | str,
    out: Path | str,
    shard_mb: float = 512.0,
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32",
    *,
    weights: Literal["average", "online"] = "average",
    seed: int | None = None,
    warn: runs.Warn = runs.python_warning,
) -> Path:
    """Write the inference weights of ``run`` to ``out``, a new folder that ``load`` reads.

    Args:
        run: a run or checkpoint folder.
        out: the folder to make.
        shard_mb: largest size of a file in MB, unless one array alone is larger.
        dtype: what floating-point weights are stored as; normalisers keep their own. ``load``
            takes them back to the model's dtype; what 16 bits rounded away stays away.
        weights: ``average`` over training, which is what ``load`` returns of a run; or ``online``,
            the last ones, of a model that keeps both.
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
    if weights == "online":
        arrays = _online(folder, arrays, seed)
    target = dtype_of(_DTYPES[dtype])
    with np.errstate(over="ignore"):  # an overflow is infinite, and refused by name on saving
        stored = {
            name: array.astype(target) if _is_weight(name, array) else array
            for name, array in arrays.items()
        }
    if weights == "average" and target != np.float32:
        # Rounded weights stand for the object that they come from: models know it by this hash.
        origin = {checkpoint.ROUNDED_FROM: checkpoint.stands_for(document, arrays)}
        document = {**document, "fingerprints": {**document["fingerprints"], **origin}}
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


def _is_weight(name: str, array: np.ndarray) -> bool:
    """Whether an array may be rounded: units are exact, or every state would shift."""
    part = name.rpartition("/")[0]
    return is_floating(array.dtype) and not part.endswith(("normaliser", "frame"))


def _online(
    folder: Path, average: dict[str, np.ndarray], seed: int | None
) -> dict[str, np.ndarray]:
    """Return the online weights under the names of the averaged ones."""
    _, document, state = checkpoint.read_state(folder)
    names = {name: f"state/model/{name}" for name in average}
    if not set(names.values()) <= set(state):
        raise CheckpointError(
            f"{folder}: a {document['kind']} keeps no online weights beside these"
        )
    several = len(document["seeds"]) > 1
    place = document["seeds"].index(seed) if several else ...
    return {name: state[there][place] for name, there in names.items()}


def _build(folder: Path, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    if document["kind"] not in BUILDERS:
        known = ", ".join(BUILDERS)
        raise CheckpointError(f"{folder}: kind {brief(document['kind'])} is not one of {known}")
    module, function = BUILDERS[document["kind"]].split(":")
    return getattr(importlib.import_module(module), function)(document, arrays)


def _scripted(name: str, reach: int | None, domain: str | None) -> LoadedPolicy:
    from jumpyworld import domains
    from jumpyworld.domains.maze import MazeDomain
    from jumpyworld.policies.scripted import ScriptedGoalPolicy
    from jumpyworld.storage.tensors import digest
    from jumpyworld.storage.trees import to_arrays

    if domain is None:
        raise ConfigError(f"policy {name}: needs a pointmaze, and the domain is not known")
    maze = domains.get(domain)
    if not isinstance(maze, MazeDomain) or maze.body != "point":
        raise ConfigError(f"policy {name}: needs a pointmaze, not {maze.alias}")
    policy = ScriptedGoalPolicy(maze.grid, reach=reach)
    ways = digest(to_arrays(policy))
    fingerprint = manifest.sha256_json(["scripted", policy.reach, policy.noise, ways])
    return LoadedPolicy(policy, name, fingerprint, maze.name)


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
