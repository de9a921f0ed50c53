import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumpyworld.data import Dataset
from jumpyworld.data.dataset import states_from_transitions
from jumpyworld.errors import DataError

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=12)  # transitions per trajectory


def rows_of(lengths, d=3):
    """States that carry (episode, t), and everything from_arrays needs."""
    episode = np.repeat(np.arange(len(lengths)), np.asarray(lengths) + 1)
    t = np.concatenate([np.arange(n + 1) for n in lengths])
    observations = np.stack([episode, t, *[episode + 0.5] * (d - 2)], 1).astype(np.float32)
    actions = np.linspace(-1, 1, 2 * len(t), dtype=np.float32).reshape(-1, 2)
    terminals = np.append(episode[1:] != episode[:-1], True)
    return observations, actions, terminals


@given(lengths)
@settings(max_examples=60, deadline=None)
def test_bounds_follow_the_terminals(lengths):
    observations, actions, terminals = rows_of(lengths)
    data = Dataset.from_arrays(observations, actions, terminals, extras={"qpos": observations})
    assert data.lengths.tolist() == lengths
    assert data.num_trajectories == len(lengths)
    assert data.num_states == len(observations) == data.num_transitions + len(lengths)
    assert data.num_transitions == sum(lengths) == len(data.valid_indices)
    assert data.starts.dtype == data.ends.dtype == np.int64
    np.testing.assert_array_equal(data.terminals, terminals)
    i = data.valid_indices
    np.testing.assert_array_equal(data.observations[i, 0], data.observations[i + 1, 0])
    np.testing.assert_array_equal(data.observations[i, 1] + 1, data.observations[i + 1, 1])
    for e, n in enumerate(lengths):
        trajectory = data.trajectory(e)
        assert trajectory.observations[:, 1].tolist() == list(range(n + 1))
        assert set(trajectory.observations[:, 0]) == {e}
        assert len(trajectory.actions) == len(trajectory.extras["qpos"]) == n + 1


@given(lengths)
@settings(max_examples=60, deadline=None)
def test_transitions_and_states_hold_the_same_steps(lengths):
    observations, actions, terminals = rows_of(lengths)
    valid = np.flatnonzero(~terminals)
    out = states_from_transitions(
        "test",
        observations[valid],
        observations[valid + 1],
        terminals[valid + 1],
        {"actions": actions[valid]},
    )
    np.testing.assert_array_equal(out["observations"], observations)
    np.testing.assert_array_equal(out["terminals"], terminals)
    np.testing.assert_array_equal(out["padded"], terminals)
    np.testing.assert_array_equal(out["actions"][valid], actions[valid])
    last = np.flatnonzero(terminals)
    np.testing.assert_array_equal(out["actions"][last], actions[last - 1])


def test_broken_transition_names_row_and_column():
    observations, _, terminals = rows_of([4, 3])
    valid = np.flatnonzero(~terminals)
    after = observations[valid + 1].copy()
    after[5, 2] += 0.25
    with pytest.raises(DataError, match=r"1 rows inside trajectories, first at row 5, column 2"):
        states_from_transitions("test", observations[valid], after, terminals[valid + 1], {})
    after[5, 2] -= 0.25
    after[3, 2] += 9  # the last transition of trajectory 0 may lead anywhere
    states_from_transitions("test", observations[valid], after, terminals[valid + 1], {})


def test_shapes_and_dtypes_of_properties():
    observations, actions, terminals = rows_of([4, 3])
    data = Dataset.from_arrays(
        observations.astype(np.float64), actions, terminals.astype(np.int64)[:, None]
    )
    assert (data.observation_dim, data.action_dim) == (3, 2)
    assert data.observations.dtype == data.actions.dtype == np.float32
    assert data.source == "memory" and data.domain is None


def test_arrays_are_read_only_but_the_callers_stay_writable():
    observations, actions, terminals = rows_of([4, 3])
    data = Dataset.from_arrays(observations, actions, terminals)
    for array in (data.observations, data.actions, data.starts, data.valid_indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    observations[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.domain = "x"


def test_alias_becomes_the_dataset_name():
    observations, actions, terminals = rows_of([4, 3], d=2)
    data = Dataset.from_arrays(observations, actions, terminals, domain="pointmaze-medium")
    assert data.domain == "pointmaze-medium-navigate-v0"


def test_fingerprint_sees_every_array_and_bound():
    observations, actions, terminals = rows_of([4, 3])
    extras = {"qpos": observations}

    def fingerprint(o=observations, a=actions, t=terminals, x=extras, **kwargs):
        return Dataset.from_arrays(o, a, t, extras=x, **kwargs).fingerprint()

    base = fingerprint()
    other_bounds = terminals.copy()
    other_bounds[1] = True
    changed = observations.copy()
    changed[2, 1] = np.nextafter(changed[2, 1], 9, dtype=np.float32)
    assert base == fingerprint(source="elsewhere")
    assert base == fingerprint(o=np.asfortranarray(observations))
    assert base == fingerprint(o=observations.astype(">f4"), x={"qpos": observations.astype(">f4")})
    different = [
        fingerprint(o=changed),
        fingerprint(a=-actions),
        fingerprint(t=other_bounds),
        fingerprint(x={}),
        fingerprint(x={"qvel": observations}),
        fingerprint(x={"qpos": changed}),
    ]
    assert len({base, *different}) == 7


@pytest.mark.parametrize(
    ("starts", "ends"),
    [([0], [5]), ([0, 3], [3, 6]), ([1], [6]), ([], []), ([0, 3], [2]), ([0, 5, 4], [4, 3, 6])],
)
def test_bounds_that_do_not_tile_are_refused(starts, ends):
    with pytest.raises(DataError, match="tile"):
        Dataset(np.zeros((7, 2)), np.zeros((7, 1)), np.array(starts), np.array(ends))
