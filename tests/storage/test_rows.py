import pytest

from jumpyworld.errors import DataError
from jumpyworld.storage.rows import read_rows, replace_rows


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
    with pytest.raises(ValueError, match="JSON"):
        replace_rows(tmp_path / "rows.jsonl", [{"a": float("nan")}], ("a",))
    assert list(tmp_path.iterdir()) == []
