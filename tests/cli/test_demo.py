"""``jumpy demo`` from beginning to end, with next to nothing learnt."""

import json
import shutil
from pathlib import Path

import pytest

from jumpyworld.cli import demo, parse, run

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


def readme_python(after):
    """Return the first Python block of the README after some words."""
    readme = Path(__file__).parents[2].joinpath("README.md").read_text()
    return readme.split(after, 1)[1].split("```python\n", 1)[1].split("```", 1)[0]


def test_the_commands_it_prints_are_the_ones_that_a_user_can_type(tmp_path):
    for fast in (True, False):
        for _, words in demo.Demo(out=tmp_path, fast=fast).stages():
            assert hasattr(parse(words), "run")
