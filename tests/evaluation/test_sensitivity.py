import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.evaluation.pairs import Pairs
from jumpyworld.evaluation.sensitivity import (
    Sensitivity,
    model_sensitivity,
    true_sensitivity,
    two_actions,
)

STATES = np.zeros((5, 2), np.float32)
PAIRS = Pairs(STATES, STATES + 1, STATES, STATES)
ACTIONS = np.zeros((2, 5, 2), np.float32)
ACTIONS[1, :, 0] = 3.0


class Cloud:
    """Futures around s + a of standard deviation 2 in each of two dimensions."""

    gamma_max = 0.9
    gain = 1.0

    def sample(self, key, states, actions, z, gamma):
        return states + self.gain * actions + 2.0 * jax.random.normal(key, states.shape)


class Deaf(Cloud):
    gain = 0.0


def test_a_models_shift_and_spread_by_hand(key):
    facts = model_sensitivity(Cloud(), PAIRS, ACTIONS, (0.0, 0.8, 0.95), key, samples=2000)
    assert [f.gamma for f in facts] == [0.0, 0.8]  # not above what it was trained for
    for fact in facts:
        assert fact.shift == pytest.approx(3.0, abs=1e-4)  # the noise is shared
        assert fact.spread == pytest.approx(8**0.5, rel=0.03)
        assert fact.ratio == pytest.approx(fact.shift / fact.spread)
    (deaf,) = model_sensitivity(Deaf(), PAIRS, ACTIONS, (0.0,), key, samples=100)
    assert deaf.shift == 0.0


def test_the_simulators_shift_is_weighted_by_the_geometric_law():
    # After the first action the paths stay 3 apart; each walks by one a step in y.
    paths = np.zeros((2, 5, 4, 400, 2), np.float32)
    paths[1, ..., 0] = 3.0
    paths[..., 1] = np.arange(1, 401)
    for gamma in (0.0, 0.8, 0.95):
        (fact,) = true_sensitivity(paths, (gamma,))
        assert fact.shift == pytest.approx(3.0)
        # Standard deviation of a geometric time.
        assert fact.spread == pytest.approx(gamma**0.5 / (1 - gamma), abs=1e-3)
    assert Sensitivity(0.0, 3.0, 0.0).ratio is None


def test_the_other_action_is_uniform_and_the_first_the_policys(key):
    class Still:
        def sample(self, key, states, z):
            return jnp.full(states.shape, 0.25)

    many = Pairs(*(np.zeros((4000, 2), np.float32) for _ in range(4)))
    own, other = two_actions(Still(), many, key)
    assert (own == 0.25).all()
    assert np.abs(other).max() <= 1 and other.std() == pytest.approx(3**-0.5, rel=0.03)
