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
from scipy.stats import chisquare, kstest

from jumpyworld import domains
from jumpyworld.domains.envs import set_state
from jumpyworld.domains.generate import play, runner
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


def parts_of(folder):
    """Episodes made so far, by name, with what identifies the very file."""
    # By their first letter: a temporary file, whose name begins with a dot, may vanish at any time.
    stats = {path.name: path.stat() for path in folder.glob(".*.parts/[tv]*-0*")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def test_killed_runs_continue_to_the_same_files(tmp_path):
    """Three kills, each after some further episodes; workers go down with their parent, and no
    episode that was there is made again."""
    killed = tmp_path / "killed"
    kept = {}
    for wanted in (3, 9, 15):
        process = subprocess.Popen(
            [*COMMAND, killed], stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while len(parts_of(killed)) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)  # the parent alone: its workers must notice
        process.wait()
        while alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not alive(process.pid), "workers outlived their parent"
        assert not list(killed.glob("*.npz"))
        now = parts_of(killed)
        assert len(now) >= wanted and kept.items() <= now.items()
        kept = now
    subprocess.run([*COMMAND, killed], check=True, stderr=subprocess.DEVNULL)
    generate(Request.make(domains.get("pointmaze-medium"), 4, 24), tmp_path / "whole", workers=1)
    assert digests(killed) == digests(tmp_path / "whole")


def test_a_kill_while_the_final_file_is_written_leaves_nothing_in_the_end(tmp_path):
    code = (
        "import os, signal, sys\n"
        "import jumpyworld.storage.npz as npz\n"
        "write = npz._write_blocks\n"
        "def die(w, name, column):\n"
        "    write(w, name, column)\n"
        "    if name == 'qvel': os.kill(os.getpid(), signal.SIGKILL)\n"
        "npz._write_blocks = die\n"
        "from jumpyworld.cli import main\n"
        "if __name__ == '__main__': main(sys.argv[1:])\n"
    )
    script = tmp_path / "die.py"
    script.write_text(code)
    out = tmp_path / "out"
    command = ["data", "generate", "pointmaze-medium", "--episodes", "2", "--out", str(out)]
    killed = subprocess.run([sys.executable, script, *command], stderr=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL
    assert list(out.glob(".*.tmp")) and not list(out.glob("*.npz"))
    generate(Request.make(domains.get("pointmaze-medium"), 0, 2), out, workers=1)
    assert len(list(out.iterdir())) == 3


def test_ctrl_c_keeps_what_was_made(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, tmp_path], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".*/train-0*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # an impatient user
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
        runner._lock(tmp_path / f".{request.domain}.lock"),
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


def test_settings_are_ogbenchs():
    """Noise, smoothing and stacking as in OGBench's generation commands."""
    noise = {d.alias.rpartition("-")[0]: d.collection.noise for d in domains.DOMAINS}
    assert noise == {"pointmaze": 0.5, "antmaze": 0.2, "cube": 0.1}
    assert play.NOISE_SMOOTHING == 0.5
    assert play.STACKING == {1: (0, 0), 2: (0, 0.25), 3: (0.05, 0.35), 4: (0.1, 0.5)}


def test_training_and_validation_are_different_episodes(tmp_path):
    generate(small("pointmaze-medium", episodes=10, steps=5), tmp_path, workers=1)
    name = "pointmaze-medium-navigate-v0"
    train = np.load(tmp_path / f"{name}.npz")["observations"][::5]
    val = np.load(tmp_path / f"{name}-val.npz")["observations"][::5]
    assert len(np.unique(np.concatenate([train, val]), axis=0)) == 11


def test_starts_and_goals_are_drawn_as_ogbench_draws_them():
    """Starts: any free cell alike, up to a metre off its centre; goals: the same of junctions."""
    domain = domains.get("pointmaze-medium")
    grid = domain.grid
    maker = episode_maker(domain, 1, domain.collection.noise)
    starts = np.array(
        [maker(episode_generator(0, "train", i)).observations[0] for i in range(1300)]
    )
    goals = np.array([maker._draw_goal(np.random.default_rng(i))[:2] for i in range(1300)])
    for points, cells in ((starts, grid.free_cells), (goals, grid.junction_cells)):
        found = [grid.cell_of(p) for p in points]
        counts = np.array([found.count(cell) for cell in cells])
        assert counts.sum() == 1300, "no other cells"
        assert chisquare(counts).pvalue > 0.001
        offset = points - np.array([grid.centre_of(cell) for cell in found])
        assert 0.95 < np.abs(offset).max() <= 1.0
        assert kstest(offset.ravel(), "uniform", args=(-1, 2)).pvalue > 0.001


def test_ant_navigation_looks_right():
    """Around the figures of the 1M set in results/data-sets.jsonl: 1.73 m/s, 12.8 % saturated."""
    domain = domains.get("antmaze-medium")
    maker = episode_maker(domain, 1001, domain.collection.noise)
    episodes = [maker(episode_generator(0, "train", i)) for i in range(4)]
    steps = [np.linalg.norm(np.diff(e.observations[:, :2], axis=0), axis=1) for e in episodes]
    assert np.mean(steps) * 10 == pytest.approx(1.73, abs=0.35)
    assert np.mean([np.abs(e.actions) >= 1 for e in episodes]) == pytest.approx(0.128, abs=0.03)
    assert sum(e.goals_reached for e in episodes) >= 8


def test_cubes_are_stacked_as_often_as_asked(monkeypatch):
    """Two cubes, targets always (or never) on top of the other: stacks appear (or do not)."""
    domain = domains.get("cube-2")
    maker = episode_maker(domain, 700, domain.collection.noise)
    stacked = []
    for share in (0.0, 1.0):
        monkeypatch.setitem(play.STACKING, 2, (share, share))
        heights = domain.cube_positions(maker(episode_generator(1, "train", 0)).observations)
        # The first target of an episode is drawn by the scene's own reset, before the share.
        resting = np.abs(heights[200:, :, 2] - 0.06) < 0.003
        stacked.append(resting.any(-1).mean())
    assert stacked[0] < 0.1 < stacked[1], stacked


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
    """From one reset, ``env.step`` with the stored actions gives exactly the stored episode."""
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
def test_stored_transitions_replay(family, tmp_path):
    """1,000 random transitions a family, of files as OGBench's loader reads them.

    States are stored in float32, so an error of 1e-7 enters; contacts that open or close within the
    step amplify it in a few transitions. Hence one tolerance for 99 % of them and one for all.
    A cube episode's first state is apart: cubes are put exactly onto the table, or into each
    other, where rounding decides when they first touch.
    """
    aliases, usual, worst = REPLAYS[family]
    rng = np.random.default_rng(0)
    steps, errors, first_errors = 140, [], []
    for alias in aliases:
        domain = domains.get(alias)
        path = generate(small(alias, episodes=3, steps=steps), tmp_path / alias, workers=1)
        stored, _ = ogbench.make_env_and_datasets(
            domain.name, dataset_path=str(path), dataset_only=True, add_info=True
        )
        env = domain.make_env(0, terminate_at_goal=False)
        env.reset(options={"task_id": 1})
        for i in rng.choice(3 * (steps - 1), 12 + -(-1000 // len(aliases)), replace=False):
            first = i % (steps - 1) == 0
            set_state(env, stored["qpos"][i], stored["qvel"][i], at_reset=first)
            observation = env.unwrapped.step(stored["actions"][i])[0]
            error = np.abs(observation - stored["next_observations"][i])
            worst_error = error[well_conditioned(domain, stored["next_observations"][i])].max()
            (first_errors if first else errors).append(worst_error)
    errors = np.array(errors)
    assert len(errors) >= 1000
    print(family, np.quantile(errors, [0.5, 0.9, 0.97, 0.99, 1]))
    assert np.quantile(errors, 0.99) < usual, np.quantile(errors, [0.5, 0.9, 0.97, 0.99, 1])
    assert errors.max() < worst, np.sort(errors)[-5:]
    assert max(first_errors) < (1.0 if family == "cube" else 1e-5), first_errors
