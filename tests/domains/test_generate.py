"""The generator: same files whoever makes them, whole or absent, and faithful to OGBench."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import ogbench
import pytest

from jumpyworld import domains
from jumpyworld.domains.envs import set_state
from jumpyworld.domains.generate import runner
from jumpyworld.domains.generate.episodes import episode_generator, episode_maker
from jumpyworld.domains.generate.runner import Request, generate
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.storage.files import sha256_file


def small(alias, *, episodes=3, steps=40, seed=0):
    return replace(Request.make(domains.get(alias), seed, episodes), steps=steps)


def digests(folder):
    return {path.name: sha256_file(path) for path in sorted(folder.iterdir())}


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


COMMAND = [
    sys.executable, "-m", "jumpyworld.cli", "data", "generate", "pointmaze-medium",
    "--episodes", "24", "--workers", "2", "--seed", "4", "--out",
]  # fmt: skip


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_killed_runs_continue_to_the_same_files(tmp_path):
    """Three kills at random moments; workers go down with their parent, parts are kept."""
    rng = np.random.default_rng(0)
    killed = tmp_path / "killed"
    for _ in range(3):
        process = subprocess.Popen(
            [*COMMAND, killed], stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(rng.uniform(1.0, 3.0))
        process.send_signal(signal.SIGKILL)  # the parent alone: its workers must notice
        process.wait()
        deadline = time.monotonic() + 20
        while alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not alive(process.pid), "workers outlived their parent"
        for path in killed.glob("*.npz"):
            np.load(path)["terminals"]  # under a final name there is a whole file or none
    subprocess.run([*COMMAND, killed], check=True, stderr=subprocess.DEVNULL)
    generate(Request.make(domains.get("pointmaze-medium"), 4, 24), tmp_path / "whole", workers=1)
    assert digests(killed) == digests(tmp_path / "whole")


def test_ctrl_c_keeps_what_was_made(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, tmp_path], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".*/train-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues" in errors and "Traceback" not in errors
    assert list(tmp_path.glob(".*/train-*")) and not list(tmp_path.glob("*.npz"))


def test_a_damaged_part_is_made_again(tmp_path, monkeypatch):
    generate(small("pointmaze-medium"), tmp_path / "whole", workers=1)
    monkeypatch.setattr(runner, "_assemble", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        generate(small("pointmaze-medium"), tmp_path / "again", workers=1)
    monkeypatch.undo()
    parts = sorted((tmp_path / "again").glob(".*/train-*"))
    assert len(parts) == 3
    parts[0].write_bytes(parts[0].read_bytes()[:-100])
    damaged = bytearray(parts[1].read_bytes())
    damaged[300] ^= 1
    parts[1].write_bytes(damaged)
    generate(small("pointmaze-medium"), tmp_path / "again", workers=1)
    assert digests(tmp_path / "again") == digests(tmp_path / "whole")


def test_a_full_disk_leaves_no_file_under_the_final_name(tmp_path, monkeypatch):
    import jumpyworld.storage.npz as npz

    write = npz._write_blocks

    def full(_, name, column):
        if name == "qvel":
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x"))
        write(_, name, column)

    monkeypatch.setattr(npz, "_write_blocks", full)
    with pytest.raises(DataError, match="cannot write the data set: No space left on device"):
        generate(small("pointmaze-medium"), tmp_path, workers=1)
    assert [p.name for p in tmp_path.iterdir()] == [".pointmaze-medium-navigate-v0.parts"]
    monkeypatch.undo()
    generate(small("pointmaze-medium"), tmp_path, workers=1)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_real_limit_on_file_size_is_one_clear_line(tmp_path):
    """The system itself refuses to write on, as it does on a full disk or over a quota."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
    run = f"{limit} from jumpyworld.cli import main; main(sys.argv[1:])"
    command = [
        sys.executable, "-c", run, "data", "generate", "pointmaze-medium",
        "--episodes", "1", "--workers", "1", "--out", tmp_path,
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("jumpy: error:") and "cannot write" in last
    assert not list(tmp_path.glob("*.npz"))


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
    with pytest.raises(DataError, match="missing or damaged"):
        generate(small("pointmaze-medium", seed=1), tmp_path, workers=1)
    path.with_suffix(".json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        generate(small("pointmaze-medium", seed=1), tmp_path, workers=1)


def test_two_processes_do_not_make_the_same_set(tmp_path):
    request = small("pointmaze-medium")
    with (
        runner._lock(tmp_path / f".{request.domain}.parts"),
        pytest.raises(DataError, match="another process"),
    ):
        generate(request, tmp_path, workers=1)


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


# How the data look: bounds around the figures of 20 + 2 episodes made with OGBench's own scripts.


def test_point_navigation_looks_like_ogbenchs():
    domain = domains.get("pointmaze-medium")
    maker = episode_maker(domain, 1001, domain.collection.noise)
    episodes = [maker(episode_generator(0, "train", i)) for i in range(20)]
    xy = np.concatenate([e.observations for e in episodes])
    actions = np.concatenate([e.actions for e in episodes])
    visited = {domain.grid.cell_of(p) for p in xy}
    assert visited == set(domain.grid.free_cells)
    assert not domain.grid.in_wall(xy).any()
    step = np.mean([np.linalg.norm(np.diff(e.observations, axis=0), axis=1) for e in episodes])
    assert step == pytest.approx(0.191, abs=0.006)
    assert (np.abs(actions) >= 1).mean() == pytest.approx(0.278, abs=0.015)
    assert np.mean([e.goals_reached for e in episodes]) > 5


def test_cube_play_looks_like_ogbenchs():
    domain = domains.get("cube-1")
    maker = episode_maker(domain, 1001, domain.collection.noise)
    episodes = [maker(episode_generator(0, "train", i)) for i in range(3)]
    cubes = [domain.cube_positions(e.observations)[:, 0] for e in episodes]
    moving = np.mean([np.linalg.norm(np.diff(c, axis=0), axis=1) > 1e-3 for c in cubes])
    lifted = np.mean([c[:, 2] > 0.03 for c in cubes])
    assert moving == pytest.approx(0.468, abs=0.05)
    assert lifted == pytest.approx(0.387, abs=0.05)
    assert all(9 <= e.goals_reached <= 13 for e in episodes)
    assert np.abs(np.concatenate([e.actions for e in episodes])).max() <= 1


@pytest.mark.parametrize("alias", ["pointmaze-large", "antmaze-large", "cube-2"])
def test_an_episode_is_what_the_real_environment_does(alias):
    """From the same reset, ``env.step`` with the stored actions gives exactly the stored episode."""
    domain = domains.get(alias)
    maker = episode_maker(domain, 300, domain.collection.noise)
    episode = maker(episode_generator(2, "val", 1))
    maker.reset(episode_generator(2, "val", 1))
    for t in range(299):
        observation = maker.env.step(episode.actions[t])[0]
        np.testing.assert_array_equal(np.float32(observation), episode.observations[t + 1])


# Replay: the stored simulator state and action give the stored next observation.

REPLAYS = {
    "pointmaze": (["pointmaze-medium", "pointmaze-large", "pointmaze-giant"], 1e-5, 1e-4),
    "antmaze": (["antmaze-medium", "antmaze-large", "antmaze-giant"], 1e-5, 1e-2),
    "cube": (["cube-1", "cube-2", "cube-3", "cube-4"], 1e-4, 5e-2),
}


def well_conditioned(domain, observation):
    """Leave out the yaw of a cube that lies on its side: there yaw and roll turn about one axis,
    and a rounding error swings it by any angle (the quaternion, which is kept, says it all)."""
    keep = np.ones(domain.observation_dim, bool)
    for i in range(domain.num_cubes if isinstance(domain, domains.CubeDomain) else 0):
        w, x, y, z = observation[19 + 9 * i + 3 : 19 + 9 * i + 7]
        if abs(2 * (w * y - z * x)) > 0.99:
            keep[19 + 9 * i + 7 : 19 + 9 * i + 9] = False
    return keep


@pytest.mark.parametrize("family", REPLAYS)
def test_stored_transitions_replay(family):
    """1,000 transitions a family. The stored state is float32 and lacks the contact solver's warm
    start, so the first error is about 1e-7; contacts that open or close within the step amplify it.
    """
    aliases, usual, worst = REPLAYS[family]
    rng = np.random.default_rng(0)
    errors = []
    for alias in aliases:
        domain = domains.get(alias)
        count = -(-1000 // len(aliases))
        episode = episode_maker(domain, count + 2, domain.collection.noise)(
            episode_generator(0, "train", 0)
        )
        env = domain.make_env(0, terminate_at_goal=False)
        env.reset(options={"task_id": 1})
        for t in rng.permutation(np.arange(1, count + 1)):
            set_state(env, episode.qpos[t], episode.qvel[t])
            error = np.abs(env.unwrapped.step(episode.actions[t])[0] - episode.observations[t + 1])
            errors.append(error[well_conditioned(domain, episode.observations[t + 1])].max())
    errors = np.array(errors)
    assert len(errors) >= 1000
    print(family, np.quantile(errors, [0.5, 0.9, 0.97, 0.99, 1]))
    assert np.quantile(errors, 0.97) < usual, np.quantile(errors, [0.5, 0.9, 0.97, 0.99, 1])
    assert errors.max() < worst, np.sort(errors)[-5:]
