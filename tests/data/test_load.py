import json

import numpy as np
import pytest

from jumpyworld.data import Dataset, load, ogbench
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.storage import sidecar

NAME = "pointmaze-large-navigate-v0"


def make(seed=0, d=2):
    rng = np.random.default_rng(seed)
    terminals = np.arange(20) % 10 == 9
    return Dataset.from_arrays(rng.normal(size=(20, d)), rng.uniform(-1, 1, (20, 2)), terminals)


def write_folder(folder, name=NAME, domain=NAME, described=True):
    folder.mkdir(exist_ok=True)
    files = {}
    for seed, suffix in enumerate(("", "-val")):
        path = folder / f"{name}{suffix}.npz"
        ogbench.write_npz(path, make(seed))
        files[path.name] = sidecar.file_entry(path)
    if described:
        contents = {"domain": domain, "seed": 0, "versions": {"mujoco": "3"}, "files": files}
        sidecar.write_sidecar(folder / f"{name}.npz", contents)
    return folder


@pytest.mark.parametrize("split", ["train", "val"])
def test_file_folder_and_name_give_the_same(tmp_path, split):
    folder = write_folder(tmp_path / NAME)
    want = make(int(split == "val")).fingerprint()
    for place in (folder / f"{NAME}.npz", folder, str(folder)):
        data = load(place, split=split)
        assert data.fingerprint() == want and data.domain == NAME
        assert data.source.endswith(f"{NAME}{'-val' if split == 'val' else ''}.npz")
    for data_dir in (folder, tmp_path, str(tmp_path)):
        for name in (NAME, "pointmaze-large"):
            assert load(name, split=split, data_dir=data_dir).fingerprint() == want
    assert load(folder / f"{NAME}-val.npz").fingerprint() == make(1).fingerprint()


@pytest.mark.parametrize(
    ("stem", "domain"),
    [
        (NAME, NAME),
        ("scene-play-v0", "scene-play-v0"),
        ("my-robot", None),
        ("pointmaze", None),
        ("pointmaze-large-navigate", None),
    ],
)
def test_domain_from_the_file_name(tmp_path, stem, domain):
    for suffix in ("", "-val"):
        ogbench.write_npz(tmp_path / f"{stem}{suffix}.npz", make())
        assert load(tmp_path / f"{stem}{suffix}.npz").domain == domain


def test_name_of_the_wrong_domain_is_noticed(tmp_path):
    path = tmp_path / f"{NAME}.npz"
    ogbench.write_npz(path, make(d=3))
    with pytest.raises(DataError, match=f"observations has 3 columns, but {NAME} has 2"):
        load(path)
    assert load(path, allow=("dimensions",)).observation_dim == 3


def test_sidecar_rules_over_the_file_name(tmp_path):
    folder = write_folder(tmp_path / "x", name="mine", domain="pointmaze-giant-navigate-v0")
    assert load(folder).domain == "pointmaze-giant-navigate-v0"


def test_file_that_differs_from_its_sidecar_is_refused(tmp_path):
    folder = write_folder(tmp_path / "x")
    path = folder / f"{NAME}.npz"
    ogbench.write_npz(path, make(seed=5))  # a valid file, another one
    with pytest.raises(DataError, match=rf"{NAME}\.npz: sha256 is .*, but {NAME}\.json records"):
        load(folder)
    assert load(folder, split="val").fingerprint() == make(1).fingerprint()
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DataError, match="bytes is"):
        load(folder)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "not a JSON object"),
        ("{}", "lacks the key 'domain'"),
        ('{"domain": 3, "seed": 0, "versions": {}, "files": {}}', "domain is 3"),
        ('{"domain": "a", "seed": 0, "versions": {}, "files": []}', "files must map"),
        ('{"domain": "a", "seed": 0, "versions": {}, "files": {"x": 1}}', "files must map"),
        ('{"domain": "a", "seed": 0, "versions": {}, "files": {}}', "not listed"),
        ("[" * 100_000, "cannot be read"),
        (" " * (2**20 + 1), "longer than"),
        ("\udcff", "cannot be read"),
    ],
)
def test_damaged_sidecar(tmp_path, text, match):
    folder = write_folder(tmp_path / "x")
    (folder / f"{NAME}.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=match) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_sidecar_is_written_whole_or_not_at_all(tmp_path):
    contents = {"domain": None, "seed": 1, "versions": {}, "files": {}}
    sidecar.write_sidecar(tmp_path / "a.json", contents)
    assert json.loads((tmp_path / "a.json").read_text()) == contents
    for bad in (contents | {"seed": float("nan")}, contents | {"seed": object()}, {"seed": 1}):
        with pytest.raises(DataError):
            sidecar.write_sidecar(tmp_path / "b.json", bad)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_what_cannot_be_found(tmp_path):
    with pytest.raises(DataError, match="folder; `jumpy data generate antmaze-large"):
        load("antmaze-large")
    with pytest.raises(DataError, match=r"antmaze-large or antmaze-large-navigate-v0\.npz"):
        load("antmaze-large", data_dir=tmp_path)
    for name in ("../secret", str(tmp_path / "none.npz"), "", "a/b.npz", "a\0b", "nul\n"):
        with pytest.raises(DataError):
            load(name, data_dir=tmp_path / "sub")
    with pytest.raises(DataError, match="exactly one dataset in the folder, found none"):
        load(tmp_path)
    (tmp_path / "set.txt").write_text("x")
    with pytest.raises(DataError, match=r"is none of \.npz, \.hdf5, \.h5"):
        load(tmp_path / "set.txt")
    write_folder(tmp_path, name="a", described=False)
    (tmp_path / "a-val.npz").unlink()
    with pytest.raises(DataError, match=r"a-val\.npz: no such file"):
        load(tmp_path, split="val")
    write_folder(tmp_path, name="b", described=False)
    with pytest.raises(DataError, match=r"exactly one .* found a\.npz, b\.npz"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="split='test'"):
        load(tmp_path, split="test")
    with pytest.raises(ConfigError, match="allow"):
        load(tmp_path, allow=("anything",))


def test_unreadable_file_names_the_reason(tmp_path):
    path = tmp_path / "set.npz"
    path.mkdir()
    with pytest.raises(DataError, match="exactly one"):
        load(path)
    with pytest.raises(DataError, match=r"Is a directory|Permission"):
        ogbench.read_npz(path)
    with pytest.raises(DataError, match="No such file"):
        sidecar.file_entry(tmp_path / "none")
