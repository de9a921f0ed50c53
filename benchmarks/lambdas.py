"""Train GC-1S and GC-TD3 with several values of lambda at once, under vmap, and score each.

    python benchmarks/lambdas.py gc1s:0.7 gc1s:1 gctd3:0.7 gctd3:0.7,target_rate=0.05 \
        --dataset DIR --domain cube-1 --out RUN --minutes 9 --keep-steps 100000 --episodes 20

These networks are so small that a GPU mostly waits for the next kernel, and the two policies differ
in one thing, the action A' that a target rests on. So they are members of one training: member i
has the i-th policy, lambda and, where it names them, ``target_rate`` and ``normalise``, and seed
SEED + i; what differs between members is all of these. The same line continues a run that was
stopped by its minutes or a signal; what a crash can cost is the way since the last of --keep-steps.

At each of --keep-steps and wherever the minutes end every member is exported to a folder
RUN/members/NAME-LAMBDA-...-SEED-STEP, which `jumpy` takes as a policy and which names its own
algorithm and settings; RUN itself is by its description a run of the first member's algorithm with
the settings of --set. With --episodes each is evaluated too (so many episodes a task), by another
process on the CPU, while training goes on; rows are added to RUN/eval/success.jsonl. What an
interruption or a failure left out is evaluated by the next call of the same line.
"""

import argparse
import copy
import dataclasses
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# The evaluations beside it need no accelerator, and this training little of its memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jumpyworld import data, domains, policies
from jumpyworld.cli.train_loop import read_changes
from jumpyworld.errors import ConfigError, JumpyError
from jumpyworld.policies import gc1s, gctd3
from jumpyworld.policies.job import policy_job
from jumpyworld.storage import checkpoint, manifest, runs
from jumpyworld.storage.files import write_json
from jumpyworld.storage.schema import with_changes
from jumpyworld.training import TrainingConfig, TrainingJob, train

POLICIES = ("gc1s", "gctd3")
MEMBERS = "members"
MEMBERS_FILE = "members.json"


@dataclasses.dataclass(frozen=True)
class Named:
    """What a member is called and has of its own, and how it was asked for."""

    text: str
    policy: str
    changes: dict[str, Any]

    @property
    def label(self) -> str:
        """Return NAME-LAMBDA and what else it has of its own, as a file may be called."""
        value, *others = self.changes.items()
        return "-".join([self.policy, repr(value[1]), *(f"{x}-{y}" for x, y in others)])


class Member(eqx.Module):
    """A training with a policy, a lambda and a rate of its own."""

    bootstraps_on_itself: Bool[Array, ""]
    coefficient: Float[Array, ""]
    target_rate: Float[Array, ""]
    state: gctd3.TDState


def read_member(text: str) -> Named:
    """Return what POLICY:LAMBDA[,target_rate=RATE][,normalise=KIND] names."""
    name, _, rest = text.partition(":")
    value, *words = rest.split(",")
    try:
        coefficient = float(value)
    except ValueError:
        coefficient = -1.0
    if name not in POLICIES or not 0 <= coefficient < float("inf"):
        raise ConfigError(f"member {text!r}: must be gc1s:LAMBDA or gctd3:LAMBDA, at least 0")
    try:
        others = read_changes(tuple(words))
    except ConfigError as error:
        raise ConfigError(f"member {text!r}: {str(error).removeprefix('--set ')}") from error
    if others.keys() - {"target_rate", "normalise"}:
        raise ConfigError(f"member {text!r}: may name target_rate and normalise alone")
    rate = others.get("target_rate")
    if isinstance(rate, int) and not isinstance(rate, bool):
        others["target_rate"] = float(rate)
    return Named(text, name, {"distill_coefficient": coefficient, **others})


def with_traced(config: Any, **values: Any) -> Any:
    """Return settings some of which may be traced, which the class itself would refuse."""
    config = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(config, name, value)
    return config


def members_job(members: list[Named], dataset: data.Dataset, config: Any) -> TrainingJob:
    """Return a job whose seeds, in their order, are these members."""
    spec = policies.PolicySpec.from_arrays(dataset.observations, dataset.actions)
    if members[0].policy == "gctd3":  # the same fields, in the class that the algorithm asks for
        config = gctd3.GCTD3Config(**dataclasses.asdict(config))
    own = [with_changes(config, member.changes, f"member {member.text!r}") for member in members]
    left = iter(zip(members, own, strict=True))

    def init(key) -> Member:
        # The loop asks for shapes first, with a key that has no value, then for each seed in turn.
        traced = isinstance(key, jax.core.Tracer)
        member, mine = (members[0], own[0]) if traced else next(left)
        # What the updates read of a member's own settings; its units are inside its state.
        numbers = (mine.distill_coefficient, mine.target_rate)
        values = [jnp.asarray(x, jnp.float32) for x in numbers]
        return Member(jnp.asarray(member.policy == "gctd3"), *values, gctd3.init(key, mine, spec))

    def step(member: Member, rows: Any, key) -> tuple[Member, Any]:
        def next_actions(*arguments):
            drawn, logged = gctd3.own_actions(*arguments), gc1s.dataset_actions(*arguments)
            return jnp.where(member.bootstraps_on_itself, drawn, logged)

        settings = with_traced(
            config, distill_coefficient=member.coefficient, target_rate=member.target_rate
        )
        state, metrics = gctd3.update(member.state, rows, key, settings, next_actions)
        return eqx.tree_at(lambda m: m.state, member, state), metrics

    return dataclasses.replace(
        policy_job(members[0].policy, dataset, config),
        init=init,
        step=step,
        inference_model=lambda member: gctd3.inference_model(member.state),
        probe=None,
    )


def export(run: Path, step: int, members: list[Named], seed: int) -> list[Path]:
    """Write each member's policy under its own name and settings; those already there stay."""
    folders = []
    for i, member in enumerate(members):
        folder = run / MEMBERS / f"{member.label}-seed{seed + i}-{step:09d}"
        folders.append(folder)
        if folder.exists():
            continue
        document, arrays = checkpoint.read(runs.checkpoint_path(run, step), seed + i)
        config = {**document["config"], **member.changes}
        folder.parent.mkdir(exist_ok=True)
        checkpoint.save_export(
            folder,
            {**document, "kind": member.policy, "config": config, "seeds": [seed + i]},
            step=step,
            shards=[arrays],
            dtypes={key: array.dtype.name for key, array in arrays.items()},
        )
    return folders


def evaluate(run: Path, folder: Path, domain: str, episodes: int, seed: int) -> bool:
    """Score an exported member by a process of its own, on the CPU; return whether it could."""
    command = [sys.executable, "-m", "jumpyworld.cli", "eval", "--policy", str(folder)]
    command += ["--domain", domain, "--planner", "zero-shot", "--episodes", str(episodes)]
    command += ["--seed", str(seed), "--out", str(run / "eval")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, env=environment, stdout=sys.stderr).returncode == 0


def remember(run: Path, members: list[str]) -> None:
    """Write down whose run this is, before training, so that no checkpoint is ever without them."""
    path = run / MEMBERS_FILE
    if path.exists():
        written = manifest.parse_json(path.read_bytes(), path)
        if written != members:
            raise ConfigError(f"{path}: has the members {written}, not {members}")
    elif (run / "config.json").exists():
        raise ConfigError(f"--out {run}: holds a run of something else: choose another folder")
    run.mkdir(parents=True, exist_ok=True)
    write_json(path, members)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("members", nargs="+", help="POLICY:LAMBDA[,FIELD=VALUE...]")
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--domain", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--keep-steps", type=int, nargs="*", default=[])
    parser.add_argument("--episodes", type=int, help="of each task, for every exported member")
    parser.add_argument("--eval-seed", type=int, default=0, help="of the episodes")
    parser.add_argument("--set", nargs="*", default=[], help="FIELD=VALUE, over the paper's preset")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    members = [read_member(text) for text in a.members]
    config = gc1s.GC1SConfig.preset("paper", domains.get(a.domain).alias)
    changes = read_changes(tuple(a.set))
    if "distill_coefficient" in changes:
        raise ConfigError("--set distill_coefficient: each member names its own, POLICY:LAMBDA")
    config = with_changes(config, changes, "--set")
    dataset, domain = data.load(a.dataset), domains.get(a.domain)
    if dataset.observation_dim != domain.observation_dim:  # else told by an evaluation, hours later
        told = f"--dataset {a.dataset}: its states have {dataset.observation_dim} values"
        raise ConfigError(f"{told}, those of {domain.name} {domain.observation_dim}")
    if dataset.domain not in (None, domain.name):
        raise ConfigError(f"--dataset {a.dataset}: is of {dataset.domain}, not of {domain.name}")
    if a.eval_seed < 0:
        raise ConfigError(f"--eval-seed {a.eval_seed}: must be at least 0")
    if a.episodes is not None and a.episodes < 1:
        raise ConfigError(f"--episodes {a.episodes}: must be at least 1")
    job = members_job(members, dataset, config)
    settings = TrainingConfig(
        steps=config.gradient_steps,
        minutes=a.minutes,
        seed=a.seed,
        num_seeds=len(members),
        save_every=10**7,
        keep_steps=tuple(a.keep_steps),
        log_every=1000,
    )
    remember(a.out, a.members)
    running, kept = {}, set(a.keep_steps)

    def score(folders: list[Path]) -> None:
        for folder in folders:
            if a.episodes and folder not in running:
                how = (a.out, folder, a.domain, a.episodes, a.eval_seed)
                running[folder] = evaluations.submit(evaluate, *how)

    def score_step(step: int) -> None:
        # A seed that is not finite is told by the loop itself, which keeps nothing then.
        if runs.checkpoint_path(a.out, step).exists():
            score(export(a.out, step, members, a.seed))

    def reached(done: int, _: int | None) -> None:
        if done in kept:
            score_step(done)

    # One after the other, so that rows stand in the order of steps; those that have begun are
    # waited for, whatever comes of the training.
    with ThreadPoolExecutor(1) as evaluations:
        try:
            # What an earlier call was cut off in; a row that is there already is left as it is.
            exported = (a.out / MEMBERS).glob("gc*")
            score(sorted(exported, key=lambda folder: folder.name.rpartition("-")[2]))
            for step in sorted(kept):
                score_step(step)
            result = train(job, a.out, settings, progress=reached)
            print(f"{result.step} steps in {result.seconds:.0f} s, {result.status}", flush=True)
            if result.status == "interrupted":  # whoever interrupts means to go on
                raise KeyboardInterrupt
            score_step(result.step)
            good = [evaluation.result() for evaluation in running.values()]
        except BaseException:
            evaluations.shutdown(cancel_futures=True)
            raise
    if not all(good):
        raise JumpyError("an evaluation failed; the same line takes it up again")


def guarded_main() -> None:
    """Run, and say in one line why it could not."""
    try:
        main()
    except JumpyError as error:
        sys.exit(f"lambdas.py: error: {error}")
    except OSError as error:
        sys.exit(f"lambdas.py: error: {error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        print("lambdas.py: interrupted; the same line goes on", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    guarded_main()
