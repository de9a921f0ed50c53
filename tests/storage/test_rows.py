import subprocess
import sys

import pytest

from jumpyworld.errors import DataError
from jumpyworld.storage.rows import append_rows, read_rows, replace_rows

# Says that it is there, waits for the others, and adds rows one by one.
WRITER = """
import pathlib, sys
from jumpyworld.storage.rows import append_rows, replace_rows
path, who = pathlib.Path(sys.argv[1]), int(sys.argv[2])
print("here", flush=True)
sys.stdin.readline()
for i in range(20):
    row = {"who": who, "i": i}
    append_rows(path, [row]) if who else replace_rows(path, [row], ("who", "i"))
"""


def test_a_new_row_takes_the_place_of_the_one_it_repeats(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    assert read_rows(path) == []
    replace_rows(path, [{"a": 1, "b": 1}, {"a": 2, "b": 1}], ("a",))
    replace_rows(path, [{"a": 1, "b": 9}, {"a": 3}], ("a",))
    assert read_rows(path) == [{"a": 2, "b": 1}, {"a": 1, "b": 9}, {"a": 3}]


def test_a_line_that_is_no_row_is_named_and_the_file_left_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(DataError, match="line 2"):
        replace_rows(path, [{"a": 2}], ("a",))
    assert path.read_text() == '{"a": 1}\n[2]\n'


def test_numbers_that_json_has_no_word_for_are_refused(tmp_path):
    with pytest.raises(DataError, match="JSON"):
        replace_rows(tmp_path / "rows.jsonl", [{"a": float("nan")}], ("a",))
    assert list(tmp_path.iterdir()) == []


def test_processes_that_write_at_once_lose_none_of_each_others_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(who)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for who in range(3)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout.readline() == "here\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    found = [(row["who"], row["i"]) for row in read_rows(path)]
    assert sorted(found) == [(who, i) for who in range(3) for i in range(20)]
    assert list(tmp_path.iterdir()) == [path], "no lock stays behind"


def test_a_lock_that_a_kill_left_behind_locks_nothing(tmp_path):
    (tmp_path / ".rows.jsonl.lock").touch()
    append_rows(tmp_path / "rows.jsonl", [{"a": 1}])
    assert read_rows(tmp_path / "rows.jsonl") == [{"a": 1}]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"rows\.jsonl: cannot be written"):
        append_rows(tmp_path / "file" / "rows.jsonl", [{"a": 1}])


def test_a_row_that_is_not_finite_is_refused_and_the_file_stays(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": NaN}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl: cannot be written: a row holds"):
        append_rows(path, [{"a": 1}])
    assert path.read_text() == '{"a": NaN}\n'
    with pytest.raises(DataError, match="not finite"):
        append_rows(tmp_path / "new.jsonl", [{"a": float("inf")}])
    assert not (tmp_path / "new.jsonl").exists()
