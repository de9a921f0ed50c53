"""Train a policy of flow Q-learning with several values of lambda at once, under vmap.

    python benchmarks/lambdas.py gc1s --dataset DIR --domain antmaze-medium --out RUN --minutes 9 \
        --values 0.1 0.15 0.2 0.3 0.4 --keep-steps 100000 200000

These networks are so small that a GPU mostly waits for the next kernel, so that several trainings
under vmap should take little longer than one (not measured yet). Member i has the i-th value of
lambda and seed SEED + i: what differs between members is both. The same line continues a run that
was stopped by its minutes or a signal; what a crash can cost is the way since the last of
--keep-steps. A member is evaluated like any seed:

    jumpy eval --domain antmaze-medium --policy RUN --policy-seed 1 --out eval

RUN/lambdas.json has the values. RUN/config.json, and with it a row of that evaluation, names the
preset's lambda alone: say which member a row is of where you keep it.
"""

import argparse
import copy
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jumpyworld import data, domains, policies
from jumpyworld.cli.train_loop import read_changes
from jumpyworld.errors import JumpyError
from jumpyworld.policies.base import PolicySpec
from jumpyworld.policies.job import policy_job
from jumpyworld.storage.files import write_json
from jumpyworld.storage.schema import with_changes
from jumpyworld.training import TrainingConfig, TrainingJob, train


class Member(eqx.Module):
    """A training with a lambda of its own."""

    coefficient: Float[Array, ""]
    state: Any


def with_lambda(config: Any, coefficient: Any) -> Any:
    """Return settings whose lambda may be traced, which the class itself would refuse."""
    config = copy.copy(config)
    object.__setattr__(config, "distill_coefficient", coefficient)
    return config


def lambdas_job(name: str, dataset: data.Dataset, config: Any, values: list[float]) -> TrainingJob:
    """Return a job whose seeds, in their order, have these values of lambda."""
    algorithm, job = policies.get(name), policy_job(name, dataset, config)
    spec, left = PolicySpec.from_arrays(dataset.observations, dataset.actions), iter(values)

    def init(key) -> Member:
        # The loop asks for shapes first, with a key that has no value, then for each seed in turn.
        coefficient = values[0] if isinstance(key, jax.core.Tracer) else next(left)
        return Member(jnp.asarray(coefficient, jnp.float32), algorithm.init(key, config, spec))

    def step(member: Member, rows: Any, key) -> tuple[Member, Any]:
        own = with_lambda(config, member.coefficient)
        state, metrics = algorithm.step(member.state, rows, key, own)
        return Member(member.coefficient, state), metrics

    return dataclasses.replace(
        job,
        init=init,
        step=step,
        inference_model=lambda member: algorithm.inference_model(member.state),
        probe=None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("policy", choices=["crl", "gctd3", "gc1s"])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--domain", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--values", type=float, nargs="+", required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--keep-steps", type=int, nargs="*", default=[])
    parser.add_argument("--set", nargs="*", default=[], help="FIELD=VALUE, over the paper's preset")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    if min(a.values) < 0:
        parser.error(f"--values {a.values}: lambda is at least 0")
    config = policies.get(a.policy).config.preset("paper", domains.get(a.domain).alias)
    config = with_changes(config, read_changes(tuple(a.set)), "--set")
    job = lambdas_job(a.policy, data.load(a.dataset), config, a.values)
    settings = TrainingConfig(
        steps=config.gradient_steps,
        minutes=a.minutes,
        seed=a.seed,
        num_seeds=len(a.values),
        save_every=10**7,
        keep_steps=tuple(a.keep_steps),
        log_every=1000,
    )
    # Before training, so that no checkpoint is ever without them.
    named, path = {str(a.seed + i): v for i, v in enumerate(a.values)}, a.out / "lambdas.json"
    if path.exists() and json.loads(path.read_text()) != named:
        parser.error(f"--values {a.values}: {path} has others")
    a.out.mkdir(parents=True, exist_ok=True)
    write_json(path, named)
    result = train(job, a.out, settings)
    print(f"{a.policy}: {result.step} steps in {result.seconds:.0f} s, {result.status}")


if __name__ == "__main__":
    try:
        main()
    except JumpyError as error:
        sys.exit(f"lambdas.py: error: {error}")
