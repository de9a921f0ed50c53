import csv
import json

import pytest

from jumpyworld.errors import CheckpointError
from jumpyworld.storage.metrics import MetricsLog, read_rows

COLUMNS = ("step", "seed", "loss", "steps_per_second")


def row(step, loss=0.5):
    return {"step": step, "seed": 0, "loss": loss, "steps_per_second": 10.0}


def test_rows_are_on_the_disk_as_they_come(tmp_path):
    with MetricsLog(tmp_path, COLUMNS, 0) as log:
        log.write(row(10))
        assert read_rows(tmp_path / "metrics.jsonl") == [row(10)]
        log.write(row(20, float("nan")))
    assert read_rows(tmp_path / "metrics.jsonl")[1]["loss"] is None
    with (tmp_path / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [line["step"] for line in table] == ["10", "20"]
    assert table[1]["loss"] == ""


def test_going_on_drops_what_came_after_the_checkpoint(tmp_path):
    with MetricsLog(tmp_path, COLUMNS, 0) as log:
        for step in (10, 20, 30):
            log.write(row(step))
    with MetricsLog(tmp_path, COLUMNS, 20) as log:
        log.write(row(30, 0.25))
    whole = [row(10), row(20), row(30, 0.25)]
    assert read_rows(tmp_path / "metrics.jsonl") == whole
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.csv", "metrics.jsonl"]


def test_going_on_drops_a_row_that_came_before_its_time(tmp_path):
    with MetricsLog(tmp_path, COLUMNS, 0) as log:
        log.write(row(10))
        log.write(row(15))
    for early, steps in ((False, [10, 15]), (True, [10])):
        MetricsLog(tmp_path, COLUMNS, 15, early=early).close()
        assert [r["step"] for r in read_rows(tmp_path / "metrics.jsonl")] == steps


def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path):
    text = json.dumps(row(10)) + "\n" + json.dumps(row(20))[:-7]
    (tmp_path / "metrics.jsonl").write_text(text)
    with MetricsLog(tmp_path, COLUMNS, 20) as log:
        log.write(row(20))
    assert read_rows(tmp_path / "metrics.jsonl") == [row(10), row(20)]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        MetricsLog(tmp_path, COLUMNS, 0)
