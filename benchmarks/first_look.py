"""A first look at policies and models on real domains: data, training, evaluation, in one go.

    python benchmarks/first_look.py --out DIR           nine minutes on an H200 with 16 cores
    python benchmarks/first_look.py --out DIR --tiny    nothing but checking that it runs

Each stage has a time box and writes what it measured to DIR/first-look.jsonl at once.
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld import data, domains
from jumpyworld.evaluation.fidelity import (
    in_support_pairs,
    measure_fidelity,
    random_pairs,
    rollouts,
)
from jumpyworld.evaluation.success import evaluate
from jumpyworld.ghm import algorithm as ghm
from jumpyworld.ghm.config import GHMConfig
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.policies.settings import PolicySpec

GAMMAS = (0.5, 0.9, 0.96, 0.98, 0.99, 0.995)
START = time.monotonic()


def say(*words):
    print(f"[{time.monotonic() - START:6.1f}]", *words, flush=True)


def train(init, step, context, seed, seconds, *, chunk, limit):
    """Run jitted chunks of steps for a time box; return state, steps, seconds of stepping.

    What ``step(state, key, *context)`` needs is passed in: closed over, it would be compiled in.
    """
    key = jax.random.key(seed)
    # Copied, because a state may hold one array twice and the loop donates it.
    state = ghm.copy_arrays(init(jax.random.fold_in(key, 2**32 - 1)))

    @eqx.filter_jit(donate="all-except-first")
    def run(context, state, first):
        def body(state, k):
            return step(state, jax.random.fold_in(key, k), *context)

        return jax.lax.scan(body, state, first + jnp.arange(chunk))

    done, metrics = 0, {}
    clock = None
    while done < limit:
        state, metrics = run(context, state, jnp.int32(done))
        jax.block_until_ready(metrics)
        done += chunk
        if clock is None:
            clock, counted = time.monotonic(), done  # the first chunk compiles
        if time.monotonic() - clock > seconds:
            break
    spent = time.monotonic() - clock
    last = {name: round(float(np.mean(value)), 5) for name, value in metrics.items()}
    return state, done, spent, (done - counted) / max(spent, 1e-9), last


class Log:
    def __init__(self, out: Path):
        self.path = out / "first-look.jsonl"
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        )
        self.facts = {
            "device": jax.devices()[0].device_kind,
            "commit": commit.stdout.strip() or "unknown",
        }

    def __call__(self, row):
        with self.path.open("a") as file:
            file.write(json.dumps(row | self.facts) + "\n")


def make_data(alias, folder, episodes):
    command = [sys.executable, "-m", "jumpyworld.cli", "data", "generate", alias]
    command += ["--out", str(folder / alias)]
    command += ["--episodes", str(episodes)] if episodes else []
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def train_policy(log, name, domain, dataset, seconds, *, tiny, episodes=20, seed=0):
    module = importlib.import_module(f"jumpyworld.policies.{name}")
    config_class = next(v for k, v in vars(module).items() if k.lower() == f"{name}config")
    config = config_class.preset("debug" if tiny else "paper", domain.alias)
    spec = PolicySpec.from_arrays(dataset.observations, dataset.actions)
    device_data = data.device_data(dataset)
    state, steps, spent, rate, last = train(
        lambda key: module.init(key, config, spec),
        lambda state, key, rows: module.step(state, rows, key, config),
        (device_data,),
        seed,
        seconds,
        chunk=20 if tiny else 500,
        limit=config.gradient_steps,
    )
    policy = module.inference_model(state)
    say(name, domain.alias, f"{steps} steps, {rate:.0f}/s", last)
    clock = time.monotonic()
    result = evaluate(domain, policy, episodes=episodes, max_steps=20 if tiny else None)
    row = {
        "kind": "success",
        "domain": domain.alias,
        "policy": name,
        "planner": "zero-shot",
        "seed": seed,
        "tasks": [
            {"task": i + 1, "episodes": n, "successes": s} for i, (s, n) in enumerate(result.tasks)
        ],
        "mean": round(result.mean, 4),
        "ci95": [round(v, 4) for v in result.ci95],
        "steps": steps,
        "steps_per_second": round(rate, 1),
        "transitions": dataset.num_transitions,
        "minutes": {
            "policy": round(spent / 60, 2),
            "eval": round((time.monotonic() - clock) / 60, 2),
        },
        "config": asdict(config),
    }
    log(row)
    say(name, domain.alias, "zero-shot", row["mean"], row["ci95"], result.tasks)
    return policy


def train_ghm(
    log, objective, domain, dataset, policy, truths, seconds, *, tiny, preset="base", seed=0
):
    # A minute's worth: a small network, and a target fast enough for a few hundred renewals.
    quick = {"width": 256, "target_rate": 0.02, "learning_rate": 1e-3}
    # Nobody knows how many steps there will be, so that rates cannot fall along them.
    quick = {} if tiny else {**quick, "final_lr_fraction": 1.0, "final_target_rate": None}
    config = GHMConfig.preset("debug" if tiny else preset, domain.alias, unroll=3 if tiny else 10)
    config = dataclass_replace(config, **quick)
    config = config if objective == "td-hc" else dataclass_replace(config, hc_fraction=0.0)
    spec = GHMSpec.from_arrays(
        dataset.observations, dataset.starts, dataset.ends, dataset.action_dim
    )
    device_data = data.device_data(dataset)
    state, steps, spent, rate, last = train(
        lambda key: ghm.init(key, config, spec, policy),
        lambda state, key, rows, policy: ghm.step(state, rows, key, config, policy),
        (device_data, policy),
        seed,
        seconds,
        chunk=5 if tiny else 200,
        limit=10**9,
    )
    say(objective, domain.alias, f"{steps} steps, {rate:.1f}/s", last)
    model = ghm.inference_model(state)
    for kind, (pairs, truth) in truths.items():
        clock = time.monotonic()
        facts = measure_fidelity(
            model,
            policy,
            pairs,
            truth,
            GAMMAS,
            jax.random.key(1),
            samples=16 if tiny else 384,
        )
        row = {
            "kind": "fidelity",
            "domain": domain.alias,
            "policy": "gcbc",
            "objective": objective,
            "seed": seed,
            "pairs": kind,
            "num_pairs": len(pairs.states),
            "rollouts": truth.shape[1],
            "samples": 16 if tiny else 384,
            "rows": [{k: round(v, 4) for k, v in asdict(f).items()} for f in facts],
            "steps": steps,
            "steps_per_second": round(rate, 2),
            "renewals": round(steps * config.target_rate),
            "minutes": {
                "ghm": round(spent / 60, 2),
                "eval": round((time.monotonic() - clock) / 60, 2),
            },
            "config": asdict(config),
        }
        log(row)
        table = "  ".join(f"{f.gamma}: {f.emd:.2f}±{f.ci95:.2f}/{f.floor:.2f}" for f in facts)
        say(objective, domain.alias, kind, table)
    return model


def dataclass_replace(config, **changes):
    import dataclasses

    return dataclasses.replace(config, **changes)


def bench_step(log, batch_size, unroll, *, tiny):
    """Time the paper's network on antmaze's sizes with random data and weights."""
    rng = np.random.default_rng(0)
    n = 2000
    observations = rng.normal(size=(n, 29)).astype(np.float32)
    actions = rng.uniform(-1, 1, (n, 8)).astype(np.float32)
    ends = np.zeros(n, bool)
    ends[999::1000] = True
    dataset = data.Dataset.from_arrays(observations, actions, ends)
    config = GHMConfig.preset("debug" if tiny else "paper", batch_size=batch_size, unroll=unroll)
    spec = GHMSpec.from_arrays(observations, dataset.starts, dataset.ends, 8)
    module = importlib.import_module("jumpyworld.policies.gctd3")
    policy_config = module.GCTD3Config.preset("debug" if tiny else "paper", "antmaze-medium")
    policy_state = module.init(
        jax.random.key(0),
        policy_config,
        PolicySpec.from_arrays(dataset.observations, dataset.actions),
    )
    policy = module.inference_model(policy_state)
    device_data = data.device_data(dataset)
    clock = time.monotonic()
    _, _, _, rate, _ = train(
        lambda key: ghm.init(key, config, spec, policy),
        lambda state, key, rows, policy: ghm.step(state, rows, key, config, policy),
        (device_data, policy), 0, 4, chunk=5 if tiny else 50, limit=10**9,
    )  # fmt: skip
    row = {
        "kind": "speed",
        "what": "ghm train step",
        "preset": "paper",
        "batch": batch_size,
        "unroll": unroll,
        "ms": round(1000 / rate, 3),
        "samples_per_second": round(rate * batch_size),
        "compile_s": round(time.monotonic() - clock - 4, 1),
    }
    log(row)
    say(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", type=Path, help="where data goes; OUT/sets by default")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--deadline", type=float, default=540, help="start no stage after this")
    arguments = parser.parse_args()
    tiny, sets = arguments.tiny, arguments.sets or arguments.out / "sets"
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = Log(arguments.out)
    point, ant = domains.get("pointmaze-large"), domains.get("antmaze-medium")
    point_job = make_data(point.alias, sets, 4 if tiny else None)
    ant_job = None

    def stage(name, function, *args, **kwargs):
        if time.monotonic() - START > arguments.deadline:
            return say("no time for", name)
        try:
            return function(*args, **kwargs)
        except Exception:
            say("FAILED", name)
            traceback.print_exc()
            return None

    assert point_job.wait() == 0
    ant_job = make_data(ant.alias, sets, 2 if tiny else None)
    train_set, val = data.load(sets / point.alias), data.load(sets / point.alias, split="val")
    say("pointmaze-large:", train_set.num_transitions)
    policy = stage(
        "gcbc point", train_policy, log, "gcbc", point, train_set, 2 if tiny else 30, tiny=tiny,
        episodes=1 if tiny else 20,
    )  # fmt: skip
    truths = {}
    for kind, draw in (("in-support", in_support_pairs), ("random", random_pairs)):
        pairs = draw(val, 4 if tiny else 32, np.random.default_rng(0))
        truth = stage(
            f"rollouts {kind}", rollouts, point, policy, pairs, jax.random.key(2),
            repeats=4 if tiny else 32, steps=20 if tiny else 600,
        )  # fmt: skip
        if truth is not None:
            truths[kind] = (pairs, truth)
    say("rollouts", {k: v[1].shape for k, v in truths.items()})
    for objective in ("td-hc", "td-flow"):
        stage(
            objective, train_ghm, log, objective, point, train_set, policy, truths,
            2 if tiny else 70, tiny=tiny,
        )  # fmt: skip
    assert ant_job.wait() == 0
    ant_set = data.load(sets / ant.alias)
    for name in ("gcbc", "crl"):
        stage(
            f"{name} ant", train_policy, log, name, ant, ant_set, 2 if tiny else 40, tiny=tiny,
            episodes=1 if tiny else 20,
        )  # fmt: skip
    for batch, unroll in ((256, 10), (1024, 10)):
        stage("bench", bench_step, log, 32 if tiny else batch, 3 if tiny else unroll, tiny=tiny)
    say("done")


if __name__ == "__main__":
    main()
