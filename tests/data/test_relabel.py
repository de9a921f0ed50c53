import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from jumpyworld.data.dataset import bounds
from jumpyworld.data.relabel import _exponential, geometric_offsets
from jumpyworld.errors import ConfigError

MILLION = 1_000_000


def make(lengths):
    lengths = np.asarray(lengths)
    episode = np.repeat(np.arange(len(lengths)), lengths + 1)
    t = np.concatenate([np.arange(n + 1) for n in lengths])
    terminals = np.append(episode[1:] != episode[:-1], True)
    return Dataset.from_arrays(np.stack([episode, t], 1), np.zeros((len(t), 1)), terminals)


def only(kind, discount=0.99):
    shares = dict.fromkeys(("current", "geometric", "uniform", "random"), 0.0)
    return GoalMixture(**shares | {kind: 1.0}, discount=discount)


def clipped_law(discount, limit):
    """P(k) for k = 1..limit: geometric, all that lies beyond the limit at the limit."""
    k = np.arange(1, limit + 1)
    law = (1 - discount) * discount ** (k - 1.0)
    law[-1] = discount ** (limit - 1.0)
    return law


def chi_square(counts, law):
    """p-value of counts against probabilities, neighbouring bins joined to expect 20 or more."""
    expected = law * counts.sum()
    group = np.floor(np.cumsum(expected) / 20).astype(int)
    group = np.unique(group, return_inverse=True)[1]
    joined = np.bincount(group, counts), np.bincount(group, expected)
    keep = joined[1] >= 5
    if not keep.all():  # fold what is left over into the largest bin
        big = np.argmax(joined[1])
        for part in joined:
            part[big] += part[~keep].sum()
    return stats.chisquare(joined[0][keep], joined[1][keep]).pvalue


@pytest.fixture(scope="module")
def ragged():
    lengths = np.random.default_rng(0).integers(1, 300, 200)
    lengths[:3] = lengths[-3:] = 1
    return make(lengths)


@pytest.mark.parametrize("kind", ["geometric", "uniform"])
def test_a_million_future_goals_lie_in_the_rows_own_future(ragged, kind):
    data = device_data(ragged)

    @jax.jit
    def draw(key):
        index = sample_transitions(data, key, MILLION).index
        return index, sample_goal_indices(data, jax.random.fold_in(key, 1), index, only(kind))

    index, goal = map(np.asarray, draw(batch_key(0, 0)))
    assert goal.dtype == np.int32
    s, g = ragged.observations[index], ragged.observations[goal]
    np.testing.assert_array_equal(s[:, 0], g[:, 0])
    assert (g[:, 1] > s[:, 1]).all()
    end = ragged.ends[s[:, 0].astype(int)]
    assert (goal <= end).all() and (goal == end).any()


@pytest.mark.parametrize(
    ("discount", "limit"),
    [
        (0.0, 50),
        (0.5, 1000),
        (0.9, 1000),
        (0.99, 1000),
        (0.995, 200),
        (0.995, 2000),
        (0.995, 20_000),
        (0.9999, 20_000),
        (0.999999, 200_000),
    ],
)
def test_geometric_offsets_follow_the_exact_clipped_law(discount, limit):
    data = device_data(make([3, limit, 3]))
    draw = jax.jit(
        lambda key: sample_goal_indices(
            data, key, jnp.full(MILLION, 4, jnp.int32), only("geometric", discount)
        )
    )
    offsets = np.asarray(draw(batch_key(7, 0))) - 4
    counts = np.bincount(offsets, minlength=limit + 1)
    assert counts[0] == 0 and len(counts) == limit + 1
    if discount == 0:
        assert counts[1] == MILLION
        return
    p = chi_square(counts[1:], clipped_law(discount, limit))
    assert p > 0.01, p


def test_geometric_law_holds_for_every_row_of_ragged_trajectories(ragged):
    data, discount = device_data(ragged), 0.98
    index = jnp.asarray(np.resize(ragged.valid_indices, MILLION), jnp.int32)
    draw = jax.jit(
        lambda key: sample_goal_indices(data, key, index, only("geometric", discount)) - index
    )
    counts = np.bincount(np.asarray(draw(batch_key(1, 0))), minlength=301)[1:]
    left = np.asarray(data.end_of_row[index] - index)
    law = np.zeros(300)
    for limit, times in zip(*np.unique(left, return_counts=True), strict=True):
        law[:limit] += times * clipped_law(discount, limit)
    assert chi_square(counts, law / MILLION) > 0.01


def test_uniform_goals_are_uniform_over_the_future():
    limit = 700
    data = device_data(make([3, limit, 3]))
    draw = jax.jit(
        lambda key: sample_goal_indices(data, key, jnp.full(MILLION, 5), only("uniform"))
    )
    counts = np.bincount(np.asarray(draw(batch_key(2, 0))), minlength=data.actions.shape[0])
    assert counts[:6].sum() == 0 and counts[5 + limit :].sum() == 0
    assert stats.chisquare(counts[6 : 5 + limit]).pvalue > 0.01


def test_random_goals_are_uniform_over_rows_with_a_successor(ragged):
    data = device_data(ragged)
    draw = jax.jit(lambda key: sample_goal_indices(data, key, jnp.full(MILLION, 0), only("random")))
    counts = np.bincount(np.asarray(draw(batch_key(3, 0))), minlength=ragged.num_states)
    assert counts[ragged.ends].sum() == 0
    assert (
        chi_square(
            counts[ragged.valid_indices],
            np.full(ragged.num_transitions, 1 / ragged.num_transitions),
        )
        > 0.01
    )


@pytest.mark.parametrize(
    "mixture",
    [
        GoalMixture(),
        GoalMixture(current=0.0, geometric=0.5, uniform=0.0, random=0.5, discount=0.995),
        GoalMixture(current=0.1, geometric=0.2, uniform=0.3, random=0.4),
        GoalMixture(current=0.001, geometric=0.0, uniform=0.999, random=0.0),
    ],
)
def test_shares_of_the_mixture(ragged, mixture):
    data, n = device_data(ragged), ragged.num_transitions
    index = jnp.asarray(np.resize(ragged.valid_indices, MILLION), jnp.int32)
    draw = jax.jit(lambda key: sample_goal_indices(data, key, index, mixture))
    goal, index = np.asarray(draw(batch_key(5, 0))), np.asarray(index)
    end = np.asarray(data.end_of_row)[index]
    # A random goal can fall on the row or its future; those chances are known exactly.
    found = {
        "current": (goal == index, mixture.current + mixture.random / n),
        "future": (
            (goal > index) & (goal <= end),
            mixture.geometric + mixture.uniform + mixture.random * (end - index - 1) / n,
        ),
        "elsewhere": (
            (goal < index) | (goal > end),
            mixture.random * (1 - (end - index) / n),
        ),
    }
    for hits, chance in found.values():
        chance = np.broadcast_to(chance, index.shape)
        sigma = np.sqrt((chance * (1 - chance)).sum())
        assert abs(hits.sum() - chance.sum()) <= 3 * sigma + 1e-6


def test_kinds_of_share_zero_never_appear(ragged):
    data = device_data(ragged)
    # Thirds do not sum to one in float32; what is missing must not become the unused kind.
    mixture = GoalMixture(current=1 / 3, geometric=1 / 3, uniform=1 / 3, random=0.0)
    index = jnp.asarray(np.resize(ragged.valid_indices, MILLION), jnp.int32)
    draw = jax.jit(lambda key: sample_goal_indices(data, key, index, mixture))
    goal = np.asarray(draw(batch_key(0, 0)))
    assert (ragged.observations[goal, 0] == ragged.observations[index, 0]).all()
    current = sample_goal_indices(data, batch_key(0, 0), index, only("current"))
    np.testing.assert_array_equal(current, index)


ROWS = 40


@functools.cache
def drawer(kind, discount):
    def draw(key, start, end):
        rows, index = jnp.zeros((ROWS, 1)), jnp.arange(ROWS, dtype=jnp.int32)
        data = DeviceData(rows, rows, index, start, end)
        return sample_goal_indices(data, key, index, only(kind, discount))

    return jax.jit(draw)


@given(
    st.sets(st.integers(0, ROWS - 2)),
    st.sampled_from([("uniform", 0.5), *[("geometric", g) for g in (0.0, 0.9999999)]]),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_any_row_of_any_bounds(ends, law, seed):
    # Rows that end a trajectory, and trajectories of one state, get themselves.
    terminals = np.isin(np.arange(ROWS), [*ends, ROWS - 1])
    starts, ends = bounds(terminals)
    rows = np.zeros((ROWS, 1), np.float32)
    if len(ends) == ROWS:  # nothing to draw from
        return
    data = device_data(Dataset(rows, rows, starts, ends))
    goal = np.asarray(drawer(*law)(batch_key(seed, 0), data.start_of_row, data.end_of_row))
    np.testing.assert_array_equal(goal > np.arange(ROWS), ~terminals)
    assert (goal[terminals] == np.flatnonzero(terminals)).all()
    assert (goal <= data.end_of_row).all()


def test_offsets_stay_in_range_when_the_discount_is_almost_one():
    limit = jnp.full(100_000, 2**31 - 2, jnp.int32)
    draw = jax.jit(lambda key: geometric_offsets(key, limit, 1 - 1e-12))
    offsets = np.asarray(draw(batch_key(0, 0)))
    assert offsets.min() >= 1 and offsets.max() <= 2**30 + 1


def test_small_waiting_times_are_not_coarse():
    # -log(uniform) has 84,000 values below 0.01 in float32, and 10,000 draws repeat 600 of them.
    draws = np.asarray(jax.jit(lambda key: _exponential(key, (MILLION,)))(batch_key(0, 0)))
    small = draws[draws < 0.01]
    assert draws.min() > 0 and len(small) > 9000
    assert len(np.unique(small)) > 0.999 * len(small)


@pytest.mark.parametrize(
    ("settings_", "match"),
    [
        ({"current": -0.1}, "current=-0.1"),
        ({"geometric": 1.5}, "geometric=1.5"),
        ({"uniform": float("nan")}, "uniform=nan"),
        ({"random": float("inf")}, "random=inf"),
        ({"random": 0.4}, "random=0.4 sum to 1.1"),
        ({"discount": 1.0}, "discount=1.0"),
        ({"discount": -0.5}, "discount=-0.5"),
        ({"discount": float("nan")}, "discount=nan"),
    ],
)
def test_impossible_mixtures_name_the_field(settings_, match):
    with pytest.raises(ConfigError, match=match):
        GoalMixture(**settings_)
