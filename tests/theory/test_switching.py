"""Definition gsp-weights and theorem gsp sm, against the exact chain on (state, phase)."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.planning import (
    discounts_of_horizons,
    effective_discounts,
    gsp_weights,
    sequence_value,
    switching_probabilities,
)

sys.path.append(str(Path(__file__).parents[1] / "planning"))
from tabular_mdp import Tabular


def decomposition(mdp, sequence, betas, discount):
    """The right-hand side of the theorem: sum_k w_k law of S_k."""
    return np.einsum("k,ksap->sap", gsp_weights(betas, discount), mdp.chained(sequence, betas))


@pytest.mark.parametrize("seed", range(200))
def test_the_parts_make_the_whole(seed):
    rng = np.random.default_rng(seed)
    n = 1 + seed % 6
    mdp = Tabular.random(rng, states=int(rng.integers(2, 7)), actions=int(rng.integers(1, 5)))
    sequence = rng.integers(0, len(mdp.policies), n)
    discount = float(rng.uniform(0.05, 0.999))
    alphas = np.append(rng.uniform(size=n - 1), 0.0)
    # Certain and impossible switches are cases too.
    alphas[:-1] = np.where(rng.uniform(size=n - 1) < 0.2, np.round(alphas[:-1]), alphas[:-1])
    betas = effective_discounts(alphas, discount)
    exact = mdp.switching_measure(sequence, alphas, discount)
    np.testing.assert_allclose(exact.sum(-1), 1.0, atol=1e-11)
    np.testing.assert_allclose(
        decomposition(mdp, sequence, betas, discount), exact, rtol=0, atol=1e-10
    )


def test_dropping_one_weight_would_be_noticed():
    rng = np.random.default_rng(0)
    mdp = Tabular.random(rng)
    alphas = np.asarray([0.3, 0.2, 0.0])
    betas = effective_discounts(alphas, 0.9)
    wrong = np.einsum("k,ksap->sap", np.full(3, 1 / 3), mdp.chained([0, 1, 2], betas))
    assert np.abs(wrong - mdp.switching_measure([0, 1, 2], alphas, 0.9)).max() > 1e-3


def test_special_cases_of_section_3_3():
    """Exactly, on a random MDP: n-step look-ahead, one policy for ever, equal probabilities."""
    mdp = Tabular.random(np.random.default_rng(1))
    discount = 0.93
    every_step = effective_discounts(np.ones(4), discount)
    np.testing.assert_allclose(every_step, 0, atol=1e-15)
    np.testing.assert_allclose(
        gsp_weights(every_step, discount), (1 - discount) * discount ** np.arange(4), rtol=1e-13
    )
    once = effective_discounts(np.asarray([1.0, 0.0, 0.0]), discount)
    for first in range(3):
        # Whatever z_1 is, it acts for no step: a is given, and pi_{z_2} follows for ever.
        np.testing.assert_allclose(
            decomposition(mdp, [first, 2, 0], once, discount),
            mdp.successor_measure(2, discount),
            atol=1e-12,
        )
    np.testing.assert_allclose(
        gsp_weights(once, discount), [1 - discount, discount, 0.0], atol=1e-15
    )
    equal = effective_discounts(np.asarray([0.3, 0.3, 0.0]), discount)
    ratio = (discount - equal[0]) / (1 - equal[0])
    first = (1 - discount) / (1 - equal[0])
    np.testing.assert_allclose(
        gsp_weights(equal, discount), [first, ratio * first, ratio**2], rtol=1e-13
    )


@pytest.mark.parametrize("seed", range(50))
def test_weights_sum_to_one_exactly_if_a_policy_is_never_left(seed):
    rng = np.random.default_rng(seed)
    n, discount = 1 + seed % 6, float(rng.uniform(0.5, 0.999))
    betas = rng.uniform(0, 0.99, n) * discount
    missing = np.prod((discount - betas) / (1 - betas))
    assert missing > 0
    np.testing.assert_allclose(1 - gsp_weights(betas, discount).sum(), missing, atol=1e-12)
    np.testing.assert_allclose(gsp_weights(betas, discount, "absorb").sum(), 1.0, rtol=1e-12)
    betas[rng.integers(n)] = discount
    np.testing.assert_allclose(gsp_weights(betas, discount).sum(), 1.0, rtol=1e-12)
    assert (gsp_weights(betas, discount) >= 0).all()


HFBC = [25] * 24
TABLE = [
    ([50, 50, 100, 100, 200], 0.999, [0.050, 0.048, 0.090, 0.081, 0.146], 0.415),
    (HFBC, 0.999, None, 0.455),
    ([20, 80], 0.99, None, 0.840),
    ([20, 20, 80], 0.99, None, 0.872),
    ([20, 20, 20, 80], 0.99, None, 0.898),
    ([20, 20, 20, 20, 80], 0.99, None, 0.918),
    ([25] * 4, 0.99, None, 0.684),
    ([25] * 5, 0.99, None, 0.763),
    ([25] * 6, 0.99, None, 0.822),
    ([25] * 7, 0.99, None, 0.867),
]


@pytest.mark.parametrize(("horizons", "discount", "weights", "total"), TABLE)
def test_weights_of_the_planning_table(horizons, discount, weights, total):
    found = gsp_weights(discounts_of_horizons(horizons), discount)
    assert round(float(found.sum()), 3) == total
    if weights:
        np.testing.assert_allclose(found, weights, atol=5.1e-4)


def test_the_absorbing_tail_of_the_planning_table():
    for horizons, discount, last in (
        ([50, 50, 100, 100, 200], 0.999, 0.731),
        ([20, 20, 20, 20, 80], 0.99, 0.410),
    ):
        betas = discounts_of_horizons(horizons)
        found = gsp_weights(betas, discount, "absorb")
        assert round(float(found[-1]), 3) == last
        np.testing.assert_allclose(found[:-1], gsp_weights(betas, discount)[:-1])


def test_a_horizon_longer_than_the_discount_is_named():
    with pytest.raises(ConfigError, match="200 steps"):
        gsp_weights(discounts_of_horizons([50, 200]), 0.99)
    with pytest.raises(ConfigError, match="200 steps"):
        switching_probabilities(discounts_of_horizons([50, 200]), 0.99)
    # Equal up to rounding is equal.
    for horizon in range(2, 400):
        betas = discounts_of_horizons([horizon])
        assert gsp_weights(betas, 1 - 1 / horizon).sum() == pytest.approx(1)
        gsp_weights(jnp.asarray(betas, jnp.float32), 1 - 1 / horizon)


@pytest.mark.parametrize(
    ("betas", "discount", "tail"),
    [([-0.1], 0.9, "truncate"), ([1.0], 0.9, "truncate"), ([float("nan")], 0.9, "truncate"),
     ([0.5], 1.0, "truncate"), ([0.5], 0.0, "truncate"), ([], 0.9, "truncate"),
     ([[0.5]], 0.9, "truncate"), ([0.5], 0.9, "cut")],
)  # fmt: skip
def test_values_out_of_range_are_refused(betas, discount, tail):
    with pytest.raises(ConfigError):
        gsp_weights(np.asarray(betas, float), discount, tail)


@pytest.mark.parametrize("horizons", [[0], [0.5], [50, -3], [float("nan")], [float("inf")], []])
def test_horizons_below_one_step_are_refused(horizons):
    with pytest.raises(ConfigError, match="horizons"):
        discounts_of_horizons(horizons)


def test_dtypes_are_kept_and_tracing_works():
    betas = discounts_of_horizons([20, 80])
    for dtype in (np.float32, np.float64):
        assert gsp_weights(betas.astype(dtype), 0.99).dtype == dtype
        assert effective_discounts(betas.astype(dtype), 0.99).dtype == dtype
    assert gsp_weights(jnp.asarray(betas, jnp.float32), 0.99).dtype == jnp.float32
    with jax.enable_x64(True):
        wide = jnp.asarray(betas)
        assert gsp_weights(wide, 0.99).dtype == jnp.float64
        np.testing.assert_allclose(gsp_weights(wide, 0.99), gsp_weights(betas, 0.99), rtol=1e-14)
        traced = jax.jit(lambda b: gsp_weights(b, 0.99, "absorb"))(wide)
        np.testing.assert_allclose(traced, gsp_weights(betas, 0.99, "absorb"), rtol=1e-14)
    np.testing.assert_allclose(
        gsp_weights([0.5, 0.9], 0.95), gsp_weights(np.array([0.5, 0.9]), 0.95)
    )


@pytest.mark.parametrize("tail", ["truncate", "absorb"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32])
def test_a_discount_with_a_dtype_of_its_own_widens_nothing(dtype, tail):
    for discount in (np.float64(0.9), np.float32(0.9), 0.9):
        for betas in (np.asarray([0.5, 0.75], dtype), jnp.asarray([0.5, 0.75], dtype)):
            found = gsp_weights(betas, discount, tail)
            exact = gsp_weights(np.asarray([0.5, 0.75]), 0.9, tail)
            assert found.dtype == dtype
            np.testing.assert_allclose(np.asarray(found, np.float64), exact, rtol=0.03)
            assert effective_discounts(betas, discount).dtype == dtype
            assert switching_probabilities(betas, discount).dtype == dtype


def test_horizons_and_betas_may_be_any_sequence_of_numbers():
    np.testing.assert_array_equal(
        discounts_of_horizons(np.asarray([2, 4])), discounts_of_horizons([2, 4])
    )
    np.testing.assert_allclose(gsp_weights([0, 0], 0.9), [0.1, 0.09])


def test_switching_probabilities_and_discounts_are_inverse():
    alphas = np.random.default_rng(0).uniform(size=7)
    betas = effective_discounts(alphas, 0.97)
    np.testing.assert_allclose(switching_probabilities(betas, 0.97), alphas, rtol=1e-12)
    with pytest.raises(ConfigError, match=r"alpha=1\.5"):
        effective_discounts(np.asarray([0.5, 1.5]), 0.97)


def test_the_value_of_a_chain_is_the_weighted_sum():
    rewards = jnp.asarray([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(
        sequence_value(rewards, jnp.asarray([0.5, 0.3, 0.1])), [0.7, 0.1], rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32, np.float64])
def test_no_precision_lets_a_horizon_be_longer_or_a_weight_exceed_one(dtype):
    """A beta may be the discount as its dtype rounds it; the next number up is refused."""
    for discount in (0.9, 0.99, 0.995, 0.999):
        rounded = np.asarray(discount, dtype)
        if rounded == 1:
            continue  # in eight bits there is no such discount
        for tail in ("truncate", "absorb"):
            weights = gsp_weights(rounded[None], discount, tail)
            assert weights.dtype == rounded.dtype
            assert 0.5 < float(weights.astype(np.float64)[0]) <= 1
        beyond = np.asarray(1 - 1 / (2 / (1 - discount)), dtype)
        if beyond > rounded and beyond < 1:
            with pytest.raises(ConfigError, match=r"horizons: .* steps .* is longer than the"):
                gsp_weights(beyond[None], discount)
    with pytest.raises(ConfigError, match="horizons: 20"):
        gsp_weights(np.float16([0.9995]), 0.999)


def test_lists_are_taken_as_arrays():
    np.testing.assert_allclose(effective_discounts([0.1, 0.2], 0.9), [0.81, 0.72])
    np.testing.assert_allclose(switching_probabilities([0.81, 0.72], 0.9), [0.1, 0.2])
    with pytest.raises(ConfigError, match=r"alphas=.*: must be numbers"):
        effective_discounts(["a"], 0.9)
    with pytest.raises(ConfigError, match="discount=2"):
        effective_discounts([0.1], 2)
