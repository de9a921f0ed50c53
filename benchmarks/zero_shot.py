"""Train policies for a time box each and measure their zero-shot success on the five tasks.

    python benchmarks/zero_shot.py --make --sets DIR --runs DIR --out DIR \
        gcbc:cube-1:60 crl:antmaze-medium:90:batch_size=1024

A job is POLICY:DOMAIN:SECONDS[:FIELD=VALUE,...] with the paper's preset. DIR of --sets holds a data
set per domain under its alias. It is waited for; --make makes the missing ones meanwhile, in the
order of the jobs. While one policy is evaluated by a process of its own the next one trains. Rows
are added to OUT/zero-shot.jsonl as soon as they are known.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Two processes share the accelerator: neither may take most of its memory at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

from jumpyworld import data, domains, policies
from jumpyworld.cli.provenance import provenance
from jumpyworld.cli.train_loop import read_changes
from jumpyworld.evaluation.success import evaluate
from jumpyworld.loading import load
from jumpyworld.machine import available_cores
from jumpyworld.policies.job import policy_job
from jumpyworld.storage.metrics import read_rows
from jumpyworld.storage.rows import append_rows
from jumpyworld.storage.schema import with_changes
from jumpyworld.training import TrainingConfig, train

START = time.monotonic()


def say(*words):
    print(f"[{time.monotonic() - START:6.1f}]", *words, flush=True)


def missing(jobs: list[str], sets: Path) -> list[str]:
    """Domains of the jobs, in their order, whose set is not there."""
    aliases = dict.fromkeys(job.split(":")[1] for job in jobs)
    return [alias for alias in aliases if not list((sets / alias).glob("*.json"))]


def wait_for(folder: Path, seconds: float):
    """Return the set once its description is there: the last file that is written."""
    while not list(folder.glob("*.json")):
        if time.monotonic() - START > seconds:
            raise TimeoutError(f"{folder} did not come")
        time.sleep(1)
    return data.load(folder)


def fit(job: str, folder: Path, a: argparse.Namespace) -> dict[str, Any]:
    """Train one policy and return what is known of it before its evaluation."""
    name, alias, seconds, *rest = job.split(":")
    dataset = wait_for(a.sets / alias, a.deadline)
    config = policies.get(name).config.preset(a.preset, alias)
    config = with_changes(config, read_changes(tuple(rest[0].split(",")) if rest else ()), "--set")
    # The box counts compilation, which says nothing about learning: it is added.
    settings = TrainingConfig(
        steps=config.gradient_steps,
        minutes=(float(seconds) + 20) / 60,
        seed=a.seed,
        save_every=10**6,
        log_every=500,
    )
    result = train(policy_job(name, dataset, config), folder, settings, overwrite=True)
    rows = read_rows(folder / "metrics.jsonl")
    rate = float(np.median([row["steps_per_second"] for row in rows])) if rows else 0.0
    say(job, f"{result.step} steps in {result.seconds:.0f} s, {rate:.0f}/s")
    return {
        "kind": "success",
        "domain": domains.get(alias).alias,
        "policy": name,
        "planner": "zero-shot",
        "seed": a.seed,
        "steps": result.step,
        "steps_per_second": round(rate, 1),
        "transitions": dataset.num_transitions,
        "minutes": {"policy": round(result.seconds / 60, 2)},
        # What reveals a failure without the run: sizes of Q, distance to the behaviour, losses.
        "last": {k: float(f"{v:.4g}") for k, v in rows[-1].items() if "/" in k} if rows else {},
        "preset": a.preset,
        "changes": rest[0] if rest else "",
        "config": json.loads(json.dumps(asdict(config))),
        **provenance(),
    }


def measure(folder: Path, alias: str, episodes: int, seed: int) -> dict[str, Any]:
    """Evaluate a trained policy; runs in the other process."""
    clock = time.monotonic()
    # One core stays with the training.
    workers = max(available_cores() - 1, 1)
    success = evaluate(
        domains.get(alias), load(folder), episodes=episodes, seed=seed, workers=workers
    )
    return {
        "tasks": [
            {"task": i + 1, "episodes": n, "successes": k} for i, (k, n) in enumerate(success.tasks)
        ],
        "mean": round(success.mean, 4),
        "ci95": [round(v, 4) for v in success.ci95],
        "eval": round((time.monotonic() - clock) / 60, 2),
    }


def record(out: Path, job: str, row: dict[str, Any], outcome: Future) -> None:
    """Add a row once its evaluation is over."""
    try:
        found = outcome.result()
    except Exception:
        say("FAILED to evaluate", job)
        traceback.print_exc()
        return
    row["minutes"]["eval"] = found.pop("eval")
    append_rows(out / "zero-shot.jsonl", [{**row, **found}])
    say(job, "success", found["mean"], found["ci95"], [t["successes"] for t in found["tasks"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("jobs", nargs="+")
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--make", action="store_true", help="make the sets that are missing")
    parser.add_argument("--data-episodes", type=int, help="of sets made; OGBench's by default")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=560, help="start no job after this")
    a = parser.parse_args()
    making = None
    if a.make and (wanted := missing(a.jobs, a.sets)):
        size = f":{a.data_episodes}" if a.data_episodes else ""
        script = Path(__file__).with_name("make_sets.py")
        command = [sys.executable, script, "--out", a.sets, *(name + size for name in wanted)]
        making = subprocess.Popen([str(part) for part in command])
    # One at a time: the simulators of one evaluation use all cores.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for i, job in enumerate(a.jobs):
            if time.monotonic() - START > a.deadline:
                say("no time for", job)
                continue
            folder = a.runs / f"{i}-{'-'.join(job.split(':')[:2])}-{a.seed}"
            try:
                row = fit(job, folder, a)
            except Exception:
                say("FAILED", job)
                traceback.print_exc()
                continue
            outcome = pool.submit(measure, folder, job.split(":")[1], a.episodes, a.seed)
            outcome.add_done_callback(lambda o, job=job, row=row: record(a.out, job, row, o))
    if making is not None:
        making.wait()


if __name__ == "__main__":
    main()
