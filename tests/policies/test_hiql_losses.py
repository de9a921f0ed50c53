"""Losses of HIQL, against hand and NumPy in float64 from the networks' weights."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_parts import SPEC, B, linear_ensemble, linear_net

from jumpyworld.policies import hiql


def test_expectiles_and_weights_by_hand():
    advantage, error = jnp.array([2.0, -2.0, 0.0]), jnp.array([1.0, 3.0, 2.0])
    np.testing.assert_allclose(
        hiql.expectile_loss(advantage, error, 0.7), [0.7, 0.3 * 9, 0.7 * 4], rtol=1e-6
    )
    assert hiql.weight(jnp.array(0.0), 3.0) == 1
    assert hiql.weight(jnp.array(math.log(2.0)), 2.0) == pytest.approx(4)
    assert hiql.weight(jnp.array(50.0), 3.0) == 100
    assert jax.grad(hiql.weight)(jnp.array(0.1), 3.0) == 0
    np.testing.assert_allclose(
        hiql.to_sphere(jnp.array([3.0, 4.0])), np.sqrt(2) * np.array([0.6, 0.8])
    )
    assert np.isfinite(jax.grad(lambda x: hiql.to_sphere(x)[0])(jnp.zeros(2))).all()


def test_weighted_distances_by_hand():
    weight, mean = jnp.array([2.0, 0.5]), jnp.array([[1.0, 2.0], [0.0, 0.0]])
    got = jax.vmap(hiql.weighted_distance)(weight, mean, jnp.array([[3.0, 1.0], [2.0, 0.0]]))
    # 2 (4 + 1) / 2 and .5 (4 + 0) / 2
    np.testing.assert_allclose(got, [5, 1])


def test_values_by_hand():
    # phi(s, g) = g, for goals on the sphere of one dimension, which are 1 and -1.
    phi = linear_net([[0], [1]], [0])
    value = hiql.Value(phi, linear_ensemble([1, 0], [-1, 1]))  # s and g - s
    target = hiql.Value(phi, linear_ensemble([1, -2], [0, -4]))  # s - 2g and -4g
    config = hiql.HIQLConfig(discount=0.5, expectile=0.7)
    s, s_next, g = (jnp.array(x)[:, None] for x in ([1.0, -1.0], [2.0, 5.0], [1.0, 1.0]))
    reached = jnp.array([False, True])
    each = jax.vmap(lambda *row: hiql.value_loss(value, target, *row, config))
    # Row 1: the target says (0, -4) of s' and (-1, -4) of s, so the advantage is
    # -1 + .5 (-4) + 2.5 = -.5 (with the mean of s' it would be +.5) and the share .3; backups
    # (-1, -3) against values (1, 0).
    # Row 2: at the goal backups are 0 whatever follows; the target says (-3, -4) of s, so the
    # advantage is 3.5 and the share .7; values (-1, 2).
    want = [0.3 * (4 + 9), 0.7 * (1 + 4)]
    np.testing.assert_allclose(each(s, s_next, g, reached), want, rtol=1e-6)


@pytest.fixture(scope="module")
def hiql_setting(rows, shaken, quick):
    s, g, s_next, w, a, _ = rows
    config = hiql.HIQLConfig(hidden=(16, 16), representation_dim=4, discount=0.9)
    state = shaken(lambda k: hiql.init(k, config, SPEC))
    reached = np.arange(B) % 4 == 0
    batch = hiql.HIQLBatch(
        *map(jnp.asarray, (s, a, s_next, g, reached, w, g[::-1].copy(), s_next[::-1].copy()))
    )
    return config, state, batch


def test_hiql_against_numpy(hiql_setting, oracle, quick):
    config, state, b = hiql_setting
    nets = state.networks

    def phi(s, g):
        x = oracle.net(nets.value.phi, s, g)
        return x * 2 / np.sqrt((x**2).sum(1, keepdims=True))

    def v(heads, s, g):
        return oracle.ensemble(heads, s, phi(s, g))[..., 0]

    mask = 1 - np.asarray(b.reached, np.float64)
    next_v = v(state.target, b.s_next, b.value_g)
    advantage = -mask + 0.9 * mask * next_v.min(0) - v(state.target, b.s, b.value_g).mean(0)
    error = -mask + 0.9 * mask * next_v - v(nets.value.heads, b.s, b.value_g)
    value = (np.where(advantage >= 0, 0.7, 0.3) * error**2).sum(0)
    mean_v = lambda s, g: v(nets.value.heads, s, g).mean(0)  # noqa: E731
    low_weight = np.minimum(np.exp(3 * (mean_v(b.s_next, b.low_g) - mean_v(b.s, b.low_g))), 100)
    low = oracle.net(nets.low, b.s, phi(b.s, b.low_g))
    low = low_weight * ((b.a - low) ** 2).sum(1) / 2
    high_weight = np.minimum(np.exp(3 * (mean_v(b.high_w, b.high_g) - mean_v(b.s, b.high_g))), 100)
    high = oracle.net(nets.high, b.s, b.high_g)
    high = high_weight * ((phi(b.s, b.high_w) - high) ** 2).sum(1) / 2
    each = quick(jax.vmap(lambda r: hiql.row_loss(nets, state.target, r, config)))
    loss, metrics = each(b)
    np.testing.assert_allclose(metrics["value/loss"], value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(metrics["low/loss"], low, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(metrics["high/loss"], high, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(loss, value + low + high, rtol=1e-5)


def test_hiql_stop_gradients(hiql_setting, norm, quick):
    config, state, batch = hiql_setting

    @quick
    def gradients(networks, target):
        def total(both, name):
            each = jax.vmap(lambda r: hiql.row_loss(*both, r, config)[1][name])
            return jnp.sum(each(batch))

        names = ("value/loss", "low/loss", "high/loss")
        return {name: jax.grad(total)((networks, target), name) for name in names}

    for name, (online, target) in gradients(state.networks, state.target).items():
        sizes = {part: norm(getattr(online, part)) for part in ("value", "low", "high")}
        trained = name.split("/")[0]
        assert sizes.pop(trained) > 0
        assert set(sizes.values()) == {0.0}, f"{name} reaches {sizes}"
        assert norm(target) == 0


def test_hiql_batches(walks, key):
    dataset, data, _ = walks
    config = hiql.HIQLConfig(batch_size=4000, lookahead=10, discount=0.9)
    batch = hiql.draw_batch(data, key, config, lambda x: x)
    row_of = {tuple(row): i for i, row in enumerate(dataset.observations.tolist())}
    find = lambda x: np.array([row_of[tuple(row)] for row in np.asarray(x).tolist()])  # noqa: E731
    n, goal, high = find(batch.s), find(batch.value_g), find(batch.high_g)
    ends = np.repeat(dataset.ends, dataset.lengths + 1)[n]
    assert np.array_equal(find(batch.s_next), n + 1)
    assert np.array_equal(np.asarray(batch.reached), goal == n)
    assert np.mean(goal == n) == pytest.approx(0.2 + 0.3 / dataset.num_transitions, abs=0.02)
    assert (high > n).all() and (high <= ends).all()
    assert np.array_equal(find(batch.high_w), np.minimum(n + 10, high))
    assert np.array_equal(find(batch.low_g), np.minimum(n + 10, ends))


def test_actors_begin_with_small_outputs():
    """A tenth of the usual size in the last layer, as OGBench's actors; values begin as usual."""
    config = hiql.HIQLConfig(hidden=(64, 64), representation_dim=64)
    networks = hiql.init(jax.random.key(0), config, SPEC).networks

    def size(net):
        weight = net.layers[-1].weight
        return float(jnp.std(weight)) * math.sqrt(weight.shape[0])  # inputs first

    assert size(networks.high) == pytest.approx(0.1, rel=0.1)
    assert size(networks.low) == pytest.approx(0.1, rel=0.15)
    assert size(networks.value.phi) == pytest.approx(1.0, rel=0.1)
