import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.nn import MLP, Linear, mish


def test_mish_and_its_gradient_agree_with_the_definition():
    x = jnp.linspace(-30.0, 60.0, 2001)
    np.testing.assert_allclose(mish(x), x * jnp.tanh(jax.nn.softplus(x)), rtol=3e-6, atol=1e-7)
    slope = jax.vmap(jax.grad(lambda v: v * jnp.tanh(jax.nn.softplus(v))))(x)
    np.testing.assert_allclose(jax.vmap(jax.grad(mish))(x), slope, rtol=1e-5, atol=2e-6)


def test_mish_is_finite_for_any_finite_input():
    x = jnp.asarray([-1e30, -1e3, 1e3, 1e30])
    assert np.isfinite(mish(x)).all()
    assert np.isfinite(jax.vmap(jax.grad(mish))(x)).all()


def test_linear_keeps_unit_variance_and_zero_gain_gives_zero(key):
    layer = Linear(400, 300, key=key)
    assert abs(float(jnp.std(layer(jax.random.normal(key, (400,))))) - 1.0) < 0.15
    np.testing.assert_array_equal(layer.bias, np.zeros(300))
    assert Linear(3, 4, key=key, bias=False).bias is None
    np.testing.assert_array_equal(Linear(3, 4, key=key, gain=0.0)(jnp.ones(3)), np.zeros(4))


def test_mlp_by_hand(key):
    mlp = MLP(2, (3, 1), key=key, activation=jnp.tanh)
    x = jnp.asarray([0.3, -0.7])
    first, last = mlp.layers
    want = jnp.tanh(x @ first.weight + first.bias) @ last.weight + last.bias
    np.testing.assert_allclose(mlp(x), want, rtol=1e-6)
    assert [layer.weight.shape for layer in mlp.layers] == [(2, 3), (3, 1)]
