"""Outcomes on disk: kept, found again, paired."""

import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.errors import DataError
from jumpyworld.evaluation.decisions import DecisionLog
from jumpyworld.evaluation.planned import (
    Contender,
    Outcomes,
    Results,
    difference_fields,
    success_fields,
)
from jumpyworld.evaluation.stats import Z95
from jumpyworld.evaluation.success import Success

MEDIUM = domains.get("pointmaze-medium")


def outcome(success, steps=5):
    success = np.asarray(success, bool)
    log = DecisionLog(MEDIUM)
    return Success(success, np.full(success.shape, steps), (2, 4), log.summary())


EPISODES = {"seed": 0, "tasks": [2, 4], "episodes": 3, "max_steps": 9}


def test_outcomes_are_kept_and_found_again(tmp_path):
    results = Results(tmp_path / "out")
    zero = Contender("zero-shot", {"policy": "a"}, EPISODES)
    assert results.finished(zero) is None and results.find(zero) is None
    results.prepare()
    results.write(zero, outcome([[1, 0, 1], [0, 0, 1]]), {"kind": "success", "mean": 0.5})
    again = Results(tmp_path / "out")
    found = again.finished(zero)
    assert found is not None and found.success.tolist() == [
        [True, False, True],
        [False] * 2 + [True],
    ]
    assert again.rows[zero.id]["mean"] == 0.5
    # Fewer of its episodes pair with another's; other seeds, policies or limits do not.
    some = Contender("zero-shot", {"policy": "a"}, {**EPISODES, "tasks": [4], "episodes": 2})
    part = again.find(some)
    assert part is not None and part.success.tolist() == [[False, False]]
    for change in ({"seed": 1}, {"max_steps": 8}, {"episodes": 4}, {"tasks": [4, 5]}):
        assert again.find(Contender("zero-shot", {"policy": "a"}, {**EPISODES, **change})) is None
    assert again.find(Contender("zero-shot", {"policy": "b"}, EPISODES)) is None
    # A damaged file is not believed: the contender must run again.
    again.path(zero).write_text('{"success": [1]}')
    assert again.finished(zero) is None and again.find(zero) is None
    again.path(zero).write_text("no JSON")
    assert again.finished(zero) is None and again.find(zero) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="no folder"):
        Results(tmp_path / "file")


def test_a_row_tells_every_episode():
    tasks = success_fields(outcome([[1, 0, 1], [0, 0, 1]]))["tasks"]
    assert [(task["task"], task["solved"]) for task in tasks] == [(2, "101"), (4, "001")]


def test_the_fields_of_a_difference():
    ours, theirs = (Outcomes(np.asarray(s, bool), np.zeros((1, 2))) for s in ([[1, 1]], [[1, 0]]))
    fields = difference_fields("zero-shot", ours, theirs)
    assert fields["baseline"] == "zero-shot" and fields["diff"] == 0.5
    low, high = fields["diff_ci95"]
    assert low == round(0.25 - Z95 * np.sqrt((3 / 4 - 1 / 16) / 4), 4) and high == 1.0
