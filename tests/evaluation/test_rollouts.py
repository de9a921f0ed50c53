import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation import rollouts as module
from jumpyworld.evaluation.pairs import Pairs
from jumpyworld.evaluation.rollouts import RolloutStore, identity_of, rollouts

DOMAIN = domains.get("pointmaze-medium")
XY = np.array([[0.0, 0.0], [0.5, 0.2], [0.3, -0.1]], np.float32)
PAIRS = Pairs(XY, XY[::-1], XY, np.zeros_like(XY))


class Right:
    """Goes right, with noise in y."""

    def sample(self, key, states, z):
        return jnp.stack([jnp.ones(()), 0.5 * jax.random.normal(key)])


class Never:
    def sample(self, key, states, z):
        raise AssertionError("the rollouts should have come from the store")


def roll(policy, store=None, **kwargs):
    settings = {"repeats": 2, "steps": 3, "workers": 1} | kwargs
    return rollouts(DOMAIN, policy, PAIRS, jax.random.key(0), store=store, **settings)


def store(folder, warn=None, **kwargs):
    settings = {"seed": 0, "repeats": 2, "steps": 3} | kwargs
    return RolloutStore(
        folder, identity_of(DOMAIN, "a" * 64, PAIRS, **settings), warn or pytest.fail
    )


@pytest.fixture(scope="module")
def expected():
    return roll(Right())


def test_rollouts_start_where_the_pairs_say_and_follow_the_policy(expected):
    assert expected.shape == (3, 2, 3, 2) and expected.dtype == np.float32
    for i in range(3):
        np.testing.assert_allclose(
            expected[i, 1, :, 0], XY[i, 0] + np.array([0.2, 0.4, 0.6]), atol=1e-3
        )
    assert not np.array_equal(expected[0, 0], expected[0, 1])  # each has noise of its own


def test_rollouts_do_not_depend_on_workers_or_on_who_runs_beside_them(expected, monkeypatch):
    monkeypatch.setattr(module, "MAZES_AT_ONCE", 4)  # two blocks, the second with spare places
    seen = []
    split = roll(Right(), workers=2, progress=lambda *now: seen.append(now))
    np.testing.assert_array_equal(split, expected)
    assert seen[0] == (0, 18) and seen[-1] == (18, 18) and len(seen) == 7


def test_a_first_action_replaces_the_policys(expected):
    first = np.tile(np.float32([-1.0, 0.0]), (3, 1))
    paths = roll(Right(), first_actions=first)
    np.testing.assert_allclose(paths[:, :, 0, 0], np.repeat(XY[:, :1] - 0.2, 2, 1), atol=1e-3)
    steps = np.diff(paths, axis=2)
    np.testing.assert_allclose(steps, np.diff(expected, axis=2), atol=1e-3)


def test_a_store_keeps_rollouts_and_gives_them_back(expected, tmp_path):
    np.testing.assert_array_equal(roll(Right(), store(tmp_path)), expected)
    np.testing.assert_array_equal(roll(Never(), store(tmp_path)), expected)
    for other in ({"seed": 1}, {"steps": 4}, {"repeats": 3}):
        with pytest.raises(AssertionError, match="from the store"):
            roll(
                Never(), store(tmp_path, **other), **{k: v for k, v in other.items() if k != "seed"}
            )


def test_an_interrupted_run_goes_on_where_it_stopped(expected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAZES_AT_ONCE", 2)
    roll(Right(), store(tmp_path))
    files = sorted(store(tmp_path).folder.iterdir())
    assert len(files) == 3
    files[1].unlink()
    seen = []
    again = roll(Right(), store(tmp_path), progress=lambda *now: seen.append(now))
    np.testing.assert_array_equal(again, expected)
    assert seen[0] == (12, 18) and sorted(store(tmp_path).folder.iterdir()) == files


@pytest.mark.parametrize("damage", ["cut", "flip", "garbage", "other"])
def test_a_damaged_block_is_made_again_with_a_warning(expected, tmp_path, damage):
    roll(Right(), store(tmp_path))
    (path,) = store(tmp_path).folder.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-50]
    elif damage == "flip":
        content[200] ^= 1
    elif damage == "garbage":
        content = b"no npz"
    else:
        roll(Right(), store(tmp_path, seed=5))
        content = next(store(tmp_path, seed=5).folder.iterdir()).read_bytes()
    path.write_bytes(content)
    warnings = []
    np.testing.assert_array_equal(roll(Right(), store(tmp_path, warnings.append)), expected)
    assert len(warnings) == 1 and str(path) in warnings[0] and "again" in warnings[0]
    np.testing.assert_array_equal(roll(Never(), store(tmp_path)), expected)


def test_no_rollouts_or_steps_is_refused():
    with pytest.raises(ConfigError, match="0 rollouts"):
        roll(Right(), repeats=0)
    with pytest.raises(ConfigError, match="0 steps"):
        roll(Right(), steps=0)
