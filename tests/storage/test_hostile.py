"""Checkpoints made to do harm, with right hashes: an error at once, and nothing happens."""

import json
import os
import pickle
import struct
import sys
import time

import numpy as np
import pytest
from checkpoint_samples import make_document, save_step

from jumpyworld import loading
from jumpyworld.errors import CheckpointError
from jumpyworld.storage import checkpoint, manifest, runs

EVENTS = ("os.system", "subprocess.Popen", "socket.connect", "os.exec", "pickle.find_class")
heard = []
listening = False


def listen(event, _):
    if listening and event in EVENTS:
        heard.append(event)


sys.addaudithook(listen)


class Evil:
    def __reduce__(self):
        return os.system, ("touch canary",)


def reseal(folder, **change):
    """Make the hashes right again, as the author of a hostile checkpoint would."""
    path = folder / "manifest.json"
    body = {**json.loads(path.read_text()), **change}
    del body["sha256"]
    for name, entry in dict(body["files"]).items():
        target = folder / name
        if isinstance(entry, dict) and "/" not in name and target.is_file():
            content = target.read_bytes()
            entry.update(size=len(content), sha256=manifest.hashlib.sha256(content).hexdigest())
    try:
        document = json.loads((folder / "config.json").read_text())
        body["config_sha256"] = manifest.sha256_json(document)
        body["kind"] = change.get("kind", document["kind"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    path.write_text(json.dumps({**body, "sha256": manifest.sha256_json(body)}))


def header(entries, data=b"", length=None):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def cell(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


MODELS = {
    "pickle": pickle.dumps(Evil()),
    "pickle behind a header": header({}, pickle.dumps(Evil())),
    "empty": b"",
    "length alone": struct.pack("<Q", 8),
    "huge header": header({}, length=2**62),
    "header over 100 MB": header(b"{}", length=101 * 2**20),
    "header past the end": header({}, length=50),
    "no JSON": header(b"\xff\xfe{]"),
    "deep JSON": header(b"[" * 100_000),
    "overlap": header({"w": cell(0, 8, [2]), "v": cell(4, 12, [2])}, b"\0" * 12),
    "hole": header({"w": cell(0, 4, [1]), "v": cell(8, 12, [1])}, b"\0" * 12),
    "past the end": header({"w": cell(0, 400, [100])}, b"\0" * 8),
    "backwards": header({"w": cell(8, 0, [2])}, b"\0" * 8),
    "negative": header({"w": cell(0, 8, [-2])}, b"\0" * 8),
    "overflow": header({"w": cell(0, 8, [2**40, 2**40])}, b"\0" * 8),
    "shape and size differ": header({"w": cell(0, 8, [3])}, b"\0" * 8),
    "other dtype": header({"w": cell(0, 128, [8, 4], "I32")}, b"\0" * 128),
    "unknown dtype": header({"w": cell(0, 128, [8, 4], "OBJ")}, b"\0" * 128),
    "eight-bit floats": header({"w": cell(0, 32, [8, 4], "F8_E4M3")}, b"\0" * 32),
    "surplus bytes": header({"w": cell(0, 128, [8, 4])}, b"\0" * 200),
    "two of one name": header(b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},' * 2),
    "a path for a name": header({"../../canary": cell(0, 128, [8, 4])}, b"\0" * 128),
    "an absolute path": header({f"{os.sep}canary": cell(0, 128, [8, 4])}, b"\0" * 128),
    "NUL and right-to-left": header({"w\0\u202e": cell(0, 128, [8, 4])}, b"\0" * 128),
    "many names": header({f"w{i}": cell(0, 0, [0]) for i in range(20_000)}),
    "zip": b"PK\x03\x04" + b"\0" * 60,
}
CONFIGS = {
    "class path": {"kind": "os:system"},
    "module path": {"kind": "jumpyworld.policies.gcbc"},
    "path": {"kind": "../../canary"},
    "empty kind": {"kind": ""},
    "long kind": {"kind": "a" * 10_000},
    "kind of another type": {"kind": ["gcbc"]},
    "config is a list": {"config": ["__reduce__"]},
    "spec is text": {"spec": "import os"},
    "surplus field": {"builder": "os.system"},
    "no seeds": {"seeds": []},
    "seeds twice": {"seeds": [1, 1]},
    "seed is text": {"seeds": ["0"]},
    "newer format": {"format": 2},
    "format is true": {"format": True},
    "fingerprint is an object": {"fingerprints": {"dataset": {}}},
}
TEXTS = {
    "deep": "[" * 200_000,
    "deep object": '{"a":' * 900 + "1" + "}" * 900,
    "not a number": '{"format": NaN}',
    "infinite": '{"format": 1e999}',
    "long number": '{"format": ' + "9" * 5_000 + "}",
    "two of one key": '{"format": 1, "format": 1}',
    "other encoding": '{"format": 1}'.encode("utf-32"),
    "bad bytes": b"\xff\xfe\x00",
    "list": "[]",
    "number": "1",
    "too large": " " * (manifest.JSON_LIMIT + 1),
    "lone surrogate": '{"\\ud800": 1}',
}
MANIFESTS = {
    "path out": {"files": {"../../canary": {"sha256": "0" * 64, "size": 0}}},
    "absolute": {"files": {"/etc/passwd": {"sha256": "0" * 64, "size": 0}}},
    "files is a list": {"files": []},
    "many shards": {"shards": 10**9},
    "shards is true": {"shards": True},
    "negative step": {"step": -1},
    "no environment": {"environment": []},
    "fingerprints differ": {"fingerprints": {"dataset": "other", "policy": None}},
}


def refused(folder, monkeypatch, read=checkpoint.read):
    global listening
    canary = folder.parents[1] / "canary"
    monkeypatch.chdir(folder.parents[1])
    heard.clear()
    # Processor time: how busy the machine is decides nothing.
    began, listening = time.process_time(), True
    try:
        with pytest.raises(CheckpointError) as error:
            read(folder)
    finally:
        listening = False
    assert time.process_time() - began < 1.0
    assert len(str(error.value)) < 1_000 and str(error.value).isprintable()
    assert not heard and not canary.exists()


@pytest.mark.parametrize("name", MODELS)
def test_weights(folder, monkeypatch, name):
    (folder / "model.safetensors").write_bytes(MODELS[name])
    reseal(folder)
    refused(folder, monkeypatch)


@pytest.mark.parametrize("name", CONFIGS)
def test_descriptions(folder, monkeypatch, name):
    (folder / "config.json").write_text(json.dumps({**make_document(), **CONFIGS[name]}))
    reseal(folder)
    refused(folder, monkeypatch)


@pytest.mark.parametrize("file", ["config.json", "manifest.json"])
@pytest.mark.parametrize("name", TEXTS)
def test_json(folder, monkeypatch, file, name):
    text = TEXTS[name]
    (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    if file == "config.json":
        reseal(folder)
    refused(folder, monkeypatch)


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests(folder, monkeypatch, name):
    reseal(folder, **MANIFESTS[name])
    refused(folder, monkeypatch)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "manifest.json"])
@pytest.mark.parametrize("kind", ["link out", "link to nothing", "pipe", "folder", "device"])
def test_files_that_are_none(folder, monkeypatch, file, kind):
    path, outside = folder / file, folder.parents[1] / "outside"
    path.rename(outside)
    if kind == "link out":  # to the right bytes, at that
        path.symlink_to(outside)
    elif kind == "link to nothing":
        path.symlink_to(folder / "nothing")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    refused(folder, monkeypatch)


def test_a_kind_that_no_loader_knows_is_not_looked_up(folder, monkeypatch):
    assert checkpoint.read(folder)[0]["kind"] == "toy"
    refused(folder, monkeypatch, loading.load)
    with pytest.raises(CheckpointError, match="kind 'toy' is not one of gcbc"):
        loading.load(folder)


def test_names_of_arrays_are_never_paths(tmp_path):
    folder = tmp_path / "x"
    checkpoint.save(
        folder,
        make_document(),
        step=1,
        model={"../../canary": np.zeros(1), "/canary": np.zeros(1)},
        state={},
        environment={},
    )
    before = sorted(tmp_path.rglob("*"))
    assert checkpoint.read(folder)[1].keys() == {"../../canary", "/canary"}
    assert sorted(tmp_path.rglob("*")) == before


def test_unlisted_files_are_not_read(folder):
    os.mkfifo(folder / "extra.safetensors")  # reading it would hang
    save_step(folder.parents[1], 2)
    checkpoint.verify(folder)
    checkpoint.read(folder)
    assert runs.resolve(folder) == folder
