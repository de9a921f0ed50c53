import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumpyworld.data import Dataset, load, ogbench
from jumpyworld.errors import DataError
from jumpyworld.storage import npz as storage_npz

oracle = pytest.importorskip("ogbench.utils")

NAME = "pointmaze-medium-navigate-v0"


def make(lengths=(7, 4, 9), d=2, da=2, seed=0, extras=True):
    rng = np.random.default_rng(seed)
    n = sum(lengths) + len(lengths)
    terminals = np.zeros(n, dtype=bool)
    terminals[np.cumsum(np.asarray(lengths) + 1) - 1] = True
    more = {"qpos": rng.normal(size=(n, 3)).astype(np.float32), "button_states": np.arange(n)}
    return Dataset.from_arrays(
        rng.normal(size=(n, d)),
        rng.uniform(-1, 1, (n, da)),
        terminals,
        extras=more if extras else {},
    )


def assert_same_transitions(data, reference):
    """Compare with what OGBench's own loader returns in its regular layout."""
    i = data.valid_indices
    np.testing.assert_array_equal(data.observations[i], reference["observations"])
    np.testing.assert_array_equal(data.actions[i], reference["actions"])
    np.testing.assert_array_equal(data.observations[i + 1], reference["next_observations"])
    np.testing.assert_array_equal(data.terminals[i + 1], reference["terminals"])
    for key in ("qpos", "button_states"):
        if key in reference:
            np.testing.assert_array_equal(data.extras[key][i], reference[key])


def test_raw_layout_agrees_with_ogbench(tmp_path):
    path = tmp_path / "set.npz"
    ogbench.write_npz(path, make())
    assert_same_transitions(load(path), oracle.load_dataset(str(path), add_info=True))
    assert load(path).fingerprint() == make().fingerprint()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("compact", [False, True])
def test_ogbench_layouts_agree_with_ogbench(tmp_path, compact, save):
    raw, path = tmp_path / "raw.npz", tmp_path / "set.npz"
    ogbench.write_npz(raw, make(extras=False))
    reference = oracle.load_dataset(str(raw))
    save(path, **oracle.load_dataset(str(raw), compact_dataset=compact))
    data = load(path)
    assert_same_transitions(data, reference)
    np.testing.assert_array_equal(data.observations, make().observations)
    assert ("padded" in data.extras) == (not compact)
    if compact:
        assert data.fingerprint() == make(extras=False).fingerprint()


def test_regular_layout_with_info(tmp_path):
    raw, path = tmp_path / "raw.npz", tmp_path / "set.npz"
    ogbench.write_npz(raw, make())
    reference = oracle.load_dataset(str(raw), add_info=True)
    np.savez(path, **reference)
    data = load(path)
    assert_same_transitions(data, reference)
    np.testing.assert_array_equal(data.extras["padded"], data.terminals)
    # Padding is written and comes back.
    ogbench.write_npz(path, data)
    assert load(path).fingerprint() == data.fingerprint()


def test_make_env_and_datasets_reads_what_we_write(tmp_path):
    import ogbench as upstream

    path = tmp_path / f"{NAME}.npz"
    ogbench.write_npz(path, make())
    ogbench.write_npz(tmp_path / f"{NAME}-val.npz", make(lengths=(5,), seed=1))
    train, val = upstream.make_env_and_datasets(NAME, dataset_path=str(path), dataset_only=True)
    assert_same_transitions(load(path), train)
    assert_same_transitions(load(path, split="val"), val)
    assert load(path).domain == NAME


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_round_trip(lengths, d, da):
    data = make(tuple(lengths), d, da)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "set.npz")
        ogbench.write_npz(path, data)
        assert load(path).fingerprint() == data.fingerprint()
        assert_same_transitions(data, oracle.load_dataset(str(path)))


def test_damaged_layouts_are_named(tmp_path):
    path, raw = tmp_path / "set.npz", make(extras=False)
    arrays = {"observations": raw.observations, "actions": raw.actions, "terminals": raw.terminals}

    def refused(match, **change):
        np.savez(path, **{k: v for k, v in (arrays | change).items() if v is not None})
        with pytest.raises(DataError, match=match) as caught:
            load(path)
        assert str(caught.value).startswith(str(path))

    refused("has no terminals; it holds observations, actions", terminals=None)
    refused("has no actions", actions=None)
    refused("has no observations", observations=None)
    refused(r"actions has shape \(22, 2\), but observations has 23 rows", actions=raw.actions[1:])
    refused(r"qvel has shape \(3, 1\)", qvel=np.zeros((3, 1)))
    refused("seed has shape", seed=np.array(7))
    refused("of dtype '<U1'", note=np.array(["a"] * 23))
    refused("of dtype '<c8'", observations=raw.observations.astype(np.complex64))
    refused("terminals is 0 at row 0, where valids is 0", valids=np.zeros(23))
    refused("next_observations differs .* first at row 0", next_observations=raw.observations + 9)
    refused("next_observations has shape", next_observations=raw.observations[:, :1])
    shifted = np.roll(raw.observations, -1, 0)
    shifted[4, 1] = np.nan
    refused(r"next_observations has 1 values \(first nan at row 4", next_observations=shifted)
    refused("empty", **{key: array[:0] for key, array in arrays.items()})


def test_order_and_endianness(tmp_path):
    data = make(extras=False)
    path = tmp_path / "set.npz"
    np.savez(
        path,
        observations=np.asfortranarray(data.observations.astype(">f8")),
        actions=data.actions.astype("<f4"),
        terminals=data.terminals.astype(np.uint8),
    )
    assert load(path).fingerprint() == data.fingerprint()


def test_writing_is_deterministic_and_leaves_no_other_file(tmp_path):
    for name in ("a.npz", "b.npz"):
        ogbench.write_npz(tmp_path / name, make())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    ogbench.write_npz(tmp_path / "b.npz", make(seed=1))  # over an old file
    assert load(tmp_path / "b.npz").fingerprint() == make(seed=1).fingerprint()
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "b.npz"]


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch, where):
    path = tmp_path / "set.npz"
    ogbench.write_npz(path, make())
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "write":
        monkeypatch.setattr(storage_npz, "_write_blocks", full)
    else:
        monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[where], full)
    with pytest.raises(DataError, match=r"set\.npz: cannot be written \(No space left"):
        ogbench.write_npz(path, make(seed=1))
    assert os.listdir(tmp_path) == ["set.npz"] and path.read_bytes() == before


def test_other_failures_leave_nothing_behind(tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage_npz, "_write_blocks", stop)
    with pytest.raises(KeyboardInterrupt):
        ogbench.write_npz(tmp_path / "set.npz", make())
    assert os.listdir(tmp_path) == []


def test_unwritable_requests(tmp_path):
    data = make()
    with pytest.raises(DataError, match=r"must end in \.npz"):
        ogbench.write_npz(tmp_path / "set.dat", data)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        ogbench.write_npz(tmp_path / "file" / "set.npz", data)
    for name in ("valids", "../x", "next_observations", ""):
        odd = Dataset(data.observations, data.actions, data.starts, data.ends, {name: data.actions})
        with pytest.raises(DataError, match="cannot be stored"):
            ogbench.write_npz(tmp_path / "set.npz", odd)
