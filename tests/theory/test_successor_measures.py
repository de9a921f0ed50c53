"""Trained models against successor measures known in closed form.

One gamma-conditioned model per system (chain, ring) and objective (TD-Flow, TD-HC), 64 wide, each
trained once, in under a minute of processor time; the systems are in conftest.py. Earth mover's
distances are between 256 samples, averaged over pairs of states and policies, in units of the same
distance between two exact sets of samples.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BARS = [(0.0, 1.5), (0.5, 1.5), (0.9, 1.5), (0.98, 2.5)]


@pytest.mark.parametrize("unconditional", [False, True], ids=["policy", "behaviour"])
@pytest.mark.parametrize(("gamma", "bar"), BARS)
def test_model_matches_the_exact_measure(trained, oracle, gamma, bar, unconditional):
    """The policies' measures after an action, and without z and action the behaviour policy's."""
    emd = oracle.distances(trained, gamma, unconditional=unconditional)
    assert emd["model"] < bar * emd["floor"]


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_bootstrapping_does_not_drift_to_the_marginal(trained, oracle, gamma):
    """The exact measure is at least twice as far from the states of the data as from the model."""
    emd = oracle.distances(trained, gamma)
    assert emd["model"] < 0.5 * emd["marginal"]


def test_training_takes_less_than_a_minute(trained):
    assert trained.seconds < 60


def many(oracle, trained, s, a, z, gamma, n=2048):
    s, a, gamma = (jnp.asarray(x, jnp.float32) for x in (s, a, gamma))
    out = oracle.draw(trained.model, jax.random.key(9), s, a, jnp.eye(2)[z], gamma, n)
    return np.asarray(out, np.float64)


def test_gamma_zero_is_the_one_step_kernel(trained, oracle):
    system = trained.system
    rng = np.random.default_rng(5)
    for s in system.start(rng, 3):
        for z, mean in enumerate(system.means):
            got = many(oracle, trained, s, mean, z, 0.0)
            want = system.advance(rng, np.tile(s, (4096, 1)), np.tile(mean, (4096, 1)))
            step = np.linalg.norm(want.std(0))
            assert np.linalg.norm(got.mean(0) - want.mean(0)) < 0.25 * step
            np.testing.assert_allclose(got.std(0), want.std(0), rtol=0.25, atol=0.02)


def test_the_first_action_is_used(trained, oracle):
    """The mean of the next state moves with the action as the system says it does."""
    system = trained.system
    rng = np.random.default_rng(6)
    low, high = np.full(system.action_dim, -0.5), np.full(system.action_dim, 0.7)
    for s in system.start(rng, 3):
        for gamma in (0.0, 0.5):
            moved = [many(oracle, trained, s, a, 0, gamma).mean(0) for a in (low, high)]
            exact = [
                oracle.sample_exactly(system, rng, s, gamma, 20_000, 0, a).mean(0)
                for a in (low, high)
            ]
            shift, want = moved[1] - moved[0], exact[1] - exact[0]
            assert np.linalg.norm(shift - want) < 0.2 * np.linalg.norm(want)


@pytest.mark.parametrize("horizon", [1, 5, 20])
def test_the_action_moves_the_future_as_much_as_it_should(trained, oracle, horizon):
    """Shift of the mean between two actions over the spread, within a fifth of the exact ratio."""
    system, gamma = trained.system, 1 - 1 / horizon
    rng = np.random.default_rng(8)
    low, high = np.full(system.action_dim, -0.5), np.full(system.action_dim, 0.7)
    ours, exact = [], []
    for i, s in enumerate(system.start(rng, 6)):
        for z in range(2):
            ours.append([many(oracle, trained, s, a, z, gamma, 512) for a in (low, high)])
            # The same random numbers for both actions, as in the model's samples.
            exact.append(
                [
                    oracle.sample_exactly(system, np.random.default_rng(i), s, gamma, 20_000, z, a)
                    for a in (low, high)
                ]
            )
    np.testing.assert_allclose(effect(ours), effect(exact), rtol=0.2)


def effect(samples):
    """Return the mean over pairs of |difference of means| / spread of samples [pairs, 2, n, d]."""
    samples = np.asarray(samples)
    shift = np.linalg.norm(np.diff(samples.mean(2), axis=1)[:, 0], axis=-1)
    spread = np.sqrt(samples.var(2).sum(-1).mean(1))
    return np.mean(shift / spread)


def test_two_policies_are_told_apart(trained, oracle):
    """With the other z, and all else equal, samples are far from a policy's own measure."""
    system = trained.system
    rng = np.random.default_rng(7)
    gamma = 0.9  # at 0.98 both policies have been all around the ring
    own, other = [], []
    for s in system.start(rng, 4):
        for z, mean in enumerate(system.means):
            exact = oracle.sample_exactly(system, rng, s, gamma, 256, z, mean)
            for asked, into in ((z, own), (1 - z, other)):
                samples = many(oracle, trained, s, mean, asked, gamma, 256)
                into.append(oracle.emd(samples, exact))
    assert np.mean(other) > 2 * np.mean(own)
