"""Targets that look several rows ahead: by hand on a chain, against NumPy, and one row as ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.data import Dataset, device_data
from jumpyworld.data.sampling import gather_transitions
from jumpyworld.policies import gc1s, gctd3

NEXT_Q = 0.5
# A chain of rows 0 ... 4 and another of rows 5, 6; discount .5, three steps, Qbar = .5 everywhere.
# (row, goal's row, with the mask, without it)
BY_HAND = [
    (0, 1, 1.0, 1.0625),  # reached at once
    (0, 2, 0.5, 0.5625),  # between
    (0, 3, 0.25, 0.3125),  # at the row that bootstraps
    (0, 4, 0.0625, 0.0625),  # just beyond: .5^3 Qbar
    (0, 0, 0.0625, 0.0625),  # where one is now: no reward without a step
    (1, 0, 0.0625, 0.0625),  # behind
    (0, 5, 0.0625, 0.0625),  # in another trajectory
    (2, 4, 0.5, 0.625),  # the end comes first: two steps, .5^2 Qbar
    (2, 3, 1.0, 1.125),
    (2, 5, 0.125, 0.125),  # the row after the end is no step away
    (3, 4, 1.0, 1.25),
    (3, 0, 0.25, 0.25),  # one step is left
    (5, 6, 1.0, 1.25),
]


@pytest.fixture(scope="module")
def chains():
    rows = np.arange(7, dtype=np.float32)
    dataset = Dataset.from_arrays(rows[:, None], rows[:, None] / 7, np.isin(rows, (4, 6)))
    return device_data(dataset)


def target_at(data, row, goal, config):
    batch = gather_transitions(data, jnp.array([row]), config.n_step)
    wait = jnp.array(goal - row - (config.success_on == "next"))
    span = (batch.next_index - batch.index)[0]
    return gctd3.critic_target(wait, span, jnp.array(NEXT_Q), config)


@pytest.mark.parametrize("row, goal, masked, free", BY_HAND)
def test_targets_by_hand(chains, row, goal, masked, free):
    for mask, want in ((True, masked), (False, free)):
        config = gctd3.GCTD3Config(discount=0.5, n_step=3, mask_at_goal=mask)
        assert target_at(chains, row, goal, config) == want
        bounded = gctd3.GCTD3Config(discount=0.5, n_step=3, mask_at_goal=mask, critic_loss="bce")
        assert target_at(chains, row, goal, bounded) == min(want, 1.0)


def test_success_on_the_current_row_counts_from_there(chains):
    """The goal at S is worth 1, at the row that bootstraps it is the next one's business."""
    config = gctd3.GCTD3Config(discount=0.5, n_step=3, mask_at_goal=True, success_on="current")
    got = [float(target_at(chains, 0, goal, config)) for goal in range(5)]
    assert got == [1.0, 0.5, 0.25, 0.0625, 0.0625]


@pytest.mark.parametrize("mask", [True, False])
def test_one_step_is_the_printed_target_bit_for_bit(mask):
    config = gctd3.GCTD3Config(discount=0.99, mask_at_goal=mask)
    rng = np.random.default_rng(0)
    next_q = rng.normal(size=1000).astype(np.float32)
    wait = rng.integers(-2, 3, 1000)
    reached = (wait == 0).astype(np.float32)
    carry = 1 - reached if mask else np.ones_like(reached)
    want = reached + np.float32(0.99) * carry * next_q
    target = jax.vmap(lambda w, q: gctd3.critic_target(w, jnp.array(1), q, config))
    np.testing.assert_array_equal(target(jnp.asarray(wait), next_q), want)


def numpy_target(goal, row, end, n, discount, mask, next_q):
    """Walk the rows one by one, as an agent would."""
    total, place = 0.0, row
    for k in range(n):
        if place == end:
            break
        place += 1
        if place == goal:
            total += discount**k
            if mask:
                return total
    return total + discount ** (place - row) * next_q


@pytest.mark.parametrize("module, mask", [(gctd3, True), (gc1s, False)])
def test_a_whole_step_against_numpy(walks, oracle, shaken, quick, module, mask):
    """The step's targets, from its own draws, for either source of the last action."""
    dataset, data, spec = walks
    config = module.GCTD3Config if module is gctd3 else module.GC1SConfig
    config = config.preset(
        "debug", discount=0.9, n_step=7, mask_at_goal=mask, batch_size=256, goal_trajectory=0.8
    )
    state = shaken(lambda k: module.init(k, config, spec))
    key = jax.random.key(2)
    keys = jax.random.split(key, 5)
    _, metrics = quick(lambda s, k: module.step(s, data, k, config))(state, key)
    row = np.asarray(gctd3.sample_transitions(data, keys[0], 256).index)
    goal = np.asarray(gctd3.draw_critic_goals(data, keys[1], jnp.asarray(row), config)[0])
    end = np.asarray(dataset.ends)[np.searchsorted(dataset.ends, row)]
    last = np.minimum(row + 7, end)
    units, a = state.normaliser, dataset.actions
    x = (dataset.observations - np.asarray(units.offset)) / np.asarray(units.scale)
    a_last = a[last]
    if module is gctd3:
        noise = jax.random.normal(keys[3], (256, 2))
        student = state.networks.actors.student
        a_last = np.clip(oracle.net(student, noise, x[last], x[goal]), -1, 1)
    next_q = oracle.ensemble(state.target, x[last], a_last, x[goal])[..., 0].mean(0)
    rows = zip(goal, row, end, next_q, strict=True)
    target = np.array([numpy_target(g, r, e, 7, 0.9, mask, q) for g, r, e, q in rows])
    between = (goal > row) & (goal <= last)
    assert between.mean() > 0.2 and (last == end).mean() > 0.1 and (~between).mean() > 0.2
    q = oracle.ensemble(state.networks.critic, x[row], a[row], x[goal])[..., 0]
    np.testing.assert_allclose(metrics["critic/target_mean"], target.mean(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(metrics["critic/target_max"], target.max(), rtol=1e-5)
    np.testing.assert_allclose(metrics["critic/loss"], ((q - target) ** 2).mean(), rtol=1e-5)
