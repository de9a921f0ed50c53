import numpy as np
import pytest

from jumpyworld import domains
from jumpyworld.domains.seeding import global_numpy_seed

ONE_OF_EACH = ["pointmaze-medium", "antmaze-large", "cube-2"]


def episode(env, *, seed=None, task=3, steps=20):
    """The whole of a short episode as one array: goal, start, and what random actions lead to."""
    options = None if task is None else {"task_id": task}
    observation, info = env.reset(seed=seed, options=options)
    rng = np.random.default_rng(0)
    rows = [info["goal"], observation]
    for _ in range(steps):
        rows.append(env.step(rng.uniform(-1, 1, env.action_space.shape))[0])
    return np.array(rows)


@pytest.mark.parametrize("alias", ONE_OF_EACH)
@pytest.mark.parametrize("task", [3, None])
def test_a_seed_fixes_the_episode(alias, task):
    domain = domains.get(alias)
    env, other = domain.make_env(0), domain.make_env(1)
    first = episode(env, seed=5, task=task)
    np.random.default_rng().normal()
    assert np.array_equal(first, episode(env, seed=5, task=task))
    assert np.array_equal(first, episode(other, seed=5, task=task))
    assert not np.array_equal(first[:2], episode(env, seed=6, task=task)[:2])


@pytest.mark.parametrize("alias", ONE_OF_EACH)
def test_make_env_fixes_the_sequence_of_episodes(alias):
    domain = domains.get(alias)
    env, twin = domain.make_env(7), domain.make_env(7)
    first, second = episode(env), episode(env)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, episode(twin))
    assert np.array_equal(second, episode(twin))


@pytest.mark.parametrize("alias", ONE_OF_EACH)
def test_resets_leave_the_callers_global_generator_alone(alias):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    domains.get(alias).make_env(0).reset(seed=1)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_global_seed_is_restored_after_an_error():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    with pytest.raises(ZeroDivisionError), global_numpy_seed(3):
        _ = 1 / 0
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_mazes_leave_no_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    domains.get("pointmaze-medium").make_env(0)
    assert list(tmp_path.iterdir()) == []
