import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from checkpoint_samples import ENVIRONMENT, make_arrays, make_document, save_step

from jumpyworld.errors import CheckpointError
from jumpyworld.storage import checkpoint, manifest
from jumpyworld.storage.tensors import digest, write_tensors

MEMORY = """
import resource, sys
import numpy as np
from pathlib import Path
sys.path.append(sys.argv[2])
from checkpoint_samples import ENVIRONMENT, make_document
from jumpyworld.storage import checkpoint

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = peak()
state = {f"w{i}": np.full(2**22, i, np.float32) for i in range(6)}  # 6 x 16 MB
size = sum(a.nbytes for a in state.values())
model = {"w0": state["w0"]}
folder = Path(sys.argv[1])
checkpoint.save(folder, make_document(), step=1, model=model, state=state, environment=ENVIRONMENT)
saved = peak()
del state, model
checkpoint.read_state(folder)
print((saved - before) / size, (peak() - before) / size)
"""


def test_a_checkpoint_comes_back_bit_for_bit(folder):
    found, document, arrays = checkpoint.read_state(folder)
    assert digest(arrays) == digest(make_arrays(1))
    assert arrays["half"].dtype == ml_dtypes.bfloat16 and arrays["step"].shape == ()
    assert document == make_document()
    assert (found.step, found.kind, found.environment) == (1, "toy", ENVIRONMENT)
    document, weights = checkpoint.read(folder)
    assert digest(weights) == digest({"w": make_arrays(1)["layers/0/weight"]})
    assert checkpoint.verify(folder) == found


def test_the_manifest_says_what_the_design_promises(folder):
    body = json.loads((folder / "manifest.json").read_text())
    assert body["files"].keys() == {"config.json", "model.safetensors", "train_state.safetensors"}
    entry = body["files"]["train_state.safetensors"]
    assert entry["size"] == (folder / "train_state.safetensors").stat().st_size
    cell = entry["tensors"]["layers/0/weight"]
    assert cell == {"dtype": "float32", "model_dtype": "float32", "shape": [8, 4]}
    assert body["fingerprints"] == {"dataset": "d0", "policy": None}
    environment = manifest.environment()
    assert {"jax", "jaxlib", "numpy", "jumpyworld", "python"} <= environment["versions"].keys()
    assert environment["prng"] == {"impl": "threefry2x32", "threefry_partitionable": True}


def test_other_tools_read_the_arrays(tmp_path):
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([True]),
        "c": np.int64(5),
    }
    write_tensors(tmp_path / "x.safetensors", arrays)
    found = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert digest(found) == digest(arrays)


def test_equal_states_give_equal_bytes(tmp_path):
    first, second = save_step(tmp_path / "a", 3), save_step(tmp_path / "b", 3)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["layers/0/weight", "half"])
def test_what_is_not_finite_is_never_written(tmp_path, value, name):
    arrays = make_arrays()
    arrays[name].flat[1] = value
    with pytest.raises(CheckpointError, match=f"{name} holds 1 values that are not finite"):
        checkpoint.save(tmp_path / "x", make_document(), step=1, model={}, state=arrays)
    assert not list(tmp_path.iterdir())


def test_a_dtype_without_a_file_form_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="z is complex128"):
        checkpoint.save(
            tmp_path / "x", make_document(), step=1, model={}, state={"z": np.zeros(1, complex)}
        )
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_is_never_written_over(folder):
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(CheckpointError, match="already there"):
        save_step(folder.parents[1], 1)
    assert (folder / "manifest.json").read_bytes() == before


def test_a_full_disk_leaves_the_old_checkpoints(folder):
    run, limits = folder.parents[1], resource.getrlimit(resource.RLIMIT_FSIZE)
    for allowed in (0, 10, 200, 400, 800):
        resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, limits[1]))
        try:
            with pytest.raises(
                CheckpointError, match=r"step-000000002: \d+ bytes could not be saved"
            ):
                save_step(run, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        checkpoint.verify(folder)


@pytest.mark.parametrize("call", ["fsync", "rename", "replace", "mkdir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_an_error_of_the_system_names_the_path(folder, monkeypatch, call, code):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(CheckpointError, match="step-000000002.*" + os.strerror(code)):
            save_step(folder.parents[1], 2)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    checkpoint.verify(folder)


def test_saving_and_loading_need_little_memory(tmp_path):
    script = [sys.executable, "-c", MEMORY, str(tmp_path / "x"), str(Path(__file__).parent)]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    saving, loading = map(float, done.stdout.split())
    assert saving <= 1.3, "the promise is 2.2 times the state"
    assert loading <= 2.2


def test_one_of_several_seeds(tmp_path):
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(3, 2)}
    document = make_document(seeds=[4, 5, 6])
    checkpoint.save(tmp_path / "x", document, step=1, model=arrays, state={}, environment={})
    found, weights = checkpoint.read(tmp_path / "x", seed=5)
    assert weights["w"].tolist() == [2, 3] and found["seeds"] == [5]
    with pytest.raises(CheckpointError, match=r"seeds \[4, 5, 6\]"):
        checkpoint.read(tmp_path / "x")
    with pytest.raises(CheckpointError, match="no seed 7"):
        checkpoint.read(tmp_path / "x", seed=7)


def test_a_fingerprint_is_of_settings_and_weights(folder, tmp_path):
    document, weights = checkpoint.read(folder)
    same = checkpoint.fingerprint(document, weights)
    assert same == checkpoint.fingerprint({**document, "seeds": [9]}, dict(weights))
    assert same != checkpoint.fingerprint({**document, "config": {}}, weights)
    assert same != checkpoint.fingerprint(document, {"w": weights["w"] + 1})
