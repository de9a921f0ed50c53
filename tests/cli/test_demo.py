"""``jumpy demo`` from beginning to end, with next to nothing learnt."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from jumpyworld import cli
from jumpyworld.cli import demo, parse, run
from jumpyworld.errors import ConfigError

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
    seconds = summary["seconds"]
    assert len(seconds) == 6 and all(f"] {title}" in said for title in seconds if title != "in all")
    assert sum(seconds.values()) == pytest.approx(2 * seconds["in all"], abs=1)
    assert summary["picture"]["notes"] == [] and "in the picture" not in said
    rows = (out / "eval" / "success.jsonl").read_text()
    counted = next((out / "eval" / "episodes").glob("compplan-*.json"))
    document = json.loads(counted.read_text())
    counted.write_text(json.dumps({**document, "steps": [[7]] * 5}))
    assert run(["demo", "--fast", "--out", str(out)]) == 0
    again = capsys.readouterr().out
    note = "compplan: drawn: not in 25 steps; counted: not in 7 steps"
    second = json.loads((out / "summary.json").read_text())
    (found,) = second["picture"]["notes"]
    assert found.startswith(note) and f"in the picture, {note}" in again
    assert again.count("already in") == 3 and "finished" in again
    assert (out / "eval" / "success.jsonl").read_text() == rows
    # What was done already keeps the time that it took; nothing was resumed.
    done = [title for title, _ in demo.Demo(out=out, fast=True).stages()]
    taken = [seconds[title] for title in done]
    assert [second["seconds"][title] for title in done] == taken and second["resumed"] is False
    shutil.rmtree(out / "eval")
    assert run(["demo", "--fast", "--out", str(out)]) == 0
    third = json.loads((out / "summary.json").read_text())
    assert third["resumed"] is True
    assert [third["seconds"][title] for title in done[:3]] == taken[:3]
    monkeypatch.chdir(tmp_path)
    exec(readme_python("load, plan, act"), {})
    assert "steps, success:" in capsys.readouterr().out


@pytest.fixture
def slow_stages(monkeypatch):
    """Let stages take an hour each, and nothing where they are done; return those that break."""
    broken, clock = set(), [0.0]

    class Stage:
        def __init__(self, words):
            self.out = Path(words[-1])

        def run(self):
            self.out.mkdir(parents=True, exist_ok=True)
            if self.out.name in broken:
                (self.out / "half").write_text("")
                raise KeyboardInterrupt
            if not (self.out / "done").exists():
                clock[0] += 3600
                (self.out / "done").write_text("")

    monkeypatch.setattr(demo.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(cli, "parse", Stage)
    picture = {"task": 1, "episode": 0, "notes": []}
    monkeypatch.setattr(demo.Demo, "_draw", lambda self: picture)
    return broken


def test_an_interrupted_demo_knows_how_long_its_stages_took(slow_stages, tmp_path):
    out = tmp_path / "demo"
    asked = demo.Demo(out=out, fast=True)
    hours = dict.fromkeys((title for title, _ in asked.stages()), 3600.0)

    def told():
        summary = json.loads((out / "summary.json").read_text())
        return {title: summary["seconds"][title] for title in hours}, summary["resumed"]

    for broken in ("ghm", "eval"):
        slow_stages.add(broken)
        with pytest.raises(KeyboardInterrupt):
            asked.run()
        slow_stages.clear()
    asked.run()
    assert told() == (hours, True)
    asked.run()
    assert told() == (hours, True)
    # A damaged record is written anew, from the summary where there is one.
    (out / "seconds.json").write_text('{"seed": 0, "fast": true, "seconds": 3}')
    asked.run()
    assert told() == (hours, True)


@pytest.mark.parametrize("change", [{"fast": False}, {"seed": 1}])
def test_only_the_same_demo_goes_on(slow_stages, tmp_path, change):
    asked = demo.Demo(out=tmp_path / "demo", fast=True)
    slow_stages.add("data")
    with pytest.raises(KeyboardInterrupt):
        asked.run()
    slow_stages.clear()
    with pytest.raises(ConfigError, match="demo: holds the demo of --seed 0 --fast; choose"):
        dataclasses.replace(asked, **change).run()
    asked.run()
    assert asked._earlier()[0]


def test_other_weights_are_another_demo(slow_stages, tmp_path, monkeypatch):
    asked = demo.Demo(out=tmp_path / "demo", fast=True)
    asked.run()
    monkeypatch.setattr(demo, "shipped_ghm", lambda: None)
    assert asked._earlier() == ({}, False)


def readme_python(after):
    """Return the first Python block of the README after some words."""
    readme = Path(__file__).parents[2].joinpath("README.md").read_text()
    return readme.split(after, 1)[1].split("```python\n", 1)[1].split("```", 1)[0]


def test_the_commands_it_prints_are_the_ones_that_a_user_can_type(tmp_path):
    for fast in (True, False):
        for _, words in demo.Demo(out=tmp_path, fast=fast).stages():
            assert hasattr(parse(words), "run")
