"""The picture of a plan: which episode, which plan, and that it says what it cannot show."""

from types import SimpleNamespace

import numpy as np
import pytest
from drifting import MEDIUM, compose

from jumpyworld.evaluation import story
from jumpyworld.evaluation.planned import Outcomes
from jumpyworld.evaluation.story import most_telling, replay, telling_plan, unlike_counted
from jumpyworld.evaluation.success import evaluate
from jumpyworld.planning import ZeroShot
from jumpyworld.policies import ScriptedGoalPolicy
from jumpyworld.storage import figures


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
    planner = ZeroShot(ScriptedGoalPolicy(MEDIUM.grid, noise=0.5))
    told = {"seed": 3, "replan_every": 2, "max_steps": 40}
    counted = evaluate(MEDIUM, planner, episodes=2, tasks=[2], workers=1, record=2, **told)
    trace, plans = replay(MEDIUM, planner, 2, 1, **told)
    np.testing.assert_allclose(trace.states, counted.traces[1].states, atol=1e-5)
    np.testing.assert_array_equal(trace.goal, counted.traces[1].goal)
    assert trace.success == counted.traces[1].success
    assert trace.plan_steps == counted.traces[1].plan_steps and len(plans) == 20
    outcomes = Outcomes(counted.outcomes, counted.steps)
    assert unlike_counted(trace, outcomes, (0, 1)) is None


def test_an_episode_that_does_not_end_as_it_was_counted_says_so():
    trace = SimpleNamespace(success=True, states=[None] * 8)
    same, other = (Outcomes(np.asarray([[ok]]), np.asarray([[7]])) for ok in (True, False))
    assert unlike_counted(trace, same, (0, 0)) is None
    said = unlike_counted(trace, other, (0, 0))
    assert said is not None
    assert said.startswith("drawn: reached after 7 steps; counted: not in 7 steps")
    later = Outcomes(np.asarray([[True]]), np.asarray([[9]]))
    assert "counted: reached after 9 steps" in (unlike_counted(trace, later, (0, 0)) or "")


def drawn(values):
    """Return the axes of a plan's candidates with these values."""
    figure = figures.new_figure(dpi=50)
    axes, many = figure.subplots(), len(values)
    z = np.cumsum(np.ones((many, 3, 2)), axis=1)
    plan = SimpleNamespace(
        candidate_values=np.asarray(values), candidates=z, z=z[0], spent=np.ones((1, many))
    )
    trace = SimpleNamespace(plan_steps=[0], states=[np.zeros(2)])
    story._draw_candidates(figure, axes, trace, [plan])
    return axes


def test_values_that_are_all_the_same_get_no_scale():
    pytest.importorskip("matplotlib")
    scale = drawn([0.0, 0.1, 0.2])
    assert len(scale.child_axes) == 1 and not scale.texts
    assert len({tuple(line.get_color()) for line in scale.lines[:3]}) == 3
    for values, text in (
        ([0.0] * 3, "all values 0: no chain found the goal"),
        ([0.25] * 3, "all values 0.25"),
        ([0.0, 0.0, np.nan], "all values 0: no chain found the goal"),
        ([np.nan] * 3, "no value is a number"),
    ):
        axes = drawn(values)
        assert not axes.child_axes and [said.get_text() for said in axes.texts] == [text]
        assert {line.get_color() for line in axes.lines[:3]} == {story.EQUAL}


def test_notes_stand_on_the_picture(policy, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    told = {"seed": 0, "replan_every": 3, "max_steps": 6}
    planner, written, write = compose(policy), [], story.write_png
    planned, plans = replay(MEDIUM, planner, 3, 0, **told)
    alone, _ = replay(MEDIUM, ZeroShot(policy), 3, 0, **told)

    def keeping(figure, path):
        written.append(figure)
        write(figure, path)

    monkeypatch.setattr(story, "write_png", keeping)
    for notes in ((), ("compplan: drawn so, counted otherwise",)):
        path = tmp_path / f"{len(notes)}.png"
        story.draw_story(MEDIUM, planner, alone, planned, plans, path, notes=notes)
        assert path.read_bytes().startswith(b"\x89PNG")
    assert [figure.get_supxlabel() for figure in written] == ["", notes[0]]
