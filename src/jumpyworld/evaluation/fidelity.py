"""How right a geometric horizon model is: EMD between its samples and real rollouts of the policy.

    for each pair (s, g):  roll the policy pi_g out from s, several times, in the real environment
    for each discount:     truth = states at t ~ Geometric(1 - gamma), t >= 1, of those rollouts
                           model = samples of the GHM at (s, a ~ pi_g(s), g, gamma)
                           EMD(model, truth), beside EMD(truth', truth''), its noise floor

Paper: its EMD study (256 pairs, 64 rollouts, 2048 samples, discount .995). EMD is
exact, Euclidean, over the whole state in raw units; rollouts go on for a fixed number of steps past
the goal, and times beyond their end are clipped (the share is reported). The noise floor compares
states of one half of the rollouts with those of the other half: what a second, half as large
measurement of the truth would score. A perfect model scores that or a little less.

Shapes: G discounts, P pairs, R rollouts, T steps, n samples, d state dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from jumpyworld.domains import Domain, MazeDomain
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.draws import (
    Truth,
    check_discounts,
    draw_truth,
    geometric_resample,
    model_samples,
)
from jumpyworld.evaluation.pairs import Pairs, draw_pairs, in_support_pairs, random_pairs
from jumpyworld.evaluation.rollouts import rollouts
from jumpyworld.evaluation.stats import mean_interval
from jumpyworld.evaluation.transport import Progress, emd, emds
from jumpyworld.planning.precedents import GoalFeatures

__all__ = [
    "PRESETS", "Fidelity", "Pairs", "Protocol", "Rewards", "Truth", "check_discounts",
    "compare_rewards", "draw_pairs", "draw_truth", "emd", "geometric_resample", "in_places",
    "in_support_pairs", "measure_fidelity", "model_samples", "random_pairs", "rollouts", "score",
    "wall_share",
]  # fmt: skip


@dataclass(frozen=True)
class Protocol:
    """How much is measured.

    Attributes:
        pairs: P, state-goal pairs; the intervals are over these.
        rollouts: R of each pair.
        steps: T of each rollout.
        samples: n states per pair and discount, of truth and of model.
        gammas: discounts.
    """

    pairs: int
    rollouts: int
    steps: int
    samples: int
    gammas: tuple[float, ...]

    def __post_init__(self):
        for name, least in (("pairs", 2), ("rollouts", 2), ("steps", 1), ("samples", 2)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at least {least}")
        if not self.gammas or len(set(self.gammas)) < len(self.gammas):
            raise ConfigError(f"gammas={list(self.gammas)}: need at least one, each of them once")
        for gamma in self.gammas:
            if not 0 <= gamma < 1:
                raise ConfigError(f"gamma={gamma:g}: must lie in [0, 1)")


PRESETS = {
    "paper": Protocol(pairs=256, rollouts=64, steps=1000, samples=2048, gammas=(0.99, 0.995)),
    "quick": Protocol(
        pairs=32, rollouts=16, steps=1000, samples=384, gammas=(0.9, 0.96, 0.98, 0.99, 0.995)
    ),
}


@dataclass(frozen=True)
class Fidelity:
    """EMD of a model at one discount.

    Attributes:
        gamma: discount.
        emd: mean over pairs, raw units.
        ci95: half width of the 95 % interval of that mean (over pairs).
        floor: the same between two halves of the truth.
        floor_ci95: half width of its interval.
        clipped: share of geometric times beyond the rollouts' end.
    """

    gamma: float
    emd: float
    ci95: float
    floor: float
    floor_ci95: float
    clipped: float


def score(
    truth: Truth,
    models: Mapping[str, Float[np.ndarray, "G P n d"]],
    gammas: Sequence[float],
    *,
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, list[Fidelity]]:
    """Return the EMD of each model at each discount; the noise floor is computed once for all.

    Args:
        truth: from ``draw_truth``.
        models: samples by name, from ``model_samples``.
        gammas: the discounts of both.
        workers: processes; the result does not depend on their number.
        progress: called with (distances done, all).
    """
    sides = [(truth.halves[0], truth.halves[1]), *((x, truth.samples) for x in models.values())]
    shape = (len(sides), *truth.samples.shape[:2])
    flat = [(x.reshape(-1, *x.shape[2:]), y.reshape(-1, *y.shape[2:])) for x, y in sides]
    jobs = [job for x, y in flat for job in zip(x, y, strict=True)]
    distances = emds(jobs, workers=workers, progress=progress).reshape(shape)
    means = [[mean_interval(values) for values in rows] for rows in distances]
    return {
        name: [
            Fidelity(gamma, *own, *floor, float(clipped))
            for gamma, own, floor, clipped in zip(
                gammas, rows, means[0], truth.clipped, strict=True
            )
        ]
        for name, rows in zip(models, means[1:], strict=True)
    }


def in_places(
    domain: Domain, truth: Truth, models: Mapping[str, Float[np.ndarray, "G P n d"]]
) -> tuple[Truth, dict[str, Float[np.ndarray, "G P n p"]]] | None:
    """Return both with only what decides the domain's tasks; None where that is the whole state.

    27 of an ant's 29 dimensions are forgotten within steps and outweigh the two that plans are
    about: a model may look tolerable over all of them and know nothing of where the ant goes.
    """
    features = GoalFeatures(domain)
    samples = features(truth.samples)
    if samples.shape == truth.samples.shape:
        return None
    real = Truth(samples, features(truth.halves), truth.clipped)
    return real, {name: features(x) for name, x in models.items()}


@dataclass(frozen=True)
class Rewards:
    """The mean reward of a model's samples at one discount, which is what planning adds up.

    Attributes:
        gamma: discount.
        model: mean over pairs and samples.
        truth: that of the rollouts' states.
        ci95: half width of the 95 % interval of their difference (over pairs).
    """

    gamma: float
    model: float
    truth: float
    ci95: float


def compare_rewards(
    domain: Domain,
    samples: Float[np.ndarray, "G P n d"],
    truth: Float[np.ndarray, "G P n d"],
    goals: Float[np.ndarray, "P d"],
    gammas: Sequence[float],
) -> list[Rewards]:
    """Return a model's mean reward beside the truth's: the values of plans of one segment.

    A model that is blurred arrives too seldom, one that is too sure too often.
    """
    model, real = (domain.reward(x, goals[None, :, None]).mean(-1) for x in (samples, truth))
    return [
        Rewards(gamma, float(m.mean()), float(r.mean()), mean_interval(m - r)[1])
        for gamma, m, r in zip(gammas, model, real, strict=True)
    ]


def measure_fidelity(
    ghm,
    policy,
    pairs: Pairs,
    truth: Float[np.ndarray, "P R T d"],
    gammas: Sequence[float],
    key: PRNGKeyArray,
    *,
    samples: int,
    seed: int = 0,
    allow_extrapolation: bool = False,
    workers: int | None = 1,
) -> list[Fidelity]:
    """Return the EMD of one model to rollouts, per discount.

    Args:
        ghm: the model; ``sample(key, states, actions, z, gamma)``.
        policy: the policy that was rolled out.
        pairs: as rolled out.
        truth: from ``rollouts`` [P, R, T, d]; R at least 2.
        gammas: discounts.
        key: randomness of the model's samples.
        samples: n per pair.
        seed: of the geometric times.
        allow_extrapolation: permit discounts above the model's largest.
        workers: processes for the distances.
    """
    drawn = model_samples(
        ghm, policy, pairs, gammas, key, samples, allow_extrapolation=allow_extrapolation
    )
    states = draw_truth(truth, gammas, samples, seed)
    return score(states, {"model": drawn}, gammas, workers=workers)["model"]


def wall_share(domain: Domain, states: Float[np.ndarray, "*shape d"]) -> float | None:
    """Return the share of states inside walls or outside the maze; None where there are none.

    A body's centre cannot be there, so the truth's share is 0 but for what contact lets through.
    """
    if not isinstance(domain, MazeDomain):
        return None
    return float(domain.grid.in_wall(states[..., :2]).mean())
