import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jumpyworld.ghm.batch import sample_draws
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.discounts import RATIOS, longest_discount, sample_betas, sample_discounts

N = 40_000
ENDS = (0.0, 0.996)


def cdf(law, gamma, low=0.0, high=0.996):
    """Distribution function of each law, written out."""
    uniform = (gamma - low) / (high - low)
    log = np.log((1 - low) / (1 - gamma)) / np.log((1 - low) / (1 - high))
    return {"uniform": uniform, "log_uniform": log, "mixture": (uniform + log) / 2}[law]


@pytest.mark.parametrize("law", ["uniform", "log_uniform", "mixture"])
@pytest.mark.parametrize("ends", [ENDS, (0.5, 0.98)])
def test_gamma_follows_its_law(key, law, ends):
    gamma = sample_discounts(key, jnp.full(N, ends[1], jnp.float32), law, *ends)
    gamma = np.asarray(gamma, np.float64)
    assert gamma.min() >= ends[0] and gamma.max() <= np.float32(ends[1])
    u = cdf(law, np.clip(gamma, *ends), *ends)
    counts = np.histogram(u, 50, (0, 1))[0]
    assert stats.chisquare(counts).pvalue > 0.01
    assert np.isfinite(-np.log1p(-gamma)).all()


@pytest.mark.parametrize("law", ["uniform", "log_uniform", "mixture"])
@pytest.mark.parametrize("upper", [0.3, 0.9, 0.995])
def test_beta_follows_the_same_law_cut_off_at_gamma(law, upper):
    key = jax.random.key(7)
    beta = sample_discounts(key, jnp.full(N, upper, jnp.float32), law, *ENDS)
    beta = np.asarray(beta, np.float64)
    assert beta.min() >= 0 and beta.max() <= np.float32(upper)
    u = cdf(law, beta) / cdf(law, upper)
    counts = np.histogram(np.clip(u, 0, 1), 50, (0, 1))[0]
    assert stats.chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize("law", ["uniform", "log_uniform", "mixture"])
def test_beta_never_exceeds_its_gamma(key, law):
    gamma = sample_discounts(key, jnp.full(N, 0.996, jnp.float32), "mixture", *ENDS)
    gamma = gamma.at[:3].set(jnp.asarray([0.0, 1e-7, 0.996]))
    beta = sample_discounts(jax.random.fold_in(key, 1), gamma, law, *ENDS)
    assert np.isfinite(beta).all() and np.all(beta <= gamma) and np.all(beta >= 0)


def test_a_ratio_shortens_the_horizon_evenly_in_the_logarithm(key):
    gamma = jnp.full(N, 0.99, jnp.float32)
    beta = np.asarray(sample_betas(key, gamma, "ratio", *ENDS), np.float64)
    ratio = (1 - beta) / (1 - np.float64(gamma[0]))
    u = np.log(ratio / RATIOS[0]) / np.log(RATIOS[1] / RATIOS[0])
    assert u.min() > -1e-4 and u.max() < 1 + 1e-4
    assert stats.chisquare(np.histogram(np.clip(u, 0, 1), 50, (0, 1))[0]).pvalue > 0.01
    # Near one step there is nothing shorter than a step.
    short = jnp.asarray([0.0, 0.1, 0.3], jnp.float32)
    beta = sample_betas(key, short, "ratio", *ENDS)
    assert np.all(beta >= 0) and np.all(beta <= short) and beta[0] == 0
    config = GHMConfig.preset("debug", beta_sampler="ratio")
    draws = sample_draws(key, config, 2)
    hc = config.layout.hc
    least = 1 - RATIOS[1] * (1 - draws.gamma[:hc]) - 1e-6
    assert np.all(draws.beta[:hc] >= least) and np.any(draws.beta[:hc] < draws.gamma[:hc])
    np.testing.assert_array_equal(draws.beta[hc:], draws.gamma[hc:])


def test_the_mixture_visits_planning_horizons_and_the_paper_law_hardly_does(key):
    top = jnp.full(N, 0.996, jnp.float32)
    share = {}
    for law in ("uniform", "mixture"):
        horizon = 1 / (1 - np.asarray(sample_discounts(key, top, law, *ENDS), np.float64))
        share[law] = np.mean((horizon > 20) & (horizon < 200))
    assert abs(share["uniform"] - 0.045) < 0.005 and abs(share["mixture"] - 0.23) < 0.01


def test_a_curriculum_doubles_the_longest_horizon_at_even_times(key):
    config = GHMConfig(gamma_max=1 - 1 / 256, curriculum=0.5, gradient_steps=1400)
    for step, horizon in ((0, 2), (100, 4), (300, 16), (700, 256), (1400, 256)):
        longest = longest_discount(jnp.asarray(step), config)
        np.testing.assert_allclose(1 / (1 - np.asarray(longest, np.float64)), horizon, rtol=1e-3)
        gamma = np.asarray(sample_draws(key, config, 2, step=jnp.asarray(step)).gamma)
        assert 0.8 * longest < gamma.max() <= longest
    assert longest_discount(jnp.asarray(0), GHMConfig()) == GHMConfig().gamma_max
