"""Train a policy of flow Q-learning with several values of lambda at once, under vmap.

    python benchmarks/lambdas.py gc1s --dataset DIR --domain antmaze-medium --out RUN --minutes 9 \
        --values 0.1 0.15 0.2 0.3 0.4 --keep-steps 100000 200000

These networks are so small that a GPU waits for the next kernel most of the time: five trainings
under vmap take little longer than one. Member i has the i-th value of lambda and seed SEED + i. The
same line continues a run that was stopped. A member is evaluated like any seed:

    jumpy eval --domain antmaze-medium --policy RUN --policy-seed 1 --out eval

(RUN/config.json names the preset's lambda; the values are in RUN/lambdas.json.)
"""

import argparse
import copy
import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jumpyworld import data, policies
from jumpyworld.cli.train_loop import read_changes
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
    config = policies.get(a.policy).config.preset("paper", a.domain)
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
    result = train(job, a.out, settings)
    write_json(a.out / "lambdas.json", {str(a.seed + i): v for i, v in enumerate(a.values)})
    print(f"{a.policy}: {result.step} steps in {result.seconds:.0f} s, {result.status}")


if __name__ == "__main__":
    main()
