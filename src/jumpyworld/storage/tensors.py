"""Named arrays in a safetensors file: streamed out, hashed on the way, read back strictly.

The file is an 8-byte length, a JSON header of (dtype, shape, offsets) and the raw bytes. Writing is
ours, because it then needs no second copy of the arrays and reports a full disk as what it is;
reading is the library's, whose parser has been audited and fuzzed. Nothing here imports JAX.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, deserialize

from jumpyworld.errors import CheckpointError
from jumpyworld.storage.files import atomic_file

_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
}
_NAMES = {code: name for name, code in _CODES.items()}


def dtype_of(name: str) -> np.dtype:
    """Return the dtype called ``name`` (``"float32"``, ``"bfloat16"``, ...), or raise KeyError."""
    if name not in _CODES:
        raise KeyError(name)
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def is_floating(dtype: np.dtype) -> bool:
    """Whether values of ``dtype`` can be NaN or infinite."""
    return dtype.kind in "fc" or dtype == ml_dtypes.bfloat16


def table(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the shape and dtype of each array, as data for a manifest."""
    return {
        name: {"shape": list(array.shape), "dtype": array.dtype.name}
        for name, array in sorted(arrays.items())
    }


def check_writable(arrays: Mapping[str, Any], where: Path) -> None:
    """Refuse arrays that hold NaN or infinity, or that the format cannot hold.

    Raises:
        CheckpointError: with the name of the array.
    """
    for name, array in arrays.items():
        if array.dtype.name not in _CODES:
            raise CheckpointError(f"{where}: {name} is {array.dtype}, which has no file form")
        host = np.asarray(array)
        if is_floating(host.dtype) and not np.isfinite(host).all():
            count = int((~np.isfinite(host)).sum())
            raise CheckpointError(
                f"{where}: {name} holds {count} values that are not finite; nothing was written"
            )


def write_tensors(path: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``arrays`` (NumPy or JAX) to ``path`` and return its manifest entry.

    Memory beyond the arrays: one of them at most, and none for contiguous host arrays.
    """
    digest, size = hashlib.sha256(), 0
    with atomic_file(path) as file:
        for piece in _pieces(arrays):
            file.write(piece)
            digest.update(piece)
            size += len(piece)
    return {"sha256": digest.hexdigest(), "size": size, "tensors": table(arrays)}


def _pieces(arrays: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    # Widest dtypes first keeps every array aligned to its own item size.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header, offset = {}, 0
    for name in names:
        array = arrays[name]
        end = offset + array.size * array.dtype.itemsize
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in names:
        host = np.ascontiguousarray(np.asarray(arrays[name]))
        host = host.astype(host.dtype.newbyteorder("<"), copy=False)
        yield host.reshape(-1).view(np.uint8).data


def read_tensors(content: bytes, path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in the bytes of a safetensors file; ``path`` is for messages only."""
    try:
        # Headers of garbage can ask for anything: MemoryError and OverflowError are damage too.
        entries = deserialize(content)
        arrays = {}
        for name, entry in entries:
            dtype = dtype_of(_NAMES[entry["dtype"]])
            arrays[name] = np.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error})") from error
    return arrays


def digest(arrays: Mapping[str, Any]) -> str:
    """Return one sha256 over the names, dtypes, shapes and bytes of ``arrays``."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        host = np.ascontiguousarray(np.asarray(arrays[name]))
        shape = tuple(arrays[name].shape)
        total.update(f"{name}\0{host.dtype.name}\0{shape}\0".encode())
        total.update(host.reshape(-1).view(np.uint8).data)
    return total.hexdigest()
