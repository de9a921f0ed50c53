"""OGBench's files as data sets.

Three layouts are understood (M transitions, N states, T trajectories):

    raw       observations, actions, terminals [N]; terminals is 1 at the last state
    regular   next_observations besides [M]; terminals is 1 at the last transition
    compact   valids besides [N]; valids is 0 at the last state, terminals 1 there and one before

Whatever else the file holds with as many rows (qpos, qvel, rewards, ...) goes to ``extras``.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from jumpyworld.data import validate
from jumpyworld.data.dataset import Dataset, states_from_transitions
from jumpyworld.errors import data_error, unwritable
from jumpyworld.storage import npz
from jumpyworld.storage.npz import read_npz

_RESERVED = ("observations", "actions", "terminals", "next_observations", "valids")


def load_npz(
    path: Path | str, *, domain: str | None = None, allow: Collection[str] = ()
) -> Dataset:
    """Read an OGBench npz file of any layout into a validated dataset.

    Args:
        path: the file.
        domain: OGBench dataset name, if known.
        allow: names of checks to let pass, from ``validate.CHECKS``.

    Raises:
        DataError: the file is damaged, hostile or fails a check.
    """
    source = str(path)
    validate.check_allow(allow)
    arrays = read_npz(path)
    for key in ("observations", "actions", "terminals"):
        if key not in arrays:
            raise data_error(source, f"has no {key}; it holds {', '.join(arrays) or 'nothing'}")
    validate.check_leading(source, arrays)
    observations = arrays.pop("observations")
    flags = validate.as_flags(source, "terminals", arrays.pop("terminals"))
    if "next_observations" in arrays:
        arrays.pop("valids", None)
        s_next = arrays.pop("next_observations")
        arrays = states_from_transitions(source, observations, s_next, flags, arrays, allow)
        observations, flags = arrays.pop("observations"), arrays.pop("terminals")
    elif "valids" in arrays:
        valids = validate.as_flags(source, "valids", arrays.pop("valids"))
        odd = ~valids & ~flags
        if odd.any():
            row = int(np.argmax(odd))
            raise data_error(source, f"terminals is 0 at row {row}, where valids is 0 too")
        flags = ~valids
    actions = arrays.pop("actions")
    return Dataset.from_arrays(
        observations, actions, flags, extras=arrays, domain=domain, source=source, allow=allow
    )


def write_npz(path: Path | str, dataset: Dataset) -> None:
    """Write a dataset in OGBench's raw layout, uncompressed, atomically, with fixed bytes.

    Equal datasets give equal files. ``ogbench.make_env_and_datasets(name, dataset_path=path)``
    reads the result.

    Raises:
        DataError: an extra has a reserved name, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise data_error(path, "must end in .npz")
    arrays = {"observations": dataset.observations, "actions": dataset.actions}
    arrays["terminals"] = dataset.terminals
    for key in sorted(dataset.extras):
        if key in _RESERVED or not npz.MEMBER_NAME.fullmatch(f"{key}.npy"):
            raise data_error(path, f"extra {key!r} cannot be stored under that name")
        arrays[key] = dataset.extras[key]
    columns = {
        key: npz.Column(array.shape, array.dtype.newbyteorder("<"), lambda array=array: [array])
        for key, array in arrays.items()
    }
    try:
        npz.write_npz(path, columns)
    except OSError as error:
        raise unwritable(path, error) from error
