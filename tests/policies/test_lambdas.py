"""``benchmarks/lambdas.py``: members of one training are what they would be alone."""

import dataclasses
import importlib.util
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jumpyworld
from jumpyworld.errors import ConfigError, JumpyError
from jumpyworld.policies import gc1s, gctd3
from jumpyworld.storage.trees import is_array
from jumpyworld.training import TrainingConfig, train

SCRIPT = Path(__file__).parents[2] / "benchmarks/lambdas.py"


@pytest.fixture(scope="module")
def lambdas():
    spec = importlib.util.spec_from_file_location("lambdas", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "algorithm"), [("gc1s", gc1s), ("gctd3", gctd3)])
def test_a_member_takes_the_steps_of_its_own_policy_and_lambda(
    lambdas, walks, quick, name, algorithm
):
    dataset, data, spec = walks
    config = gc1s.GC1SConfig.preset("debug", distill_coefficient=7.0)
    own = {"target_rate": 0.05, "normalise": "standard"}
    member = lambdas.read_member(f"{name}:0.3,target_rate=0.05,normalise=standard")
    job = lambdas.members_job([member], dataset, config)
    key, step_key = jax.random.key(1), jax.random.key(2)
    member, _ = quick(lambda m, k: job.step(m, job.data, k))(job.init(key), step_key)
    alone = {"gc1s": gc1s.GC1SConfig, "gctd3": gctd3.GCTD3Config}[name]
    alone = alone.preset("debug", distill_coefficient=0.3, **own)
    initial = algorithm.init(key, alone, spec)
    want, _ = quick(lambda s, k: algorithm.step(s, data, k, alone))(initial, step_key)
    for got, wanted in zip(jax.tree.leaves(member.state), jax.tree.leaves(want), strict=True):
        if is_array(got):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_each_member_is_exported_under_its_own_name(lambdas, walks, tmp_path):
    members = [lambdas.read_member(x) for x in ("gc1s:0.1", "gctd3:0.4,normalise=standard")]
    config = gc1s.GC1SConfig.preset("debug")
    job = lambdas.members_job(members, walks[0], config)
    train(job, tmp_path, TrainingConfig(steps=2, num_seeds=2, seed=5))
    folders = lambdas.export(tmp_path, 2, members, 5)
    names = ["gc1s-0.1-seed5-000000002", "gctd3-0.4-normalise-standard-seed6-000000002"]
    assert [x.name for x in folders] == names
    state, key = walks[0].observations[0], jax.random.key(0)
    first, second = (jumpyworld.load(folder) for folder in folders)
    assert np.any(first.sample(key, state, state) != second.sample(key, state, state))
    read = [lambdas.checkpoint.read(folder) for folder in folders]
    own = ("distill_coefficient", "normalise")
    told = [(x["kind"], *(x["config"][field] for field in own), x["seeds"]) for x, _ in read]
    assert told == [("gc1s", 0.1, "none", [5]), ("gctd3", 0.4, "standard", [6])]
    for seed, (_, arrays) in zip((5, 6), read, strict=True):
        own = lambdas.checkpoint.read(lambdas.runs.checkpoint_path(tmp_path, 2), seed)[1]
        assert arrays.keys() == own.keys()
        assert all(np.array_equal(arrays[name], own[name]) for name in own)


@pytest.fixture
def command(lambdas, walks, tmp_path, monkeypatch):
    """The whole script on a handful of rows; what it asks to be evaluated is written down."""
    dataset = dataclasses.replace(walks[0], domain="here")
    domain = SimpleNamespace(
        name="here", alias="antmaze-medium", observation_dim=dataset.observation_dim
    )
    monkeypatch.setattr(lambdas.data, "load", lambda _: dataset)
    monkeypatch.setattr(lambdas.domains, "get", lambda _: domain)
    settings = ["gradient_steps=4", "batch_size=8", "hidden=[8]", "flow_steps=2"]

    def run(good, *words, more=(), train=lambdas.train):
        asked = []

        def evaluate(run, folder, *_):
            asked.append(folder.name)
            return good(folder.name)

        monkeypatch.setattr(lambdas, "evaluate", evaluate)
        monkeypatch.setattr(lambdas, "train", train)
        line = ["lambdas.py", "gc1s:0.1", "gctd3:0.4", "--dataset", "D", "--domain", "here"]
        line += ["--out", str(tmp_path / "run"), "--minutes", "9", "--episodes", "1", *words]
        monkeypatch.setattr(lambdas.sys, "argv", [*line, "--set", *settings, *more])
        try:
            lambdas.main()
        finally:
            told.append(asked)

    told = []
    return run, told


def test_every_member_is_scored_and_what_failed_is_taken_up_again(lambdas, command):
    run, told = command
    with pytest.raises(JumpyError, match="an evaluation failed"):
        run(lambda name: name != "gctd3-0.4-seed1-000000002", "--keep-steps", "2")
    names = [
        f"{x}-00000000{step}" for step in (2, 4) for x in ("gc1s-0.1-seed0", "gctd3-0.4-seed1")
    ]
    assert told == [names]
    run(lambda _: True)  # its minutes had ended at step 2, say: no line names that one
    assert sorted(told[1]) == sorted(names)

    def interrupted(*_, **__):
        return SimpleNamespace(step=4, seconds=0.0, status="interrupted")

    with pytest.raises(KeyboardInterrupt):
        run(lambda _: time.sleep(0.3) or True, train=interrupted)
    assert len(told[2]) == 1
    with pytest.raises(ConfigError, match="each member names its own"):
        run(lambda _: True, more=["distill_coefficient=2"])


def test_an_interruption_and_a_path_that_cannot_be_written_are_told(
    lambdas, tmp_path, monkeypatch, capsys
):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(lambdas, "main", interrupted)
    with pytest.raises(SystemExit) as stop:
        lambdas.guarded_main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "lambdas.py: interrupted; the same line goes on\n"
    (tmp_path / "file").touch()
    monkeypatch.setattr(lambdas, "main", lambda: lambdas.remember(tmp_path / "file", []))
    with pytest.raises(SystemExit, match=f"lambdas.py: error: {tmp_path}/file: File exists"):
        lambdas.guarded_main()


def test_a_folder_of_something_else_is_left_as_it_is(lambdas, tmp_path):
    lambdas.remember(tmp_path / "new", ["gc1s:0.1"])
    lambdas.remember(tmp_path / "new", ["gc1s:0.1"])
    with pytest.raises(ConfigError, match=r"has the members \['gc1s:0.1'\], not \['gc1s:0.2'\]"):
        lambdas.remember(tmp_path / "new", ["gc1s:0.2"])
    (tmp_path / "new/members.json").write_text("{")
    with pytest.raises(JumpyError, match=r"members.json: not readable as JSON"):
        lambdas.remember(tmp_path / "new", ["gc1s:0.1"])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"--out {tmp_path}: holds a run of something else"):
        lambdas.remember(tmp_path, ["gc1s:0.1"])
    assert not (tmp_path / "members.json").exists()


@pytest.mark.parametrize("text", ["crl:0.1", "gc1s", "gc1s:-1", "gctd3:inf"])
def test_what_is_no_member_is_refused(lambdas, text):
    with pytest.raises(ConfigError, match=f"member '{text}': must be gc1s:LAMBDA"):
        lambdas.read_member(text)


def test_a_member_names_only_what_differs_under_vmap(lambdas):
    with pytest.raises(ConfigError, match="may name target_rate and normalise alone"):
        lambdas.read_member("gc1s:0.1,discount=0.9")
    with pytest.raises(ConfigError, match=r"member 'gc1s:0.1,': : must be FIELD=VALUE"):
        lambdas.read_member("gc1s:0.1,")
    with pytest.raises(ConfigError, match=r"member .*: target_rate: given twice"):
        lambdas.read_member("gc1s:0.1,target_rate=0.1,target_rate=0.2")
