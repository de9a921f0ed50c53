"""A whole fidelity study: rollouts, samples, distances, walls and sensitivity, for several models.

    pairs ── rollouts (kept) ── truth ─┐
                                       ├── samples (kept) ── EMD, of places too; walls, rewards
    models ─────────────────── draws ──┘
    pairs ── two first actions ── rollouts (kept), models ── sensitivity

All that is dear is kept in folders: the same study again, or with another model, rolls out nothing.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jumpyworld.domains import Domain
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation import sensitivity as sensitivities
from jumpyworld.evaluation.draws import check_discounts, draw_truth, model_samples
from jumpyworld.evaluation.fidelity import (
    Fidelity,
    Protocol,
    Rewards,
    compare_rewards,
    in_places,
    score,
    wall_share,
)
from jumpyworld.evaluation.pairs import Pairs
from jumpyworld.evaluation.rollouts import RolloutStore, identity_of, rollouts
from jumpyworld.evaluation.samples import TRUTH, Samples
from jumpyworld.evaluation.sensitivity import Sensitivity
from jumpyworld.evaluation.transport import Progress
from jumpyworld.storage.runs import Warn, python_warning

Reporter = Callable[[str, str], AbstractContextManager[Progress]]
"""(title, unit) to a context that yields a function of (done, total)."""


@contextlib.contextmanager
def silent(title: str, unit: str):
    """Report nothing."""
    yield lambda done, total: None


@dataclass(frozen=True)
class Outcome:
    """What a study found; models by name.

    Attributes:
        fidelity: of each model, per discount.
        places: the same of what decides the task alone; empty where that is the whole state.
        rewards: of each model, per discount: what planning makes of its samples.
        walls: share of states inside walls per discount, of each model and of ``truth``; None
            where there are no walls.
        sensitivity: to the first action per discount, of each model and of ``truth``.
        files: samples that were saved, the truth's first.
        minutes: wall-clock time of each part.
    """

    fidelity: dict[str, list[Fidelity]]
    places: dict[str, list[Fidelity]]
    rewards: dict[str, list[Rewards]]
    walls: dict[str, list[float | None]]
    sensitivity: dict[str, list[Sensitivity]]
    files: list[Path]
    minutes: dict[str, float]


def run_study(
    domain: Domain,
    policy,
    models: Mapping[str, Any],
    pairs: Pairs,
    protocol: Protocol,
    *,
    policy_fingerprint: str,
    seed: int,
    rollouts_folder: Path,
    samples_folder: Path,
    allow_extrapolation: bool = False,
    workers: int | None = None,
    report: Reporter = silent,
    warn: Warn = python_warning,
) -> Outcome:
    """Measure models of one policy.

    Args:
        domain: where.
        policy: what the models are of.
        models: geometric horizon models by name.
        pairs: where to measure, ``protocol.pairs`` of them.
        protocol: how much.
        policy_fingerprint: by which kept rollouts are found again.
        seed: fixes all draws.
        rollouts_folder: where rollouts are kept.
        samples_folder: where samples are written, one file per model and one of the truth.
        allow_extrapolation: permit discounts above a model's largest.
        workers: processes; they change the time alone.
        report: shows progress.
        warn: called with one line about each damaged file.
    """
    if TRUTH in models or not models:
        raise ConfigError("a study needs models, none of them called truth")
    for model in models.values():
        check_discounts(protocol.gammas, model.gamma_max, allow_extrapolation)
    key = jax.random.key(seed)
    clock = _Clock()

    def roll(title: str, **settings) -> np.ndarray:
        identity = identity_of(domain, policy_fingerprint, pairs, seed=seed, **settings)
        store = RolloutStore(rollouts_folder, identity, warn)
        own = jax.random.fold_in(key, 0)
        with report(title, "steps") as progress:
            return rollouts(
                domain, policy, pairs, own,
                workers=workers, store=store, progress=progress, **settings,
            )  # fmt: skip

    paths = roll("rollouts", repeats=protocol.rollouts, steps=protocol.steps)
    actions = sensitivities.two_actions(policy, pairs, jax.random.fold_in(key, 1))
    short = {
        "repeats": min(protocol.rollouts, sensitivities.ROLLOUTS),
        "steps": min(protocol.steps, sensitivities.STEPS),
    }
    titles = ("its own first action", "another first action")
    two = [roll(t, first_actions=a, **short) for t, a in zip(titles, actions, strict=True)]
    felt = {TRUTH: sensitivities.true_sensitivity(np.stack(two), sensitivities.GAMMAS)}
    clock.lap("rollouts")

    truth = draw_truth(paths, protocol.gammas, protocol.samples, seed)
    del paths, two
    drawn: dict[str, np.ndarray] = {}
    for name, model in models.items():
        with report(f"{name} samples", "draws") as progress:
            drawn[name] = model_samples(
                model, policy, pairs, protocol.gammas, jax.random.fold_in(key, 2),
                protocol.samples, allow_extrapolation=allow_extrapolation, progress=progress,
            )  # fmt: skip
        with report(f"{name} first actions", "pairs") as progress:
            felt[name] = sensitivities.model_sensitivity(
                model, pairs, actions, sensitivities.GAMMAS, jax.random.fold_in(key, 3),
                min(protocol.samples, sensitivities.SAMPLES), progress=progress,
            )  # fmt: skip
    sources = {TRUTH: truth.samples, **drawn}
    files = []
    for name, array in sources.items():
        path = Path(samples_folder) / f"{name}.npz"
        Samples(name, domain.name, protocol.gammas, pairs.states, pairs.goals, array).write(path)
        files.append(path)
    clock.lap("samples")

    with report("EMD", "pairs") as progress:
        facts = score(truth, drawn, protocol.gammas, workers=workers, progress=progress)
    places = {}
    if (narrowed := in_places(domain, truth, drawn)) is not None:
        with report("EMD of places", "pairs") as progress:
            places = score(*narrowed, protocol.gammas, workers=workers, progress=progress)
    rewards = {
        name: compare_rewards(domain, array, truth.samples, pairs.goals, protocol.gammas)
        for name, array in drawn.items()
    }
    walls = {name: [wall_share(domain, x) for x in array] for name, array in sources.items()}
    clock.lap("emd")
    return Outcome(facts, places, rewards, walls, felt, files, clock.minutes)


def result_rows(outcome: Outcome, name: str) -> dict[str, Any]:
    """Return one model's part of a result row: discounts and sensitivity as plain values.

    Fields that do not apply are left out.
    """
    discounts = []
    for i, fact in enumerate(outcome.fidelity[name]):
        row = {
            "gamma": fact.gamma,
            "horizon": round(1 / (1 - fact.gamma), 6),
            "emd": fact.emd,
            "ci95": _interval(fact.emd, fact.ci95),
            "floor": fact.floor,
            "floor_ci95": _interval(fact.floor, fact.floor_ci95),
            "clipped": fact.clipped,
        }
        if outcome.places:
            place = outcome.places[name][i]
            row |= {
                "place_emd": place.emd,
                "place_ci95": _interval(place.emd, place.ci95),
                "place_floor": place.floor,
                "place_floor_ci95": _interval(place.floor, place.floor_ci95),
            }
        reward = outcome.rewards[name][i]
        row |= {
            "reward": reward.model,
            "truth_reward": reward.truth,
            "reward_diff_ci95": [
                reward.model - reward.truth - reward.ci95,
                reward.model - reward.truth + reward.ci95,
            ],
        }
        walls, true_walls = outcome.walls[name][i], outcome.walls[TRUTH][i]
        if walls is not None:
            row |= {"walls": walls, "truth_walls": true_walls}
        discounts.append(row)
    truth = {fact.gamma: fact for fact in outcome.sensitivity[TRUTH]}
    felt = [
        asdict(fact)
        | {"truth_shift": truth[fact.gamma].shift, "truth_spread": truth[fact.gamma].spread}
        for fact in outcome.sensitivity[name]
    ]
    return {"rows": discounts, "sensitivity": felt}


def _interval(mean: float, half: float) -> list[float]:
    return [max(0.0, mean - half), mean + half]


class _Clock:
    """Minutes from one lap to the next."""

    def __init__(self):
        self.minutes: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.minutes[name] = round((now - self._last) / 60, 3)
        self._last = now
