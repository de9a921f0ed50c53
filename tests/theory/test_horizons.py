"""How far ahead a trained model looks: its discount, read off samples on a deterministic ring.

The policies walk around the ring at constant speed, so that where a sample lies tells how many
steps it is ahead, up to full turns. With an angle of w per step the exact measure has

    E exp(i angle) = sum_k (1 - gamma) gamma^(k-1) exp(i k w) = (1 - gamma) q / (1 - gamma q),

q = exp(i w); the horizon fitted is the one for which this is closest to the samples' mean. A
bootstrap that is lost on some rows, or a model that stays near the state, shows as a short one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

SPEEDS = (1.0, 0.5)  # of the two policies


def walk(oracle, hc_fraction, steps, drift, **changes):
    """Train on a ring without noise; the data hold the policies' speeds and others."""
    ring = oracle.Ring(
        noise=0.0,
        radial=0.0,
        drift=drift,
        means=tuple((speed,) for speed in SPEEDS),
        std=0.0,
        behaviour=((0.75,), 0.5),
    )
    return oracle.train(
        ring,
        hc_fraction,
        steps,
        data_scale=5.0,  # one step must not be lost under the noise of the flow
        gamma_sampler="log_uniform",
        uncond_fraction=0.0,
        **changes,
    )


@pytest.fixture(scope="session")
def walker(oracle):
    return walk(oracle, hc_fraction=0.25, steps=2000, drift=0.05)


def turns(oracle, trained, gamma, speed, starts=64, n=128):
    """Return the mean of exp(i angle) of samples, angles counted from where each started."""
    ring, rng = trained.system, np.random.default_rng(3)
    total = 0.0
    for i, s in enumerate(ring.start(rng, starts)):
        args = (jnp.asarray(x, jnp.float32) for x in (s, [speed]))
        z = jnp.eye(2)[SPEEDS.index(speed)]
        x = oracle.draw(trained.model, jax.random.key(i), *args, z, jnp.float32(gamma), n)
        x = np.asarray(x, np.float64) @ [1, 1j]
        total += np.mean(x / np.abs(x)) / (s @ [1, 1j])
    return total / starts


def fit_horizon(mean, angle):
    """Return the horizon whose exact mean of exp(i angle) is closest, to 0.1 %."""
    horizons = np.geomspace(1, 2000, 8000)
    gammas, q = 1 - 1 / horizons, np.exp(1j * angle)
    return horizons[np.argmin(np.abs((1 - gammas) * q / (1 - gammas * q) - mean))]


def test_the_fit_finds_the_horizon_of_exact_samples(oracle):
    rng = np.random.default_rng(0)
    for horizon in (1, 10, 50, 200):
        k = rng.geometric(1 / horizon, 200_000)
        got = fit_horizon(np.mean(np.exp(0.04j * k)), 0.04)
        np.testing.assert_allclose(got, horizon, rtol=0.01)


def check(oracle, trained, gamma):
    for speed in SPEEDS:
        angle = trained.system.drift * speed
        horizon = fit_horizon(turns(oracle, trained, gamma, speed), angle)
        np.testing.assert_allclose(horizon, 1 / (1 - gamma), rtol=0.1)
        # The same as a rate of continuation: what is left of gamma after training.
        np.testing.assert_allclose(1 - 1 / horizon, gamma, atol=0.005)


@pytest.mark.parametrize("gamma", [0.9, 0.95, 0.98])
def test_fitted_horizon(walker, oracle, gamma):
    check(oracle, walker, gamma)
