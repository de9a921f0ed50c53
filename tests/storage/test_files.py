import hashlib
import json
import os

import numpy as np
import pytest

from jumpyworld.storage.files import atomic_file, sha256_file, write_json
from jumpyworld.storage.npz import Column, write_npz


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "file"
    with atomic_file(path) as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    assert os.listdir(path.parent) == ["file"]
    assert sha256_file(path) == hashlib.sha256(b"abc").hexdigest()


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_file(path) as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_follows_the_umask(tmp_path):
    mask = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "file"):
            pass
    finally:
        os.umask(mask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_json_refuses_nan(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, "y"]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, "y"]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", {"x": float("nan")})
    assert os.listdir(tmp_path) == ["a.json"]


def test_npz_is_what_numpy_reads_and_the_same_each_time(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(8, 3)
    flags = np.arange(8) % 2 == 0

    def columns():
        return {
            "values": Column((8, 3), values.dtype, lambda: [values[:5], values[5:]]),
            "flags": Column((8,), flags.dtype, lambda: [flags]),
        }

    for name in ("a", "b"):
        write_npz(tmp_path / name, columns())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with np.load(tmp_path / "a") as arrays:
        assert sorted(arrays) == ["flags", "values"]
        np.testing.assert_array_equal(arrays["values"], values)
        np.testing.assert_array_equal(arrays["flags"], flags)


@pytest.mark.parametrize("blocks", [[np.zeros((4, 3))], [np.zeros((8, 2))]])
def test_npz_blocks_must_make_up_the_promised_shape(tmp_path, blocks):
    with pytest.raises(ValueError, match="x: "):
        write_npz(tmp_path / "a", {"x": Column((8, 3), np.dtype("f4"), lambda: blocks)})
    assert os.listdir(tmp_path) == []
