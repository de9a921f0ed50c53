import sys
import types

import ml_dtypes
import numpy as np
import pytest
from checkpoint_samples import make_document, save_step

from jumpyworld import loading
from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.storage import checkpoint, runs
from jumpyworld.storage.tensors import digest


@pytest.fixture
def toy(monkeypatch):
    """A loader that returns what it is given."""
    module = types.ModuleType("toy_loader")
    module.build = lambda config, arrays: (config, arrays)
    monkeypatch.setitem(sys.modules, "toy_loader", module)
    monkeypatch.setitem(loading.BUILDERS, "toy", "toy_loader:build")


@pytest.fixture
def run(tmp_path):
    """A run of several seeds with a few arrays of known size."""
    rng = np.random.default_rng(0)
    model = {f"w{i}": rng.standard_normal((2, 50, 100)).astype(np.float32) for i in range(5)}
    model["count"] = np.array([3, 4], np.int32)
    folder = tmp_path / "run" / "checkpoints" / "step-000000007"
    folder.parent.mkdir(parents=True)
    document = make_document(seeds=[0, 1])
    checkpoint.save(folder, document, step=7, model=model, state={}, environment={})
    return tmp_path / "run"


def test_load_takes_a_run_or_a_checkpoint(toy, tmp_path):
    for step in (1, 2):
        save_step(tmp_path / "run", step)
    config, arrays = loading.load(tmp_path / "run")
    assert config == make_document()
    one = loading.load(str(runs.checkpoint_path(tmp_path / "run", 1)))
    assert digest(arrays) != digest(one[1])
    (runs.checkpoint_path(tmp_path / "run", 2) / "config.json").write_text("")
    warnings = []
    assert digest(loading.load(tmp_path / "run", warn=warnings.append)[1]) == digest(one[1])
    assert len(warnings) == 1


def test_load_takes_one_of_several_seeds(toy, run):
    first, second = loading.load(run, seed=0), loading.load(run, seed=1)
    assert first[1]["count"] == 3 and second[1]["count"] == 4
    assert second[0]["seeds"] == [1]
    with pytest.raises(CheckpointError, match="seeds"):
        loading.load(run)
    assert loading.fingerprint(run, seed=0) != loading.fingerprint(run, seed=1)


def test_every_kind_has_a_loader_in_this_package():
    kinds = {"gcbc", "hfbc", "crl", "gctd3", "gc1s", "hiql", "sharsa", "ghm", "world-model"}
    assert loading.BUILDERS.keys() == kinds
    assert all(name.startswith("jumpyworld.") for name in loading.BUILDERS.values())


def test_an_export_in_shards_is_the_same_model(toy, run, tmp_path):
    out = loading.export(run, tmp_path / "out" / "model", shard_mb=0.05, seed=1)
    names = sorted(path.name for path in out.iterdir())
    shards = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert names == ["config.json", "manifest.json", *shards]
    assert all((out / name).stat().st_size < 51_000 for name in shards)
    whole, exported = loading.load(run, seed=1), loading.load(out)
    assert whole[0] == exported[0] and digest(whole[1]) == digest(exported[1])
    assert loading.fingerprint(out) == loading.fingerprint(run, seed=1)
    assert checkpoint.verify(out).step == 7


@pytest.mark.parametrize(("dtype", "stored"), [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)])
def test_an_export_of_16_bits_comes_back_in_the_models_dtype(toy, run, tmp_path, dtype, stored):
    out = loading.export(run, tmp_path / "small", dtype=dtype, seed=0)
    size = sum(path.stat().st_size for path in out.glob("*.safetensors"))
    assert size < 55_000, "half of 100 kB"
    whole, back = loading.load(run, seed=0)[1], loading.load(out)[1]
    for name, array in whole.items():
        assert back[name].dtype == array.dtype and back[name].shape == array.shape
        rounded = array.astype(stored) if name != "count" else array
        assert np.array_equal(back[name], rounded.astype(array.dtype))


def test_rounded_weights_are_others_and_say_whose_they_are(toy, run, tmp_path):
    out = loading.export(run, tmp_path / "small", dtype="bf16", seed=0)
    original = loading.fingerprint(run, seed=0)
    assert loading.fingerprint(out) != original
    assert loading.stands_for(out) == original == loading.stands_for(run, seed=0)
    whole = loading.export(run, tmp_path / "whole", seed=0)
    assert loading.stands_for(whole) == loading.fingerprint(whole) == original
    again = loading.export(out, tmp_path / "again", dtype="bf16")
    assert loading.stands_for(again) == original


def test_units_are_never_rounded(toy, tmp_path):
    offset = np.asarray([17.3], np.float32)
    model = {name: offset for name in ("state_normaliser/offset", "frame/displacements", "w/b")}
    folder = tmp_path / "a" / "step-000000001"
    folder.parent.mkdir()
    checkpoint.save(folder, make_document(), step=1, model=model, state={}, environment={})
    back = loading.load(loading.export(folder, tmp_path / "out", dtype="bf16"))[1]
    assert {name: float(array[0]) for name, array in back.items()} == {
        "state_normaliser/offset": offset[0],
        "frame/displacements": offset[0],
        "w/b": 17.25,
    }


def test_an_export_does_not_hide_what_does_not_fit(tmp_path):
    (tmp_path / "a").mkdir()
    large = {"w": np.array([1e6], np.float32)}
    folder = tmp_path / "a" / "b"
    checkpoint.save(folder, make_document(), step=1, model=large, state={}, environment={})
    with pytest.raises(CheckpointError, match="w holds 1 values that are not finite"):
        loading.export(folder, tmp_path / "out", dtype="fp16")
    assert not (tmp_path / "out").exists()


def test_bad_requests_are_named(run, tmp_path):
    with pytest.raises(ConfigError, match="int8"):
        loading.export(run, tmp_path / "out", dtype="int8")
    with pytest.raises(ConfigError, match="shard_mb"):
        loading.export(run, tmp_path / "out", shard_mb=0)
    (tmp_path / "out").mkdir()
    with pytest.raises(CheckpointError, match="already there"):
        loading.export(run, tmp_path / "out", seed=0)
    with pytest.raises(CheckpointError, match="no such folder"):
        loading.load(tmp_path / "none")


def test_an_export_of_the_online_weights(toy, tmp_path):
    average, online = (np.full((2, 3), value, np.float32) for value in (1.0, 2.0))
    folder = tmp_path / "run" / "checkpoints" / "step-000000001"
    folder.parent.mkdir(parents=True)
    document, state = make_document(seeds=[4, 5]), {"state/model/w": online}
    checkpoint.save(folder, document, step=1, model={"w": average}, state=state, environment={})
    out = loading.export(folder, tmp_path / "out", weights="online", seed=5)
    np.testing.assert_array_equal(loading.load(out)[1]["w"], online[1])


def test_an_export_of_online_weights_that_are_not_there(toy, run, tmp_path):
    with pytest.raises(CheckpointError, match="no online weights"):
        loading.export(run, tmp_path / "out", weights="online", seed=0)
    assert not (tmp_path / "out").exists()


def test_training_does_not_go_on_from_an_export(run, tmp_path):
    out = loading.export(run, tmp_path / "out", seed=0)
    with pytest.raises(CheckpointError, match="exported weights"):
        checkpoint.read_state(out)
