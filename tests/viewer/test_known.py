"""What the data know, as a small file beside the weights."""

import numpy as np
import pytest
from stand_ins import known

from jumpyworld import domains
from jumpyworld.cli import run
from jumpyworld.data import Dataset
from jumpyworld.errors import CheckpointError, DataError
from jumpyworld.planning import GoalFeatures, Places, find_places
from jumpyworld.storage.tensors import read_tensors, write_tensors
from jumpyworld.viewer.known import Tabled, demo_places, main, read_places, write_places
from jumpyworld.viewer.opened import demo_folders

MAZE = domains.get("pointmaze-medium")
FIELDS = ("labels", "ends", "centres", "examples")


def same(first, second):
    return all(np.array_equal(getattr(first, f), getattr(second, f)) for f in FIELDS)


def test_a_file_holds_the_same_places(tmp_path):
    places = known(MAZE)
    size = write_places(tmp_path / "a.safetensors", places, MAZE)
    assert size == (tmp_path / "a.safetensors").stat().st_size
    found = read_places(tmp_path / "a.safetensors", MAZE)
    assert same(found, places) and found.features == places.features
    betas = np.asarray([0.9, 0.98])
    np.testing.assert_array_equal(found.count(betas), places.count(betas))


def test_long_stays_and_trajectories_that_begin_where_another_ended(tmp_path):
    rows = np.repeat(
        np.asarray([[0, 0], [4, 0], [4, 0], [8, 0]], np.float32), [300, 200, 7, 511], 0
    )
    places = find_places(rows, np.asarray([499, len(rows) - 1]), GoalFeatures(MAZE), number=3)
    write_places(tmp_path / "a.safetensors", places, MAZE)
    assert same(read_places(tmp_path / "a.safetensors", MAZE), places)


def test_more_places_than_a_byte_counts(tmp_path):
    rows = np.stack([np.arange(600) % 300 / 10, np.zeros(600)], 1).astype(np.float32)
    places = find_places(rows, np.asarray([599]), GoalFeatures(MAZE), number=300)
    write_places(tmp_path / "a.safetensors", places, MAZE)
    assert same(read_places(tmp_path / "a.safetensors", MAZE), places)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"centres": None}, "not places"),
        ({"domain": np.frombuffer(b"cube-9", np.uint8)}, "places of 'cube-9', not pointmaze"),
        ({"stays": np.ones(3, np.int64)}, "stays is int64"),
        ({"stays": np.ones(3, np.uint8)}, "stays of shape"),
        ({"places": np.full(3, 200, np.uint8)}, "places of shape"),
        ({"lengths": np.asarray([1, 2], np.int32)}, "lengths of shape"),
        ({"centres": np.zeros((40, 3), np.float32)}, "centres of shape"),
        ({"examples": np.zeros((40, 16, 7), np.float32)}, "examples of shape"),
        ({"examples": np.full((40, 16, 2), np.nan, np.float32)}, "not finite"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, change, text):
    path = tmp_path / "a.safetensors"
    write_places(path, known(MAZE), MAZE)
    arrays = {**read_tensors(path.read_bytes(), path), **change}
    write_tensors(path, {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(CheckpointError, match=text) as error:
        read_places(path, MAZE)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_damage_and_absence_are_one_line_of_the_command(tmp_path, capsys):
    damaged = tmp_path / "a.safetensors"
    damaged.write_bytes(b"not at all")
    for path, text in (
        (damaged, "not a readable safetensors file"),
        (tmp_path / "b.safetensors", "cannot be read (No such file"),
        (tmp_path / "data", "no such file or folder"),
    ):
        assert run(["view", "--precedents", str(path)]) == 2
        said = capsys.readouterr().err
        assert text in said and str(path) in said and said.count("\n") == 1


def test_the_module_writes_a_file_that_the_command_takes(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).uniform(0, 20, (400, 2)).astype(np.float32)
    actions, ends = np.zeros((400, 2), np.float32), np.arange(400) % 100 == 99
    made = Dataset.from_arrays(rows, actions, ends, domain="pointmaze-large")
    monkeypatch.setattr("jumpyworld.viewer.known.data.load", lambda source: made)
    path, served = tmp_path / "places.safetensors", []
    main("anywhere", str(path))
    monkeypatch.setattr(
        "jumpyworld.viewer.server.serve", lambda engine, *rest: served.append(engine)
    )
    assert run(["view", "--precedents", str(path)]) == 0
    (model,) = served[0].models.values()
    assert isinstance(model.known, Places) and len(model.known.labels) == 400
    with pytest.raises(DataError, match=str(tmp_path)):
        main("anywhere", str(tmp_path))  # a folder


def test_tables_are_counted_once_and_exact_where_it_is_usual():
    places = known(MAZE)
    tabled = Tabled.of(places, 250.0, (40.0,))
    betas = np.asarray([1 - 1 / 40, 0.0])
    mine, theirs = tabled.precedents(betas), places.precedents(betas[:1])
    np.testing.assert_array_equal(mine.precedented[0], theirs.precedented[0])
    assert len(tabled.tables) == 2
    tabled.precedents(np.asarray([1 - 1 / 41, 1 - 1 / 1.01]))
    assert len(tabled.tables) == 2
    tabled.count_all()
    assert len(tabled.tables) == len(tabled.horizons) == 25


def test_what_ships_is_small_and_of_the_demo_s_maze():
    path = demo_places()
    assert path is not None and path.stat().st_size < 100_000
    assert len(read_places(path, domains.get("pointmaze-large")).centres) == 200
    files = [file for folder in demo_folders() for file in path.parent.joinpath(folder).iterdir()]
    assert sum(file.stat().st_size for file in [path, *files]) < 3_000_000
