import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.nn import FieldNetwork, FiLMUNet, hidden_as, layer_norm, mish

ANTMAZE = {"inputs": 29, "state_dim": 29, "action_dim": 8, "z_dim": 29}
SMALL = {"inputs": 4, "state_dim": 3, "action_dim": 2, "z_dim": 5, "width": 16, "stages": 2}
EMBED = {"embed_dim": 8, "embed_scale": 100.0}


def count(**arguments) -> int:
    """Number of parameters, without allocating them."""
    paper = {"embed_dim": 256, "embed_scale": 1000.0, "stages": 3}
    tree = eqx.filter_eval_shape(
        lambda: FieldNetwork(**{**paper, **arguments}, key=jax.random.key(0))
    )
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def noisy(tree):
    """Move every weight, also those that start at zero."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda w: w + jnp.asarray(0.1 * rng.normal(size=w.shape), w.dtype), tree)


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        ({"width": 1024}, 43_687_965),
        ({"width": 1024, "skip": "add"}, 34_247_709),
        ({"width": 1024, "films_per_block": 2}, 58_382_365),
        ({"width": 512}, 11_096_093),
        ({"width": 128}, 758_813),
    ],
)
def test_parameter_counts(arguments, parameters):
    assert count(**ANTMAZE, **arguments) == parameters


def test_layer_norm_has_mean_zero_and_variance_one():
    x = layer_norm(jnp.asarray([1.0, 2.0, 3.0, 10.0]))
    np.testing.assert_allclose([jnp.mean(x), jnp.var(x)], [0.0, 1.0], atol=1e-5)


@pytest.mark.parametrize("skip", ["concat", "add"])
@pytest.mark.parametrize("films", [1, 2])
def test_unet_is_the_sequence_of_blocks_it_says(key, skip, films):
    unet = noisy(FiLMUNet(4, 3, 16, 2, skip=skip, films_per_block=films, key=key))
    x, c = jax.random.normal(key, (4,)), jax.random.normal(key, (16,))
    film = unet.film_parameters(c)
    assert film.shape == (5 * films, 2, 16)

    def block(b, x, i):
        h = b.linear1(x)
        h, shortcut = (h[:16], h[16:]) if len(h) == 32 else (h, x)
        for j in range(films):
            scale, shift = film[i * films + j]
            h = mish((1 + scale) * layer_norm(h) + shift)
            h = b.linear2(h) if j == 0 else h
        return h + shortcut

    join = (lambda h, s: jnp.concatenate([h, s])) if skip == "concat" else (lambda h, s: h + s)

    def by_hand():
        h1 = block(unet.down[0], unet.project_in(x), 0)
        h2 = block(unet.down[1], h1, 1)
        h = block(unet.mid, h2, 2)
        h = block(unet.up[0], join(h, h2), 4)
        h = block(unet.up[1], join(h, h1), 3)
        return unet.project_out(h)

    got, want = jax.jit(lambda: unet(x, film))(), jax.jit(by_hand)()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("linear_mix", [False, True])
def test_conditioning_computed_once_equals_conditioning_recomputed(key, linear_mix):
    field = noisy(FieldNetwork(**SMALL, **EMBED, linear_mix=linear_mix, key=key))
    s, a, z = jax.random.normal(key, (3,)), jnp.ones(2), jnp.arange(5.0)
    gamma = jnp.float32(0.9)
    prepared = jax.jit(lambda: field.prepare(field.encoder.first(s, a, z), gamma))()
    x = jax.random.normal(key, (4,))

    @jax.jit
    @jax.vmap
    def both(t):
        c = field.encoder(s, a, z) + field.discount(gamma) + field.time(t)
        whole = field.unet(x, field.unet.film_parameters(c if linear_mix else mish(c)))
        return field(x, field.at_time(t), prepared), whole

    np.testing.assert_allclose(*both(jnp.linspace(0.0, 1.0, 5)), rtol=1e-5, atol=2e-6)


def test_output_is_zero_at_first_and_stays_finite_for_large_inputs(key):
    field = FieldNetwork(**SMALL, **EMBED, key=key)
    big = 1e3 * jax.random.normal(key, (5,))

    @eqx.filter_jit
    def output(field):
        first = field.encoder.first(big[:3], big[:2], big)
        time, prepared = field.at_time(jnp.float32(0.5)), field.prepare(first, jnp.float32(0.99))
        return field(big[:4], time, prepared)

    np.testing.assert_array_equal(output(field), np.zeros(3))
    assert np.isfinite(output(noisy(field))).all()


def test_every_input_reaches_the_output(key):
    field = noisy(FieldNetwork(**SMALL, **EMBED, key=key))

    def output(x, t, s, a, z, gamma):
        prepared = field.prepare(field.encoder.first(s, a, z), gamma)
        return jnp.sum(field(x, field.at_time(t), prepared))

    inputs = jnp.ones(4), jnp.float32(0.3), jnp.ones(3), jnp.ones(2), jnp.ones(5), jnp.float32(0.7)
    for gradient in jax.jit(jax.grad(output, argnums=range(6)))(*inputs):
        assert np.all(np.abs(gradient) > 0)


def test_a_network_without_z_and_discount_has_neither(key):
    arguments = {**SMALL, **EMBED, "z_dim": 0, "use_discount": False}
    field = FieldNetwork(**arguments, key=key)
    assert field.discount is None and field.encoder.z is None
    prepared = field.prepare(field.encoder.first(jnp.ones(3), jnp.ones(2), None), None)
    assert field(jnp.ones(4), field.at_time(jnp.float32(0.1)), prepared).shape == (3,)


@pytest.mark.parametrize("linear_mix", [False, True])
@pytest.mark.parametrize("films", [1, 2])
def test_sixteen_bits_inside_and_thirty_two_at_the_edges(key, linear_mix, films):
    arguments = {**SMALL, **EMBED, "linear_mix": linear_mix, "films_per_block": films}
    full = noisy(FieldNetwork(**arguments, key=key))
    half = hidden_as(full, jnp.bfloat16)
    narrow = (half.unet.project_in, half.unet.project_out, half.encoder.state, half.encoder.z)
    assert all(layer.weight.dtype == jnp.float32 for layer in narrow)
    assert half.encoder.action_token.dtype == jnp.float32
    assert (
        half.unet.mid.linear1.weight.dtype == half.time.mlp.layers[0].weight.dtype == jnp.bfloat16
    )

    @eqx.filter_jit
    def output(field, x):
        prepared = field.prepare(field.encoder.first(x[:3], x[:2], x[:5]), jnp.float32(0.9))
        return field(x[:4], field.at_time(jnp.float32(0.4)), prepared)

    x = jax.random.normal(key, (64, 5))
    want, got = jax.vmap(lambda x: output(full, x))(x), jax.vmap(lambda x: output(half, x))(x)
    assert got.dtype == jnp.float32
    error = jnp.linalg.norm(got - want) / jnp.linalg.norm(want)
    assert 0 < error < 0.02  # bf16 has 8 bits
    gradient = jax.grad(lambda f: jnp.sum(output(hidden_as(f, jnp.bfloat16), x[0])))(full)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradient))
