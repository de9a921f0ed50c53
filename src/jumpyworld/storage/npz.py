"""npz files: a writer that streams, and a reader that trusts nothing.

A data set may be larger than memory is worth (5M states of a four-cube scene are 3 GB), so arrays
are written to the archive as streams of blocks of rows. Entries are stored uncompressed: float32
states shrink by a tenth at ten times the reading time. Time stamps are left at the format's epoch,
so equal data gives equal files.

An npz file is a zip of npy members. The zip's CRC covers every byte of the arrays but is compared
only once a member has been read to its end, so the reader always gets there. Headers are parsed
here rather than by NumPy: sizes are compared with what the zip declares before any memory is
asked for, and there is no way from a header to pickle.
"""

import math
import os
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from jumpyworld.errors import DataError, data_error
from jumpyworld.storage.files import atomic_file

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
_BLOCK = 2**20  # four times faster than zipfile's own steps for stored members

MEMBER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*\.npy")
_HEADER = re.compile(
    r"\{\s*'descr':\s*(?P<descr>'[^']*'|\[.*\])\s*,\s*'fortran_order':\s*(?P<order>True|False)\s*,"
    r"\s*'shape':\s*\((?P<shape>(\s*\d{1,18}\s*,)*(\s*\d{1,18}\s*)?)\)(\s*,)?\s*\}\s*",
    re.ASCII | re.DOTALL,
)
_DTYPE = re.compile(r"'[<>|=](b1|[iu][1248]|f[248])'")


@dataclass(frozen=True)
class Column:
    """One array of an npz: its final shape and dtype, and blocks of rows that make it up."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Callable[[], Iterable[np.ndarray]]

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_npz(path: Path, columns: Mapping[str, Column]) -> None:
    """Write ``columns`` to ``path``: complete under that name, or not there at all."""
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, column in columns.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                header = {
                    "descr": np.lib.format.dtype_to_descr(column.dtype),
                    "fortran_order": False,
                    "shape": column.shape,
                }
                np.lib.format.write_array_header_1_0(entry, header)
                _write_blocks(entry.write, name, column)


def _write_blocks(write: Callable[[bytes], int], name: str, column: Column) -> None:
    rows = 0
    for block in column.blocks():
        block = np.ascontiguousarray(block, dtype=column.dtype)
        if block.shape[1:] != column.shape[1:]:
            raise ValueError(f"{name}: a block of rows {block.shape[1:]}, not {column.shape[1:]}")
        rows += len(block)
        write(block.tobytes())
    if rows != column.shape[0]:
        raise ValueError(f"{name}: {rows} rows written where {column.shape[0]} were promised")


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
        if not MEMBER_NAME.fullmatch(m.filename) or names.count(m.filename) > 1:
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
