"""D4RL-style HDF5: flat arrays ``observations``, ``actions``, ``terminals``, ``timeouts``.

Either flag ends a trajectory. With ``next_observations`` the rows are transitions and each
trajectory's final state is appended; without, the last row of a trajectory is a state whose
successor is unknown, which is our own layout. ``terminals`` means a true end of the task here and
becomes ``extras["masks"]`` = 1 - terminals.

HDF5 keeps no checksum by default: flipped bits inside an array cannot be noticed. Convert to npz
to gain one.
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jumpyworld.data import validate
from jumpyworld.data.dataset import Dataset, states_from_transitions
from jumpyworld.errors import MissingExtraError, data_error
from jumpyworld.storage.npz import MAX_RATIO, READ_ERRORS, SMALL, unreadable

# Names in the file and in our extras.
_OPTIONAL = {"rewards": "rewards", "infos/qpos": "qpos", "infos/qvel": "qvel"}


def load_hdf5(
    path: Path | str, *, domain: str | None = None, allow: Collection[str] = ()
) -> Dataset:
    """Read a D4RL-style file into a validated dataset.

    Args:
        path: the file.
        domain: OGBench dataset name, if known.
        allow: names of checks to let pass, from ``validate.CHECKS``.

    Raises:
        DataError: the file is damaged or fails a check.
        MissingExtraError: h5py is not installed.
    """
    source = str(path)
    validate.check_allow(allow)
    with open_hdf5(path) as file:
        reader = Reader(source, file)
        observations = reader.array("observations")
        others = {"actions": reader.array("actions")}
        s_next = reader.array("next_observations") if reader.has("next_observations") else None
        flags = {key: reader.array(key) for key in ("terminals", "timeouts") if reader.has(key)}
        others |= {ours: reader.array(key) for key, ours in _OPTIONAL.items() if reader.has(key)}
    if not flags:
        raise data_error(source, "has neither terminals nor timeouts")
    arrays = {"observations": observations, **others, **flags}
    validate.check_leading(source, arrays)
    flags = {key: validate.as_flags(source, key, array) for key, array in flags.items()}
    last = np.logical_or.reduce(list(flags.values()))
    if "terminals" in flags:
        others["masks"] = 1 - flags["terminals"].astype(np.float32)
    if s_next is not None:
        others = states_from_transitions(source, observations, s_next, last, others, allow)
        observations, last = others.pop("observations"), others.pop("terminals")
    actions = others.pop("actions")
    return Dataset.from_arrays(
        observations, actions, last, extras=others, domain=domain, source=source, allow=allow
    )


@contextlib.contextmanager
def open_hdf5(path: Path | str) -> Iterator[Any]:
    """Open an HDF5 file for reading; every low-level failure inside becomes a DataError."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "data") from error
    try:
        # Without locking, so that data on a read-only or shared disk can be opened.
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except READ_ERRORS as error:
        raise unreadable(path, error) from error


class Reader:
    """Reads arrays from an open file and keeps count of what has been asked for.

    An HDF5 file can point to other files and declare arrays it holds no data for; both are
    refused.
    """

    def __init__(self, source: str, file: Any):
        self._source = source
        self._file = file
        self._left = max(SMALL, MAX_RATIO * file.id.get_filesize())

    def has(self, key: str) -> bool:
        """Say whether the file has an entry of that name."""
        return key in self._file

    def array(self, key: str) -> np.ndarray:
        """Return one array by its full name in the file."""
        import h5py

        parts = key.split("/")
        for depth in range(len(parts)):
            name = "/".join(parts[: depth + 1])
            link = self._file.get(name, getlink=True) if name in self._file else None
            if link is None:
                raise data_error(self._source, f"has no {name}")
            if not isinstance(link, h5py.HardLink):
                raise data_error(self._source, f"{name} points elsewhere; links are not followed")
        node = self._file[key]
        if not isinstance(node, h5py.Dataset) or node.shape is None:
            raise data_error(self._source, f"{key} is not an array")
        if node.is_virtual or node.external:
            raise data_error(
                self._source, f"{key} is stored in another file, which is not followed"
            )
        if node.dtype.kind not in "fiub" or node.dtype.itemsize > 8:
            raise data_error(self._source, f"{key} has dtype {node.dtype}; only numbers are read")
        self._left -= node.nbytes
        if self._left < 0:
            raise data_error(self._source, f"{key} declares {node.nbytes} bytes: refused as a bomb")
        return node[()]
