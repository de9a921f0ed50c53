"""The rows in ``results/``, as a report shows them."""

import json
import re
from pathlib import Path

from jumpyworld import cli

ROOT = Path(__file__).parents[2]


def _plain(share):
    return f"{share:.2f}".removeprefix("0")


def test_the_repositorys_own_results(tmp_path):
    out = tmp_path / "report.md"
    assert cli.run(["report", "--results", str(ROOT / "results"), "--out", str(out)]) == 0
    text = out.read_text()
    # The sweep's own rows stand in the tables, the others are listed: none is lost.
    line = next(x for x in text.splitlines() if x.startswith("| pointmaze-large | gcbc | "))
    assert "| .80 [.58, .92] | - | .70 [.48, .85]* |" in line and "| 5x4x1 |" in line
    for variant in (".65 [.43, .82]* | - | .70", ".70 [.48, .85]* | - | .80", ".90 [.70, .97]*"):
        assert variant in text
    # A cell shows the policy that was trained as the paper's; the one cut to 60,000 steps, beside
    # which ActionPlan was measured, and those of forty episodes with small networks are listed.
    assert "| antmaze-medium | gcbc | .57 [.47, .66] | .49 | " in text
    listed = [x for x in text.splitlines() if x.startswith("| antmaze-medium | gcbc | zero-shot |")]
    assert any("60000 steps | .32 [.24, .42]" in x for x in listed)
    # The model that was scored last is shown; the one before and its checkpoints are listed.
    assert "| cube-2 | gcbc | - | 1.47 (.00) | 2.32 [2.15, 2.48] | 1.42 (.01) | " in text
    listed = [
        x for x in text.splitlines() if x.startswith("| cube-2 | gcbc | td-hc | random | 0 | ")
    ]
    assert all(any(f"0.995: {emd}/1.21" in x for x in listed) for emd in ("2.57", "3.11"))
    rows = [json.loads(x) for x in (ROOT / "results/success.jsonl").read_text().splitlines()]
    gcbc = [row for row in rows if row["policy"] == "gcbc"]
    assert "unknown kind sweep" not in text and "not understood: kind" not in text
    # Models of several recipes are several measurements, some of them with the same planner.
    traces = [x for x in text.splitlines() if "trace, every 5, q, candidates 64, horizons" in x]
    traces = [x for x in traces if "| cube-2 | gcbc | compplan |" in x]
    shown = sorted(re.findall(r"\| (\.\d\d) \[", x)[0] for x in traces)
    cubes = [x for x in gcbc if (x["domain"], x["planner"]) == ("cube-2", "compplan")]
    found = [
        x for x in cubes if (x["config"]["proposal"], x["config"]["candidates"]) == ("trace", 64)
    ]
    assert shown == sorted(_plain(row["mean"]) for row in found)
    assert {".39", ".42", ".73"} <= set(shown)
    # Every plan's speed has a line of its own: one measured twice, with more rounds the second
    # time, is told apart by these. Counted, so that a new row needs no new number here.
    measured = [json.loads(x) for x in (ROOT / "results/plan-speed.jsonl").read_text().splitlines()]
    assert len(measured) >= 36 and all(row["what"] == "plan" for row in measured)
    plans = [x for x in text.splitlines() if x.startswith("| plan | ")]
    assert len(plans) == len({x.split(" | plan_ms")[0] for x in plans}) == len(measured)
    assert "unknown kind expert | 15 |" in text
    assert str(ROOT) not in text
