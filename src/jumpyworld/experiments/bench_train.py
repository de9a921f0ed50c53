"""Speed of training: each idea beside the straightforward version, in one run.

Every version is a job of the real training loop (``training.ChunkRunner``) on random data of
antmaze's sizes, with a one-step policy. All are compiled first, side by side; then they take turns,
several rounds, and the median over rounds counts. Times mean nothing across machines; ratios do.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from jumpyworld import policies
from jumpyworld.data import Dataset
from jumpyworld.experiments.plain import plain_loss
from jumpyworld.ghm import GHMConfig, algorithm
from jumpyworld.ghm.job import ghm_job
from jumpyworld.ghm.losses import rounded
from jumpyworld.policies.job import policy_job
from jumpyworld.policies.settings import PolicySpec, Size
from jumpyworld.training import TrainingJob
from jumpyworld.training.chunk import ChunkRunner

OBSERVATION_DIM, ACTION_DIM, TRAJECTORY = 29, 8, 1000
ONE_STEP = "gctd3"  # acts in one evaluation of a network


@dataclass(frozen=True)
class Version:
    """One way to take a training step.

    Attributes:
        name: short and unique.
        idea: what it changes, in words.
        changes: fields of the GHM's config.
        plain: uses ``experiments.plain`` instead of ``ghm.losses``.
        seeds: models trained at once.
        same_law: whether the loss is the paper's in expectation, solver settings included.
        policy: whose future is learnt; what its actions cost is part of a step.
    """

    name: str
    idea: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    plain: bool = False
    seeds: int = 1
    same_law: bool = True
    policy: str = ONE_STEP


_FAST = {"precision": "bf16"}
VERSIONS = (
    Version("plain", "straight from Algorithm 1, fp32", plain=True),
    Version("plain-bf16", "the same with bf16 inner layers", {"precision": "bf16"}, plain=True),
    Version("shared", "one solve for beta-bootstrap and jump, one online pass, times beforehand"),
    Version("bf16", "and bf16 inner layers", {"precision": "bf16"}),
    Version("unrolled", "and the ODE loop unrolled", {**_FAST, "unroll": 100}),
    Version("linear-mix", "and FiLM linear in its parts", {**_FAST, "linear_mix": True}),
    Version("ahead", "and jumps one step ahead", {**_FAST, "jumps": "ahead"}),
    Version(
        "ahead-unrolled",
        "and the ODE loop unrolled",
        {**_FAST, "jumps": "ahead", "unroll": 100},
    ),
    Version(
        "ahead-5",
        "jumps ahead, 5 Euler steps",
        {**_FAST, "jumps": "ahead", "train_steps": 5},
        same_law=False,
    ),
    Version(
        "through",
        "and one path for both bootstraps",
        {**_FAST, "bootstrap_grid": "through"},
        same_law=False,
    ),
    Version("euler-5", "5 Euler steps", {**_FAST, "train_steps": 5}, same_law=False),
    Version(
        "midpoint-3",
        "3 midpoint steps",
        {**_FAST, "train_steps": 3, "solver": "midpoint"},
        same_law=False,
    ),
    Version(
        "through-5",
        "one path, 5 Euler steps",
        {**_FAST, "bootstrap_grid": "through", "train_steps": 5},
        same_law=False,
    ),
    Version("3-seeds", "three seeds under vmap", _FAST, seeds=3),
    Version(
        "flow-policy", "bf16, of a policy with ten evaluations an action", _FAST, policy="gcbc"
    ),
    Version(
        "flow-policy-2",
        "that policy's flow in two midpoint steps, four evaluations",
        {**_FAST, "policy_steps": 2},
        same_law=False,
        policy="gcbc",
    ),
    Version(
        "ahead-5-flow",
        "ahead-5, of a policy with ten evaluations an action",
        {**_FAST, "jumps": "ahead", "train_steps": 5},
        same_law=False,
        policy="gcbc",
    ),
    Version(
        "ahead-5-flow-2",
        "that policy's flow in two midpoint steps",
        {**_FAST, "jumps": "ahead", "train_steps": 5, "policy_steps": 2},
        same_law=False,
        policy="gcbc",
    ),
)


def random_dataset(rows: int = 20_000, seed: int = 0) -> Dataset:
    """Return random data of antmaze's sizes; what is learnt from them does not matter here."""
    rng = np.random.default_rng(seed)
    ends = np.zeros(rows, bool)
    ends[TRAJECTORY - 1 :: TRAJECTORY] = True
    ends[-1] = True
    observations = rng.normal(size=(rows, OBSERVATION_DIM)).astype(np.float32)
    actions = rng.uniform(-1, 1, (rows, ACTION_DIM)).astype(np.float32)
    return Dataset.from_arrays(observations, actions, ends)


def untrained_policy(name: str, dataset: Dataset, preset: Size) -> Any:
    """Return a policy with its first weights: enough for times."""
    algorithm = policies.get(name)
    spec = PolicySpec.from_arrays(dataset.observations, dataset.actions)
    state = algorithm.init(jax.random.key(0), algorithm.config.preset(preset), spec)
    return algorithm.inference_model(state)


def version_job(version: Version, config: GHMConfig, dataset: Dataset, policy: Any) -> TrainingJob:
    """Return the training job of one version."""
    config = dataclasses.replace(config, **version.changes)
    job = ghm_job(dataset, policy, config)
    return dataclasses.replace(job, step=_plain_step(config)) if version.plain else job


def _plain_step(config: GHMConfig) -> Callable[..., Any]:
    def step(state, data, key):
        batch_key, loss_key = jax.random.split(key)
        batch = algorithm.sample_batch(data[0], batch_key, config, state.model.z_dim)

        def loss_fn(model):
            online, target = (rounded(net, config) for net in (model, state.target))
            return plain_loss(online, target, batch, loss_key, config, data[1]), {}

        rate = algorithm.target_rate(state.step, config)
        return algorithm.descend(state, loss_fn, algorithm.optimiser(config), rate)

    return step


def policy_jobs(preset: Size, dataset: Dataset) -> dict[str, TrainingJob]:
    """Return the job of every policy with a preset's settings."""
    return {
        name: policy_job(name, dataset, algorithm.config.preset(preset))
        for name, algorithm in policies.ALGORITHMS.items()
    }


def measure(
    jobs: Mapping[str, TrainingJob],
    seeds: Mapping[str, int],
    *,
    seconds: float,
    rounds: int,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, float]]:
    """Return milliseconds per step (median over rounds, and the fastest) and compile seconds.

    Args:
        jobs: what to time, by name.
        seeds: models trained at once, by name.
        seconds: time box of one round of one job.
        rounds: how often each job has its turn.
        say: told of each stage.
    """

    def prepare(name: str) -> tuple[ChunkRunner, Any, float]:
        began = time.monotonic()
        runner = ChunkRunner(jobs[name], tuple(range(seeds[name])))
        carry = runner.start()
        runner.compile(carry)
        say(f"{name}: compiled after {time.monotonic() - began:.0f} s")
        return runner, carry, time.monotonic() - began

    with ThreadPoolExecutor() as pool:
        ready = dict(zip(jobs, pool.map(prepare, jobs), strict=True))
    times: dict[str, list[float]] = {name: [] for name in jobs}
    chunk = {}
    for name, (runner, carry, compiled) in ready.items():
        carry = _block(runner.run(carry, 0, 2))
        began = time.monotonic()
        carry = _block(runner.run(carry, 2, 7))
        one = (time.monotonic() - began) / 5
        chunk[name] = max(2, int(seconds / max(one, 1e-6)))
        ready[name] = (runner, carry, compiled)
    for _ in range(rounds):
        for name, (runner, carry, compiled) in ready.items():
            began = time.monotonic()
            carry = _block(runner.run(carry, 0, chunk[name]))
            times[name].append(1000 * (time.monotonic() - began) / chunk[name])
            ready[name] = (runner, carry, compiled)
    return {
        name: {
            "ms": statistics.median(values),
            "fastest_ms": min(values),
            "compile_s": ready[name][2],
        }
        for name, values in times.items()
    }


def _block(carry: Any) -> Any:
    return jax.block_until_ready(carry)


def bench_ghm(
    preset: Size,
    batches: Sequence[int],
    versions: Sequence[Version] = VERSIONS,
    *,
    seconds: float = 1.0,
    rounds: int = 5,
    say: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Return a row per version and batch: milliseconds, samples per second, ratio to the first.

    Args:
        preset: of the GHM; ``paper`` is the 44M-parameter network.
        batches: rows per step, one or several.
        versions: which; the first is the reference of the ratios.
        seconds: time box of one round.
        rounds: turns of each version.
        say: told of each stage.
    """
    dataset = random_dataset()
    acting = {v.policy: untrained_policy(v.policy, dataset, preset) for v in versions}
    cases = {f"{v.name} x {batch}": (v, batch) for batch in batches for v in versions}
    jobs = {
        name: version_job(v, GHMConfig.preset(preset, batch_size=batch), dataset, acting[v.policy])
        for name, (v, batch) in cases.items()
    }
    seeds = {name: v.seeds for name, (v, _) in cases.items()}
    measured = measure(jobs, seeds, seconds=seconds, rounds=rounds, say=say)

    def row(name: str, v: Version, batch: int) -> dict[str, Any]:
        ms = measured[name]["ms"]
        reference = measured[f"{versions[0].name} x {batch}"]["ms"]
        return {
            "kind": "speed",
            "what": "ghm train step",
            "preset": preset,
            "batch": batch,
            "variant": v.name,
            "idea": v.idea,
            "policy": v.policy,
            "seeds": v.seeds,
            "same_law": v.same_law,
            **{key: round(value, 3) for key, value in measured[name].items()},
            "samples_per_second": round(1000 * batch * v.seeds / ms),
            "speedup": round(reference * v.seeds / ms, 2),
            "rounds": rounds,
        }

    return [row(name, *case) for name, case in cases.items()]


def bench_policies(
    preset: Size,
    *,
    seconds: float = 1.0,
    rounds: int = 3,
    say: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Return one row per policy: milliseconds and steps per second of its training step."""
    jobs = policy_jobs(preset, random_dataset())
    measured = measure(jobs, dict.fromkeys(jobs, 1), seconds=seconds, rounds=rounds, say=say)
    return [
        {
            "kind": "speed",
            "what": "policy train step",
            "preset": preset,
            "policy": name,
            "batch": job.config.batch_size,
            **{key: round(value, 3) for key, value in measured[name].items()},
            "steps_per_second": round(1000 / measured[name]["ms"], 1),
            "rounds": rounds,
        }
        for name, job in jobs.items()
    ]
