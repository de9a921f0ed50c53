"""What ``jumpy train`` refuses, each in one line, and what its flags mean."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import TINY, contents, jumpy, refused

from jumpyworld import policies
from jumpyworld.cli.train import GHM, Policy, WorldModel
from jumpyworld.cli.train_loop import TrainCommand, read_changes
from jumpyworld.storage import runs
from jumpyworld.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("programs")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hiden=[8]"], "GCBCConfig has no field 'hiden': did you mean hidden?"),
        (["zzz=1"], "GCBCConfig has no field 'zzz': it has hidden, batch_size"),
        (["batch_size=2.5"], "--set.batch_size: 2.5 is not int"),
        (["batch_size=many"], "--set.batch_size: 'many' is not int"),
        (["learning_rate=NaN"], "--set.learning_rate: 'NaN' is not float"),
        (["hidden=8"], "--set.hidden: 8 is not a list in brackets of int"),
        (["hidden=8,8"], "--set.hidden: '8,8' is not a list in brackets of int"),
        (["hidden=[]"], "hidden=(): must be one or more widths of at least 1"),
        (["normalise=sometimes"], "--set.normalise: 'sometimes' is not"),
        (["discount=1"], "discount=1.0: must be in [0, 1)"),
        (["batch_size"], "--set batch_size: must be FIELD=VALUE"),
        (["batch_size=2", "batch_size=3"], "--set batch_size: given twice"),
    ],
)
def test_a_bad_setting_is_one_line(words, message, data, tmp_path, capsys):
    words = ("--dataset", data, "--out", tmp_path / "run", "--set", *words)
    assert jumpy("train", "policy", "gcbc", "--preset", "debug", *words) == 2
    refused(capsys, message)
    assert not list(tmp_path.iterdir())


def test_numbers_may_be_written_as_the_pages_write_them():
    words = ("hc_fraction=.5", "critic_bias=-.25", "discount=0.9", "name=.x", "sizes=[1,2]")
    assert read_changes(words) == {
        "hc_fraction": 0.5, "critic_bias": -0.25, "discount": 0.9, "name": ".x", "sizes": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy", "gcbd"], "unknown policy 'gcbd': choose one of gcbc"),
        (["policy", "gcbc", "--dataset", "{out}/none.npz"], "none.npz: no such file"),
        (["policy", "gcbc", "--steps", "0"], "--steps 0"),
        (["policy", "gcbc", "--num-seeds", "0"], "--num-seeds 0"),
        (["policy", "gcbc", "--out", "{data}"], "cannot be written"),
        (["policy", "gcbc", "--out", "{straight}/checkpoints/step-000000004"], "not a run folder"),
        (["ghm", "--policy", "{out}/none"], "none: no such folder"),
        (["ghm", "--policy", "{place}"], "neither a run nor a checkpoint"),
        (["ghm", "--policy", "{model}"], "kind 'ghm' is no policy"),
        (["ghm", "--policy", "scripted:x"], "policy scripted:x: REACH counts cells"),
        (["ghm", "--policy", "{straight}", "--policy-seed", "7"], "no seed 7; it holds [0]"),
        (
            ["ghm", "--policy", "{straight}", "--dataset", "{place}/wide.npz"],
            "the policy's observation_dim is 2, but",
        ),
        (
            ["ghm", "--policy", "scripted", "--dataset", "{place}/wide.npz"],
            "policy scripted: needs a pointmaze",
        ),
        (
            ["ghm", "--policy", "scripted", "--set", "z_frame=sideways"],
            "z_frame: 'sideways' is not one of absolute, moving",
        ),
        (
            ["ghm", "--policy", "scripted", "--steps", "9", "--set", "curriculum=0.5"],
            "--steps 9: horizons of --set curriculum=0.5 grow until step 10 of",
        ),
        (
            ["ghm", "--policy", "scripted", "--objective", "td-flow", "--set", "hc_fraction=0.1"],
            "--set hc_fraction=0.1 is not --objective td-flow",
        ),
        (
            ["ghm", "--policy", "scripted", "--set", "hc_fraction=0"],
            "--set hc_fraction=0 is not --objective td-hc",
        ),
        (["world-model", "--dataset", "{out}"], "need exactly one dataset"),
    ],
)
def test_bad_input_is_one_line(words, message, place, data, straight, model, tmp_path, capsys):
    before = contents(place)
    capsys.readouterr()
    places = {"place": place, "data": data, "straight": straight, "model": model, "out": tmp_path}
    words = [word.format(**places) for word in words]
    out = () if "--out" in words else ("--out", tmp_path / "run")
    dataset = () if "--dataset" in words else ("--dataset", data)
    assert jumpy("train", *words, *out, *dataset, "--preset", "debug") == 2
    refused(capsys, message)
    assert not list(tmp_path.iterdir()) and contents(place) == before


@pytest.mark.parametrize(
    ("name", "word", "message"),
    [
        ("crl", "latent_dim=-1", "latent_dim=-1: must be at least 1"),
        ("gctd3", "n_step=3000000000", "n_step=3000000000: must be from 1 to 1000000"),
        ("hfbc", "lookahead=2147483647", "lookahead=2147483647: must be from 1 to 1000000"),
        ("hiql", "high_alpha=-3", "high_alpha=-3.0: must be at least 0"),
        ("gcbc", "learning_rate=1e300", "learning_rate=1e+300: must be above 0 and finite"),
    ],
)
def test_a_setting_out_of_range_is_one_line(name, word, message, data, tmp_path, capsys):
    words = ("--dataset", data, "--out", tmp_path / "run", "--set", word)
    assert jumpy("train", "policy", name, "--preset", "debug", *words) == 2
    refused(capsys, message)
    assert not list(tmp_path.iterdir())


def test_a_run_that_learnt_nothing_is_one_line(data, tmp_path, capsys):
    """The loss overflows at the first step already; the run is too short for four in a row."""
    words = ("--dataset", data, "--out", tmp_path / "run", *TINY, "critic_bias=1e38")
    for _ in range(2):
        assert jumpy("train", "policy", "gctd3", *words, "--steps", 2, "--save-every", 1) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("jumpy: error: seed 0: loss or weights not finite in each of the 2")
        assert not runs.saved_steps(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "steps", "word", "warned"),
    [
        ("policy", 5, "final_lr_fraction=0.1", True),
        ("policy", 20, "final_lr_fraction=0.1", False),
        ("policy", 5, "final_lr_fraction=1", False),
        ("ghm", 5, "final_lr_fraction=0.1", True),
        ("ghm", 5, "final_target_rate=0.001", True),
        ("ghm", 5, "final_lr_fraction=1", False),
        ("world-model", 5, "final_lr_fraction=0.1", True),
        ("world-model", 5, "final_lr_fraction=1", False),
    ],
)
def test_a_fall_that_the_run_does_not_see_is_pointed_out(name, steps, word, warned, capsys):
    """The debug presets have 20 gradient steps."""
    flags = {"dataset": Path("data"), "out": Path("run"), "preset": "debug", "steps": steps}
    flags["changes"] = ((word,),)
    commands = {
        "policy": lambda: Policy(name="gcbc", **flags),
        "ghm": lambda: GHM(policy="scripted", **flags),
        "world-model": lambda: WorldModel(**flags),
    }
    commands[name]().settings(None)
    error = capsys.readouterr().err
    assert error.count("\n") == warned
    if warned:
        assert f"--steps {steps}: rates fall until gradient_steps=20" in error


def test_a_fall_along_steps_that_nobody_knows_is_pointed_out(capsys):
    flags = {"dataset": Path("data"), "out": Path("run"), "policy": "scripted", "minutes": 3}
    GHM(**flags, preset="base").settings(None)
    assert "--minutes 3: rates fall until gradient_steps=60000" in capsys.readouterr().err
    # Constant rates, or as many steps as they fall along: nothing to point out.
    GHM(**flags, preset="small").settings(None)
    GHM(**flags, preset="base", steps=60_000).settings(None)
    assert not capsys.readouterr().err


def test_values_of_settings_are_json_or_words():
    words = ("a=1", "b=1.5", "c=true", "d=null", "e=[1, 2]", "f=moving", 'g="2"', "h=x=y", "i=")
    assert read_changes(words) == {
        "a": 1, "b": 1.5, "c": True, "d": None, "e": [1, 2], "f": "moving", "g": "2", "h": "x=y",
        "i": "",
    }  # fmt: skip


def test_flags_have_the_defaults_of_the_loop():
    ours = {field.name: field.default for field in dataclasses.fields(TrainCommand)}
    theirs = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
    assert theirs.keys() - ours.keys() == {"keep", "chunk"}
    shared = (ours.keys() & theirs.keys()) - {"steps"}
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_help_names_every_policy(capsys):
    with pytest.raises(SystemExit):
        jumpy("train", "policy", "--help")
    text = capsys.readouterr().out
    assert all(name in text for name in policies.ALGORITHMS)


def test_importing_the_package_imports_no_library():
    code = (
        "import sys, jumpyworld\n"
        "assert not {'numpy', 'jax'} & sys.modules.keys()\n"
        "assert jumpyworld.load.__module__ == 'jumpyworld.loading'\n"
        "assert not hasattr(jumpyworld, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
