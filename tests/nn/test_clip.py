"""``nn.clip``: spikes shrink to a multiple of the typical norm, all else passes untouched."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jumpyworld.nn import clip_to_typical
from jumpyworld.nn.clip import DECAY


def run(transform, gradients):
    state, out = transform.init(gradients[0]), []
    with jax.numpy_dtype_promotion("standard"):
        for g in gradients:
            update, state = transform.update(g, state)
            out.append(update)
    return out, state


def of(*values):
    return {"a": jnp.asarray(values[:1], jnp.float32), "b": jnp.asarray(values[1:], jnp.float32)}


def test_a_spike_becomes_so_many_times_the_typical_norm_and_hardly_moves_it():
    usual, spike = of(3.0, 4.0), of(0.0, -5000.0)
    (first, second, third), state = run(clip_to_typical(4.0), [usual, spike, spike])
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first, usual))
    np.testing.assert_allclose(second["b"], [-20.0], rtol=1e-5)  # 4 x |(3, 4)|
    np.testing.assert_array_equal(second["a"], [0.0])
    # Typical is 5 x 4^(1 - decay) now, as a spike counts as much as was let through of it.
    np.testing.assert_allclose(third["b"], [-20.0 * 4 ** (1 - DECAY)], rtol=1e-5)
    np.testing.assert_allclose(np.exp(state.log_norm), 5 * 4 ** (2 * (1 - DECAY)), rtol=1e-5)


def test_what_is_usual_passes_to_the_bit_and_may_rise_and_fall():
    rng = np.random.default_rng(0)
    sizes = np.exp(np.concatenate([np.linspace(5, -5, 2000), np.linspace(-5, 5, 2000)]))
    gradients = [of(*(size * rng.normal(size=2) + size)) for size in sizes[::4]]
    updates, _ = run(clip_to_typical(20.0), gradients)
    for update, gradient in zip(updates, gradients, strict=True):
        assert jax.tree.all(jax.tree.map(jnp.array_equal, update, gradient))


def test_a_gradient_of_zero_tells_nothing_of_what_is_usual():
    nothing, usual = of(0.0, 0.0), of(1.0, 1.0)
    for first in ([nothing], [usual] * 3):
        updates, state = run(clip_to_typical(3.0), [*first, nothing, usual])
        assert jax.tree.all(jax.tree.map(jnp.array_equal, updates[-1], usual))
        np.testing.assert_allclose(np.exp(state.log_norm), np.sqrt(2), rtol=1e-6)


def test_adam_is_thrown_less_far_by_a_spike():
    signs = jnp.where(jnp.arange(3020) % 2 == 0, 1.0, -1.0)
    gradients = signs.at[3000].set(1e4)

    def way(transform):
        def step(state, g):
            update, state = transform.update(g, state)
            return state, update

        with jax.numpy_dtype_promotion("standard"):
            updates = jax.lax.scan(step, transform.init(gradients[0]), gradients)[1]
        return float(jnp.abs(jnp.sum(updates[3000:])))

    # 1 / sqrt(1 - b2) = 32 learning rates in all, nine tenths of them within twenty steps.
    np.testing.assert_allclose(way(optax.adam(1e-3)), 0.9 * 0.032, rtol=0.1)
    assert way(optax.chain(clip_to_typical(3.0), optax.adam(1e-3))) < 0.003
