"""Write an npz piece by piece, with the same bytes every time.

A data set may be larger than memory is worth (5M states of a four-cube scene are 3 GB), so each
array is written to the archive as a stream of blocks of rows. Entries are stored uncompressed:
float32 states shrink by a tenth at ten times the reading time. The zip format's CRC-32 guards each
entry, and its time stamps are left at the format's epoch, so equal data gives equal files.
"""

import math
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jumpyworld.storage.files import atomic_file


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
