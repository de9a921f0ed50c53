"""Policies from outside, eagerly and inside compiled programs; and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.policies import from_callable


class Controller:
    """Steps towards z with NumPy alone; counts its calls."""

    def __init__(self):
        self.calls, self.rows = 0, []

    def __call__(self, states, z):
        assert isinstance(states, np.ndarray) and isinstance(z, np.ndarray)
        assert states.dtype == z.dtype == np.float32
        assert states.ndim == z.ndim == 2 and len(states) == len(z)
        self.calls, self.rows = self.calls + 1, [*self.rows, len(states)]
        return np.tanh(z[:, :2] - states[:, :2])


def noisy(states, z, seed):
    assert type(seed) is int and 0 <= seed < 2**32
    return np.random.default_rng(seed).uniform(-1, 1, size=(len(states), 2))


WIDTHS = {"observation_dim": 3, "action_dim": 2, "z_dim": 4}
S = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
Z = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
WANT = np.tanh(Z[:, :2] - S[:, :2])


def test_eagerly(key):
    controller = Controller()
    policy = from_callable(controller, **WIDTHS)
    np.testing.assert_allclose(policy.sample(key, S, Z), WANT, atol=1e-6)
    np.testing.assert_allclose(policy.sample(key, S[0], Z[0]), WANT[0], atol=1e-6)
    assert policy.sample(key, S, Z[0]).shape == (5, 2)
    assert controller.rows == [5, 1, 5]
    got = policy.sample_actions(
        observations=S[0].astype(np.float64), goals=Z[0], seed=jax.random.PRNGKey(0), temperature=0
    )
    np.testing.assert_allclose(got, WANT[0], atol=1e-6)
    assert (policy.observation_dim, policy.action_dim, policy.z_dim) == (3, 2, 4)


class Tensor:
    """What another library's array on the processor is to NumPy: something with ``__array__``."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


def test_arrays_of_other_libraries(key):
    policy = from_callable(lambda s, z: Tensor(np.tanh(z[:, :2] - s[:, :2])), **WIDTHS)
    np.testing.assert_allclose(policy.sample(key, S, Z), WANT, atol=1e-6)
    np.testing.assert_allclose(jax.jit(policy.sample)(key, S, Z), WANT, atol=1e-6)


def test_inside_jit_vmap_and_scan(key):
    controller = Controller()
    policy = from_callable(controller, **WIDTHS)
    np.testing.assert_allclose(jax.jit(policy.sample)(key, S, Z), WANT, atol=1e-6)
    keys = jax.random.split(key, 5)
    controller.calls = 0
    got = jax.jit(jax.vmap(policy.sample))(keys, S, Z)
    np.testing.assert_allclose(got, WANT, atol=1e-6)
    assert controller.calls == 1, "a vmapped policy is one call on all rows"
    doubled = jax.jit(jax.vmap(policy.sample, (None, None, 0)))(key, S, jnp.stack([Z, Z + 1]))
    np.testing.assert_allclose(doubled[0], WANT, atol=1e-6)

    def walk(s, k):
        a = policy.sample(k, s, Z)
        return s + 0.1 * jnp.pad(a, ((0, 0), (0, 1))), a

    _, actions = jax.jit(lambda s: jax.lax.scan(walk, s, keys))(S)
    s = S.copy()
    for i in range(5):
        np.testing.assert_allclose(actions[i], np.tanh(Z[:, :2] - s[:, :2]), atol=1e-5)
        s[:, :2] += 0.1 * np.asarray(actions[i])


def test_large_batches_inside_jit(key):
    policy = from_callable(
        lambda s, z: np.clip(s, -1, 1), observation_dim=64, action_dim=64, z_dim=1
    )
    s = jax.random.normal(key, (4096, 64))
    got = jax.jit(policy.sample)(key, s, jnp.zeros((4096, 1)))
    np.testing.assert_allclose(got, jnp.clip(s, -1, 1))


def test_seeds_come_from_the_key(key):
    policy = from_callable(noisy, **WIDTHS, takes_seed=True)
    first = policy.sample(key, S, Z)
    assert np.array_equal(first, policy.sample(key, S, Z))
    assert np.array_equal(first, jax.jit(policy.sample)(key, S, Z))
    assert not np.array_equal(first, policy.sample(jax.random.key(1), S, Z))
    keys = jax.random.split(key, 3)
    many = jax.jit(jax.vmap(policy.sample, (0, None, None)))(keys, S, Z)
    apart = [policy.sample(k, S, Z) for k in keys]
    np.testing.assert_array_equal(many, np.stack(apart))
    assert not np.array_equal(many[0], many[1])


BAD = {
    "shape": (lambda s, z: np.zeros((len(s), 3)), r"shape \(5, 3\), not \(5, 2\)"),
    "one row": (lambda s, z: np.zeros(2), r"shape \(2,\), not \(5, 2\)"),
    "nan": (lambda s, z: np.where(np.arange(10).reshape(5, 2) == 7, np.nan, 0), "row 3, column 1"),
    "range": (lambda s, z: np.full((len(s), 2), 1.5), r"returned 1.5 .* \[-1, 1\]"),
    "nothing": (lambda s, z: None, "walker"),
    "ragged": (lambda s, z: [[1.0], [1.0, 2.0]], "no array"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_actions_are_refused(key, name, caplog):
    fn, message = BAD[name]
    policy = from_callable(fn, **WIDTHS, name="walker")
    with pytest.raises(ConfigError, match=message) as caught:
        policy.sample(key, S, Z)
    assert "policy walker" in str(caught.value)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(jax.jit(policy.sample)(key, S, Z))


def test_clipping_and_rounding(key):
    policy = from_callable(lambda s, z: np.full((len(s), 2), 1.5), **WIDTHS, clip=True)
    assert (policy.sample(key, S, Z) == 1).all()
    policy = from_callable(lambda s, z: np.full((len(s), 2), 1 + 1e-6), **WIDTHS)
    assert (policy.sample(key, S, Z) == 1).all()


def test_wrong_definitions_and_inputs(key):
    with pytest.raises(ConfigError, match="cannot be called"):
        from_callable(3, **WIDTHS)
    for width in (0, 2.5, "2"):
        with pytest.raises(ConfigError, match=r"widths \(.*\) must be whole numbers, at least 1"):
            from_callable(noisy, **{**WIDTHS, "z_dim": width})
    policy = from_callable(Controller(), **WIDTHS)
    with pytest.raises(ConfigError, match="width is 4"):
        policy.sample(key, S, Z[:, :2])
    with pytest.raises(ConfigError, match="needs goals"):
        policy.sample_actions(S[0], seed=key)


def test_gradients_do_not_pass_but_do_not_break(key):
    """A loss that only reads actions can be differentiated with respect to other things."""
    policy = from_callable(Controller(), **WIDTHS)

    def loss(weight):
        return jnp.sum(weight * policy.sample(key, S, Z))

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(1.0), WANT.sum(), rtol=1e-5)
    assert eqx.tree_equal(policy, policy)
