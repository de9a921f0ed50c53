"""Errors of the library, in the words of whoever typed a command."""

import dataclasses
import importlib
import pkgutil
from pathlib import Path

import pytest

import jumpyworld.cli
from jumpyworld.cli import parse, run
from jumpyworld.cli.flags import in_flags
from jumpyworld.errors import CheckpointError
from jumpyworld.storage import runs

EVAL = "eval --domain pointmaze-medium --policy runs/gcbc --ghm ghm --planner compplan"
TRAIN = "train policy gcbc --dataset data --out run"
FIDELITY = "fidelity --ghm g --policy p --dataset d"


@pytest.mark.parametrize(
    ("words", "library", "told"),
    [
        (f"{EVAL} --discount nan", "discount=nan: must lie in (0, 1)",
         "--discount nan: must lie in (0, 1)"),
        (f"{EVAL} --search elimination --rounds 4x2 8x2", "rounds=((4, 2), (8, 2)): counts grow",
         "--rounds 4x2 8x2: counts grow"),
        (f"{EVAL} --rounds 0x2", "rounds: count=0: must be at least 1",
         "--rounds 0x2: count=0: must be at least 1"),
        (f"{EVAL} --horizons 9 0.5", "horizons[1]=0.5: must be finite",
         "--horizons 0.5: must be finite"),
        (f"{EVAL} --horizons 300", "horizons: 300 steps is beyond; allow_extrapolation=True asks",
         "--horizons 300: 300 steps is beyond; --allow-extrapolation asks"),
        # What was not typed has the value that the library tells.
        (EVAL, "horizons: 300 steps of discount=0.99", "--horizons: 300 steps of --discount 0.99"),
        # The library calls these otherwise.
        (f"{EVAL} --ode-steps 0", "num_steps=0: must be at least 1",
         "--ode-steps 0: must be at least 1"),
        (f"{EVAL} --candidates 0", "GoalProposal: number=0; must be at least 1",
         "--candidates 0: must be at least 1"),
        (f"{TRAIN} --minutes 0", "minutes is 0.0: it must be above 0",
         "--minutes 0: must be above 0"),
        (f"{TRAIN} --keep-steps 0 5", "keep_steps is (0, 5): steps count from 1",
         "--keep-steps 0 5: steps count from 1"),
        ("data generate cube-1 --out x --episodes 0", "episodes must be at least 1, not 0",
         "--episodes 0: must be at least 1"),
        (f"{FIDELITY} --num-pairs 0", "pairs=0: must be at least 2",
         "--num-pairs 0: must be at least 2"),
        (f"{FIDELITY} --num-pairs 5 --pairs random", "pairs='random': the data have none",
         "--pairs random: the data have none"),
        (f"{FIDELITY} --gammas .9 .99 .9", "gammas=[0.9, 0.9, 0.99]: each of them once",
         "--gammas 0.9 0.99 0.9: each of them once"),
        (f"{FIDELITY} --gammas .9 1.5", "gamma=1.5: must lie in [0, 1)",
         "--gammas 1.5: must lie in [0, 1)"),
        # Files are found by what was typed.
        (f"{EVAL} --precedents no/data", "no/data: no such file",
         "--precedents no/data: no such file"),
        (TRAIN, "data: no such file or folder", "--dataset data: no such file or folder"),
        (EVAL, "runs/gcbc: is a ghm", "--policy runs/gcbc: is a ghm"),
    ],
)  # fmt: skip
def test_a_flag_is_named_as_it_was_typed(words, library, told):
    assert in_flags(library, parse(words.split())) == told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (TRAIN, "--set: batch_size=0: must be at least 1"),
        (TRAIN, "runs/seed=3/x: cannot be read"),
        (TRAIN, "seed 3 is not in the file"),
        (TRAIN, "a/data: no such file or folder"),
        ("data inspect there", "there: no such file or folder"),  # it has a place and no name
        ("data inspect there", "path: no such file or folder"),
        # Another thing of the same name than the one that was typed.
        ("bench plan", "rounds=((16, 8), (4, 24)): counts must not grow"),
        ("bench plan --rounds 9", "rounds=((16, 8), (4, 24)): counts must not grow"),
        (f"{EVAL} --discount 0.9", "discount=0.99: must lie in (0, 1)"),
        (f"{TRAIN} --minutes 3", "minutes is 4.0: it must be above 0"),
        # Two flags that may be meant: none is blamed.
        (FIDELITY, "pairs: too few"),
        (FIDELITY, "pairs=0: must be at least 2"),
        ("eval --domain pointmaze-medium --policy x --ghm x", "x: is a gcbc, not a ghm"),
        ("eval --domain pointmaze-medium --policy ghm --ghm ghm", "ghm: is a gcbc, not a ghm"),
    ],
)
def test_all_else_stays_as_it_is(words, message):
    assert in_flags(message, parse(words.split())) == message


# Every command, and a flag of it; a file that has only a place on the command line has no name.
COMMANDS = {
    "bench plan --ghm a": "--ghm a",
    "bench train --out a": "--out a",
    "data convert there a": "a",
    "data generate cube-1 --out a": "--out a",
    "data inspect there --out a": "--out a",
    "data list": "a",
    "data train-expert ant --minutes 9 --out a": "--out a",
    "demo --out a": "--out a",
    f"{EVAL} --precedents a": "--precedents a",
    "export run --out a": "--out a",
    f"{FIDELITY} --picture a": "--picture a",
    "info": "a",
    "report --results a": "--results a",
    "sweep --out a": "--out a",
    "train ghm --dataset data --policy a --out run": "--policy a",
    "train world-model --dataset a --out run": "--dataset a",
    "train policy gcbc --dataset data --out a": "--out a",
    "view there --precedents a": "--precedents a",
}


@pytest.mark.parametrize(("words", "named"), COMMANDS.items())
def test_every_command_can_fail_in_these_words(words, named):
    command = parse(words.split())
    assert in_flags("a: cannot be read", command) == f"{named}: cannot be read"
    assert in_flags("nothing: at all", command) == "nothing: at all"


def test_these_are_all_commands():
    modules = [
        importlib.import_module(f"jumpyworld.cli.{module.name}")
        for module in pkgutil.iter_modules(jumpyworld.cli.__path__)
    ]
    there = {
        each
        for module in modules
        for each in vars(module).values()
        if dataclasses.is_dataclass(each) and hasattr(each, "run")
    }
    # Not those that only lead to others, nor what several have in common.
    no_verbs = {
        each for each in there if "command" in each.__dataclass_fields__ or each.__subclasses__()
    }
    assert {type(innermost(parse(words.split()))) for words in COMMANDS} == there - no_verbs


def innermost(command):
    return innermost(command.command) if hasattr(command, "command") else command


def test_the_command_line_says_it(capsys, tmp_path):
    missing = str(Path(tmp_path) / "missing")
    assert run(["train", "policy", "gcbc", "--dataset", missing, "--out", "x"]) == 2
    said = capsys.readouterr().err
    assert said == f"jumpy: error: --dataset {missing}: no such file or folder\n"
    words = ["train", "policy", "gcbc", "--dataset", missing, "--out", "x", "--minutes", "nan"]
    assert run(words) == 2
    assert capsys.readouterr().err == "jumpy: error: --minutes nan: must be above 0\n"


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--workers 0", "--workers 0: must be at least 1"),
        ("--seed -1", "--seed -1: must not be negative"),
    ],
)
def test_fidelity_names_the_flag_that_is_wrong(flag, told, capsys):
    assert run(f"{FIDELITY} {flag}".split()) == 2
    assert capsys.readouterr().err == f"jumpy: error: {told}\n"


def test_the_refusal_in_the_documentation_is_the_real_one():
    text = Path(__file__).parents[2].joinpath("docs", "training.md").read_text()
    (shown,) = (line for line in text.splitlines() if line.startswith("jumpy: error: "))
    there, here = ({"config": {"gamma_max": value}} for value in (0.996, 0.99))
    with pytest.raises(CheckpointError) as refusal:
        runs.check_same(Path("runs/ghm"), there, here)
    words = "train ghm --dataset data --policy runs/gcbc --out"
    command = parse([*words.split(), "runs/ghm"])
    assert shown == f"jumpy: error: {in_flags(str(refusal.value), command)}"
