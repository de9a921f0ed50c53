"""``jumpy demo`` from beginning to end, with next to nothing learnt."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jumpyworld.cli import demo, parse, run
from jumpyworld.evaluation.planned import Outcomes
from jumpyworld.evaluation.story import LOOK_EVERY, most_telling, telling_plan

TINY = demo.Size(2, 2, 2, 2, 1, 20, preset="debug", max_steps=25)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(demo, "FAST", TINY)
    monkeypatch.setattr(
        demo,
        "PLANNING",
        "--horizons 20 20 --proposal bridge --when-all-zero candidate --search elimination "
        "--candidates 4 --rounds 4x2 2x4 --ode-steps 2",
    )


def test_the_demo_tells_the_whole_story_and_goes_on_where_it_stopped(
    tiny, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "demo"
    assert run(["demo", "--fast", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for number in range(1, 6):
        assert f"[{number}/5]" in said
    assert said.count("$ jumpy ") == 4 and "compplan" in said and "gpi" in said
    assert (out / "story.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["success"].keys() == {"zero-shot", "gpi", "compplan"}
    assert "diff_ci95" in summary["success"]["compplan"] and summary["resumed"] is False
    rows = (out / "eval" / "success.jsonl").read_text()
    assert run(["demo", "--fast", "--out", str(out)]) == 0
    again = capsys.readouterr().out
    assert again.count("already in") == 3 and "finished" in again
    assert (out / "eval" / "success.jsonl").read_text() == rows
    monkeypatch.chdir(tmp_path)
    exec(readme_python("load, plan, act"), {})
    assert "steps, success:" in capsys.readouterr().out


def readme_python(after):
    """Return the first Python block of the README after some words."""
    readme = Path(__file__).parents[2].joinpath("README.md").read_text()
    return readme.split(after, 1)[1].split("```python\n", 1)[1].split("```", 1)[0]


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


def test_the_picture_shows_a_plan_that_finds_rewards():
    """Values of four candidates along an episode: none, one, three, all."""
    found = {0.0: [0, 0, 0, 0], 1.0: [0, 2, 0, 0], 2.0: [1, 2, 3, 0], 3.0: [1, 1, 1, 1]}

    def planner(key, state, task):
        values = np.asarray(found[float(state[0]) // LOOK_EVERY])
        return SimpleNamespace(candidate_values=values, place=float(state[0]))

    def look(steps):
        trace = SimpleNamespace(states=np.arange(float(steps))[:, None])
        return telling_plan(planner, trace, None, None)

    assert look(4 * LOOK_EVERY)[0] == 2 * LOOK_EVERY  # not the best, but the first that will do
    assert look(2 * LOOK_EVERY)[0] == LOOK_EVERY
    step, plan = look(LOOK_EVERY)
    assert (step, plan.place) == (0, 0.0)
