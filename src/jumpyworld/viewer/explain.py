"""A plan as plain values for the page, and in words why it won.

Shapes: M candidates, K segments, k objects, N chains.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from jumpyworld.planning import (
    Plan,
    discounts_of_horizons,
    gsp_weights,
    switching_probabilities,
)
from jumpyworld.viewer.candidates import AbstractSource, Horizons
from jumpyworld.viewer.thinking import Compared, Thinker


class Asked(NamedTuple):
    """What a plan was asked for.

    Attributes:
        source: where candidates come from.
        horizons: of the segments, and the discount.
        painted: whether the reward is painted, rather than a goal to reach.
        remembers: whether sequences of a last plan stand among the candidates.
    """

    source: AbstractSource
    horizons: Horizons
    painted: bool
    remembers: bool


def plan_as_values(
    thinker: Thinker, asked: Asked, plan: Plan, compared: Compared
) -> dict[str, Any]:
    """Return everything that the page shows of a plan."""
    horizons = asked.horizons
    places = thinker.scene.places
    values, spent = np.asarray(plan.candidate_values), np.asarray(plan.spent)
    chosen, sequence = int(plan.chosen), np.asarray(plan.z)
    answer: dict[str, Any] = {
        "value": number(plan.value),
        "chosen": chosen,
        "all_zero": bool(plan.all_zero),
        "invalid": int(plan.invalid),
        "weight_sum": number(plan.weight_sum),
        "evaluations": int(plan.evaluations),
        "candidates": {
            "places": rounded(places(np.asarray(plan.candidates))),
            "values": [number(value) for value in values],
            "kinds": asked.source.kinds(not asked.painted, asked.remembers),
            "rounds": (spent > 0).sum(0).tolist(),
        },
        "rounds": _rounds(spent, values, thinker, len(sequence)),
        "chain": rounded(places(sequence)),
        "ghosts": rounded(places(compared.states[0])),
    }
    betas = discounts_of_horizons(horizons.segments)
    weights = gsp_weights(betas, horizons.discount)
    answer["segments"] = _segments(horizons, betas, weights, compared.rewards.mean(-1))
    chains = np.einsum("skn,k->sn", compared.rewards, weights)
    answer["why"] = why(answer, chains, compared, asked.painted)
    if answer["all_zero"]:
        answer["why"]["words"] = _nothing(asked, list(thinker.sources.values()))
    return answer


def why(
    plan: dict[str, Any], chains: np.ndarray, compared: Compared, painted: bool
) -> dict[str, Any]:
    """Return the chosen sequence beside the runner-up and the base policy's own, with words.

    Args:
        plan: what is known of it so far.
        chains: values of fresh chains of the three, with the same noise [3, N].
        compared: where they come from.
        painted: whether the reward is painted.
    """
    rivals: dict[str, Any] = {}
    runner_up = compared.runner_up
    for name, row in (("runner_up", 1), ("base", 2)):
        if name == "runner_up" and runner_up < 0:
            continue
        gap = chains[0] - chains[row]
        rivals[name] = {
            "value": number(chains[row].mean()),
            "gain": number(gap.mean()),
            "error": number(1.96 * gap.std() / math.sqrt(len(gap))),
        }
    if "runner_up" in rivals:
        rivals["runner_up"]["index"] = runner_up
    fresh = {
        "value": number(chains[0].mean()),
        "error": number(1.96 * chains[0].std() / math.sqrt(chains.shape[1])),
    }
    return {"fresh": fresh, **rivals, "words": _words(plan, fresh, rivals, painted)}


def _nothing(asked: Asked, sources: list[AbstractSource]) -> list[str]:
    """Return what to say where no candidate is worth anything, and what helps."""
    met, nearer = ("met the goal", "a nearer goal")
    if asked.painted:
        met, nearer = ("landed on a painted cell", "cells painted nearer by")
    name = asked.source.name
    acts = f"The first {name} is followed: it leads towards the goal."
    if not asked.source.needs_goal:
        acts = "The first of them is followed." if asked.painted else "The base policy acts alone."
    helps = ["longer horizons below", nearer, "another draw (D)", "more --candidates at the start"]
    if not (asked.painted or asked.source.needs_goal):
        found = [f"{source.name}s above" for source in sources if source.needs_goal]
        helps = [*(found or ["ways that data know (start with --precedents DATA)"]), *helps]
    return [
        f"Every value is zero: none of the chains of jumps that the model drew {met}, so that no "
        f"candidate can be told from another. {acts}",
        f"What helps: {', '.join(helps[:-1])}, or {helps[-1]}.",
    ]


def _words(
    plan: dict[str, Any], fresh: dict[str, Any], rivals: dict[str, Any], painted: bool
) -> list[str]:
    lines = []
    earns = [part["earns"] or 0.0 for part in plan["segments"]]
    best = int(np.argmax(np.abs(earns)))
    total = sum(earns)
    share = f", {100 * earns[best] / total:.0f} % of it from segment {best + 1}" if total else ""
    lines.append(
        f"Following this chain is worth {fresh['value']:.3f} ± {fresh['error']:.3f}{share}."
    )
    if "runner_up" in rivals:
        lines.append(f"The runner-up: {_versus(rivals['runner_up'])}.")
    kind = plan["candidates"]["kinds"][plan["chosen"]] if plan["chosen"] >= 0 else "base"
    if kind == "base":
        lines.append("The base policy's own sequence won: here composing adds nothing.")
    else:
        alone = "aimed at the best cell" if painted else "alone"
        lines.append(f"The base policy {alone}: {_versus(rivals['base'])}.")
    return lines


def _versus(rival: dict[str, Any]) -> str:
    gain, error, value = rival["gain"], rival["error"], rival["value"]
    if abs(gain) <= error:
        return f"{value:.3f}, no clear difference ({gain:+.3f} ± {error:.3f})"
    word = "better" if gain > 0 else "worse"
    return f"{value:.3f}; the chosen chain is {word} by {abs(gain):.3f} ± {error:.3f}"


def _segments(
    horizons: Horizons, betas: np.ndarray, weights: np.ndarray, rewards: np.ndarray
) -> list[dict[str, Any]]:
    """Return what each segment is and earns, given the mean rewards of the three [3, K]."""
    alphas = np.clip(switching_probabilities(betas, horizons.discount), 0, 1)
    return [
        {
            "horizon": horizons.segments[k],
            "beta": number(betas[k]),
            "alpha": number(alphas[k]),
            "weight": number(weights[k]),
            "reward": number(rewards[0, k]),
            "earns": number(weights[k] * rewards[0, k]),
            "base_earns": number(weights[k] * rewards[2, k]),
        }
        for k in range(len(betas))
    ]


def _rounds(
    spent: np.ndarray, values: np.ndarray, thinker: Thinker, segments: int
) -> list[dict[str, Any]]:
    steps = thinker.effort.ode_steps * (2 if thinker.opened.ghm.solver == "midpoint" else 1)
    return [
        {
            "candidates": int((row > 0).sum()),
            "chains": int(row.max()),
            "total": int(row.sum()),
            "evaluations": int(row.sum()) * segments * steps,
            # Of those that play on, by their means at the end: the bar that had to be cleared.
            "worst": number(np.nanmin(np.where(row > 0, values, np.nan))),
        }
        for row in spent
        if row.any()
    ]


def number(value: Any, digits: int = 6) -> float | None:
    """Return a JSON number, or None for what JSON has no word for."""
    found = float(value)
    return round(found, digits) if math.isfinite(found) else None


def rounded(places: Any) -> Any:
    """Return places as nested lists, to the millimetre; not finite becomes far away."""
    array = np.nan_to_num(np.asarray(places, np.float64), nan=1e6, posinf=1e6, neginf=-1e6)
    return np.round(np.clip(array, -1e6, 1e6), 3).tolist()
