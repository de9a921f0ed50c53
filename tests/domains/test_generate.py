"""The generator: same files whoever makes them, and no others in their place."""

import json
import time

import numpy as np
import ogbench
import pytest
from small_sets import digests, small

from jumpyworld import domains
from jumpyworld.domains.generate import runner
from jumpyworld.domains.generate.runner import Request, generate
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.storage.files import lock_file, sha256_file


@pytest.mark.parametrize("domain", domains.DOMAINS, ids=lambda d: d.alias)
def test_every_domain_generates_and_loads_through_ogbench(domain, tmp_path):
    path = generate(small(domain.alias, episodes=2, steps=30), tmp_path, workers=1)
    name = domain.name
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"{name}-val.npz", f"{name}.json", f"{name}.npz"
    ]  # fmt: skip
    train, val = ogbench.make_env_and_datasets(
        name, dataset_path=str(path), dataset_only=True, add_info=True
    )
    assert train["observations"].shape == (58, domain.observation_dim)
    assert train["next_observations"].shape == (58, domain.observation_dim)
    assert train["actions"].shape == (58, domain.action_dim)
    assert val["observations"].shape == (29, domain.observation_dim)
    np.testing.assert_array_equal(np.flatnonzero(train["terminals"]), [28, 57])
    sidecar = json.loads((tmp_path / f"{name}.json").read_text())
    assert sidecar["domain"] == name and sidecar["seed"] == 0
    assert sidecar["files"][path.name]["sha256"] == sha256_file(path)
    assert "mujoco" in sidecar["versions"]


def test_defaults_are_ogbenchs():
    sizes = {d.alias: (d.collection.episodes, d.collection.steps) for d in domains.DOMAINS}
    assert sizes["antmaze-giant"] == (500, 2001)
    assert sizes["cube-4"] == (5000, 1001) and sizes["cube-3"] == (3000, 1001)
    assert sizes["cube-1"] == sizes["cube-2"] == sizes["pointmaze-large"] == (1000, 1001)
    request = Request.make(domains.get("cube-3"))
    assert request.episodes == 3000 and len(request.jobs()) == 3300


@pytest.mark.parametrize("alias", ["pointmaze-medium", "antmaze-medium", "cube-2"])
def test_files_do_not_depend_on_the_number_of_workers(alias, tmp_path):
    request = small(alias, episodes=5, steps=25, seed=3)
    for workers in (1, 2):
        generate(request, tmp_path / str(workers), workers=workers)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


def test_another_seed_gives_other_data_and_more_episodes_only_add(tmp_path):
    generate(small("pointmaze-medium"), tmp_path / "a", workers=1)
    generate(small("pointmaze-medium", seed=1), tmp_path / "b", workers=1)
    generate(small("pointmaze-medium", episodes=5), tmp_path / "c", workers=1)
    a, b, c = (np.load(tmp_path / x / "pointmaze-medium-navigate-v0.npz") for x in "abc")
    assert not np.array_equal(a["observations"], b["observations"])
    np.testing.assert_array_equal(a["observations"], c["observations"][:120])


def test_a_finished_set_is_kept_and_another_is_refused(tmp_path):
    path = generate(small("pointmaze-medium"), tmp_path, workers=1)
    stamp = path.stat().st_mtime_ns
    generate(small("pointmaze-medium"), tmp_path, workers=2)
    assert path.stat().st_mtime_ns == stamp
    with pytest.raises(DataError, match=r"made with seed 0, not 1.*--overwrite"):
        generate(small("pointmaze-medium", seed=1), tmp_path, workers=1)
    generate(small("pointmaze-medium", seed=1), tmp_path, workers=1, overwrite=True)
    assert json.loads(path.with_suffix(".json").read_text())["seed"] == 1
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"navigate-v0\.npz: bytes is"):
        generate(small("pointmaze-medium", seed=1), tmp_path, workers=1)
    path.with_suffix(".json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        generate(small("pointmaze-medium", seed=1), tmp_path, workers=1)


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_processes_do_not_make_the_same_set(tmp_path, overwrite):
    request = small("pointmaze-medium")
    (tmp_path / f".{request.domain}.parts").mkdir()
    with (
        lock_file(tmp_path / f".{request.domain}.lock", wait=False),
        pytest.raises(DataError, match="another process"),
    ):
        generate(request, tmp_path, workers=1, overwrite=overwrite)
    assert (tmp_path / f".{request.domain}.parts").exists()


def test_a_set_from_elsewhere_is_not_replaced(tmp_path):
    foreign = tmp_path / "pointmaze-medium-navigate-v0.npz"
    foreign.write_bytes(b"downloaded")
    with pytest.raises(DataError, match=r"navigate-v0\.npz: is there already.*--overwrite"):
        generate(small("pointmaze-medium"), tmp_path, workers=1)
    assert foreign.read_bytes() == b"downloaded"
    generate(small("pointmaze-medium"), tmp_path, workers=1, overwrite=True)
    assert len(list(tmp_path.iterdir())) == 3


def test_what_cannot_fit_on_the_disk_is_refused_at_once(tmp_path):
    start = time.monotonic()
    with pytest.raises(DataError, match=r"episodes need about .* GB .* are free"):
        generate(small("cube-4", episodes=10**12), tmp_path, workers=1)
    assert time.monotonic() - start < 5
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "bogus")  # the workers import OGBench's scenes afresh
    with pytest.raises(DataError, match=r"cube-single-play-v0: cannot make the environment.*bogus"):
        generate(small("cube-1", episodes=1, steps=5), tmp_path, workers=1)


def test_row_bytes_are_those_of_the_file(tmp_path):
    for alias in ("pointmaze-medium", "antmaze-medium", "cube-2"):
        request = small(alias, episodes=1, steps=10)
        path = generate(request, tmp_path / alias, workers=1)
        arrays = np.load(path)
        assert sum(arrays[key].nbytes for key in arrays) == 10 * domains.get(alias).row_bytes
        assert request.num_bytes == 20 * domains.get(alias).row_bytes


def test_parts_of_another_run_are_not_mixed_in(tmp_path):
    parts = tmp_path / ".pointmaze-medium-navigate-v0.parts"
    parts.mkdir()
    runner._check_parts(small("pointmaze-medium", seed=1), parts)
    with pytest.raises(DataError, match="other settings"):
        generate(small("pointmaze-medium", seed=2), tmp_path, workers=1)


@pytest.mark.parametrize(("field", "value"), [("episodes", 0), ("seed", -1)])
def test_bad_numbers_are_named(field, value):
    with pytest.raises(ConfigError, match=f"{field} must.*{value}"):
        Request.make(domains.get("cube-1"), **{field: value})
