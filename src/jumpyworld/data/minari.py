"""Minari datasets, read without the minari package.

A Minari folder holds ``data/main_data.hdf5`` with one group per episode: ``observations`` [L + 1]
(an array, or a group whose ``observation`` is taken), ``actions`` [L], ``rewards``,
``terminations`` and ``truncations``. The action at an episode's final state does not exist: that
row repeats the one before and ``extras["padded"]`` marks it. ``extras["masks"]`` is
1 - terminations.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from jumpyworld.data import validate
from jumpyworld.data.dataset import Dataset
from jumpyworld.data.hdf5 import Reader, open_hdf5
from jumpyworld.errors import data_error
from jumpyworld.storage.npz import READ_ERRORS, unreadable

MAIN_FILE = "main_data.hdf5"
_EPISODE = re.compile(r"episode_(0|[1-9]\d{0,8})")


def is_minari(folder: Path) -> bool:
    """Say whether a folder is a Minari dataset of any storage format, or its ``data`` folder."""
    return _data_folder(folder) is not None or (folder / "data" / "metadata.json").is_file()


def load_minari(
    folder: Path | str, *, domain: str | None = None, allow: Collection[str] = ()
) -> Dataset:
    """Read a Minari folder into a validated dataset.

    Args:
        folder: the dataset's folder, which contains ``data/main_data.hdf5``.
        domain: OGBench dataset name, if known.
        allow: names of checks to let pass, from ``validate.CHECKS``.

    Raises:
        DataError: the files are damaged, incomplete or fail a check.
        MissingExtraError: h5py is not installed.
    """
    source = str(folder)
    validate.check_allow(allow)
    data = _data_folder(Path(folder))
    if data is None:
        raise data_error(source, f"holds no data/{MAIN_FILE}; other formats are not read")
    with open_hdf5(data / MAIN_FILE) as file:
        names = sorted((n for n in file if _EPISODE.fullmatch(n)), key=lambda n: int(n[8:]))
        _check_count(source, data / "metadata.json", names)
        reader = Reader(source, file)
        episodes = [_read_episode(source, reader, name) for name in names]
    # An optional array counts only if every episode has it.
    keys = set.intersection(*(set(episode) for episode in episodes))
    joined = {key: np.concatenate([e[key] for e in episodes]) for key in sorted(keys)}
    observations, actions = joined.pop("observations"), joined.pop("actions")
    terminals = joined["padded"]
    return Dataset.from_arrays(
        observations, actions, terminals, extras=joined, domain=domain, source=source, allow=allow
    )


def _data_folder(folder: Path) -> Path | None:
    for data in (folder / "data", folder):
        if (data / MAIN_FILE).is_file():
            return data
    return None


def _check_count(source: str, metadata: Path, names: list[str]) -> None:
    """Compare the episodes with their numbering and with what the metadata promises."""
    if not names:
        raise data_error(source, f"{MAIN_FILE} holds no episodes")
    need = int(names[-1][8:]) + 1
    if metadata.is_file():
        try:
            need = json.loads(metadata.read_bytes()).get("total_episodes", need)
        except (*READ_ERRORS, AttributeError) as error:
            raise unreadable(metadata, error) from error
    if len(names) != need or names[-1] != f"episode_{len(names) - 1}":
        raise data_error(
            source, f"{MAIN_FILE} holds {len(names)} episodes up to {names[-1]}, expected {need}"
        )


def _read_episode(source: str, reader: Reader, name: str) -> dict[str, np.ndarray]:
    """Return the episode's arrays with L + 1 rows each."""
    key = f"{name}/observations"
    states = reader.array(f"{key}/observation" if reader.has(f"{key}/observation") else key)
    rows = len(states) if states.ndim else 0
    if rows == 0:
        raise data_error(source, f"{key} has shape {states.shape}, need at least one state")
    out = {"observations": states}
    for field, ours in (("actions", "actions"), ("rewards", "rewards"), ("terminations", "masks")):
        array = reader.array(f"{name}/{field}")
        if array.ndim == 0 or len(array) != rows - 1 or rows == 1:
            raise data_error(
                source, f"{name}/{field} has shape {array.shape}, but there are {rows} states"
            )
        if ours == "masks":
            flags = validate.as_flags(source, f"{name}/{field}", array)
            array = 1 - flags.astype(np.float32)
        out[ours] = np.concatenate([array, array[-1:]])
    for field in ("qpos", "qvel"):
        if reader.has(f"{name}/infos/{field}"):
            array = reader.array(f"{name}/infos/{field}")
            if array.ndim and len(array) == rows:
                out[field] = array
    out["padded"] = np.arange(rows) == rows - 1
    return out
