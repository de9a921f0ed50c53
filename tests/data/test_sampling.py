import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jumpyworld.data import (
    Dataset,
    DeviceData,
    GoalMixture,
    batch_key,
    device_data,
    sample_goal_indices,
    sample_transitions,
)
from jumpyworld.data.sampling import sample_valid
from jumpyworld.errors import DataError

MILLION = 1_000_000


def make(lengths):
    """States hold (episode, t); actions hold the row, scaled into [0, 1]."""
    lengths = np.asarray(lengths)
    episode = np.repeat(np.arange(len(lengths)), lengths + 1)
    t = np.concatenate([np.arange(n + 1) for n in lengths])
    actions = (np.arange(len(t)) / len(t))[:, None]
    return Dataset.from_arrays(
        np.stack([episode, t], 1), actions, np.append(episode[1:] != episode[:-1], True)
    )


@pytest.fixture(scope="module")
def data():
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    lengths[:3] = lengths[-3:] = 1
    return make(lengths)


def test_device_data_mirrors_the_dataset(data):
    device = device_data(data)
    assert device.observations.dtype == jnp.float32
    for field in ("valid_indices", "start_of_row", "end_of_row"):
        assert getattr(device, field).dtype == jnp.int32
    rows = np.arange(data.num_states)
    np.testing.assert_array_equal(rows - device.start_of_row, data.observations[:, 1])
    episode = data.observations[:, 0].astype(int)
    np.testing.assert_array_equal(device.end_of_row, data.ends[episode])
    np.testing.assert_array_equal(device.valid_indices, data.valid_indices)


def test_no_transition_in_a_million_crosses_a_trajectory(data):
    device = device_data(data)
    draw = jax.jit(lambda key: sample_transitions(device, key, MILLION))
    batch = jax.tree.map(np.asarray, draw(batch_key(0, 0)))
    np.testing.assert_array_equal(batch.next_observations[:, 0], batch.observations[:, 0])
    np.testing.assert_array_equal(batch.next_observations[:, 1], batch.observations[:, 1] + 1)
    np.testing.assert_array_equal(batch.observations, data.observations[batch.index])
    np.testing.assert_array_equal(batch.actions, data.actions[batch.index])
    # The action at s' is the recorded one, also where s' ends its trajectory.
    np.testing.assert_array_equal(batch.next_actions, data.actions[batch.index + 1])
    assert data.terminals[batch.index + 1].any()
    counts = np.bincount(batch.index, minlength=data.num_states)
    assert counts[data.ends].sum() == 0
    assert stats.chisquare(counts[data.valid_indices]).pvalue > 0.01


def test_rows_ahead_stop_at_the_end_of_their_trajectory(data):
    device = device_data(data)
    one, five = (sample_transitions(device, batch_key(0, 0), 10_000, ahead) for ahead in (1, 5))
    np.testing.assert_array_equal(one.index, five.index)
    end = data.ends[data.observations[np.asarray(one.index), 0].astype(int)]
    np.testing.assert_array_equal(one.next_index, np.asarray(one.index) + 1)
    np.testing.assert_array_equal(five.next_index, np.minimum(np.asarray(one.index) + 5, end))
    assert (five.next_index == end).any() and (np.asarray(five.next_index) < end).any()
    np.testing.assert_array_equal(five.next_observations, data.observations[five.next_index])
    np.testing.assert_array_equal(five.next_actions, data.actions[five.next_index])


def test_every_row_of_a_large_set_can_be_drawn():
    # 2^25 rows: a float32 uniform would reach only every fourth.
    n = 2**25
    rows = jnp.arange(n, dtype=jnp.int32)
    empty = jnp.zeros((0, 1))
    device = DeviceData(empty, empty, rows, rows[:0], rows[:0])
    index = np.asarray(sample_valid(device, batch_key(0, 0), (MILLION,)))
    assert index.min() >= 0 and index.max() < n
    assert stats.chisquare(np.bincount(index % 8)).pvalue > 0.01
    assert stats.chisquare(np.bincount(index // 2**20, minlength=32)).pvalue > 0.01


@jax.jit
def draw(device, key):
    batch_key_, goal_key = jax.random.split(key)
    batch = sample_transitions(device, batch_key_, 16)
    mixture = GoalMixture(current=0.1, geometric=0.4, uniform=0.2, random=0.3)
    return batch, sample_goal_indices(device, goal_key, batch.index, mixture)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_batch_k_depends_on_seed_and_k_alone(data):
    device = device_data(data)
    separate = [leaves(draw(device, batch_key(3, k))) for k in range(6)]

    @jax.jit
    def chunk(device, first):
        steps = first + jnp.arange(3, dtype=jnp.int32)
        return jax.lax.scan(lambda c, k: (c, draw(device, batch_key(3, k))), None, steps)[1]

    for first in (0, 3, 1):  # in one run, resumed, and from the middle
        scanned = leaves(chunk(device, first))
        for i in range(3):
            for ours, alone in zip(scanned, separate[first + i], strict=True):
                np.testing.assert_array_equal(ours[i], alone)
    assert not np.array_equal(separate[0][0], separate[1][0])
    assert not np.array_equal(separate[0][0], leaves(draw(device, batch_key(4, 0)))[0])


def test_sampling_under_strict_promotion(data):
    device = device_data(data)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        batch, goals = draw(device, batch_key(0, 1))
    assert goals.dtype == batch.index.dtype == jnp.int32
    assert goals.shape == (16,) and batch.next_actions.shape == (16, 1)


def test_set_without_transition_is_refused():
    single = Dataset(np.zeros((1, 2)), np.zeros((1, 1)), np.array([0]), np.array([0]), source="x")
    with pytest.raises(DataError, match="x: has no transition"):
        device_data(single)
