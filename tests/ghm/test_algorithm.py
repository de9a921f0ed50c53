import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import (
    GeometricHorizonModel,
    GHMSpec,
    WorldModelConfig,
    inference_model,
    init,
    step,
    world_model,
)
from jumpyworld.ghm.algorithm import optimiser, sample_batch, target_rate, trajectory_futures
from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.losses import matching_loss, regressions


@pytest.fixture(scope="module")
def run(config, data):
    """Compiled steps: ``run(state, policy, keys)`` scans over keys."""

    @eqx.filter_jit
    def run(state, policy, keys, config=config):
        return jax.lax.scan(lambda s, k: step(s, data, k, config, policy), state, keys)

    return run


def leaves_equal(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_scan_of_steps_is_the_steps_one_by_one(run, config, spec, policy):
    keys = jax.random.split(jax.random.key(5), 4)
    start = init(jax.random.key(0), config, spec, policy)
    together, metrics = run(start, policy, keys)
    state = start
    for i in range(4):
        state, last = run(state, policy, keys[i : i + 1])
    leaves_equal(together, state)
    leaves_equal(together, run(start, policy, keys)[0])
    assert int(together.step) == 4 and together.step.dtype == jnp.int32
    for name, values in metrics.items():
        assert values.shape == (4,) and np.isfinite(values).all(), name
        np.testing.assert_allclose(values[-1], last[name][0], rtol=1e-5)
    assert {"loss", "loss/one_step", "loss/beta_bootstrap"} <= set(metrics)


def test_the_target_is_the_closed_form_average_of_the_online_weights(run, config, spec, policy):
    state = init(jax.random.key(0), config, spec, policy)
    first = state.model.field
    rate, online = config.target_rate, []
    for i in range(5):
        state, _ = run(state, policy, jax.random.split(jax.random.key(i), 1))
        online.append(state.model.field)
    weights = [rate * (1 - rate) ** (4 - i) for i in range(5)]
    want = jax.tree.map(
        lambda f, *o: (1 - rate) ** 5 * f + sum(w * x for w, x in zip(weights, o, strict=True)),
        first,
        *online,
    )
    for a, b in zip(jax.tree.leaves(state.target.field), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_only_the_field_is_trained_and_inference_uses_the_average(run, config, spec, policy):
    start = init(jax.random.key(0), config, spec, policy)
    leaves_equal(start.model, start.target)
    state, _ = run(start, policy, jax.random.split(jax.random.key(5), 4))
    for part in ("frame", "state_normaliser", "z_normaliser"):
        leaves_equal(getattr(state.model, part), getattr(start.model, part))
        leaves_equal(getattr(state.target, part), getattr(start.model, part))
    moved = [
        float(jnp.abs(a - b).max())
        for a, b in zip(
            jax.tree.leaves(state.model.field), jax.tree.leaves(start.model.field), strict=True
        )
    ]
    assert min(moved) > 0
    assert inference_model(state) is state.target
    assert isinstance(inference_model(state), GeometricHorizonModel)


def test_init_can_be_traced_and_does_not_share_buffers(config, spec, policy):
    shapes = eqx.filter_eval_shape(init, jax.random.key(0), config, spec, policy)
    state = init(jax.random.key(0), config, spec, policy)
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(shapes), jax.tree.leaves(state), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
    buffers = [
        leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((state.model, state.target))
    ]
    assert len(set(buffers)) == len(buffers)
    blank = eqx.filter_eval_shape(init, jax.random.key(0), config, GHMSpec.blank(3, 2), policy)
    assert jax.tree.structure(blank) == jax.tree.structure(state)


def test_one_hot_batches_draw_every_policy(config, change, data):
    config = change(config, z_source="one_hot", batch_size=600)
    z = np.asarray(sample_batch(data, jax.random.key(0), config, 4).z)
    assert z.shape == (600, 4) and np.all(z.sum(1) == 1) and np.all(np.isin(z, [0, 1]))
    assert np.all(np.abs(z.mean(0) - 0.25) < 0.06)


def test_goals_are_states_of_the_row_or_of_the_whole_dataset(config, change, data, dataset):
    config = change(config, batch_size=4000)
    batch = sample_batch(data, jax.random.key(0), config, 3)
    row_of = {row.tobytes(): i for i, row in enumerate(dataset.observations)}
    s = np.asarray([row_of[r.tobytes()] for r in np.asarray(batch.observations)])
    z = np.asarray([row_of[r.tobytes()] for r in np.asarray(batch.z)])
    nexts = np.asarray([row_of[r.tobytes()] for r in np.asarray(batch.next_observations)])
    np.testing.assert_array_equal(nexts, s + 1)
    same = s // 51 == z // 51
    # Half of the goals lie in the row's own future; random ones hit its trajectory in a quarter.
    ahead = same & (z > s)
    assert abs(same.mean() - (0.5 + 0.5 / 4)) < 0.03
    assert 0.5 < ahead.mean() < 0.5 + 0.5 / 4


def test_the_learning_rate_follows_a_cosine_only_where_asked(config, change):
    params = {"w": jnp.ones(3)}

    def updates(config, steps):
        transform, out = optimiser(config), []
        state = transform.init(params)
        with jax.numpy_dtype_promotion("standard"):
            for _ in range(steps):
                change, state = transform.update({"w": jnp.ones(3)}, state, params)
                out.append(float(change["w"][0]))
        return np.asarray(out)

    constant = updates(change(config, learning_rate=0.1), 5)
    np.testing.assert_allclose(constant, -0.1, rtol=1e-4)
    decay = change(config, learning_rate=0.1, final_lr_fraction=0.2, gradient_steps=4)
    want = 0.1 * (0.2 + 0.8 * (1 + np.cos(np.pi * np.minimum(np.arange(7), 4) / 4)) / 2)
    np.testing.assert_allclose(updates(decay, 7), -want, rtol=1e-4)
    decayed = updates(change(config, weight_decay=0.5, learning_rate=0.1), 1)
    np.testing.assert_allclose(decayed, -0.1 * 1.5, rtol=1e-3)


@pytest.mark.parametrize("kind", ["ghm", "world model"])
def test_a_spike_reaches_adam_as_a_multiple_of_what_is_usual_only_where_asked(config, change, kind):
    def updates(sizes, ratio):
        if kind == "ghm":
            transform = optimiser(change(config, grad_clip=ratio))
        else:
            transform = world_model.optimiser(WorldModelConfig.preset("debug", grad_clip=ratio))
        state, out = transform.init({"w": jnp.ones(3)}), []
        with jax.numpy_dtype_promotion("standard"):
            for size in sizes:
                update, state = transform.update({"w": jnp.full(3, size)}, state)
                out.append(np.asarray(update["w"]))
        return np.asarray(out)

    spike, usual = [1.0, 500.0, 1.0, 1.0], [1.0, 4.0, 1.0, 1.0]
    np.testing.assert_allclose(updates(spike, 4.0), updates(usual, 0.0), rtol=1e-4)
    assert np.abs(updates(spike, 0.0) - updates(usual, 0.0)).max() > 1e-4
    for bad in (1.0, -1.0, 0.5):
        with pytest.raises(ConfigError, match=f"grad_clip={bad}: must be above 1, or 0"):
            updates(spike, bad)


def test_the_target_slows_down_along_a_power_law_only_where_asked(config, change):
    assert target_rate(jnp.int32(7), config) == config.target_rate
    slowing = change(config, target_rate=0.1, final_target_rate=0.001, gradient_steps=100)
    rates = [float(target_rate(jnp.int32(k), slowing)) for k in (0, 50, 100, 1000)]
    np.testing.assert_allclose(rates, [0.1, 0.01, 0.001, 0.001], rtol=1e-5)
    with pytest.raises(ConfigError, match="final_target_rate=0"):
        change(config, final_target_rate=0.0)


def test_a_curriculum_trains_short_horizons_first(run, config, change, spec, policy):
    growing = change(config, curriculum=1.0, gradient_steps=8)
    start = init(jax.random.key(0), growing, spec, policy)
    keys = jax.random.split(jax.random.key(5), 12)
    means = run(start, policy, keys, growing)[1]["discount/gamma_mean"]
    assert means[0] < 0.5 < means[8:].mean()


def test_futures_are_states_of_the_same_trajectory_at_geometric_times(data, dataset):
    index = jnp.full((20_000,), 51 + 30, jnp.int32)  # row 30 of a trajectory of rows 0 to 50
    gamma = jnp.full((20_000,), 0.9, jnp.float32)
    futures, inside = trajectory_futures(data, jax.random.key(0), index, gamma)
    row_of = {row.tobytes(): i for i, row in enumerate(dataset.observations)}
    offset = np.asarray([row_of[row.tobytes()] for row in np.asarray(futures)]) - (51 + 30)
    assert offset.min() == 1 and offset.max() == 20
    # 20 steps are left: a geometric time exceeds them with chance .9^20.
    assert abs(1 - np.mean(inside) - 0.9**20) < 0.01
    np.testing.assert_array_equal(offset[~np.asarray(inside)], 20)
    for k in (1, 2, 10):
        assert abs(np.mean(offset == k) - 0.1 * 0.9 ** (k - 1)) < 0.01
    _, now = trajectory_futures(data, jax.random.key(0), index, jnp.zeros_like(gamma))
    assert np.all(now)  # gamma = 0 is the next state


def test_unconditional_rows_learn_the_state_reached_or_bootstrap_where_the_data_end(
    config, change, data, make_model, policy
):
    config = change(config, uncond_source="trajectory", hc_fraction=0.0, uncond_fraction=1.0)
    model, target = make_model(config), make_model(config, seed=1)
    draws = sample_draws(jax.random.key(2), config, 3)
    gamma = jnp.full_like(draws.gamma, 0.98)
    draws = eqx.tree_at(lambda d: (d.gamma, d.beta), draws, (gamma, gamma))
    batch = sample_batch(data, jax.random.key(4), config, 3, draws.gamma)
    assert 0 < np.mean(batch.inside) < 1
    one_step, boot, _ = regressions(target, batch, draws, jax.random.key(0), config, policy)
    total, _ = matching_loss(model, target, batch, draws, jax.random.key(0), config, policy)
    error = 0.0
    for k, inside in enumerate(np.asarray(batch.inside)):
        term = one_step if inside else boot
        s = batch.observations[k]
        condition = model.condition(model.encode(s, None, None), s, draws.gamma[k])
        v = model.velocity(term.x[k], draws.t[k], condition)
        error += float(jnp.sum((v - term.velocity[k]) ** 2))
    np.testing.assert_allclose(total, error / config.batch_size, rtol=1e-4)
    with pytest.raises(ConfigError, match="mask_action"):
        change(config, mask_action=False)
