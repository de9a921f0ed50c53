"""What ``jumpy bench plan`` does: gather a model, a policy and states, and measure."""

import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld import data, domains
from jumpyworld.cli.bench import BenchPlan, check_only, ready
from jumpyworld.cli.flags import spelt
from jumpyworld.cli.train_loop import read_changes
from jumpyworld.errors import ConfigError, unwritable
from jumpyworld.evaluation.pairs import draw_rows
from jumpyworld.experiments import bench_plan as bench
from jumpyworld.experiments.bench_train import ONE_STEP, untrained_policy
from jumpyworld.experiments.references import References
from jumpyworld.ghm import GeometricHorizonModel, GHMConfig, GHMSpec
from jumpyworld.planning import (
    CompPlan,
    HighLevelProposal,
    PlanningPreset,
    Uniform,
    goal_task,
    planning_preset,
)
from jumpyworld.storage.schema import with_changes
from jumpyworld.storage.tensors import digest

# Flags that say what regret is about.
_OF_REGRET = ("pairs", "reward", "reference_precision")


def bench_plan(flags: BenchPlan, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row per method.

    Raises:
        ConfigError: a flag is wrong or missing.
    """
    end = time.monotonic() + 60 * flags.minutes
    _check(flags)
    ready(flags.out)
    _check_reference(flags)
    known = {method.name: method for method in bench.METHODS}
    domain = domains.get(flags.domain)
    hierarchy: dict[str, Any] = {}
    if flags.ghm is None:
        ghm, policy, name, states, goals = _random(flags, domain)
        fingerprints = ()
    else:
        model, found, states, goals = _trained(flags, domain)
        ghm, policy, name = model.model, found.policy, found.name
        hierarchy = {"base": found.whole}
        if name == "hfbc":
            hierarchy["proposer"] = found.policy if found.whole is None else found.whole
        fingerprints = (model.fingerprint, found.fingerprint)
    methods = [known[name] for name in flags.only] or bench.usual_methods(policy)
    preset = planning_preset(flags.domain, name)
    changes = {"candidates": flags.candidates, "samples": flags.samples}
    preset = dataclasses.replace(
        preset, **{field: value for field, value in changes.items() if value is not None}
    )

    def planner(method: bench.Method, preset: PlanningPreset) -> CompPlan:
        return bench.make_planner(method, ghm, policy, preset, flags.max_rows, **hierarchy)

    planners = {method.name: planner(method, preset) for method in methods}
    measured = bench.time_plans(
        planners,
        jnp.asarray(states),
        goal_task(domain, goals[0], flags.reward),
        rounds=flags.rounds,
        say=say,
    )
    quality: dict[str, Any] = {}
    if flags.ghm is not None:
        many = dataclasses.replace(preset, samples=bench.REFERENCE * preset.samples)
        judge = dataclasses.replace(bench.METHODS[0], precision=flags.reference_precision)
        reference = planner(judge, many)
        tasks = [goal_task(domain, goal, flags.reward) for goal in goals]
        quality = bench.measure_regret(
            reference,
            planners,
            states,
            tasks,
            opener=planner(bench.METHODS[0], many),  # the paper's, whatever judges them
            seed=flags.seed,
            store=_store(flags, reference, judge, many, fingerprints, states, goals),
            minutes=(end - time.monotonic()) / 60,
            progress=lambda done, total: say(f"regret: {done} of {total} states"),
        )
        if quality["states"] < 2:
            say(_why_no_regret(flags, quality))
    first = measured[methods[0].name]["plan_ms"]
    return [
        {
            "kind": "speed",
            "what": "plan",
            "domain": domain.alias,
            "policy": name,
            "network": flags.preset if flags.ghm is None else "trained",
            **({"ghm": fingerprints[0]} if fingerprints else {}),
            "changes": list(flags.set),
            "method": method.name,
            "idea": method.idea,
            "candidates": preset.candidates,
            **_spent(method, preset),
            "segments": len(preset.horizons),
            **{key: round(value, 3) for key, value in measured[method.name].items()},
            "speedup": round(first / measured[method.name]["plan_ms"], 2),
            "rounds": flags.rounds,
            "max_rows": flags.max_rows,
            **({name: getattr(flags, name) for name in _OF_REGRET} if quality else {}),
            **{key: _rounded(value) for key, value in quality.get(method.name, {}).items()},
            **{key: quality[key] for key in ("states", "flat", "broken") if key in quality},
        }
        for method in methods
    ]


def _spent(method: bench.Method, preset: PlanningPreset) -> dict[str, Any]:
    """Return how a method spends chains: elimination by its own rounds, whatever --samples says."""
    search = method.search(preset)
    if isinstance(search, Uniform):
        return {"search": "uniform", "samples": search.samples}
    return {"search": "elimination", "schedule": [list(each) for each in search.rounds]}


def _rounded(value: float | list[float]) -> float | list[float]:
    return [round(end, 4) for end in value] if isinstance(value, list) else round(value, 4)


def _check(flags: BenchPlan) -> None:
    """Refuse flags that are out of range, or that others leave without effect."""
    known = {method.name: method for method in bench.METHODS}
    check_only(flags.only, list(known))
    uniform = [name for name in flags.only or known if not known[name].elimination]
    if flags.samples is not None and flags.ghm is None and not uniform:
        raise ConfigError(
            f"--samples {flags.samples}: has no effect with --only {' '.join(flags.only)}, "
            "which spend by their rounds"
        )
    for name in ("rounds", "states", "candidates", "samples", "max_rows"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            raise ConfigError(f"{spelt(name, value)}: must be at least 1")
    if not flags.minutes > 0:
        raise ConfigError(f"--minutes {flags.minutes:g}: must be above 0")
    if flags.seed < 0:
        raise ConfigError(f"--seed {flags.seed}: must not be negative")
    trained = (flags.ghm, flags.policy, flags.dataset)
    if any(part is not None for part in trained) and any(part is None for part in trained):
        raise ConfigError("--ghm, --policy and --dataset: give all three, or none of them")
    if flags.ghm is None:
        _refuse_without_a_model(flags)
        return
    default = {field.name: field.default for field in dataclasses.fields(flags)}
    for name in ("set", "preset"):
        value = getattr(flags, name)
        if value != default[name]:
            raise ConfigError(f"{spelt(name, value)}: --ghm has its own network and settings")


def _check_reference(flags: BenchPlan) -> None:
    """Refuse a folder for the reference that cannot be written, before anything is measured."""
    if flags.reference is None:
        return
    try:
        flags.reference.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=flags.reference):
            pass
    except OSError as error:
        raise unwritable(flags.reference, error) from error


def _why_no_regret(flags: BenchPlan, quality: dict[str, Any]) -> str:
    """Return in one line why there is no regret: its interval needs two states."""
    flat, broken = quality["flat"], quality["broken"]
    done = quality["states"] + flat + broken
    if done < min(2, flags.states):
        why = f"--minutes {flags.minutes:g} were over"
    elif flags.states < 2:
        why = f"--states {flags.states}"
    else:
        why = f"in {flat} of them all candidates are worth the same"
        why += f", in {broken} most are not finite" if broken else ""
    return f"no regret: {done} of {flags.states} states judged, two are needed ({why})"


def _refuse_without_a_model(flags: BenchPlan) -> None:
    """Refuse flags of the regret, which random weights do not have."""
    default = {field.name: field.default for field in dataclasses.fields(flags)}
    for name in (*_OF_REGRET, "states", "minutes", "reference"):
        value = getattr(flags, name)
        if value != default[name]:
            raise ConfigError(
                f"{spelt(name, value)}: has no effect without --ghm, --policy and --dataset, whose "
                "regret it is about"
            )


def _random(flags: BenchPlan, domain: domains.Domain):
    rng = np.random.default_rng(flags.seed)
    d, da = domain.observation_dim, domain.action_dim
    rows = rng.normal(size=(2000, d)).astype(np.float32)
    dataset = data.Dataset.from_arrays(
        rows, rng.uniform(-1, 1, (2000, da)).astype(np.float32), np.arange(2000) % 500 == 499
    )
    config = GHMConfig.preset(flags.preset, domain.alias)
    config = with_changes(config, read_changes(flags.set), "--set")
    spec = GHMSpec.from_arrays(dataset.observations, dataset.starts, dataset.ends, da)
    ghm = GeometricHorizonModel(config, spec, key=jax.random.key(flags.seed))
    policy = untrained_policy(ONE_STEP, dataset, flags.preset)
    return ghm, policy, "gctd3", rows[: flags.states], rows[-flags.states :]


def _trained(flags: BenchPlan, domain: domains.Domain):
    from jumpyworld.cli.models import load_ghm
    from jumpyworld.cli.train_loop import warn
    from jumpyworld.loading import load_policy

    found = load_policy(str(flags.policy), domain.name, warn=warn)
    assert flags.ghm is not None and flags.dataset is not None
    model = load_ghm(flags.ghm, domain, found)
    val = data.load(flags.dataset, split="val")
    rows, goals = draw_rows(flags.pairs, val, flags.states, flags.seed)
    return model, found, val.observations[rows], val.observations[goals]


def _store(
    flags: BenchPlan,
    reference: CompPlan,
    judge: bench.Method,
    preset: PlanningPreset,
    fingerprints: Sequence[str],
    states,
    goals,
) -> References | None:
    """Return where the reference is kept: by all that decides it."""
    if flags.reference is None:
        return None
    from jumpyworld.cli.train_loop import warn

    method = dataclasses.asdict(judge)
    del method["policy_steps"]  # references never have any, and earlier ones did not say so
    identity = {
        "domain": flags.domain,
        "fingerprints": list(fingerprints),
        "preset": dataclasses.asdict(preset),
        "method": method,
        "reward": flags.reward,
        "pairs": digest({"states": np.asarray(states), "goals": np.asarray(goals)}),
        "seed": flags.seed,
    }
    if judge != bench.METHODS[0]:
        identity["opened"] = bench.METHODS[0].precision  # earlier ones drew theirs in bf16
    if isinstance(reference.proposal, HighLevelProposal):
        identity["proposal"] = "high-level"  # earlier ones of HFBC had the goal's
    return References(flags.reference, identity, warn)
