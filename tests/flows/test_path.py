import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.flows import interpolate, target_velocity


def test_ends_of_the_path_are_noise_and_data(key):
    x0, x1 = jax.random.normal(key, (2, 5, 3))
    np.testing.assert_array_equal(interpolate(x0, x1, jnp.zeros(5)), x0)
    np.testing.assert_array_equal(interpolate(x0, x1, jnp.ones(5)), x1)


def test_each_sample_has_its_own_time():
    x0, x1 = jnp.zeros((2, 2)), jnp.asarray([[4.0, 8.0], [4.0, 8.0]])
    got = interpolate(x0, x1, jnp.asarray([0.25, 0.5]))
    np.testing.assert_array_equal(got, [[1.0, 2.0], [2.0, 4.0]])


def test_velocity_is_the_derivative_of_the_path(key):
    x0, x1 = jax.random.normal(key, (2, 3))
    for t in (0.0, 0.3, 1.0):
        slope = jax.jacfwd(lambda t: interpolate(x0, x1, t))(jnp.float32(t))
        np.testing.assert_allclose(slope, target_velocity(x0, x1), rtol=1e-6)
