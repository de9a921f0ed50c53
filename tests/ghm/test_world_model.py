import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import WorldModelConfig, world_model
from jumpyworld.ghm.probe import weights, world_model_probe
from jumpyworld.storage.schema import from_json, to_json
from jumpyworld.storage.trees import to_arrays

CONFIG = WorldModelConfig.preset("debug", width=16, embed_dim=8, batch_size=12, eval_steps=3)


@pytest.fixture(scope="module")
def trained(data, spec):
    @eqx.filter_jit
    def run(state, keys):
        return jax.lax.scan(lambda s, k: world_model.step(s, data, k, CONFIG), state, keys)

    state = world_model.init(jax.random.key(0), CONFIG, spec)
    return run(state, jax.random.split(jax.random.key(1), 20))


def test_it_has_neither_z_nor_discount_nor_tokens(trained):
    field = trained[0].model.field
    assert field.discount is None and field.encoder.z is None and field.encoder.z_token is None


def test_steps_are_finite_and_the_average_follows(trained):
    state, metrics = trained
    assert int(state.step) == 20
    assert all(np.isfinite(v).all() and v.shape == (20,) for v in metrics.values())
    assert world_model.inference_model(state) is state.target
    assert 0 < float(weights(state)["ema/distance"]) < 1


def test_samples_are_raw_and_use_state_and_action(trained, dataset, shake, key):
    model = shake(trained[0].target)
    s, a = jnp.asarray(dataset.observations[:5]), jnp.asarray(dataset.actions[:5])
    rows = model.sample(key, s, a)
    assert rows.shape == (5, 3)
    assert model.sample(key, s[0], a[0]).shape == (3,)
    assert np.abs(np.asarray(rows - s)).max() < 500
    assert np.abs(np.asarray(rows - model.sample(key, s, a + 0.5))).max() > 1e-3
    assert np.abs(np.asarray(rows - model.sample(key, s, a, solver="midpoint"))).max() > 1e-5


def test_loss_by_hand(spec):
    config = WorldModelConfig.preset("debug", width=16, embed_dim=8, normaliser="identity",
                                     frame="absolute")  # fmt: skip
    model = world_model.WorldModel(config, spec, key=jax.random.key(0))
    rng = np.random.default_rng(0)
    s, s_next = jnp.asarray(rng.normal(size=(2, 6, 3)), jnp.float32)
    loss, _ = world_model.world_model_loss(model, s, s[:, :2], s_next, jax.random.key(2))
    # The field is zero at first: what is left is |S' - X_0|^2.
    x0 = jax.random.normal(jax.random.split(jax.random.key(2))[1], (6, 3))
    np.testing.assert_allclose(loss, jnp.mean(jnp.sum((s_next - x0) ** 2, -1)), rtol=1e-5)


def test_a_stored_model_gives_the_same_samples(trained, spec, dataset, key):
    model = trained[0].target
    arrays = {name: np.asarray(leaf) for name, leaf in to_arrays(model).items()}
    document = {"config": to_json(CONFIG), "spec": spec.shapes()}
    loaded = world_model.from_checkpoint(document, arrays)
    s, a = jnp.asarray(dataset.observations[:5]), jnp.asarray(dataset.actions[:5])
    np.testing.assert_array_equal(loaded.sample(key, s, a), model.sample(key, s, a))


def test_its_log_tells_whether_it_listens_and_where_it_goes(trained, data, shake, key):
    state = eqx.tree_at(lambda s: s.target, trained[0], shake(trained[0].target))
    found = eqx.filter_jit(world_model_probe)(state, data, key, CONFIG.batch_size)
    assert {"action/sensitivity", "sample/outside", "sample/spread", "ema/distance"} <= set(found)
    assert all(np.isfinite(value) for value in found.values())
    assert float(found["action/sensitivity"]) > 0


def test_rounded_inner_layers_learn_nearly_the_same(trained, data, spec):
    rough = dataclasses.replace(CONFIG, precision="bf16")
    state, key = trained[0], jax.random.key(3)
    exact, near = (
        eqx.filter_jit(world_model.step)(state, data, key, config)[1]["loss"]
        for config in (CONFIG, rough)
    )
    assert exact != near
    np.testing.assert_allclose(near, exact, rtol=0.05)
    leaves = jax.tree.leaves(world_model.init(key, rough, spec).model)
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)


def test_the_learning_rate_falls_along_a_cosine(trained, data):
    """Adam divides by what it multiplies with: a step of half the rate moves half as far."""
    state, key = trained[0], jax.random.key(3)

    def moved(done, **change):
        config = dataclasses.replace(CONFIG, gradient_steps=8, **change)
        opt_state = world_model.optimiser(config).init(state.model.field)
        if change:
            opt_state = eqx.tree_at(lambda s: s[1].count, opt_state, jnp.int32(done))
        before = dataclasses.replace(state, opt_state=opt_state)
        after, _ = eqx.filter_jit(world_model.step)(before, data, key, config)
        leaves = zip(*map(jax.tree.leaves, (after.model.field, state.model.field)), strict=True)
        return np.concatenate([np.ravel(new - old) for new, old in leaves])

    constant = moved(0)
    for done, share in [(0, 1.0), (4, 0.6), (8, 0.2), (20, 0.2)]:
        np.testing.assert_allclose(
            moved(done, final_lr_fraction=0.2), share * constant, rtol=1e-3, atol=1e-7
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width=0"),
        ({"gradient_steps": 0}, "gradient_steps=0"),
        ({"embed_dim": 7}, "embed_dim=7"),
        ({"target_rate": 2.0}, "at most"),
        ({"final_lr_fraction": 1.5}, "final_lr_fraction=1.5"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        WorldModelConfig.preset("debug", **change)


def test_presets_survive_json():
    for name in ("paper", "base", "small", "debug"):
        config = WorldModelConfig.preset(name)
        assert from_json(WorldModelConfig, to_json(config)) == config
    with pytest.raises(ConfigError, match="'huge'"):
        WorldModelConfig.preset("huge")
