"""``jumpy demo`` from beginning to end, with next to nothing learnt."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.cli import demo, parse, run
from jumpyworld.evaluation.planned import Outcomes
from jumpyworld.evaluation.story import most_telling, replay, telling_plan
from jumpyworld.evaluation.success import evaluate
from jumpyworld.planning import ZeroShot
from jumpyworld.policies import ScriptedGoalPolicy

TINY = demo.Size(
    2, 2, 2, 2, 1, 20, preset="debug", max_steps=25,
    search="--search elimination --candidates 4 --rounds 4x2 2x4",
)  # fmt: skip


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(demo, "FAST", TINY)
    monkeypatch.setattr(
        demo,
        "PLANNING",
        "--horizons 20 20 --proposal bridge --when-all-zero candidate --ode-steps 2",
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
    values = [[0, 0, 0, 0], [0, 2, 0, 0], [1, 2, 3, 0], [1, 1, 1, 1]]
    plans = [SimpleNamespace(candidate_values=np.asarray(found)) for found in values]
    assert telling_plan(plans) == 2  # not the best, but the first that will do
    assert telling_plan(plans[:2]) == 1
    assert telling_plan(plans[:1]) == 0


def test_the_picture_shows_the_episode_that_was_counted():
    domain = domains.get("pointmaze-medium")
    planner = ZeroShot(ScriptedGoalPolicy(domain.grid, noise=0.5))
    told = {"seed": 3, "replan_every": 2, "max_steps": 40}
    counted = evaluate(domain, planner, episodes=2, tasks=[2], workers=1, record=2, **told)
    trace, plans = replay(domain, planner, 2, 1, **told)
    np.testing.assert_allclose(trace.states, counted.traces[1].states, atol=1e-5)
    np.testing.assert_array_equal(trace.goal, counted.traces[1].goal)
    assert trace.success == counted.traces[1].success
    assert trace.plan_steps == counted.traces[1].plan_steps and len(plans) == 20
