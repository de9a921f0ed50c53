import json
import warnings

import numpy as np
import pytest

from jumpyworld.data import load
from jumpyworld.data.minari import load_minari
from jumpyworld.errors import DataError

h5py = pytest.importorskip("h5py")
minari = pytest.importorskip("minari")
spaces = pytest.importorskip("gymnasium").spaces

LENGTHS = [5, 12, 1, 3, 2, 4, 3, 2, 2, 2, 6]  # more than ten, so that order by text would differ


def box(n):
    return spaces.Box(-np.inf, np.inf, (n,), np.float64)


@pytest.fixture(params=["array", "dict"])
def folder(request, tmp_path, monkeypatch):
    """A dataset made by the minari package itself."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    space = box(3)
    if request.param == "dict":
        space = spaces.Dict({k: box(3) for k in ("observation", "achieved_goal", "desired_goal")})
    buffers = []
    for e, n in enumerate(LENGTHS):
        rng = np.random.default_rng(e)
        states = rng.normal(size=(n + 1, 3))
        states[:, 0] = e
        if request.param == "dict":
            states = {
                "observation": states,
                "achieved_goal": states * 0,
                "desired_goal": states * 0,
            }
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=None,
                seed=e,
                options=None,
                observations=states,
                actions=rng.uniform(-1, 1, (n, 2)),
                rewards=list(range(n)),
                terminations=[e == 1 and i == n - 1 for i in range(n)],
                truncations=[e != 1 and i == n - 1 for i in range(n)],
                infos={"qpos": rng.normal(size=(n + 1, 4))},
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about recommended metadata
        minari.create_dataset_from_buffers(
            "test/small-v0",
            buffers,
            observation_space=space,
            action_space=spaces.Box(-1, 1, (2,), np.float64),
        )
    return tmp_path / "test" / "small-v0"


def test_agrees_with_minaris_own_reader(folder):
    data = load(folder)
    assert data.lengths.tolist() == LENGTHS
    for e, episode in enumerate(minari.load_dataset("test/small-v0").iterate_episodes()):
        ours, n = data.trajectory(e), LENGTHS[e]
        states = episode.observations
        states = states["observation"] if isinstance(states, dict) else states
        np.testing.assert_array_equal(ours.observations, np.float32(states))
        np.testing.assert_array_equal(ours.actions[:n], np.float32(episode.actions))
        np.testing.assert_array_equal(ours.actions[n], ours.actions[n - 1])
        np.testing.assert_array_equal(ours.extras["rewards"][:n], episode.rewards)
        np.testing.assert_array_equal(ours.extras["masks"][:n], 1.0 - episode.terminations)
        np.testing.assert_array_equal(ours.extras["qpos"], episode.infos["qpos"])
        assert ours.extras["padded"].tolist() == [False] * n + [True]
    assert load(folder / "data").fingerprint() == data.fingerprint()


def change(folder, function):
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        function(file)


def test_damage_is_named(folder):
    with pytest.raises(DataError, match="no validation split"):
        load(folder, split="val")
    change(folder, lambda f: f.pop("episode_10"))
    with pytest.raises(DataError, match="holds 10 episodes up to episode_9, expected 11"):
        load(folder)
    metadata = folder / "data" / "metadata.json"
    text = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(text | {"total_episodes": 10}))
    assert load(folder).num_trajectories == 10
    change(folder, lambda f: f.move("episode_4", "episode_12"))
    with pytest.raises(DataError, match="up to episode_12"):
        load(folder)
    change(folder, lambda f: f.move("episode_12", "episode_4"))
    change(folder, lambda f: f["episode_4/actions"].resize((1, 2)))
    with pytest.raises(DataError, match=r"episode_4/actions has shape \(1, 2\), but there are 3"):
        load(folder)
    change(folder, lambda f: f["episode_4"].pop("actions"))
    with pytest.raises(DataError, match="has no episode_4/actions"):
        load(folder)
    metadata.write_text("{")
    with pytest.raises(DataError, match=r"metadata\.json: cannot be read"):
        load(folder)
    (folder / "data" / "main_data.hdf5").write_bytes(b"\x89HDF")
    with pytest.raises(DataError, match="cannot be read"):
        load(folder)
    (folder / "data" / "main_data.hdf5").unlink()
    with pytest.raises(DataError, match=r"holds no data/main_data\.hdf5"):
        load(folder)


def test_empty_and_stateless_episodes(tmp_path):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "main_data.hdf5"
    h5py.File(path, "w").close()
    with pytest.raises(DataError, match="no episodes"):
        load_minari(tmp_path)
    with h5py.File(path, "w") as file:
        file["episode_0/observations"] = np.zeros((0, 2))
    with pytest.raises(DataError, match="at least one state"):
        load_minari(tmp_path)
    with h5py.File(path, "w") as file:
        file["episode_0/observations"] = np.zeros((1, 2))
        file["episode_0/actions"] = np.zeros((0, 2))
    with pytest.raises(DataError, match="but there are 1 states"):
        load_minari(tmp_path)
