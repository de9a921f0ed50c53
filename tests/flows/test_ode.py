"""Solvers against a field whose flow is known in closed form.

Between X_0 ~ N(0, 1) and an independent X_1 ~ N(m, s^2) the straight path has the marginal field
v_t(x) = m + (t s^2 - (1-t)) / q(t) (x - t m) with q(t) = (1-t)^2 + t^2 s^2, and its flow carries x0
to t m + sqrt(q(t)) x0.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.flows import integrate, integrate_through

MEAN, STD = 1.5, 0.4


def variance(t):
    return (1 - t) ** 2 + t**2 * STD**2


def field(x, t):
    t = t[..., None]
    return MEAN + (t * STD**2 - (1 - t)) / variance(t) * (x - t * MEAN)


def flow(x0, t):
    t = t[..., None]
    return t * MEAN + jnp.sqrt(variance(t)) * x0


def observed_orders(field, flow, solver, grid):
    """Return log2 of the ratio of errors when the number of steps doubles [2, times]."""
    # The fixed grid cuts its last step, which changes from one number of steps to the next unless
    # the end time lies on all of them.
    times = [0.25, 0.5, 0.75, 1.0] if grid == "fixed" else [0.1, 0.37, 0.5, 0.83, 1.0]
    t = jnp.asarray(times, jnp.float64)
    x0 = jnp.linspace(-2.0, 2.0, 5, dtype=jnp.float64)[None] * jnp.ones((len(times), 1))
    errors = []
    for n in (32, 64, 128):
        x = jax.jit(lambda: integrate(field, x0, t, num_steps=n, solver=solver, grid=grid))()  # noqa: B023
        errors.append(np.abs(np.asarray(x - flow(x0, t))).max(axis=1))
    return np.log2(np.stack(errors[:-1]) / np.stack(errors[1:]))


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2)])
@pytest.mark.parametrize("grid", ["scaled", "fixed"])
def test_error_falls_with_the_order_of_the_solver_at_every_end_time(solver, order, grid):
    with jax.enable_x64(True):
        gaussian = observed_orders(field, flow, solver, grid)
        # Midpoint happens to be of third order where q(t) is a quadratic, as it is here.
        assert np.all(gaussian > order - 0.1), gaussian
        plain = observed_orders(
            lambda x, t: jnp.cos(t)[..., None] * x,
            lambda x0, t: x0 * jnp.exp(jnp.sin(t))[..., None],
            solver,
            grid,
        )
        assert np.all(np.abs(plain - order) < 0.3), plain


@pytest.mark.parametrize("solver", ["euler", "midpoint"])
def test_one_step_by_hand(solver):
    x = integrate(
        lambda x, t: x + t[..., None], jnp.asarray([2.0]), jnp.asarray(0.5), num_steps=1,
        solver=solver,
    )  # fmt: skip
    # Euler: 2 + 0.5 * 2. Midpoint: the half step is 2.5, its slope 2.5 + 0.25.
    np.testing.assert_allclose(x, [3.0] if solver == "euler" else [2 + 0.5 * 2.75])


def test_unrolling_and_batching_change_nothing(key):
    x0 = jax.random.normal(key, (6, 3))
    t = jnp.linspace(0.0, 1.0, 6)
    want = integrate(field, x0, t, num_steps=7)
    for unroll in (2, 7, 100):
        got = integrate(field, x0, t, num_steps=7, unroll=unroll)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    rows = jax.vmap(lambda x, t: integrate(field, x, t, num_steps=7))(x0, t)
    np.testing.assert_allclose(rows, want, rtol=1e-6)
    np.testing.assert_array_equal(want[0], x0[0])  # t = 0 goes nowhere


@pytest.mark.parametrize("solver", ["euler", "midpoint"])
def test_a_path_through_t_is_the_solver_on_a_grid_that_holds_t(key, solver):
    x0 = jax.random.normal(key, (5, 2))
    t = jnp.asarray([0.0, 0.13, 0.5, 0.999, 1.0])
    x_t, v_t, end = integrate_through(field, x0, t, num_steps=4, solver=solver)
    for row in range(5):
        inner = float(t[row]) + (np.arange(4) - min(int(float(t[row]) * 4), 3)) / 4
        grid = jnp.asarray([0.0, *inner, 1.0])
        x, seen = x0[row], {}
        for now, then in itertools.pairwise(grid):
            v = field(x, now)
            seen[round(float(now), 6)] = (x, v)
            half = field(x + 0.5 * (then - now) * v, 0.5 * (now + then))
            x = x + (then - now) * (v if solver == "euler" else half)
        at_t = seen[round(float(t[row]), 6)]
        np.testing.assert_allclose(end[row], x, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(x_t[row], at_t[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(v_t[row], at_t[1], rtol=1e-5, atol=1e-5)


def test_a_path_through_t_comes_close_to_the_exact_flow(key):
    x0, t = jax.random.normal(key, (64, 1)), jnp.linspace(0.0, 1.0, 64)
    x_t, v_t, end = integrate_through(field, x0, t, num_steps=200)
    np.testing.assert_allclose(x_t, flow(x0, t), atol=0.02)
    np.testing.assert_allclose(v_t, field(flow(x0, t), t), atol=0.05)
    np.testing.assert_allclose(end, flow(x0, jnp.ones(64)), atol=0.02)


@pytest.mark.parametrize("solver", ["euler", "midpoint"])
def test_features_of_time_may_be_computed_beforehand(key, solver):
    x0, t = jax.random.normal(key, (6, 3)), jnp.linspace(0.0, 1.0, 6)
    settings = {"num_steps": 3, "solver": solver}

    def with_features(x, t, feature):
        return field(x, feature["half"] * 2.0)

    features = {"at_time": lambda t: {"half": t / 2.0}}
    for solve in (integrate, integrate_through):
        want = solve(field, x0, t, **settings)
        got = solve(with_features, x0, t, **settings, **features)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, want)


def test_x64_is_kept_and_does_not_leak():
    with jax.enable_x64(True):
        x0 = jnp.zeros(2, jnp.float64)
        assert integrate(field, x0, jnp.float64(1.0), num_steps=2).dtype == jnp.float64
    assert integrate(field, jnp.zeros(2), jnp.float32(1.0), num_steps=2).dtype == jnp.float32


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"num_steps": 0}, "num_steps=0"),
        ({"num_steps": 2, "solver": "rk4"}, "solver='rk4'"),
        ({"num_steps": 2, "grid": "random"}, "grid='random'"),
        ({"num_steps": 2, "unroll": 0}, "unroll=0"),
    ],
)
def test_bad_settings_are_named(bad, message):
    with pytest.raises(ConfigError, match=message):
        integrate(field, jnp.zeros(2), jnp.float32(1.0), **bad)
