"""What is compared: states of real rollouts at geometric times, and samples of a model.

What is drawn for a pair and a discount depends on the seed, that pair and that discount alone: not
on which others are measured beside them.

Shapes: G discounts, P pairs, R rollouts, T steps, n samples, d state dimensions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.pairs import Pairs
from jumpyworld.evaluation.transport import Progress


@dataclass(frozen=True)
class Truth:
    """States of rollouts at geometric times, for each discount.

    Attributes:
        samples: from all rollouts, float32 [G, P, n, d].
        halves: from the first and from the second half of them, float32 [2, G, P, n, d].
        clipped: share of times beyond the rollouts' end [G].
    """

    samples: Float[np.ndarray, "G P n d"]
    halves: Float[np.ndarray, "2 G P n d"]
    clipped: Float[np.ndarray, " G"]


def geometric_resample(
    rng: np.random.Generator, paths: Float[np.ndarray, "R T d"], gamma: float, count: int
) -> tuple[Float[np.ndarray, "n d"], float]:
    """Draw states of rollouts at t ~ Geometric(1 - gamma), t >= 1, and the share clipped.

    Args:
        rng: randomness.
        paths: states after 1, 2, ... T steps [R, T, d].
        gamma: discount.
        count: n.
    """
    times = rng.geometric(1.0 - gamma, count)
    which = rng.integers(0, len(paths), count)
    limit = paths.shape[1]
    return paths[which, np.minimum(times, limit) - 1], float((times > limit).mean())


def draw_truth(
    paths: Float[np.ndarray, "P R T d"], gammas: Sequence[float], samples: int, seed: int
) -> Truth:
    """Draw the states that models are compared with, and the two halves for the noise floor."""
    pairs, repeats, _, d = paths.shape
    if repeats < 2:
        raise ConfigError(f"the noise floor needs at least 2 rollouts per pair, not {repeats}")
    parts = np.empty((3, len(gammas), pairs, samples, d), np.float32)
    clipped = np.empty((len(gammas), pairs))
    for g, gamma in enumerate(gammas):
        for p, own in enumerate(paths):
            rng = np.random.default_rng([seed, _mark(gamma), p])
            parts[0, g, p], clipped[g, p] = geometric_resample(rng, own, gamma, samples)
            for i, half in enumerate((own[: repeats // 2], own[repeats // 2 :])):
                parts[1 + i, g, p], _ = geometric_resample(rng, half, gamma, samples)
    return Truth(parts[0], parts[1:], clipped.mean(1))


def check_discounts(gammas: Sequence[float], gamma_max: float, allow_extrapolation: bool) -> None:
    """Refuse discounts that a model was not trained for, naming the first of them."""
    for gamma in gammas:
        if gamma > gamma_max + 1e-6 and not allow_extrapolation:
            raise ConfigError(
                f"gamma={gamma:g}: the model was trained up to {gamma_max:g}; extrapolation must "
                "be allowed explicitly"
            )


def model_samples(
    ghm,
    policy,
    pairs: Pairs,
    gammas: Sequence[float],
    key: PRNGKeyArray,
    samples: int,
    *,
    allow_extrapolation: bool = False,
    progress: Progress = lambda done, total: None,
) -> Float[np.ndarray, "G P n d"]:
    """Draw states of a model, first actions from the policy, float32 [G, P, n, d].

    Args:
        ghm: the model; ``sample(key, states, actions, z, gamma)`` and ``gamma_max``.
        policy: ``sample(key, states, z)``.
        pairs: states and goals.
        gammas: discounts.
        key: randomness.
        samples: n.
        allow_extrapolation: permit discounts above the model's largest.
        progress: called with (draws done, all), a draw being n samples.
    """
    check_discounts(gammas, ghm.gamma_max, allow_extrapolation)

    out = np.empty((len(gammas), len(pairs), samples, pairs.states.shape[1]), np.float32)
    total = len(gammas) * len(pairs)
    progress(0, total)
    for g, gamma in enumerate(gammas):
        gamma_key = jax.random.fold_in(key, _mark(gamma))
        for p in range(len(pairs)):
            state, goal = jnp.asarray(pairs.states[p]), jnp.asarray(pairs.goals[p])
            own = jax.random.fold_in(gamma_key, p)
            out[g, p] = _draw(ghm, policy, own, state, goal, jnp.float32(gamma), samples)
            progress(g * len(pairs) + p + 1, total)
    if not np.isfinite(out).all():
        worst = [gamma for gamma, x in zip(gammas, out, strict=True) if not np.isfinite(x).all()]
        raise ConfigError(f"gamma={worst[0]:g}: the model's samples are not all finite")
    return out


# Compiled once for all models of a shape; weights are arguments and not constants of the program.
@eqx.filter_jit
def _draw(ghm, policy, key, state, goal, gamma, samples: int):
    states, goals = (jnp.broadcast_to(x, (samples, *x.shape)) for x in (state, goal))
    action_key, sample_key = jax.random.split(key)
    actions = policy.sample(action_key, states, goals)
    return ghm.sample(sample_key, states, actions, goals, gamma)


def _mark(gamma: float) -> int:
    """Return a number for a discount, so that what is drawn for it needs no place in a list."""
    return math.floor(gamma * 1e9)
