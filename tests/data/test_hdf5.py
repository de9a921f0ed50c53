import sys

import numpy as np
import pytest

from jumpyworld.data import load
from jumpyworld.errors import DataError, MissingExtraError

h5py = pytest.importorskip("h5py")

N = 24


def arrays():
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(N, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (N, 2)).astype(np.float32),
        "rewards": rng.normal(size=N).astype(np.float32),
        "terminals": np.isin(np.arange(N), [9]),
        "timeouts": np.isin(np.arange(N), [17, 23]),
        "infos/qpos": rng.normal(size=(N, 4)),
        "infos/qvel": rng.normal(size=(N, 4)),
        "metadata/algorithm": np.bytes_("text that is not read"),
    }


def write(path, contents):
    with h5py.File(path, "w") as file:
        for key, value in contents.items():
            if value is not None:
                file[key] = value
    return path


@pytest.mark.parametrize("suffix", [".hdf5", ".h5"])
def test_rows_are_states_and_either_flag_ends_a_trajectory(tmp_path, suffix):
    contents = arrays()
    data = load(write(tmp_path / f"set{suffix}", contents))
    assert data.ends.tolist() == [9, 17, 23] and data.num_transitions == N - 3
    np.testing.assert_array_equal(data.observations, contents["observations"])
    np.testing.assert_array_equal(data.actions, contents["actions"])
    np.testing.assert_array_equal(data.extras["masks"], 1.0 - contents["terminals"])
    np.testing.assert_array_equal(data.extras["qvel"], contents["infos/qvel"])
    assert sorted(data.extras) == ["masks", "qpos", "qvel", "rewards"]
    assert load(tmp_path).fingerprint() == data.fingerprint()


def test_next_observations_append_the_final_states(tmp_path):
    contents = arrays()
    after = np.roll(contents["observations"], -1, 0)
    after[[9, 17, 23]] = 7
    data = load(write(tmp_path / "set.hdf5", contents | {"next_observations": after}))
    i = data.valid_indices
    assert data.num_transitions == N and data.num_states == N + 3
    np.testing.assert_array_equal(data.observations[i], contents["observations"])
    np.testing.assert_array_equal(data.observations[i + 1], after)
    np.testing.assert_array_equal(data.actions[i], contents["actions"])
    np.testing.assert_array_equal(data.extras["masks"][i], 1.0 - contents["terminals"])
    np.testing.assert_array_equal(data.extras["padded"], data.terminals)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"observations": None}, "has no observations"),
        ({"actions": None}, "has no actions"),
        ({"terminals": None, "timeouts": None}, "neither terminals nor timeouts"),
        ({"timeouts": None}, "terminals is 0 at the last row 23"),
        ({"actions": np.zeros((3, 2))}, r"actions has shape \(3, 2\)"),
        ({"actions": np.full((N, 2), 4.0)}, "48 values in 24 rows"),
        ({"infos/qpos": np.zeros((1, 2))}, r"qpos has shape \(1, 2\)"),
        ({"observations": np.full((N, 3), np.nan)}, "72 values"),
        ({"actions": np.array([b"x"] * N)}, "only numbers are read"),
        ({"actions": np.array(["x"] * N, dtype=h5py.string_dtype())}, "only numbers are read"),
        ({"observations": h5py.SoftLink("/actions")}, "links are not followed"),
        ({"observations": h5py.ExternalLink("other.hdf5", "/x")}, "has no|not followed"),
        ({"observations": h5py.Empty("f4")}, "not an array"),
        ({"observations": None, "observations/x": np.zeros(3)}, "observations is not an array"),
        ({"infos/qpos": None, "infos/qvel": None, "infos": np.zeros(N)}, None),
    ],
)
def test_bad_files_are_named(tmp_path, change, match):
    write(tmp_path / "other.hdf5", {"x": arrays()["observations"]})
    path = write(tmp_path / "set.hdf5", arrays() | change)
    if match is None:
        assert load(path).num_trajectories == 3
        return
    with pytest.raises(DataError, match=match) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


def test_arrays_declared_but_not_stored_are_refused(tmp_path):
    path = write(tmp_path / "set.hdf5", arrays() | {"observations": None})
    with h5py.File(path, "a") as file:
        file.create_dataset("observations", (10**9, 10**3), "f4", chunks=(1000, 1000))
    with pytest.raises(DataError, match="refused as a bomb"):
        load(path)


def test_arrays_in_other_files_are_refused(tmp_path):
    path = write(tmp_path / "set.hdf5", arrays() | {"observations": None})
    with h5py.File(path, "a") as file:
        secret = [(str(tmp_path / "secret"), 0, N * 12)]
        file.create_dataset("observations", (N, 3), "f4", external=secret)
    with pytest.raises(DataError, match="stored in another file"):
        load(path)


def test_damaged_files_are_data_errors(tmp_path):
    path = write(tmp_path / "set.hdf5", arrays())
    good = path.read_bytes()
    for cut in range(0, len(good), len(good) // 40):
        path.write_bytes(good[:cut])
        with pytest.raises(DataError, match=r"set\.hdf5"):
            load(path)
    path.write_bytes(b"\0" * 1000)
    with pytest.raises(DataError, match="cannot be read"):
        load(path)


def test_missing_h5py_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "set.hdf5", arrays())
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"jumpyworld\[data\]"):
        load(path)
