"""Turn any dataset that can be read into OGBench's files, as the generator writes them.

    OUT/NAME.npz, OUT/NAME-val.npz, OUT/NAME.json

The three are made in a hidden folder beside their destination, compared with what is there, and
moved into place, the sidecar last: a set without it counts as unfinished.
"""

import re
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from jumpyworld import domains
from jumpyworld.data import load, validate
from jumpyworld.data.dataset import Dataset
from jumpyworld.data.ogbench import write_npz
from jumpyworld.errors import data_error
from jumpyworld.storage.files import sha256_file, sync_folder
from jumpyworld.storage.sidecar import file_entry, write_sidecar

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def convert(
    source: Path | str,
    out_folder: Path | str,
    domain: str | None = None,
    name: str | None = None,
    *,
    overwrite: bool = False,
    allow: Collection[str] = (),
) -> Path:
    """Read a dataset and write it in OGBench's layout; return the path of the training file.

    A source that has a validation file beside it keeps it. Otherwise the last tenth of the
    trajectories, and at least one, becomes the validation set.

    Args:
        source: whatever ``load`` takes as a path.
        out_folder: folder for the result; made if missing.
        domain: OGBench dataset name or alias, if the source does not say.
        name: of the files, without suffix; the domain's name, or the source's, by default.
        overwrite: replace files of that name that differ.
        allow: names of checks to let pass, from ``validate.CHECKS``.

    Raises:
        DataError: the source cannot be read, has a single trajectory, does not fit the domain, or
            the folder holds other files of that name.
        ConfigError: there is no such domain.
    """
    train = _with_domain(load(source, allow=allow), domain, allow)
    origin, out = Path(train.source).resolve(), Path(out_folder)
    name = _check_name(origin, name or train.domain or _name_of(origin))
    validation = _validation_path(origin)
    if validation is None:
        train, val = _split(train)
    else:
        val = replace(load(validation, allow=allow), domain=train.domain)
    parts = {f"{name}.npz": train, f"{name}-val.npz": val}
    for path in (out / file_name for file_name in parts):
        if path.exists() and path.samefile(origin):
            raise data_error(path, "is the source itself; choose another folder or name")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=out) as folder:
            _write(Path(folder, f"{name}.npz"), origin.name, parts)
            _move(Path(folder), out, [*parts, f"{name}.json"], overwrite)
    except OSError as error:
        reason = error.strerror or error
        raise data_error(error.filename or out, f"cannot be written ({reason})") from error
    return out / f"{name}.npz"


def _with_domain(dataset: Dataset, name: str | None, allow: Collection[str]) -> Dataset:
    if name is None:
        return dataset
    name = domains.get(name).name
    widths = (dataset.observation_dim, dataset.action_dim)
    validate.check_dimensions(dataset.source, name, *widths, allow)
    return replace(dataset, domain=name)


def _check_name(source: Path, name: str) -> str:
    # ``-val`` would make one set's training file another's validation file.
    if not _NAME.fullmatch(name) or name.endswith("-val"):
        raise data_error(source, f"{name!r} cannot name a dataset; give another with --name")
    return name


def _name_of(origin: Path) -> str:
    """Return a file's name without suffix; a Minari folder may be given by its ``data``."""
    if origin.is_file():
        return origin.stem
    return origin.parent.name if origin.name == "data" else origin.name


def _validation_path(path: Path) -> Path | None:
    """Return the file that ``load`` would take as the validation split of ``path``, if any."""
    beside = path.with_name(f"{path.stem}-val{path.suffix}")
    return beside if path.is_file() and beside.is_file() else None


def _split(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Cut off the last tenth of the trajectories, and at least one."""
    count = dataset.num_trajectories
    if count == 1:
        raise data_error(
            dataset.source, "has a single trajectory; training and validation need one each"
        )
    first = count - max(1, count // 10)
    return _part(dataset, 0, first), _part(dataset, first, count)


def _part(dataset: Dataset, first: int, last: int) -> Dataset:
    """Return trajectories ``first`` to ``last`` - 1 as views."""
    begin = int(dataset.starts[first])
    rows = slice(begin, int(dataset.ends[last - 1]) + 1)
    return replace(
        dataset,
        observations=dataset.observations[rows],
        actions=dataset.actions[rows],
        starts=dataset.starts[first:last] - begin,
        ends=dataset.ends[first:last] - begin,
        extras={key: array[rows] for key, array in dataset.extras.items()},
    )


def _write(target: Path, source_name: str, parts: dict[str, Dataset]) -> None:
    """Write the two sets and their sidecar beside ``target``."""
    files: dict[str, Any] = {}
    for file_name, dataset in parts.items():
        path = target.with_name(file_name)
        write_npz(path, dataset)
        files[file_name] = file_entry(path) | {
            "episodes": dataset.num_trajectories,
            "transitions": dataset.num_transitions,
        }
    train = parts[target.name]
    contents = {"format": 1, "domain": train.domain, "source": source_name, "files": files}
    # The generator's other keys, so that one reader does for both.
    unknown = {"seed": None, "steps": None, "noise": None, "versions": {}}
    write_sidecar(target, contents | unknown | {"episodes": train.num_trajectories})


def _move(folder: Path, out: Path, names: list[str], overwrite: bool) -> None:
    """Move finished files into place; the last of ``names`` vouches for the others."""
    new = [name for name in names if not _same(folder / name, out / name)]
    taken = [name for name in new if (out / name).exists()]
    if taken and not overwrite:
        raise data_error(
            out / taken[0], "exists and differs; choose another --name, or --overwrite"
        )
    if not new:
        return
    (out / names[-1]).unlink(missing_ok=True)
    for name in names:
        (folder / name).replace(out / name)
    sync_folder(out)


def _same(path: Path, other: Path) -> bool:
    if not other.is_file() or path.stat().st_size != other.stat().st_size:
        return False
    return sha256_file(path) == sha256_file(other)
