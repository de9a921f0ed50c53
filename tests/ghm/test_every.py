"""``bootstrap_grid="every"``: all points of a bootstrap's path are learnt from."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.flows import integrate_along
from jumpyworld.ghm import GHMConfig, mixture_weights
from jumpyworld.ghm.algorithm import init, step
from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.losses import matching_loss

KEY = jax.random.key(3)
N = 3
compiled_loss = eqx.filter_jit(matching_loss)


@pytest.fixture
def every(config, change):
    return change(config, bootstrap_grid="every", train_steps=N)


@pytest.fixture
def setting(every, make_model, make_batch):
    draws = sample_draws(jax.random.key(1), every, 3)
    return make_model(every), make_model(every, seed=1), make_batch(every), draws


# The path


@pytest.mark.parametrize("solver", ["euler", "midpoint"])
def test_points_are_a_step_apart_and_the_end_is_at_one(key, solver):
    """dx/dt = a x, of which a step of length h makes 1 + a h (+ (a h)^2 / 2) times x."""
    a, n = -0.7, 4
    x0, u = jax.random.normal(key, (5, 2)), jnp.asarray([0.0, 0.2, 0.5, 0.999, 1.0])
    x, v, t, end = integrate_along(lambda x, t: a * x, x0, u, num_steps=n, solver=solver)

    def factor(h):
        return 1 + a * h + (0.5 * (a * h) ** 2 if solver == "midpoint" else 0.0)

    for row in range(5):
        shift = float(u[row])
        np.testing.assert_allclose(t[:, row], [(shift + i) / n for i in range(n)], rtol=1e-6)
        want = [factor(shift / n) * factor(1 / n) ** i * np.asarray(x0[row]) for i in range(n)]
        np.testing.assert_allclose(x[:, row], want, rtol=1e-5)
        np.testing.assert_allclose(v[:, row], a * np.asarray(want), rtol=1e-5)
        np.testing.assert_allclose(end[row], factor((1 - shift) / n) * want[-1], rtol=1e-5)


# The loss


@eqx.filter_jit
def velocity(model, x, t, s, a, z, gamma):
    return model.velocity(x, t, model.condition(model.encode(s, a, z), s, gamma))


def path(model, x0, u, solver, *condition):
    """Return N points with their times and velocities, and the end, one evaluation at a time."""
    grid = np.asarray([0.0, *((u + np.arange(N)) / N), 1.0], np.float32)
    x, points = x0, []
    for now, then in itertools.pairwise(grid):
        v = velocity(model, x, jnp.asarray(now), *condition)
        points.append((x, jnp.asarray(now), v))
        h = then - now
        if solver == "midpoint":
            v = velocity(model, x + 0.5 * h * v, jnp.asarray(now + 0.5 * h), *condition)
        x = x + h * v
    return points[1:], x


@pytest.mark.parametrize(
    "changes",
    [{}, {"solver": "midpoint", "reduction": "mean", "frame": "matched", "loss_units": "frame"}],
    ids=["ours", "options"],
)
def test_the_loss_written_out_row_by_row(make_model, make_batch, every, change, policy, changes):
    config = change(every, **changes)
    online, target, batch = make_model(config), make_model(config, seed=1), make_batch(config)
    draws = sample_draws(jax.random.key(1), config, 3)
    hc, c, solver = config.layout.hc, config.layout.conditional, config.solver
    assert 0 < hc < c < config.batch_size
    next_key, plus_key = jax.random.split(KEY)
    s, s_next, z = batch.observations, batch.next_observations, batch.z
    a_next = policy.sample(next_key, s_next[:c], z[:c])
    u, gamma, beta = draws.t, draws.gamma, draws.beta

    terms, ends = [], []
    for k in range(config.batch_size):
        x1 = target.state_normaliser.normalise(s_next[k])
        az = (a_next[k], z[k]) if k < c else (None, None)
        points, end = path(target, draws.x0_beta[k], float(u[k]), solver, s_next[k], *az, beta[k])
        x0 = draws.x0_one_step[k]
        straight = [((1 - t) * x0 + t * x1, t, x1 - x0) for _, t, _ in points]
        terms.append([straight, points])
        ends.append(end)
    s_plus = target.state_normaliser.denormalise(jnp.stack(ends[:hc]))
    a_plus = policy.sample(plus_key, s_plus, z[:hc])
    for k in range(hc):
        condition = s_plus[k], a_plus[k], z[k], gamma[k]
        terms[k].append(path(target, draws.x0_gamma[k], float(u[k]), solver, *condition)[0])

    total = 0.0
    for k, of_row in enumerate(terms):
        az = (batch.actions[k], z[k]) if k < c else (None, None)
        d = np.asarray(online.frame.displacement(gamma[k]), np.float64)
        weights = mixture_weights(float(beta[k]), float(gamma[k]))
        for weight, points in zip(weights, of_row, strict=False):
            for x, t, want in points:
                error = np.asarray(velocity(online, x, t, s[k], *az, gamma[k]) - want, np.float64)
                if config.loss_units == "frame":
                    error /= d / np.sqrt((1 - float(t)) ** 2 + (float(t) * d) ** 2)
                total += weight / N * float(np.sum(error**2))
    total /= config.batch_size * (3 if config.reduction == "mean" else 1)
    got, _ = compiled_loss(online, target, batch, draws, KEY, config, policy)
    np.testing.assert_allclose(got, total, rtol=1e-5)


def test_it_is_the_mean_of_the_paths_through_each_of_its_times(setting, every, change, policy):
    online, target, batch, draws = setting
    through = change(every, bootstrap_grid="through")

    def at(times):
        moved = eqx.tree_at(lambda d: d.t, draws, times)
        return compiled_loss(online, target, batch, moved, KEY, through, policy)[0]

    want = np.mean([at((draws.t + i) / N) for i in range(N)])
    got, _ = compiled_loss(online, target, batch, draws, KEY, every, policy)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_its_expectation_over_the_shift_is_that_over_a_uniform_time(setting, every, change, policy):
    online, target, batch, draws = setting
    t = jax.random.uniform(KEY, (2, 400, every.batch_size))

    @eqx.filter_jit
    def losses(times, config):
        def loss(t):
            moved = eqx.tree_at(lambda d: d.t, draws, t)
            return matching_loss(online, target, batch, moved, KEY, config, policy)[0]

        return jax.lax.map(loss, times, batch_size=50)

    one = np.asarray(losses(t[0], change(every, bootstrap_grid="through")), np.float64)
    all_of = np.asarray(losses(t[1], every), np.float64)
    error = np.sqrt((one.var() + all_of.var()) / len(one))
    assert error < 0.02 * one.mean()  # so that the next line says something
    assert abs(one.mean() - all_of.mean()) < 4 * error
    assert all_of.std() < 0.7 * one.std()


def test_no_gradient_reaches_the_target(setting, every, policy):
    online, target, batch, draws = setting

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(both):
        return matching_loss(both[0], both[1], batch, draws, KEY, every, policy)[0]

    online, averaged = gradient((online, target))
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(online.field))
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(averaged))


# Training


@pytest.mark.parametrize("changes", [{"hc_fraction": 0.0}, {"uncond_source": "trajectory"}])
def test_a_step_is_finite(every, change, spec, policy, data, changes):
    config = change(every, **changes)
    state = init(jax.random.key(0), config, spec, policy)
    after, metrics = eqx.filter_jit(step)(state, data, KEY, config, policy)
    assert int(after.step) == 1 and all(np.isfinite(v) for v in metrics.values())


def test_what_does_not_go_with_it_is_named():
    message = "bootstrap_grid=every: must be scaled or fixed with jumps=ahead"
    with pytest.raises(ConfigError, match=message):
        GHMConfig(jumps="ahead", bootstrap_grid="every")
    with pytest.raises(ConfigError, match="one of scaled, fixed, through, every"):
        GHMConfig(bootstrap_grid="all")  # pyright: ignore[reportArgumentType]
    assert GHMConfig(bootstrap_grid="every", train_steps=7).times_per_row == 7
    assert GHMConfig(bootstrap_grid="through", train_steps=7).times_per_row == 1
