"""``jumpy train`` and ``jumpy export`` as a user meets them: lines, exit status, files."""

import jax
import numpy as np
import pytest
from tiny_runs import TINY, TINY_MODEL, jumpy, refused, train_gcbc, train_ghm, write_walks

import jumpyworld
from jumpyworld import loading, policies
from jumpyworld.cli.train import GHM
from jumpyworld.cli.train_loop import lost_again
from jumpyworld.data import load
from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.ghm import GeometricHorizonModel

pytestmark = pytest.mark.usefixtures("programs")


@pytest.mark.parametrize("name", policies.ALGORITHMS)
def test_every_policy_trains_and_loads_back(name, data, tmp_path, capsys):
    words = ("--dataset", data, "--out", tmp_path / "run", *TINY, "--steps", 2)
    assert jumpy("train", "policy", name, *words) == 0
    out, error = capsys.readouterr()
    assert out.startswith(f"{tmp_path / 'run'}: 2 steps, ") and out.endswith("; finished\n")
    assert "step-000000002" in out and "loss " in out and out.count("\n") == 1
    assert f"{name}: 2/2 steps" in error
    actions = jumpyworld.load(tmp_path / "run").sample(
        jax.random.key(0), np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    )
    assert actions.shape == (3, 2) and np.isfinite(actions).all()
    found = loading.load_policy(tmp_path / "run")
    assert (found.name, found.domain) == (name, data.stem)
    assert loading.describe(tmp_path / "run")["config"]["hidden"] == [8]
    if name == "hfbc":  # the level whose z is a subgoal has a name of its own
        low = loading.load_policy(f"{tmp_path / 'run'}:low")
        assert type(low.policy) is type(low.whole.low) and low.whole.propose is not None
        assert low.fingerprint == found.fingerprint + ":low" and found.whole is None
    if name == "gcbc":
        with pytest.raises(CheckpointError, match="no low level"):
            loading.load_policy(f"{tmp_path / 'run'}:low")


def test_a_model_trains_and_loads_back(model, straight, data):
    ghm = jumpyworld.load(model)
    s, a = np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)
    samples = ghm.sample(jax.random.key(0), s, a, s, np.full(3, 0.9, np.float32))
    assert samples.shape == (3, 2) and np.isfinite(samples).all()
    assert loading.describe(model)["fingerprints"] == {
        "dataset": load(data).fingerprint(),
        "domain": data.stem,
        "policy": loading.fingerprint(straight),
        "policy_name": "gcbc",
    }


def test_a_world_model_trains_and_loads_back(data, tmp_path, capsys):
    words = ("--dataset", data, "--out", tmp_path / "run", *TINY_MODEL, "--steps", 2)
    assert jumpy("train", "world-model", *words) == 0
    assert "2 steps" in capsys.readouterr().out
    s, a = np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)
    assert jumpyworld.load(tmp_path / "run").sample(jax.random.key(0), s, a).shape == (3, 2)


def test_a_loss_that_ends_far_above_its_best_is_pointed_out(data, tmp_path, capsys):
    def rows(*losses, seed=0):
        return [{"step": i + 1, "seed": seed, "loss": loss} for i, loss in enumerate(losses)]

    assert lost_again([]) == lost_again(rows(3.0, 0.5, 49.0)) == lost_again(rows(None, None)) == []
    assert lost_again(rows(-0.1, 50.0)) == []  # a loss below 0 has no scale
    assert lost_again(rows(0.01, 9.0, 0.02)) == []  # it recovered
    assert lost_again(rows(2.0, 0.003, 0.4)) == []  # a sum that passed near 0
    two = rows(3.0, 0.5, 51.0, seed=7) + rows(1.0, 1.0, 1.0, seed=8)
    (line,) = lost_again(two)
    assert line.startswith("seed 7: the loss was 0.5 at step 2 and is 51 at step 3, ")
    wild = ("--dataset", data, "--out", tmp_path / "run", *TINY_MODEL, "learning_rate=1e3")
    assert jumpy("train", "world-model", *wild, "--steps", 4, "--log-every", 1) == 0
    error = capsys.readouterr().err
    assert f"jumpy: warning: {tmp_path / 'run'}: seed 0: the loss was " in error


def test_two_seeds_train_at_once_and_load_apart(data, straight, tmp_path, capsys):
    assert train_gcbc(data, tmp_path / "run", "--steps", 4, "--num-seeds", 2) == 0
    assert " | " in capsys.readouterr().out
    first, second = (jumpyworld.load(tmp_path / "run", seed=seed) for seed in (0, 1))
    alone = jumpyworld.load(straight)
    leaves = [jax.tree.leaves(policy) for policy in (first, second, alone)]
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(leaves[0], leaves[2], strict=True))
    assert any(not np.allclose(a, b) for a, b in zip(leaves[0], leaves[1], strict=True))
    assert train_ghm(data, tmp_path / "run", tmp_path / "ghm", "--steps", 1) == 2
    refused(capsys, "holds the seeds [0, 1]")
    assert not (tmp_path / "ghm").exists()


def test_a_model_may_start_from_another(model, data, straight, tmp_path, capsys):
    out, words = tmp_path / "tuned", ("--steps", 1, "--start-from", model)
    assert train_ghm(data, straight, out, *words) == 0
    assert loading.describe(out)["fingerprints"]["start"] == loading.fingerprint(model)
    capsys.readouterr()
    words = ("--steps", 1, "--start-from", straight)
    assert train_ghm(data, straight, tmp_path / "other", *words) == 2
    refused(capsys, "no geometric horizon model")
    assert not (tmp_path / "other").exists()


def test_an_export_loads_as_the_run_does(model, tmp_path, capsys):
    words = ("--shard-mb", 0.005, "--dtype", "fp32")
    assert jumpy("export", model, "--out", tmp_path / "w", *words) == 0
    assert "complete" in capsys.readouterr().out
    assert len(list((tmp_path / "w").glob("*.safetensors"))) > 1
    assert loading.fingerprint(tmp_path / "w") == loading.fingerprint(model)
    assert jumpy("export", model, "--out", tmp_path / "online", "--weights", "online") == 0
    assert loading.fingerprint(tmp_path / "online") != loading.fingerprint(model)
    assert isinstance(jumpyworld.load(tmp_path / "online"), GeometricHorizonModel)
    assert jumpy("export", model, "--out", tmp_path / "w") == 2
    refused(capsys, "already there")
    assert jumpy("export", tmp_path / "none", "--out", tmp_path / "v") == 2
    refused(capsys, "no such folder")
    assert not (tmp_path / "v").exists()


def test_scripted_policies_and_td_flow(data, capsys, tmp_path):
    words = {"dataset": data, "out": tmp_path, "preset": "debug"}
    job = GHM(policy="scripted:3", objective="td-flow", **words).job(load(data))
    assert job.config.hc_fraction == 0 and job.data[1].reach == 3
    assert job.fingerprints["policy_name"] == "scripted:3"
    free = GHM(policy="scripted", **words).job(load(data))
    assert free.config.hc_fraction == 0.25
    assert free.fingerprints["policy"] != job.fingerprints["policy"]
    with pytest.raises(ConfigError, match="not cube-1"):
        loading.load_policy("scripted", "cube-1")
    with pytest.raises(ConfigError, match="not antmaze-medium"):
        loading.load_policy("scripted", "antmaze-medium")


def test_a_policy_of_another_domain_of_the_same_shape_is_pointed_out(
    data, straight, tmp_path, capsys
):
    moved = write_walks(tmp_path / "pointmaze-large-navigate-v0.npz")
    GHM(policy=str(straight), dataset=moved, out=tmp_path, preset="debug").job(load(moved))
    assert "trained on pointmaze-medium-navigate-v0, but" in capsys.readouterr().err


def test_hindsight_says_where_it_is_not_exact(data, straight, tmp_path, capsys):
    def said(policy, *changes):
        words = {"dataset": data, "out": tmp_path, "preset": "debug"}
        GHM(policy=policy, changes=(changes,), **words).job(load(data))
        return capsys.readouterr().err

    imitated = loading.describe(straight)["config"]["discount"]
    assert loading.describe(straight)["kind"] == "gcbc" and imitated != 0.9
    assert said(str(straight), "hindsight=0.1", f"goal_discount={imitated}") == ""
    other = said(str(straight), "hindsight=0.1", "goal_discount=0.9")
    assert f"goals of discount {imitated:g}, here they have goal_discount=0.9" in other
    assert said(str(straight), "goal_discount=0.9") == ""
    assert "hindsight: the targets of scripted" in said("scripted", "hindsight=0.1")
