"""Train policies for a time box each and measure their zero-shot success on the five tasks.

    python benchmarks/zero_shot.py --sets DIR --out DIR gcbc:cube-1:60 crl:antmaze-medium:90

A job is POLICY:DOMAIN:SECONDS[:FIELD=VALUE,...] with the paper's preset; DIR of --sets holds a data
set per domain under its alias and is waited for. Rows are added to OUT/zero-shot.jsonl at once.
"""

import argparse
import json
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import numpy as np

from jumpyworld import data, domains, policies
from jumpyworld.cli.provenance import provenance
from jumpyworld.cli.train_loop import read_changes
from jumpyworld.evaluation.success import evaluate
from jumpyworld.loading import load
from jumpyworld.policies.job import policy_job
from jumpyworld.storage.metrics import read_rows
from jumpyworld.storage.rows import append_rows
from jumpyworld.storage.schema import with_changes
from jumpyworld.training import TrainingConfig, train

START = time.monotonic()


def say(*words):
    print(f"[{time.monotonic() - START:6.1f}]", *words, flush=True)


def wait_for(folder: Path, seconds: float):
    """Return the set once its description is there: the last file that is written."""
    while not list(folder.glob("*.json")):
        if time.monotonic() - START > seconds:
            raise TimeoutError(f"{folder} did not come")
        time.sleep(1)
    return data.load(folder)


def run(job: str, sets: Path, out: Path, runs: Path, preset: str, episodes: int, seed: int) -> None:
    name, alias, seconds, *rest = job.split(":")
    domain = domains.get(alias)
    dataset = wait_for(sets / alias, 500)
    config = policies.get(name).config.preset(preset, alias)
    config = with_changes(config, read_changes(tuple(rest[0].split(",")) if rest else ()), "--set")
    folder = runs / f"{name}-{alias}-{seed}"
    # The box counts compilation, which says nothing about learning: it is added.
    settings = TrainingConfig(
        steps=config.gradient_steps,
        minutes=(float(seconds) + 20) / 60,
        seed=seed,
        save_every=10**6,
        log_every=500,
    )
    result = train(policy_job(name, dataset, config), folder, settings, overwrite=True)
    rows = read_rows(folder / "metrics.jsonl")
    rate = float(np.median([row["steps_per_second"] for row in rows])) if rows else 0.0
    say(name, alias, f"{result.step} steps in {result.seconds:.0f} s, {rate:.0f}/s", rows[-1:])
    policy = load(folder)
    clock = time.monotonic()
    success = evaluate(domain, policy, episodes=episodes, seed=seed)
    row = {
        "kind": "success",
        "domain": domain.alias,
        "policy": name,
        "planner": "zero-shot",
        "seed": seed,
        "tasks": [
            {"task": i + 1, "episodes": n, "successes": k} for i, (k, n) in enumerate(success.tasks)
        ],
        "mean": round(success.mean, 4),
        "ci95": [round(v, 4) for v in success.ci95],
        "steps": result.step,
        "steps_per_second": round(rate, 1),
        "transitions": dataset.num_transitions,
        "minutes": {
            "policy": round(result.seconds / 60, 2),
            "eval": round((time.monotonic() - clock) / 60, 2),
        },
        "preset": preset,
        "config": json.loads(json.dumps(asdict(config))),
        **provenance(),
    }
    append_rows(out / "zero-shot.jsonl", [row])
    say(name, alias, "success", row["mean"], row["ci95"], [t["successes"] for t in row["tasks"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="+")
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=560, help="start no job after this")
    a = parser.parse_args()
    for job in a.jobs:
        if time.monotonic() - START > a.deadline:
            say("no time for", job)
            continue
        try:
            run(job, a.sets, a.out, a.runs, a.preset, a.episodes, a.seed)
        except Exception:
            say("FAILED", job)
            traceback.print_exc()


if __name__ == "__main__":
    main()
