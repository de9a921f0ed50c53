import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.ghm import init, step
from jumpyworld.ghm.probe import action_sensitivity, probe, range_of, weights


def test_action_sensitivity_is_the_shift_of_the_mean_over_the_spread(key):
    x = jax.random.normal(key, (20_000, 3, 2))
    shift = jnp.broadcast_to(jnp.asarray([0.3, 0.4]), x.shape)
    # The spread of two dimensions of variance 1 is sqrt(2), the shift is 0.5.
    np.testing.assert_allclose(action_sensitivity(x, x + shift), 0.5 / 2**0.5, rtol=0.02)
    np.testing.assert_allclose(action_sensitivity(x, x), 0.0, atol=1e-6)


def test_range_counts_what_is_outside_and_compares_spreads():
    data = jnp.asarray([[0.0, 5.0], [2.0, 5.0]])  # the second dimension stands still
    samples = jnp.asarray([[-1.0, 5.0], [1.0, 5.0], [3.0, 5.0], [1.0, 5.0]])
    out = range_of(samples, data)
    np.testing.assert_allclose(out["sample/outside"], 2 / 8)
    np.testing.assert_allclose(out["sample/spread"], (2**0.5 + 1) / 2, rtol=1e-6)


def test_probe_reads_a_state_and_tells_a_blind_model_from_a_seeing_one(
    config, spec, policy, data, shake, key
):
    state = init(jax.random.key(0), config, spec, policy)
    state, _ = eqx.filter_jit(step)(state, data, key, config, policy)
    state = eqx.tree_at(lambda s: s.target, state, shake(state.target))
    read = eqx.filter_jit(lambda state: probe(state, data, key, config))
    seen = read(state)
    assert all(np.isfinite(v) and np.shape(v) == () for v in seen.values())
    assert seen["action/sensitivity"] > 1e-3 and seen["ema/distance"] > 0
    action = lambda s: s.target.field.encoder.action.weight  # noqa: E731
    blind = read(eqx.tree_at(action, state, jnp.zeros_like(action(state))))
    assert blind["action/sensitivity"] < 1e-5


def test_gradient_size_is_read_from_the_optimiser(config, spec, policy, data, key):
    """After one step of Adam the second moment is (1 - b2) g^2."""
    state = init(jax.random.key(0), config, spec, policy)
    after, _ = eqx.filter_jit(step)(state, data, key, config, policy)
    first = jax.tree.leaves(after.opt_state[0].mu)  # (1 - b1) g
    norm = np.sqrt(sum(np.square(np.asarray(m, np.float64) / 0.1).sum() for m in first))
    np.testing.assert_allclose(weights(after)["grad/rms"], norm * 1e-3**0.5, rtol=1e-4)
