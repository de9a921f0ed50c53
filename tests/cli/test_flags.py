"""Errors of the library, in the words of whoever typed a command."""

from pathlib import Path

import pytest

from jumpyworld.cli import parse, run
from jumpyworld.cli.flags import in_flags

EVAL = "eval --domain pointmaze-medium --policy runs/gcbc --ghm ghm --planner compplan"
TRAIN = "train policy gcbc --dataset data --out run"


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
        ("fidelity --ghm g --policy p --dataset d --num-pairs 0", "pairs=0: must be at least 2",
         "--num-pairs 0: must be at least 2"),
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
    ],
)
def test_all_else_stays_as_it_is(words, message):
    assert in_flags(message, parse(words.split())) == message


def test_every_command_can_fail_in_these_words():
    for words in ("demo", "info", "view", "bench plan", "sweep --out x", "report --out x"):
        try:
            command = parse(words.split())
        except SystemExit:
            continue
        assert in_flags("nothing: at all", command) == "nothing: at all"


def test_the_command_line_says_it(capsys, tmp_path):
    missing = str(Path(tmp_path) / "missing")
    assert run(["train", "policy", "gcbc", "--dataset", missing, "--out", "x"]) == 2
    said = capsys.readouterr().err
    assert said == f"jumpy: error: --dataset {missing}: no such file or folder\n"
    words = ["train", "policy", "gcbc", "--dataset", missing, "--out", "x", "--minutes", "nan"]
    assert run(words) == 2
    assert capsys.readouterr().err == "jumpy: error: --minutes nan: must be above 0\n"
