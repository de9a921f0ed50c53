"""``jumpy demo`` from beginning to end, with next to nothing learnt."""

import json

import numpy as np
import pytest

from jumpyworld.cli import demo, parse, run
from jumpyworld.evaluation.planned import Outcomes
from jumpyworld.evaluation.story import most_telling

TINY = demo.Size(2, 2, 2, 2, 1, 20, preset="debug", max_steps=25)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(demo, "FAST", TINY)
    monkeypatch.setattr(
        demo,
        "PLANNING",
        "--horizons 20 20 --search elimination --candidates 4 --rounds 4x2 2x4 --ode-steps 2 "
        "--include-base --warm-start 2 --margin 0.1",
    )


def test_the_demo_tells_the_whole_story_and_goes_on_where_it_stopped(tiny, tmp_path, capsys):
    out = tmp_path / "demo"
    assert run(["demo", "--fast", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for number in range(1, 5):
        assert f"[{number}/4]" in said
    assert said.count("$ jumpy ") == 4 and "compplan" in said and "gpi" in said
    assert (out / "story.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["success"].keys() == {"zero-shot", "gpi", "compplan"}
    assert "diff_ci95" in summary["success"]["compplan"]
    rows = (out / "eval" / "success.jsonl").read_text()
    assert run(["demo", "--fast", "--out", str(out)]) == 0
    again = capsys.readouterr().out
    assert again.count("already in") == 3 and "finished" in again
    assert (out / "eval" / "success.jsonl").read_text() == rows


def test_the_commands_it_prints_are_the_ones_that_a_user_can_type(tmp_path):
    for fast in (True, False):
        for _, words in demo.Demo(out=tmp_path, fast=fast).stages():
            assert hasattr(parse(words), "run")


def test_the_picture_shows_an_episode_that_planning_wins():
    steps = np.full((2, 3), 100)
    never, always = np.zeros((2, 3), bool), np.ones((2, 3), bool)
    planned = never.copy()
    planned[1, 2] = True
    assert most_telling(Outcomes(never, steps), Outcomes(planned, steps)) == (1, 2)
    shorter = steps.copy()
    shorter[0, 1] = 10
    assert most_telling(Outcomes(always, steps), Outcomes(always, shorter)) == (0, 1)
