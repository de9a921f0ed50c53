import numpy as np
import pytest

from jumpyworld.data import Dataset
from jumpyworld.errors import ConfigError, DataError
from jumpyworld.evaluation.pairs import draw_pairs, draw_rows, in_support_pairs, random_pairs


def walks():
    x = np.arange(300, dtype=np.float32)[:, None]
    ends = np.zeros(300, bool)
    ends[[149, 299]] = True
    return Dataset.from_arrays(x, np.zeros_like(x), ends, extras={"qpos": x, "qvel": 0 * x})


def test_in_support_goals_lie_ahead_in_the_same_trajectory():
    pairs = in_support_pairs(walks(), 1000, np.random.default_rng(0), reach=(10, 40))
    ahead = pairs.goals[:, 0] - pairs.states[:, 0]
    assert ahead.min() == 10 and ahead.max() == 40
    assert (pairs.states // 150 == pairs.goals // 150).all()
    np.testing.assert_array_equal(pairs.qpos, pairs.states)
    with pytest.raises(ConfigError, match="reach"):
        in_support_pairs(walks(), 5, np.random.default_rng(0), reach=(10, 400))


def test_random_pairs_are_independent_and_never_a_last_state():
    pairs = random_pairs(walks(), 20_000, np.random.default_rng(0))
    assert not np.isin(pairs.states, [149, 299]).any()
    assert abs(np.corrcoef(pairs.states[:, 0], pairs.goals[:, 0])[0, 1]) < 0.03
    assert pairs.states.mean() == pytest.approx(149, abs=3)


def test_a_seed_fixes_the_pairs_and_their_fingerprint():
    first, again, other = (draw_pairs("random", walks(), 8, seed) for seed in (0, 0, 1))
    assert len(first) == 8
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert draw_pairs("in-support", walks(), 8, 0).fingerprint != first.fingerprint


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ConfigError, match="0 pairs"):
        draw_pairs("random", walks(), 0, 0)
    with pytest.raises(ConfigError, match="far"):
        draw_pairs("far", walks(), 4, 0)  # pyright: ignore[reportArgumentType]
    xy = np.zeros((3, 2), np.float32)
    bare = Dataset.from_arrays(xy, xy, np.array([0, 0, 1]))
    with pytest.raises(DataError, match="has no qpos"):
        draw_pairs("random", bare, 2, 0)


@pytest.mark.parametrize("kind", ["random", "in-support"])
def test_rows_are_those_of_the_pairs_and_need_no_simulator_state(kind):
    whole = walks()
    bare = Dataset.from_arrays(whole.observations, whole.actions, whole.terminals)
    rows, goals = draw_rows(kind, bare, 20, 3)
    pairs = draw_pairs(kind, whole, 20, 3)
    np.testing.assert_array_equal(bare.observations[rows], pairs.states)
    np.testing.assert_array_equal(bare.observations[goals], pairs.goals)
