"""Logged behaviour: loading it, checking it, and drawing batches and goals from it on the device.

``load`` takes a file, a folder or a name; ``device_data`` puts a dataset where training runs;
``sample_transitions`` and ``sample_goal_indices`` draw from it as pure functions of a key.
"""

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

from jumpyworld.data import validate
from jumpyworld.data.dataset import Dataset, Trajectory
from jumpyworld.data.hdf5 import load_hdf5
from jumpyworld.data.minari import is_minari, load_minari
from jumpyworld.data.ogbench import load_npz
from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.data.sampling import Batch, DeviceData, batch_key, device_data, sample_transitions
from jumpyworld.errors import ConfigError, data_error
from jumpyworld.storage.sidecar import verify_file

__all__ = [
    "Batch",
    "Dataset",
    "DeviceData",
    "GoalMixture",
    "Trajectory",
    "batch_key",
    "device_data",
    "load",
    "sample_goal_indices",
    "sample_transitions",
]

_LOADERS: dict[str, Callable[..., Dataset]] = {
    ".npz": load_npz,
    ".hdf5": load_hdf5,
    ".h5": load_hdf5,
}
_OGBENCH_NAME = re.compile(
    r"(pointmaze|antmaze|humanoidmaze|antsoccer|cube|scene|puzzle)(-[a-z0-9]+)+-v\d+"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def load(
    path_or_name: Path | str,
    *,
    split: Literal["train", "val"] = "train",
    data_dir: Path | str | None = None,
    allow: Collection[str] = (),
) -> Dataset:
    """Load and validate a dataset.

    Args:
        path_or_name: an npz or HDF5 file; a folder with one dataset (``NAME.npz``,
            ``NAME-val.npz``, ``NAME.json``) or a Minari dataset; or a name or alias to look up
            in ``data_dir``.
        split: ``val`` takes ``NAME-val.npz`` beside ``NAME.npz``. A path that already ends in
            ``-val`` is read as it is.
        data_dir: where names are looked up, as ``NAME.npz`` or a folder ``NAME``.
        allow: names of checks to let pass, from ``validate.CHECKS``.

    Raises:
        DataError: there is no such dataset, it is damaged, differs from the sha256 in its sidecar
            or fails a check.
    """
    validate.check_allow(allow)
    if split not in ("train", "val"):
        raise ConfigError(f"split={split!r}: must be 'train' or 'val'")
    path = Path(path_or_name)
    if not path.exists():
        path = _look_up(str(path_or_name), data_dir)
    if path.is_dir():
        if is_minari(path):
            if split == "val":
                raise data_error(path, "a Minari dataset has no validation split")
            return load_minari(path, allow=allow)
        path = _only_dataset(path)
    if split == "val" and not path.stem.endswith("-val"):
        path = path.with_name(f"{path.stem}-val{path.suffix}")
    return _load_file(path, allow)


def _load_file(path: Path, allow: Collection[str]) -> Dataset:
    loader = _LOADERS.get(path.suffix.lower())
    if loader is None:
        raise data_error(path, f"is none of {', '.join(_LOADERS)} nor a folder with a dataset")
    if not path.is_file():
        raise data_error(path, "no such file")
    name = path.stem.removesuffix("-val")
    domain = name if _OGBENCH_NAME.fullmatch(name) else None
    sidecar = path.with_name(f"{name}.json")
    if sidecar.is_file():
        domain = verify_file(path, sidecar)["domain"]
    return loader(path, domain=domain, allow=allow)


def _look_up(name: str, data_dir: Path | str | None) -> Path:
    if not _NAME.fullmatch(name):
        raise data_error(name, "no such file or folder")
    known = validate.known_domain(name)
    if data_dir is None:
        make = f"; `jumpy data generate {name} --out FOLDER` makes one" if known else ""
        raise data_error(name, f"no such file or folder{make}")
    candidates = [name] if known is None else [name, known.name, known.alias]
    for candidate in candidates:
        for path in (Path(data_dir, f"{candidate}.npz"), Path(data_dir, candidate)):
            if path.exists():
                return path
    raise data_error(name, f"{data_dir} holds no {' or '.join(dict.fromkeys(candidates))}.npz")


def _only_dataset(folder: Path) -> Path:
    found = sorted(
        p for p in folder.iterdir() if p.suffix in _LOADERS and not p.stem.endswith("-val")
    )
    if len(found) != 1:
        names = ", ".join(p.name for p in found[:5]) or "none"
        raise data_error(folder, f"need exactly one dataset in the folder, found {names}")
    return found[0]
