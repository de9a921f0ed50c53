"""OGBench's npz files: a reader that trusts nothing, and a writer that leaves nothing half done.

An npz file is a zip of npy members. The zip's CRC covers every byte of the arrays but is compared
only once a member has been read to its end, so the reader always gets there. Headers are parsed
here rather than by NumPy: sizes are compared with what the zip declares before any memory is
asked for, and there is no way from a header to pickle.

Three layouts are understood (M transitions, N states, T trajectories):

    raw       observations, actions, terminals [N]; terminals is 1 at the last state
    regular   next_observations besides [M]; terminals is 1 at the last transition
    compact   valids besides [N]; valids is 0 at the last state, terminals 1 there and one before

Whatever else the file holds with as many rows (qpos, qvel, rewards, ...) goes to ``extras``.

A sidecar ``NAME.json`` beside ``NAME.npz`` records how the files were made and their sha256.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from jumpyworld.data import validate
from jumpyworld.data.dataset import Dataset, states_from_transitions
from jumpyworld.data.validate import data_error
from jumpyworld.errors import DataError

# What zipfile and zlib raise on damaged bytes (ValueError covers Unicode and JSON errors,
# RuntimeError encrypted members and recursion).
READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)

# Float arrays shrink at most a few times under deflate; flags shrink a thousandfold but are small.
# A file that claims more than this, and more than the floor, is a bomb or damaged.
MAX_RATIO = 200
SMALL = 16 * 2**20
MAX_MEMBERS = 1000
MAX_DIRECTORY = 2**20
MAX_SIDECAR = 2**20
_BLOCK = 2**20  # four times faster than zipfile's own steps for stored members

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*\.npy")
_HEADER = re.compile(
    r"\{\s*'descr':\s*(?P<descr>'[^']*'|\[.*\])\s*,\s*'fortran_order':\s*(?P<order>True|False)\s*,"
    r"\s*'shape':\s*\((?P<shape>(\s*\d{1,18}\s*,)*(\s*\d{1,18}\s*)?)\)(\s*,)?\s*\}\s*",
    re.ASCII | re.DOTALL,
)
_DTYPE = re.compile(r"'[<>|=](b1|[iu][1248]|f[248])'")
_RESERVED = ("observations", "actions", "terminals", "next_observations", "valids")
SIDECAR_KEYS = ("domain", "seed", "versions", "files")


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


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """Read every array of an npz file, with all sizes and checksums verified.

    Raises:
        DataError: the file cannot be read, is damaged, or holds anything but plain numbers.
    """
    try:
        with open(path, "rb") as handle:
            count = _check_directory(path, handle)
            with zipfile.ZipFile(handle) as archive:
                members = archive.infolist()
                if len(members) != count:
                    raise data_error(path, f"lists {len(members)} of {count} arrays, damaged")
                _check_members(path, members, os.fstat(handle.fileno()).st_size)
                return {m.filename[:-4]: _read_member(path, archive, m) for m in members}
    except READ_ERRORS as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: BaseException) -> DataError:
    """Build the DataError for a low-level failure to read ``path``."""
    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return data_error(path, f"cannot be read, damaged or of another format ({reason})")


def _check_directory(path: Path | str, handle: BinaryIO) -> int:
    """Return the number of members; refuse a directory too long to be worth parsing."""
    size = handle.seek(0, os.SEEK_END)
    # The end record (22 bytes) precedes a comment of up to 65,535 bytes; in files over 4 GiB the
    # 64-bit record and its locator (56 + 20 bytes) come right before it.
    handle.seek(max(0, size - 65_535 - 22 - 76))
    tail = handle.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise data_error(path, f"is not an npz file, or is cut short ({size} bytes)")
    count, length = struct.unpack_from("<HI", tail, at + 10)
    if at >= 76 and tail[at - 20 : at - 16] == b"PK\x06\x07":
        count, length = struct.unpack_from("<QQ", tail, at - 76 + 32)
    handle.seek(0)
    if count > MAX_MEMBERS or length > MAX_DIRECTORY:
        raise data_error(path, f"declares {count} arrays, more than {MAX_MEMBERS}: not a dataset")
    return count


def _check_members(path: Path | str, members: list[zipfile.ZipInfo], size: int) -> None:
    names = [m.filename for m in members]
    for m in members:
        if not _NAME.fullmatch(m.filename) or names.count(m.filename) > 1:
            raise data_error(path, f"holds an unsafe or repeated entry name {m.filename!r}")
        if m.flag_bits & 1 or m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise data_error(path, f"entry {m.filename} is encrypted or in an unknown compression")
        if m.compress_size > size or (
            m.compress_type == zipfile.ZIP_STORED and m.compress_size != m.file_size
        ):
            raise data_error(path, f"entry {m.filename} declares a wrong size")
    total = sum(m.file_size for m in members)
    if total > max(SMALL, MAX_RATIO * size):
        raise data_error(
            path, f"declares {total} bytes of arrays in a file of {size}: refused as a zip bomb"
        )


def _read_member(path: Path | str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    key = info.filename[:-4]
    with cast(zipfile.ZipExtFile, archive.open(info)) as member:
        dtype, order, shape, header_size = _read_header(path, key, member)
        size = math.prod(shape) * dtype.itemsize
        if header_size + size != info.file_size:
            raise data_error(path, f"{key} declares shape {shape}, which its size contradicts")
        raw = np.empty(size, np.uint8)
        view, done = raw.data, 0
        while done < size:
            count = member.readinto(view[done : done + _BLOCK])
            if not count:
                raise data_error(path, f"{key} ends after {done} of {size} bytes")
            done += count
        member.read(1)  # zipfile compares the CRC on reaching the end, also of an empty array
    # A byte other than 0 and 1 is no bool to NumPy, and behaves oddly under ``~``.
    flat = raw != 0 if dtype == np.bool_ else raw.view(dtype)
    array = flat.reshape(shape, order=order)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_header(path: Path | str, key: str, member) -> tuple[np.dtype, Any, tuple[int, ...], int]:
    magic = member.read(8)
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4, b"\x93NUMPY\x03\x00": 4}.get(magic)
    if width is None:
        raise data_error(path, f"{key} is not an npy array")
    length = int.from_bytes(member.read(width), "little")
    text = member.read(min(length, 10_000)).decode("latin1")
    header = _HEADER.fullmatch(text)
    if header is None or len(text) != length:
        raise data_error(path, f"{key} has an unreadable npy header")
    descr = header["descr"]
    if not _DTYPE.fullmatch(descr):
        kind = "an object array (pickle)" if "O" in descr else f"of dtype {descr}"
        raise data_error(path, f"{key} is {kind}; only plain numbers are read")
    shape = tuple(int(n) for n in header["shape"].split(",") if n.strip())
    if len(shape) > 8:
        raise data_error(path, f"{key} has {len(shape)} dimensions")
    order = "F" if header["order"] == "True" else "C"
    return np.dtype(descr.strip("'")), order, shape, 8 + width + length


def write_npz(path: Path | str, dataset: Dataset) -> None:
    """Write a dataset in OGBench's raw layout, uncompressed, atomically, with fixed bytes.

    Equal datasets give equal files. ``ogbench.make_env_and_datasets(name, dataset_path=path)``
    reads the result.

    Raises:
        DataError: an extra has a reserved name, or the file cannot be written.
    """
    path = Path(path)
    arrays = {"observations": dataset.observations, "actions": dataset.actions}
    arrays["terminals"] = dataset.terminals
    for key in sorted(dataset.extras):
        if key in _RESERVED or not _NAME.fullmatch(f"{key}.npy"):
            raise data_error(path, f"extra {key!r} cannot be stored under that name")
        arrays[key] = dataset.extras[key]
    if path.suffix != ".npz":
        raise data_error(path, "must end in .npz")
    with atomic_file(path) as handle, zipfile.ZipFile(handle, "w", zipfile.ZIP_STORED) as archive:
        for key, array in arrays.items():
            # A fixed date and system; the size decides beforehand whether 64-bit fields are used.
            info = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.file_size = array.nbytes + 1024
            array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            with archive.open(info, "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the name ``path``, synced to disk, only if all went well.

    Raises:
        DataError: the disk refused; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        # The rename itself lives in the folder, which Windows cannot open for syncing.
        if os.name == "posix":
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise data_error(path, f"cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)


def sha256_file(path: Path | str) -> str:
    """Return the sha256 of a file's bytes in hexadecimal."""
    try:
        with open(path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def file_entry(path: Path | str) -> dict[str, Any]:
    """Return what a sidecar's ``files`` stores about a file: its sha256 and its size."""
    return {"sha256": sha256_file(path), "bytes": Path(path).stat().st_size}


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
        text = json.dumps(dict(contents), indent=2, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise data_error(path, f"cannot be written as JSON ({error})") from error
    with atomic_file(path) as handle:
        handle.write(text.encode() + b"\n")


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
