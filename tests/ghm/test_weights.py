"""The weights of the three terms of the TD-HC loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.ghm import mixture_weights


def test_weights_by_hand():
    np.testing.assert_allclose(mixture_weights(0.2, 0.5), (0.5, 0.3125, 0.1875), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_weights_keep_the_dtype(dtype):
    beta, gamma = np.asarray([0.0, 0.25], dtype), np.asarray([0.5, 0.75], dtype)
    assert {w.dtype.name for w in mixture_weights(beta, gamma)} == {dtype}
    with jax.enable_x64(True):
        both = jnp.asarray(beta), jnp.asarray(gamma)
        assert {w.dtype.name for w in mixture_weights(*both)} == {dtype}


def test_weights_sum_to_one_and_collapse_to_td_flow():
    rng = np.random.default_rng(0)
    gamma = rng.uniform(0, 0.999, 1000)
    beta = gamma * rng.uniform(0, 1, 1000)
    weights = np.stack(mixture_weights(beta, gamma))
    np.testing.assert_allclose(weights.sum(0), 1.0, rtol=1e-13)
    assert weights.min() >= 0
    for dtype in (np.float32, np.float64):
        g = gamma.astype(dtype)
        one, two, three = mixture_weights(g, g)
        np.testing.assert_array_equal(one, 1 - g)
        np.testing.assert_array_equal(two, g)
        np.testing.assert_array_equal(three, 0)
