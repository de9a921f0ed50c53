"""Losses of flows, GC-BC and HFBC, against hand and NumPy from the networks' weights."""

import jax
import jax.numpy as jnp
import numpy as np
from loss_parts import DA, SPEC, D, linear_net

from jumpyworld.data.relabel import GoalMixture
from jumpyworld.policies import gcbc, hfbc, networks


def test_the_net_is_what_numpy_computes(oracle, shaken, quick):
    for layer_norm in (True, False):
        net = shaken(lambda k, norm=layer_norm: networks.Net(4, (8, 6), 3, key=k, layer_norm=norm))
        x = oracle.normal(0, 5, 4)
        got = quick(jax.vmap(lambda v, net=net: net(v[:1], v[1:])))(x)
        np.testing.assert_allclose(got, oracle.net(net, x), atol=1e-5)


def test_an_ensemble_is_its_members(oracle, shaken, quick):
    ensemble = shaken(
        lambda key: networks.Ensemble(2, lambda k: networks.Net(4, (8,), 3, key=k), key=key)
    )
    x = oracle.normal(0, 5, 4)
    got = quick(jax.vmap(lambda v: ensemble(v), out_axes=1))(x)
    np.testing.assert_allclose(got, oracle.ensemble(ensemble, x), atol=1e-5)
    assert not np.allclose(got[0], got[1])
    values = jnp.array([1.0, 4.0])
    assert networks.aggregate(values, "mean") == 2.5
    assert networks.aggregate(values, "min") == 1.0


def test_flow_matching_by_hand():
    # A field that always says 2 per dimension; data 3, noise 1: velocity 2, no error.
    field = linear_net(np.zeros((4, 2)), [2, 2])
    x0, t, condition = jnp.ones(2), jnp.array(0.25), jnp.zeros(1)
    assert networks.flow_matching_loss(field, x0, jnp.full(2, 3.0), t, condition) == 0
    # Data 4: velocity 3, error 1 in each of two dimensions.
    assert networks.flow_matching_loss(field, x0, jnp.full(2, 4.0), t, condition) == 2
    np.testing.assert_allclose(networks.flow_map(field, x0, condition, 10), [3, 3], atol=1e-6)


def cloning_numpy(oracle, field, s, g, x1, x0, t):
    x0, t = np.asarray(x0, np.float64), np.asarray(t, np.float64)[:, None]
    velocity = oracle.net(field, (1 - t) * x0 + t * x1, t, s, g)
    return ((velocity - (x1 - x0)) ** 2).sum(1).mean()


def test_cloning_against_numpy(rows, key, oracle, shaken, quick):
    s, g, _, _, a, _ = rows
    field = shaken(lambda k: networks.Net(DA + 1 + 2 * D, (16, 16), DA, key=k, layer_norm=True))
    x0, t = networks.draw_flow(key, jnp.asarray(a))
    got = quick(gcbc.cloning_loss)(field, s, g, a, x0, t)
    np.testing.assert_allclose(got, cloning_numpy(oracle, field, s, g, a, x0, t), rtol=1e-5)


def test_hierarchy_by_hand():
    # Inputs are X_t, t, s and the level's goal.
    high = linear_net([[1], [0], [-1], [1]], [0])  # X_t - s + g
    low = linear_net([[0], [0], [1], [1]], [0])  # s + goal
    column = lambda *x: jnp.array(x)[:, None]  # noqa: E731
    batch = hfbc.HFBCBatch(
        s=column(1.0, 1.0),
        a=column(1.0, -1.0),
        g=column(2.0, 5.0),
        w=column(2.0, 5.0),
        ahead=column(3.0, -1.0),
        high_noise=(column(0.0, 1.0), jnp.array([0.5, 0.25])),
        low_noise=(column(0.0, 1.0), jnp.array([0.5, 0.5])),
    )
    loss, metrics = hfbc.hierarchy_loss(high, low, batch)
    # High: X_t = (1, 2), velocities (2, 6) for W - X_0 = (2, 4). Low: (4, 0) for A - X_0 = (1, -2).
    assert metrics["high/loss"] == (0 + 4) / 2
    assert metrics["low/loss"] == (9 + 4) / 2
    assert loss == 8.5


def test_hierarchy_against_numpy(rows, key, oracle, shaken, quick):
    s, g, ahead, w, a, _ = rows
    policy = shaken(lambda k: hfbc.init_policy(k, hfbc.HFBCConfig(hidden=(16, 16)), SPEC))
    high, low = networks.draw_flow(key, jnp.asarray(w)), networks.draw_flow(key, jnp.asarray(a))
    batch = hfbc.HFBCBatch(s, a, g, w, ahead, high, low)
    loss, metrics = quick(hfbc.hierarchy_loss)(policy.high, policy.low.field, batch)
    want_high = cloning_numpy(oracle, policy.high, s, g, w, *high)
    want_low = cloning_numpy(oracle, policy.low.field, s, ahead, a, *low)
    np.testing.assert_allclose(metrics["high/loss"], want_high, rtol=1e-5)
    np.testing.assert_allclose(metrics["low/loss"], want_low, rtol=1e-5)
    np.testing.assert_allclose(loss, want_high + want_low, rtol=1e-5)


def test_subgoals_stop_at_goals_and_ends(walks):
    data = walks[1]  # trajectories: rows 0-30, 31-32, 33-80
    index = jnp.array([0, 0, 0, 0, 20, 31, 33, 33, 5])
    goals = jnp.array([40, 7, 25, 26, 30, 32, 0, 33, 2])
    got = hfbc.subgoal_rows(data, index, goals, 25)
    # elsewhere, sooner, just there, later, past the end, short one, another's, itself, behind
    assert got.tolist() == [25, 7, 25, 25, 30, 32, 58, 33, 30]


def test_hfbc_batches_are_rows_of_one_trajectory(walks, key):
    dataset, data, _ = walks
    config = hfbc.HFBCConfig(batch_size=500, lookahead=10)
    mixture = GoalMixture(0.0, 1.0, 0.0, 0.0, 0.95)
    index, batch = hfbc.draw_batch(data, key, config, mixture, lambda x: x)
    row_of = {tuple(row): i for i, row in enumerate(dataset.observations.tolist())}
    find = lambda x: np.array([row_of[tuple(row)] for row in np.asarray(x).tolist()])  # noqa: E731
    n, w, g, ahead = np.asarray(index), find(batch.w), find(batch.g), find(batch.ahead)
    ends = np.repeat(dataset.ends, dataset.lengths + 1)[n]
    assert np.array_equal(find(batch.s), n)
    assert (g > n).all() and (g <= ends).all()
    assert np.array_equal(w, np.minimum(n + 10, g))
    assert np.array_equal(ahead, np.minimum(n + 10, ends))
    np.testing.assert_array_equal(batch.a, dataset.actions[n])
