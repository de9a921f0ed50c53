import sys
from dataclasses import replace

import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.data import Dataset
from jumpyworld.data.pictures import CUBES, WALL, draw
from jumpyworld.errors import DataError, MissingExtraError

matplotlib = pytest.importorskip("matplotlib")
image = pytest.importorskip("PIL.Image")


def make(name, seed=0, steps=50):
    """Build two trajectories that wander about the origin of a domain."""
    rng = np.random.default_rng(seed)
    known = domains.get(name)
    n = 2 * (steps + 1)
    terminals = np.arange(n) % (steps + 1) == steps
    states = np.cumsum(rng.normal(size=(n, known.observation_dim)), 0) * 0.1
    actions = rng.uniform(-1, 1, (n, known.action_dim))
    return Dataset.from_arrays(states, actions, terminals, domain=name)


def pixels(path):
    with image.open(path) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB"))


def share(picture, colour):
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return (picture == rgb).all(-1).mean()


@pytest.mark.parametrize("name", ["pointmaze-medium", "antmaze-giant", "cube-1", "cube-4"])
def test_pictures_are_png_files_of_a_readable_size(name, tmp_path):
    draw(make(name), tmp_path / "a.png")
    picture = pixels(tmp_path / "a.png")
    height, width, _ = picture.shape
    assert 500 < height < 1500 and 900 < width < 2500
    assert len(np.unique(picture.astype(int) @ [1, 256, 256**2])) > 50
    assert (picture[[0, -1]] == 255).all()  # nothing is cut off at the top or bottom
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_mazes_show_walls_and_cubes_their_colours(tmp_path):
    draw(make("pointmaze-medium"), tmp_path / "maze.png")
    assert share(pixels(tmp_path / "maze.png"), WALL) > 0.2
    draw(make("cube-2"), tmp_path / "cube.png")
    cube = pixels(tmp_path / "cube.png")
    assert share(cube, CUBES[0]) > 0 and share(cube, CUBES[1]) > 0
    assert share(cube, CUBES[2]) == share(cube, CUBES[3]) == 0


def test_equal_data_give_equal_files_and_other_data_others(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        draw(make("pointmaze-large", seed), tmp_path / f"{name}.png")
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b
    assert (pixels(tmp_path / "a.png") != pixels(tmp_path / "c.png")).any()
    assert a != c


@pytest.mark.parametrize(("d", "da"), [(1, 1), (3, 40), (40, 3)])
def test_unknown_domains_get_histograms(d, da, tmp_path):
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(30, d)), rng.uniform(-1, 1, (30, da))
    draw(Dataset.from_arrays(states, actions, np.arange(30) == 29), tmp_path / "a.png")
    assert share(pixels(tmp_path / "a.png"), "#2f6fb0") > 0.01


def test_values_that_are_not_finite_do_not_spoil_the_picture(tmp_path):
    for name in ("pointmaze-medium", "cube-1", None):
        data = make(name or "cube-1")
        states = data.observations.copy()
        states[[3, 5, 7], :] = np.array([np.nan, np.inf, 1e38])[:, None]
        states[:, -1] = np.nan
        draw(replace(data, observations=states, domain=name), tmp_path / f"{name}.png")


def test_a_maze_without_the_simulator_has_no_walls(tmp_path, monkeypatch):
    def missing(self):
        raise MissingExtraError("ogbench", "ogbench")

    monkeypatch.setattr(domains.MazeDomain, "grid", property(missing))
    draw(make("pointmaze-medium"), tmp_path / "a.png")
    assert share(pixels(tmp_path / "a.png"), WALL) == 0


def test_global_settings_stay_as_they_were(tmp_path):
    before = dict(matplotlib.rcParams)
    draw(make("cube-1"), tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/a\.png: cannot be written"):
        draw(make("cube-1"), tmp_path / "file" / "a.png")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"jumpyworld\[plots\]"):
        draw(make("cube-1"), tmp_path / "a.png")
