"""Compare settings of a GHM at equal steps or seconds: seeds under vmap, EMD with its floor.

    python benchmarks/ghm_ablation.py --sets DIR --runs DIR --out DIR --steps 12000 \
        plain:plain=true,precision=fp32,jumps=now now:jumps=now ahead:

A variant is NAME:FIELD=VALUE,...; ``plain=true`` takes the straightforward loss. All start from the
preset ``base`` with the changes of --set. The policy is --policy, or a GC-BC trained first; with
``--one-goal`` it is a point's scripted one sent to the goal of task 1, wherever it is asked to go.
With --steps variants are compiled and scored while others train; with --seconds everything is
compiled beforehand and nothing else runs meanwhile. ``--curve 4`` scores a run at each quarter of
it. Rows go to OUT/ablation.jsonl at once.
"""

import argparse
import dataclasses
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jumpyworld import data, domains, policies
from jumpyworld.cli.provenance import provenance
from jumpyworld.cli.train_loop import read_changes
from jumpyworld.errors import JumpyError
from jumpyworld.evaluation.draws import draw_truth, model_samples
from jumpyworld.evaluation.fidelity import (
    compare_rewards,
    in_places,
    in_support_pairs,
    random_pairs,
    rollouts,
    score,
    wall_share,
)
from jumpyworld.experiments.bench_train import Version, version_job
from jumpyworld.ghm import GHMConfig
from jumpyworld.loading import load_policy
from jumpyworld.policies.base import AbstractPolicy
from jumpyworld.policies.job import policy_job
from jumpyworld.policies.scripted import ScriptedGoalPolicy
from jumpyworld.storage.rows import append_rows
from jumpyworld.storage.schema import with_changes
from jumpyworld.training import TrainingConfig, train
from jumpyworld.training.chunk import ChunkRunner

GAMMAS = (0.0, 0.5, 0.8, 0.9, 0.96, 0.98, 0.99, 0.995)
START = time.monotonic()


class OneGoal(AbstractPolicy):
    """A policy that goes to one goal, whatever it is told."""

    inner: AbstractPolicy
    goal: Float[Array, " d"]

    @property
    def observation_dim(self) -> int:
        return self.inner.observation_dim

    @property
    def action_dim(self) -> int:
        return self.inner.action_dim

    def act(self, key, s, z, temperature):
        return self.inner.act(key, s, self.goal.astype(s.dtype), temperature)


def say(*words):
    print(f"[{time.monotonic() - START:6.1f}]", *words, flush=True)


def one_goal(domain):
    if not domain.alias.startswith("pointmaze"):
        raise SystemExit(f"--one-goal: {domain.alias} has no scripted policy; pointmazes have")
    env = domain.make_env()
    goal = env.reset(seed=0, options={"task_id": 1})[1]["goal"]
    env.close()
    return OneGoal(ScriptedGoalPolicy(domain.grid), jnp.asarray(goal, jnp.float32))


def get_policy(domain, dataset, folder: Path, seconds: float, preset: str):
    config = policies.get("gcbc").config.preset(preset, domain.alias)
    settings = TrainingConfig(config.gradient_steps, (seconds + 15) / 60, save_every=10**6)
    result = train(policy_job("gcbc", dataset, config), folder, settings)
    say("policy:", result.step, "steps")
    return folder


def compile_all(pool, variants, dataset, policy, base, seeds):
    """Return a future of each variant's program, start and settings."""

    def prepare(variant):
        name, changes = variant
        changes = dict(changes)
        version = Version(name, "", {}, plain=changes.pop("plain", False))
        config = with_changes(base, changes, name)
        runner = ChunkRunner(version_job(version, config, dataset, policy), tuple(range(seeds)))
        carry = runner.start()
        runner.compile(carry)
        say(name, "compiled")
        return runner, carry, config

    return {variant[0]: pool.submit(prepare, variant) for variant in variants}


def run_steps(runner, carry, done, limit, seconds, chunk=100):
    began = time.monotonic()
    while (limit is None or done < limit) and (
        seconds is None or time.monotonic() - began < seconds
    ):
        end = done + chunk if limit is None else min(done + chunk, limit)
        carry = jax.block_until_ready(runner.run(carry, done, end))
        done = end
    return carry, done, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--domain", default="pointmaze-large")
    parser.add_argument("--one-goal", action="store_true")
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--curve", type=int, default=1)
    parser.add_argument("--score-workers", type=int, default=4)
    parser.add_argument("--compilers", type=int, default=4, help="variants compiled side by side")
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--preset", default="base")
    parser.add_argument("--policy-preset", default="paper")
    parser.add_argument("--policy-seconds", type=float, default=15)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=32)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--rollout-steps", type=int, default=600)
    parser.add_argument("--samples", type=int, default=384)
    parser.add_argument("--kinds", nargs="+", default=["in-support", "random"])
    parser.add_argument("--deadline", type=float, default=560, help="start no variant after this")
    a = parser.parse_args()
    if (a.steps is None) == (a.seconds is None):
        raise SystemExit("--steps and --seconds: give one of them")
    domain = domains.get(a.domain)
    dataset, val = data.load(a.sets / a.domain), data.load(a.sets / a.domain, split="val")
    if a.policy is not None and a.one_goal:
        raise SystemExit("--policy and --one-goal: give one of them")
    if a.one_goal:
        policy, whose = one_goal(domain), {"policy": "scripted, one goal"}
    else:
        found = a.policy or get_policy(
            domain, dataset, a.runs / f"gcbc-{a.domain}", a.policy_seconds, a.policy_preset
        )
        found = load_policy(str(found), domain.name)
        policy, whose = found.policy, {"policy": found.name, "policy_hash": found.fingerprint}
    variants = [
        (name, read_changes(tuple(text.split(",")) if text else ()))
        for name, _, text in (v.partition(":") for v in a.variants)
    ]
    # Schedules end with the run, unless --set or a variant says otherwise.
    length = {} if a.steps is None else {"gradient_steps": a.steps}
    base = with_changes(
        GHMConfig.preset(a.preset, domain.alias, **length), read_changes(tuple(a.set)), "--set"
    )
    compilers = ThreadPoolExecutor(a.compilers)
    ready = compile_all(compilers, variants, dataset, policy, base, a.seeds)
    truths = {}  # compiling needs no environments, rollouts no compiler
    for kind in a.kinds:
        draw = in_support_pairs if kind == "in-support" else random_pairs
        pairs = draw(val, a.pairs, np.random.default_rng(0))
        paths = rollouts(
            domain, policy, pairs, jax.random.key(2), repeats=a.rollouts, steps=a.rollout_steps
        )
        truths[kind] = pairs, draw_truth(paths, GAMMAS, a.samples, 0)
        say("rollouts", kind)
    if a.seconds is not None:
        wait(ready.values())
    side, jobs = ThreadPoolExecutor(1), []
    for name in list(ready):
        if time.monotonic() - START > a.deadline:
            say("no time for", name)
            ready.pop(name).cancel()
            continue
        runner, carry, config = ready.pop(name).result()
        steps, spent = 0, 0.0
        for part in range(1, a.curve + 1):
            limit = a.steps and a.steps * part // a.curve
            seconds = a.seconds and a.seconds / a.curve
            carry, steps, more = run_steps(runner, carry, steps, limit, seconds)
            spent += more
            metrics, carry = runner.rows(carry, steps)
            facts = {
                "kind": "fidelity",
                "domain": domain.alias,
                **whose,
                "variant": name,
                "seeds": a.seeds,
                "steps": steps,
                "of_steps": a.steps,
                "ms": round(1000 * spent / max(steps, 1), 3),
                "minutes": {"ghm": round(spent / 60, 3)},
                "probe": metrics[0],
                "config": json.loads(json.dumps(dataclasses.asdict(config))),
                **provenance(),
            }
            say(f"{name}: {steps} steps of {facts['ms']:.2f} ms")
            for kind, (pairs, truth) in truths.items():
                draw_key = jax.random.key(1)
                drawn = {
                    str(seed): model_samples(model, policy, pairs, GAMMAS, draw_key, a.samples)
                    for seed, model in enumerate(runner.models(carry))
                }
                told, goals = {**facts, "pairs": kind}, pairs.goals
                if a.one_goal:  # whatever a pair says, that is where the policy goes
                    goals = np.broadcast_to(np.asarray(policy.goal), goals.shape)
                jobs.append(side.submit(report, a, domain, told, truth, goals, drawn))
            if a.seconds is not None:
                for job in jobs:
                    job.result()
        del carry
    for job in jobs:
        job.result()
    side.shutdown()
    compilers.shutdown()


def report(a, domain, facts, truth, goals, drawn) -> None:
    """Score one variant's samples on one kind of pairs, in processes of their own."""
    whole = score(truth, drawn, GAMMAS, workers=a.score_workers)
    row = {
        **facts,
        "num_pairs": a.pairs,
        "rollouts": a.rollouts,
        "rollout_steps": a.rollout_steps,
        "samples": a.samples,
        "gammas": GAMMAS,
        "emd": [[round(f.emd, 4) for f in whole[seed]] for seed in drawn],
        "ci95": [[round(f.ci95, 4) for f in whole[seed]] for seed in drawn],
        "floor": [round(f.floor, 4) for f in whole["0"]],
        "walls": [
            [None if (w := wall_share(domain, x)) is None else round(w, 4) for x in xs]
            for xs in drawn.values()
        ],
    }
    say(f"{facts['variant']:<14} {facts['pairs']:<10}", cells(row["emd"], row["floor"]))
    # The same of what decides the task alone: an ant's velocities say nothing of it.
    if (narrowed := in_places(domain, truth, drawn)) is not None:
        places = score(*narrowed, GAMMAS, workers=a.score_workers)
        row["place_emd"] = [[round(f.emd, 4) for f in places[seed]] for seed in drawn]
        row["place_ci95"] = [[round(f.ci95, 4) for f in places[seed]] for seed in drawn]
        row["place_floor"] = [round(f.floor, 4) for f in places["0"]]
        say(f"{facts['variant']:<14} places    ", cells(row["place_emd"], row["place_floor"]))
    rewards = [compare_rewards(domain, x, truth.samples, goals, GAMMAS) for x in drawn.values()]
    row["reward"] = [[round(r.model, 5) for r in seed] for seed in rewards]
    row["truth_reward"] = [round(r.truth, 5) for r in rewards[0]]
    say(f"{facts['variant']:<14} rewards   ", cells(row["reward"], row["truth_reward"]))
    append_rows(a.out / "ablation.jsonl", [row])


def cells(emd, floor) -> str:
    return "  ".join(f"{m:.2f}/{f:.2f}" for m, f in zip(np.mean(emd, 0), floor, strict=True))


if __name__ == "__main__":
    try:
        main()
    except JumpyError as error:
        sys.exit(f"ghm_ablation.py: error: {error}")
