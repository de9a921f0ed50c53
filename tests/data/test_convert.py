import json
import shutil
import warnings

import numpy as np
import pytest

from jumpyworld.data import Dataset, load, ogbench
from jumpyworld.data.convert import convert
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.storage.files import sha256_file

h5py = pytest.importorskip("h5py")
oracle = pytest.importorskip("ogbench.utils")

LENGTHS = [3, 5, 2, 4, 1, 6, 3, 2, 4, 5, 3, 2]  # twelve: one goes to the validation set
KEYS = ("observations", "actions", "next_observations")


def transitions(d=3, da=2, lengths=LENGTHS):
    """Build the transitions of each trajectory: dicts of arrays [L, ...]."""
    rng = np.random.default_rng(0)
    out = []
    for n in lengths:
        states = rng.normal(size=(n + 1, d)).astype(np.float32)
        actions = rng.uniform(-1, 1, (n, da)).astype(np.float32)
        arrays = {"observations": states[:-1], "actions": actions, "next_observations": states[1:]}
        out.append(arrays)
    return out


def write_hdf5(path, trajectories):
    ends = np.concatenate(
        [np.arange(len(t["actions"])) == len(t["actions"]) - 1 for t in trajectories]
    )
    with h5py.File(path, "w") as file:
        for key in KEYS:
            file[key] = np.concatenate([t[key] for t in trajectories])
        file["terminals"] = np.zeros(len(ends), bool)
        file["timeouts"] = ends


def write_minari(monkeypatch, folder, trajectories):
    minari = pytest.importorskip("minari")
    from gymnasium import spaces

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    buffers = []
    for i, t in enumerate(trajectories):
        n = len(t["actions"])
        states = np.concatenate([t["observations"], t["next_observations"][-1:]])
        ends = [step == n - 1 for step in range(n)]
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=i,
                observations=states,
                actions=t["actions"],
                rewards=[0.0] * n,
                terminations=[False] * n,
                truncations=ends,
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about recommended metadata
        minari.create_dataset_from_buffers(
            "test/small-v0",
            buffers,
            observation_space=spaces.Box(-np.inf, np.inf, (3,), np.float32),
            action_space=spaces.Box(-1, 1, (2,), np.float32),
        )
    return folder / "test" / "small-v0"


def check(path, trajectories, cut):
    """Compare both files with the transitions, as OGBench reads them."""
    for file, part in (
        (path, trajectories[:cut]),
        (path.with_stem(f"{path.stem}-val"), trajectories[cut:]),
    ):
        found = oracle.load_dataset(file)
        for key in KEYS:
            np.testing.assert_array_equal(found[key], np.concatenate([t[key] for t in part]))
        assert found["terminals"].sum() == len(part)
    sidecar = json.loads(path.with_suffix(".json").read_text())
    for file, part in (
        (path.name, trajectories[:cut]),
        (f"{path.stem}-val.npz", trajectories[cut:]),
    ):
        entry = sidecar["files"][file]
        assert entry["episodes"] == len(part)
        assert entry["transitions"] == sum(len(t["actions"]) for t in part)
        assert entry["sha256"] == sha256_file(path.with_name(file))
        assert entry["bytes"] == path.with_name(file).stat().st_size
    return sidecar


def test_hdf5_becomes_files_that_ogbench_reads(tmp_path):
    trajectories = transitions()
    write_hdf5(tmp_path / "mine.hdf5", trajectories)
    path = convert(tmp_path / "mine.hdf5", tmp_path / "out")
    assert path == tmp_path / "out" / "mine.npz"
    sidecar = check(path, trajectories, 11)
    assert sidecar["source"] == "mine.hdf5"
    assert sidecar["domain"] is None
    assert str(tmp_path) not in path.with_suffix(".json").read_text()
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "mine-val.npz",
        "mine.json",
        "mine.npz",
    ]
    assert load(path).num_trajectories == 11
    assert load(path, split="val").extras["padded"].sum() == 1


@pytest.mark.parametrize("inner", ["", "data"])
def test_minari_becomes_files_that_ogbench_reads(inner, tmp_path, monkeypatch):
    trajectories = transitions()
    folder = write_minari(monkeypatch, tmp_path / "minari", trajectories)
    path = convert(folder / inner, tmp_path / "out")
    assert path.name == "small-v0.npz"
    check(path, trajectories, 11)
    rewards = load(path).extras["rewards"]
    assert rewards.shape == (sum(LENGTHS[:11]) + 11,)


@pytest.mark.parametrize(("count", "cut"), [(2, 1), (9, 8), (19, 18), (20, 18), (35, 32)])
def test_the_last_tenth_and_at_least_one_validates(count, cut, tmp_path):
    trajectories = transitions(lengths=[2] * count)
    write_hdf5(tmp_path / "a.hdf5", trajectories)
    check(convert(tmp_path / "a.hdf5", tmp_path / "out"), trajectories, cut)


def test_a_single_trajectory_cannot_be_split(tmp_path):
    write_hdf5(tmp_path / "a.hdf5", transitions(lengths=[5]))
    with pytest.raises(DataError, match=r"a\.hdf5: has a single trajectory"):
        convert(tmp_path / "a.hdf5", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_validation_file_beside_the_source_is_kept(tmp_path):
    trajectories = transitions()
    write_hdf5(tmp_path / "a.hdf5", trajectories[:4])
    write_hdf5(tmp_path / "a-val.hdf5", trajectories[4:])
    check(convert(tmp_path / "a.hdf5", tmp_path / "out"), trajectories, 4)


def test_the_domain_names_the_files_and_is_checked(tmp_path):
    write_hdf5(tmp_path / "a.hdf5", transitions(d=2))
    path = convert(tmp_path / "a.hdf5", tmp_path / "out", domain="pointmaze-large")
    assert path.name == "pointmaze-large-navigate-v0.npz"
    assert load(path).domain == "pointmaze-large-navigate-v0"
    other = convert(tmp_path / "a.hdf5", tmp_path / "out", "pointmaze-large", "mine")
    assert load(other).domain == "pointmaze-large-navigate-v0"
    with pytest.raises(DataError, match="observations has 2 columns, but cube-single-play-v0"):
        convert(tmp_path / "a.hdf5", tmp_path / "out", domain="cube-1")
    with pytest.raises(ConfigError, match="pointmaze-large"):
        convert(tmp_path / "a.hdf5", tmp_path / "out", domain="pointmaze-larg")


@pytest.mark.parametrize("name", ["a/b", "..", "x-val", " ", "-x"])
def test_names_that_no_set_can_have(name, tmp_path):
    write_hdf5(tmp_path / "a.hdf5", transitions())
    with pytest.raises(DataError, match="cannot name a dataset"):
        convert(tmp_path / "a.hdf5", tmp_path / "out", name=name)


def test_equal_files_stay_and_others_are_refused(tmp_path):
    trajectories = transitions()
    write_hdf5(tmp_path / "a.hdf5", trajectories)
    write_hdf5(tmp_path / "b.hdf5", trajectories[1:])
    path = convert(tmp_path / "a.hdf5", tmp_path / "out")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in path.parent.iterdir()}
    assert convert(tmp_path / "a.hdf5", tmp_path / "out") == path
    with pytest.raises(DataError, match=r"a\.npz: exists and differs"):
        convert(tmp_path / "b.hdf5", tmp_path / "out", name="a")
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in path.parent.iterdir()} == before
    convert(tmp_path / "b.hdf5", tmp_path / "out", name="a", overwrite=True)
    check(path, trajectories[1:], 10)


def test_a_conversion_that_was_cut_off_is_completed(tmp_path):
    write_hdf5(tmp_path / "a.hdf5", transitions())
    path = convert(tmp_path / "a.hdf5", tmp_path / "out")
    path.with_suffix(".json").unlink()
    (tmp_path / "out" / "a-val.npz").unlink()
    check(convert(tmp_path / "a.hdf5", tmp_path / "out"), transitions(), 11)


def test_a_set_is_not_converted_onto_itself(tmp_path):
    n = 12
    data = Dataset.from_arrays(np.ones((n, 2)), np.zeros((n, 2)), np.arange(n) % 3 == 2)
    ogbench.write_npz(tmp_path / "a.npz", data)
    before = (tmp_path / "a.npz").read_bytes()
    with pytest.raises(DataError, match="is the source itself"):
        convert(tmp_path / "a.npz", tmp_path, overwrite=True)
    shutil.copy(tmp_path / "a.npz", tmp_path / "b-val.npz")
    with pytest.raises(DataError, match="is the source itself"):
        convert(tmp_path / "b-val.npz", tmp_path, name="b", overwrite=True)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b-val.npz").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b-val.npz"]


def test_extras_are_kept(tmp_path):
    n = 12
    ends = np.arange(n) % 3 == 2
    data = Dataset.from_arrays(
        np.ones((n, 2)), np.zeros((n, 2)), ends, extras={"qpos": np.arange(n)}
    )
    ogbench.write_npz(tmp_path / "a.npz", data)
    path = convert(tmp_path / "a.npz", tmp_path / "out")
    np.testing.assert_array_equal(load(path).extras["qpos"], np.arange(9))
    np.testing.assert_array_equal(load(path, split="val").extras["qpos"], np.arange(9, 12))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    write_hdf5(tmp_path / "a.hdf5", transitions())
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file: cannot be written"):
        convert(tmp_path / "a.hdf5", tmp_path / "file")
