"""Eq. hc-bellman on finite MDPs, where successor measures are matrices.

With P [SA, S] the transitions and Pi [S, SA] the policy, m_gamma = (1-gamma)(I - gamma P Pi)^-1 P.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.ghm import mixture_weights


class TabularMDP:
    def __init__(self, seed, states=7, actions=3):
        rng = np.random.default_rng(seed)
        self.P = rng.dirichlet(np.full(states, 0.3), states * actions)
        self.Pi = np.zeros((states, states * actions))
        for s in range(states):
            self.Pi[s, s * actions : (s + 1) * actions] = rng.dirichlet(np.full(actions, 0.5))

    def successor_measure(self, gamma):
        transitions = self.P @ self.Pi
        return (1 - gamma) * np.linalg.solve(np.eye(len(transitions)) - gamma * transitions, self.P)


def discounts(seed, n):
    rng = np.random.default_rng(seed)
    gamma = 1 - rng.uniform(size=n) ** 3  # many near one
    return gamma * rng.uniform(size=n), gamma


def test_the_oracle_is_the_sum_that_defines_it():
    mdp, gamma = TabularMDP(0), 0.9
    total, power = 0.0, mdp.P
    for k in range(600):
        total = total + (1 - gamma) * gamma**k * power
        power = mdp.P @ mdp.Pi @ power
    np.testing.assert_allclose(mdp.successor_measure(gamma), total, atol=1e-12)
    np.testing.assert_allclose(mdp.successor_measure(0.0), mdp.P, atol=1e-14)


@pytest.mark.parametrize("seed", range(4))
def test_horizon_consistency_bellman_equation(seed):
    mdp = TabularMDP(seed)
    for beta, gamma in zip(*discounts(seed, 50), strict=True):
        with jax.enable_x64(True):
            weights = mixture_weights(jnp.float64(beta), jnp.float64(gamma))
            one, two, three = (float(w) for w in weights)
        assert abs(one + two + three - 1) < 1e-12
        short, long = mdp.successor_measure(beta), mdp.successor_measure(gamma)
        after = mdp.P @ mdp.Pi
        right = one * mdp.P + two * after @ short + three * after @ short @ mdp.Pi @ long
        np.testing.assert_allclose(long, right, rtol=0, atol=1e-10)


def test_the_weights_are_the_only_ones_for_which_it_holds():
    """The three matrices are independent, so a least-squares fit recovers the weights."""
    mdp = TabularMDP(1)
    beta, gamma = 0.6, 0.95
    short, long = mdp.successor_measure(beta), mdp.successor_measure(gamma)
    after = mdp.P @ mdp.Pi
    parts = np.stack([m.ravel() for m in (mdp.P, after @ short, after @ short @ mdp.Pi @ long)], 1)
    fitted = np.linalg.lstsq(parts, long.ravel(), rcond=None)[0]
    np.testing.assert_allclose(fitted, mixture_weights(beta, gamma), atol=1e-8)


def test_with_equal_discounts_it_is_the_ordinary_bellman_equation():
    mdp, gamma = TabularMDP(2), 0.93
    m = mdp.successor_measure(gamma)
    one, two, three = mixture_weights(gamma, gamma)
    assert three == 0 and two == gamma
    np.testing.assert_allclose(m, one * mdp.P + two * mdp.P @ mdp.Pi @ m, atol=1e-12)
