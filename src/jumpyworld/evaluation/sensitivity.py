"""Does the first action matter? The shift of the mean future by another action, and its spread.

A model that ignores its action cannot choose one. For each pair (s, g) two first actions are
compared, one of the policy and one drawn uniformly; the policy goes on after either. Both futures
use the same noise, so that what is left of the difference is the actions'.

The shift is the distance between the two means and the spread is the root of the total variance,
averages over pairs in raw units; their ratio is what is quoted. In a simulator without noise the
spread at discount 0 is nothing, and there the shifts are to be compared.

Shapes: P pairs, R rollouts, T steps, n samples, d state and da action dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from jumpyworld.evaluation.pairs import Pairs
from jumpyworld.evaluation.transport import Progress

GAMMAS = (0.0, 0.8, 0.95)  # horizons of 1, 5 and 20 steps
STEPS = 100  # of rollouts: five of the longest horizons
ROLLOUTS = 16
SAMPLES = 512  # of a model: enough for two means with the same noise


@dataclass(frozen=True)
class Sensitivity:
    """Effect of the first action at one discount.

    Attributes:
        gamma: discount.
        shift: distance between the mean futures of two actions, raw units, mean over pairs.
        spread: standard deviation of a future, over all dimensions, raw units, mean over pairs.
    """

    gamma: float
    shift: float
    spread: float

    @property
    def ratio(self) -> float | None:
        """Shift over spread; None where futures do not spread."""
        return self.shift / self.spread if self.spread > 1e-6 else None


def two_actions(policy, pairs: Pairs, key: PRNGKeyArray) -> Float[np.ndarray, "2 P da"]:
    """Return for each pair an action of the policy and one drawn uniformly from [-1, 1]."""
    own_key, other_key = jax.random.split(key)
    own = policy.sample(own_key, jnp.asarray(pairs.states), jnp.asarray(pairs.goals))
    other = jax.random.uniform(other_key, own.shape, minval=-1.0, maxval=1.0)
    return np.stack([np.asarray(own, np.float32), np.asarray(other, np.float32)])


def model_sensitivity(
    ghm,
    pairs: Pairs,
    actions: Float[np.ndarray, "2 P da"],
    gammas: Sequence[float],
    key: PRNGKeyArray,
    samples: int,
    *,
    progress: Progress = lambda done, total: None,
) -> list[Sensitivity]:
    """Measure the effect of the first action in a model, at the discounts it was trained for."""
    gammas = [gamma for gamma in gammas if gamma <= ghm.gamma_max + 1e-6]
    out = []
    for g, gamma in enumerate(gammas):
        means, variances = [], []
        for p in range(len(pairs)):
            state, goal = jnp.asarray(pairs.states[p]), jnp.asarray(pairs.goals[p])
            for action in actions[:, p]:
                own = jax.random.fold_in(key, p)
                inputs = (state, jnp.asarray(action), goal)
                found = _moments(ghm, own, inputs, jnp.float32(gamma), samples)
                means.append(np.asarray(found[0], np.float64))
                variances.append(float(found[1]))
            progress(g * len(pairs) + p + 1, len(gammas) * len(pairs))
        shape = (len(pairs), 2)
        mean = np.reshape(means, (*shape, -1)).swapaxes(0, 1)
        out.append(_compare(gamma, mean, np.reshape(variances, shape).T))
    return out


def true_sensitivity(
    paths: Float[np.ndarray, "2 P R T d"], gammas: Sequence[float]
) -> list[Sensitivity]:
    """Measure the effect of the first action in rollouts that begin with either.

    Moments are exact for the rollouts: states weighted by (1 - gamma) gamma^(t-1), the rest of
    the weight on the last.
    """
    out = []
    times = np.arange(paths.shape[3])
    for gamma in gammas:
        weights = (1.0 - gamma) * np.power(gamma, times)
        weights[-1] = gamma ** times[-1]
        mean = np.einsum("t,aprtd->apd", weights, paths) / paths.shape[2]
        # About the mean, not the origin: variances of positions far out would lose digits.
        squares = np.square(paths - mean[:, :, None, None])
        variance = np.einsum("t,aprtd->ap", weights, squares) / paths.shape[2]
        out.append(_compare(gamma, mean, variance))
    return out


@eqx.filter_jit
def _moments(ghm, key, inputs, gamma, samples: int):
    """Return the mean [d] and the total variance of futures from one (s, a, z)."""
    rows = (jnp.broadcast_to(x, (samples, *x.shape)) for x in inputs)
    futures = ghm.sample(key, *rows, gamma)
    return futures.mean(0), futures.var(0).sum()


def _compare(
    gamma: float, mean: Float[np.ndarray, "2 P d"], variance: Float[np.ndarray, "2 P"]
) -> Sensitivity:
    shift = np.linalg.norm(mean[0] - mean[1], axis=-1).mean()
    return Sensitivity(gamma, float(shift), float(np.sqrt(variance.mean(0)).mean()))
