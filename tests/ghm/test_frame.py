import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.ghm import HORIZONS, Frame, displacement_table
from jumpyworld.ghm.frame import DISPLACEMENT_FLOOR


def frame(kind="moving", d=2, gain=10.0):
    table = np.outer(np.sqrt(HORIZONS), np.arange(1.0, d + 1)).astype(np.float32)
    return Frame(jnp.asarray(table), gain, kind)


def test_displacement_is_the_table_at_its_horizons_and_between_them_in_between():
    f = frame()
    for horizon in (1.0, 4.0, 256.0):
        got = f.displacement(jnp.float32(1 - 1 / horizon))
        np.testing.assert_allclose(got, np.sqrt(horizon) * np.asarray([1.0, 2.0]), rtol=1e-3)
    middle = f.displacement(jnp.float32(1 - 1 / np.sqrt(8)))
    np.testing.assert_allclose(middle, (np.sqrt(2) + 2) / 2 * np.asarray([1.0, 2.0]), rtol=1e-3)
    last = f.displacement(jnp.float32(1 - 1e-5))
    np.testing.assert_allclose(last, f.displacements[-1], rtol=1e-4)


@pytest.mark.parametrize("kind", ["moving", "matched"])
def test_a_frame_sees_and_asks_for_numbers_of_size_one(key, kind):
    f, n = frame(kind), 4000
    d = jnp.asarray([0.3, 7.0])
    noise_key, moved_key, t_key = jax.random.split(key, 3)
    s = jnp.asarray([40.0, -30.0])
    x0 = jax.random.normal(noise_key, (n, 2))
    x1 = s[None] + d[None] * jax.random.normal(moved_key, (n, 2))
    t = jax.random.uniform(t_key, (n,))
    x_t = (1 - t)[:, None] * x0 + t[:, None] * x1
    inputs = jax.vmap(lambda x, t: f.inputs(x, t, s, d))(x_t, t)
    np.testing.assert_allclose(jnp.std(inputs[:, :2], axis=0), [1.0, 1.0], atol=0.05)
    np.testing.assert_allclose(inputs[:, 2:], x_t / 10.0, rtol=1e-6)
    # What the network must put out for the true velocity is of size one too.
    silent = jax.vmap(lambda x, t: f.velocity(jnp.zeros(2), x, t, s, d))(x_t, t)
    unit = jax.vmap(lambda t: f.unit(t, d))(t)
    w = (x1 - x0 - silent) / unit
    np.testing.assert_allclose(jnp.std(w, axis=0), [1.0, 1.0], atol=0.05)
    loud = jax.vmap(lambda x, t: f.velocity(jnp.ones(2), x, t, s, d))(x_t, t)
    np.testing.assert_allclose(loud - silent, unit, atol=2e-5)
    if kind == "matched":  # and nothing of it can be told from what the network sees
        seen = np.corrcoef(np.concatenate([inputs[:, :2], w], axis=1).T)
        np.testing.assert_allclose(seen[:2, 2:], 0.0, atol=0.06)


def test_a_silent_network_in_a_matched_frame_draws_a_gaussian_of_the_displacement(key):
    f, s = frame("matched"), jnp.asarray([4.0, -3.0])
    d = jnp.asarray([0.3, 7.0])

    def path(x0):
        def euler(x, i):
            return x + f.velocity(jnp.zeros(2), x, i / 2000, s, d) / 2000, None

        return jax.lax.scan(euler, x0, jnp.arange(2000.0))[0]

    x0 = jax.random.normal(key, (500, 2))
    np.testing.assert_allclose(jax.vmap(path)(x0), s[None] + d[None] * x0, atol=0.05)


def test_absolute_frame_is_the_network_itself():
    f = frame("absolute")
    x, s = jnp.asarray([1.0, 2.0]), jnp.asarray([9.0, 9.0])
    np.testing.assert_array_equal(f.inputs(x, jnp.float32(0.4), s, s), x)
    np.testing.assert_array_equal(f.velocity(x, x, jnp.float32(0.4), s, s), x)
    np.testing.assert_array_equal(f.unit(jnp.float32(0.4), s), [1.0, 1.0])
    assert Frame.num_inputs("absolute", 5) == 5 and Frame.num_inputs("moving", 5) == 10


def test_a_dimension_that_stands_still_is_finite_at_the_end_of_the_path():
    f = Frame(jnp.zeros((len(HORIZONS), 2)), 1.0, "matched")
    d = f.displacement(jnp.float32(0.5))
    np.testing.assert_allclose(d, [DISPLACEMENT_FLOOR] * 2)
    one, end = jnp.ones(2), jnp.float32(1.0)
    assert np.isfinite(f.inputs(one, end, jnp.zeros(2), d)).all()
    assert np.isfinite(f.velocity(one, one, end, jnp.zeros(2), d)).all()


def test_displacement_table_against_a_line_and_a_random_walk():
    rng = np.random.default_rng(0)
    t, length = 20, 4000
    line = np.tile(np.arange(length), t)
    walk = rng.normal(size=(t, length)).cumsum(1).reshape(-1)
    observations = np.stack([line, walk], 1).astype(np.float32)
    starts = np.arange(t) * length
    table = displacement_table(observations, starts, starts + length - 1)
    assert table.shape == (len(HORIZONS), 2) and table.dtype == np.float32
    np.testing.assert_allclose(table[0], [1.0, 1.0], rtol=0.05)
    for i in range(1, 8):
        h = HORIZONS[i]
        # E k^2 of a geometric variable with mean h is 2 h^2 - h; E of a walk's square is E k = h.
        np.testing.assert_allclose(table[i], [np.sqrt(2 * h**2 - h), np.sqrt(h)], rtol=0.1)


def test_displacements_stay_within_a_trajectory():
    # Trajectories a thousand apart, of two states that differ by one.
    observations = np.stack([[1000.0 * i, 1000.0 * i + 1] for i in range(50)]).reshape(-1, 1)
    table = displacement_table(
        observations.astype(np.float32), np.arange(50) * 2, np.arange(50) * 2 + 1
    )
    np.testing.assert_allclose(table, 1.0)
    with pytest.raises(ConfigError, match="no transition"):
        displacement_table(observations[:1], np.asarray([0]), np.asarray([0]))


@pytest.mark.parametrize(("steps", "kept"), [(5, 0.36), (20, 0.80)])
def test_a_coarse_solver_loses_spread_in_a_slow_dimension(steps, kept):
    """What the module says of Euler's method where D is a tenth of the noise."""
    f, d = frame("matched", d=1), jnp.asarray([0.1])
    x = jnp.ones(1)
    for i in range(steps):
        x = x + f.velocity(jnp.zeros(1), x, jnp.float32(i / steps), jnp.zeros(1), d) / steps
    np.testing.assert_allclose(x / d, kept, atol=0.01)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_slow_dimensions_weigh_more_by_their_single_step(power):
    table = np.outer(np.sqrt(HORIZONS), [0.2, 4.0, 0.0]).astype(np.float32)
    got = np.asarray(Frame(jnp.asarray(table), 10.0, "moving").dimension_weights(power))
    steps = np.asarray([0.2, 4.0, 4.0])  # what stands still weighs no more than the fastest
    np.testing.assert_allclose(got / got[0], (0.2 / steps) ** (2 * power), rtol=1e-5)
    np.testing.assert_allclose(got.mean(), 1.0, rtol=1e-6)


def test_a_goal_is_seen_from_the_state_in_steps_and_far_ones_in_brief():
    f = frame()  # moves 4 and 8 within sixteen steps
    s = jnp.asarray([100.0, -7.0])
    np.testing.assert_allclose(f.towards(s, s), [0.0, 0.0])
    moved = jnp.asarray([4 * np.sinh(1.0), -8 * np.sinh(3.0)])
    np.testing.assert_allclose(f.towards(s, s + moved), [1.0, -3.0], rtol=1e-5)
