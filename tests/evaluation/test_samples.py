import sys

import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.errors import ConfigError, DataError, MissingExtraError
from jumpyworld.evaluation.pictures import draw_samples
from jumpyworld.evaluation.samples import Samples, read_all


def make(label="truth", name="pointmaze-medium", gammas=(0.9, 0.99), pairs=3, n=5, seed=0):
    domain = domains.get(name)
    rng = np.random.default_rng(seed)
    shape = (len(gammas), pairs, n, domain.observation_dim)
    states, goals = rng.normal(size=(2, pairs, domain.observation_dim)).astype(np.float32)
    return Samples(label, domain.name, gammas, states, goals, rng.normal(size=shape).astype("f4"))


def test_samples_come_back_as_they_were(tmp_path):
    first, path = make(label="td-hc of Ångström"), tmp_path / "deep" / "x.npz"
    first.write(path)
    again = Samples.read(path)
    assert (again.label, again.domain, again.gammas) == (first.label, first.domain, first.gammas)
    for name in ("states", "goals", "samples"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    assert [p.name for p in path.parent.iterdir()] == ["x.npz"]


def test_the_truth_comes_first_and_all_are_of_the_same_pairs(tmp_path):
    make("a").write(tmp_path / "a.npz")
    make("truth").write(tmp_path / "z.npz")
    assert [each.label for each in read_all([tmp_path])] == ["truth", "a"]
    make("b", seed=1).write(tmp_path / "b.npz")
    with pytest.raises(DataError, match=r"b\.npz: is of other pairs"):
        read_all([tmp_path])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="no samples"):
        read_all([empty])


def test_arrays_that_do_not_fit_are_refused(tmp_path):
    good = make()
    bad = Samples(good.label, good.domain, (0.9,), good.states, good.goals, good.samples)
    bad.write(tmp_path / "x.npz")
    with pytest.raises(DataError, match="do not fit"):
        Samples.read(tmp_path / "x.npz")


@pytest.mark.parametrize("name", ["pointmaze-medium", "antmaze-large", "cube-3"])
def test_a_picture_of_every_kind_of_domain(tmp_path, name):
    pytest.importorskip("matplotlib")
    sources = [make(name=name), make("td-hc", name, gammas=(0.5, 0.99, 0.9))]
    assert draw_samples(sources, tmp_path / "a.png", pair=2) == 2
    draw_samples(sources, tmp_path / "b.png", pair=2)
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG") and content == (tmp_path / "b.png").read_bytes()
    draw_samples(sources, tmp_path / "c.png", pair=0, gammas=(0.99,))
    assert (tmp_path / "c.png").read_bytes() != content


def test_the_pair_with_the_farthest_goal_is_drawn_unless_told(tmp_path):
    pytest.importorskip("matplotlib")
    source = make()
    source.goals[1] = source.states[1] + 9
    assert draw_samples([source], tmp_path / "a.png") == 1


def test_what_cannot_be_drawn_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    with pytest.raises(ConfigError, match="pair 3: the samples are of 3"):
        draw_samples([make()], path, pair=3)
    with pytest.raises(ConfigError, match=r"gamma=0\.7: the samples share 0\.9, 0\.99"):
        draw_samples([make()], path, gammas=(0.7,))
    with pytest.raises(ConfigError, match="share no discount"):
        draw_samples([make(), make("b", gammas=(0.1, 0.2))], path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="matplotlib"):
        draw_samples([make()], path)
    assert list(tmp_path.iterdir()) == []
