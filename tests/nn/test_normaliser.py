import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.nn import make_normaliser

MEAN = np.asarray([5.0, -100.0, 0.0], np.float32)
STD = np.asarray([2.0, 30.0, 1e-5], np.float32)


@pytest.mark.parametrize("kind", ["standard", "identity", "scaled"])
def test_round_trip(key, kind):
    normaliser = make_normaliser(kind, MEAN, STD, gain=10.0)
    raw = jnp.asarray(MEAN) + jnp.asarray(STD) * jax.random.normal(key, (3,))
    rows = jnp.stack([raw, 2 * raw])
    for x in (raw, rows):
        back = normaliser.denormalise(normaliser.normalise(x))
        assert back.shape == x.shape
        np.testing.assert_allclose(back, x, rtol=1e-5, atol=1e-5)


def test_units():
    raw = jnp.asarray([9.0, -70.0, 0.01])
    standard = make_normaliser("standard", MEAN, STD)
    # The third dimension hardly moves: its scale is the floor, 0.01.
    np.testing.assert_allclose(standard.normalise(raw), [2.0, 1.0, 1.0], rtol=1e-5)
    scaled = make_normaliser("scaled", MEAN, STD, gain=10.0)
    np.testing.assert_allclose(scaled.normalise(raw), [20.0, 10.0, 10.0], rtol=1e-5)
    np.testing.assert_allclose(scaled.standardise(raw), [2.0, 1.0, 1.0], rtol=1e-5)
    identity = make_normaliser("identity", MEAN, STD, gain=10.0)
    np.testing.assert_array_equal(identity.normalise(raw), raw)


def test_it_is_a_pytree_of_its_arrays():
    normaliser = make_normaliser("scaled", MEAN, STD, gain=10.0)
    assert len(jax.tree.leaves(normaliser)) == 2


def test_bad_settings_are_named():
    with pytest.raises(ConfigError, match="normaliser='whiten'"):
        make_normaliser("whiten", MEAN, STD)
    with pytest.raises(ConfigError, match="data_scale=0"):
        make_normaliser("scaled", MEAN, STD, gain=0.0)
    with pytest.raises(ConfigError, match="shape"):
        make_normaliser("standard", MEAN, STD[:2])


def test_paced_units_make_one_step_alike_between_none_and_all_of_the_gain():
    std = np.asarray([2.0, 30.0, 0.5], np.float32)
    step = std * np.asarray([0.05, 0.9, 0.001], np.float32)
    paced = make_normaliser("paced", MEAN, std, gain=10.0, step=step)
    # Six times, so that a step is .3 of the noise; not less than once; not more than ten times.
    np.testing.assert_allclose(paced.unit, std / [6.0, 1.0, 10.0], rtol=1e-5)
    raw = jnp.asarray([[9.0, -70.0, 1.0], [4.0, -130.0, -2.0]])
    np.testing.assert_allclose(paced.normalise(raw)[0], [12.0, 1.0, 20.0], rtol=1e-5)
    np.testing.assert_allclose(paced.denormalise(paced.normalise(raw)), raw, rtol=1e-5)
    scaled = make_normaliser("scaled", MEAN, std, gain=10.0)
    assert scaled.factor == 10.0, "one for all"
    for each in (paced, scaled):
        np.testing.assert_array_equal(each.enlarged(raw, 0.0), each.standardise(raw))
        np.testing.assert_allclose(each.unit * each.factor, std, rtol=1e-6)
    standard = make_normaliser("standard", MEAN, std)
    np.testing.assert_array_equal(paced.standardise(raw), standard.standardise(raw))
    with pytest.raises(ConfigError, match="normaliser='paced': needs the data's displacement"):
        make_normaliser("paced", MEAN, std, gain=10.0)
