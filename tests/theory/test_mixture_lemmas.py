"""The two lemmas behind TD-HC (appendix, lem:mix_vf and lem:mix-vf-minimization), on Gaussians.

The straight path from N(0, 1) to N(m_i, s_i^2) has marginals N(t m_i, q_i(t)) with
q_i = (1-t)^2 + t^2 s_i^2 and the field v_i(x) = m_i + (t s_i^2 - (1-t)) / q_i (x - t m_i).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

LAMBDA = (0.2, 0.3, 0.5)
MEANS = (-1.0, 0.5, 2.0)
STDS = (0.3, 1.5, 0.7)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def parts(x, t):
    """Densities and velocities of the components at one point, [3] each."""
    mean, std = jnp.asarray(MEANS), jnp.asarray(STDS)
    q = (1 - t) ** 2 + t**2 * std**2
    density = jnp.exp(-((x - t * mean) ** 2) / (2 * q)) / jnp.sqrt(2 * jnp.pi * q)
    return density, mean + (t * std**2 - (1 - t)) / q * (x - t * mean)


def mixture_density(x, t):
    return jnp.sum(jnp.asarray(LAMBDA) * parts(x, t)[0])


def mixture_velocity(x, t):
    """Eq. mix-vf."""
    density, velocity = parts(x, t)
    weight = jnp.asarray(LAMBDA) * density
    return jnp.sum(weight * velocity) / jnp.sum(weight)


def test_the_mixture_field_generates_the_mixture_path():
    """Continuity equation dp/dt = -d(p v)/dx; the paper's proof drops the sign, harmlessly."""
    grid = jnp.meshgrid(jnp.linspace(-4, 6, 101), jnp.linspace(0.0, 0.95, 20))
    x, t = (g.ravel() for g in grid)
    change = jax.vmap(jax.grad(mixture_density, argnums=1))(x, t)
    flux = jax.vmap(jax.grad(lambda x, t: mixture_density(x, t) * mixture_velocity(x, t)))(x, t)
    assert float(jnp.abs(change).max()) > 0.1
    np.testing.assert_allclose(change + flux, 0.0, atol=1e-10)


@pytest.mark.parametrize("t", [0.0, 0.3, 0.8, 1.0])
def test_the_mixture_field_minimises_the_weighted_sum_of_regressions(t):
    """sum_i lambda_i E_{p_i} |u - v_i|^2 exceeds its value at v by exactly E_p |u - v|^2."""
    x = jnp.linspace(-12.0, 14.0, 20_001)
    dx = x[1] - x[0]
    density, velocity = jax.vmap(parts, in_axes=(0, None))(x, t)
    weight = jnp.asarray(LAMBDA)[None] * density
    best = jax.vmap(mixture_velocity, in_axes=(0, None))(x, t)
    best = jnp.where(weight.sum(1) > 0, best, 0.0)

    def loss(u):
        return jnp.sum(weight * (u[:, None] - velocity) ** 2) * dx

    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b, c = rng.normal(size=3)
        h = a * jnp.sin(b * x) + c * x / 5
        gain = jnp.sum(weight.sum(1) * h**2) * dx
        np.testing.assert_allclose(loss(best + h) - loss(best), gain, atol=1e-10)
        assert float(loss(best + h)) > float(loss(best))


def test_td_hc_weights_make_such_a_mixture():
    """The loss's minimiser for one row: a target field that is the mixture of its three terms."""
    from jumpyworld.ghm import mixture_weights

    weights = np.asarray(mixture_weights(0.4, 0.9))
    rng = np.random.default_rng(1)
    n, t = 400_000, 0.6
    which = rng.choice(3, n, p=weights)
    mean, std = np.asarray(MEANS)[which], np.asarray(STDS)[which]
    x0, x1 = rng.normal(size=n), mean + std * rng.normal(size=n)
    x = (1 - t) * x0 + t * x1
    # Average conditional velocity near a point = Eq. mix-vf with the TD-HC weights.
    for at in (-0.5, 0.4, 1.2):
        near = np.abs(x - at) < 0.02
        density, velocity = (np.asarray(p) for p in parts(at, t))
        want = np.sum(weights * density * velocity) / np.sum(weights * density)
        se = (x1 - x0)[near].std() / np.sqrt(near.sum())
        assert abs((x1 - x0)[near].mean() - want) < 4 * se + 0.02
