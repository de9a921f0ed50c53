"""``jumpy bench``: speed on this machine, as ratios to the straightforward version."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Literal

import tyro

ROWS = "speed.jsonl"

# jumpy bench train --preset paper --batches 256 1024
# jumpy bench plan --domain antmaze-medium --preset paper


@dataclasses.dataclass(frozen=True)
class BenchTrain:
    """Time training steps: the GHM's, idea by idea, and every policy's.

    Data and weights are random: what counts is the ratio to the first version of the same run.
    """

    preset: Literal["paper", "base", "small", "debug"] = "small"
    """Network: paper (44M parameters, for a GPU), base, small (for a CPU) or debug."""
    batches: tuple[int, ...] = (256,)
    """Batch sizes of the GHM."""
    what: tuple[Literal["ghm", "policies"], ...] = ("ghm", "policies")
    """What to time."""
    only: tuple[str, ...] = ()
    """Versions of the GHM's step (default: all); the first is the reference."""
    seconds: float = 1.0
    """Time box of one round of one version."""
    rounds: int = 5
    """Rounds; the median counts."""
    out: Path | None = None
    """Folder for speed.jsonl; rows of an earlier run stay."""

    def run(self) -> None:
        """Measure, print a table, write rows."""
        from jumpyworld.cli.provenance import provenance
        from jumpyworld.experiments import bench_train
        from jumpyworld.storage.rows import append_rows

        known = {version.name: version for version in bench_train.VERSIONS}
        self._check(list(known))
        ready(self.out)
        versions = [known[name] for name in self.only] or list(bench_train.VERSIONS)
        box = {"seconds": self.seconds, "rounds": self.rounds, "say": _say}
        rows = []
        if "ghm" in self.what:
            rows += bench_train.bench_ghm(self.preset, self.batches, versions, **box)
        if "policies" in self.what:
            rows += bench_train.bench_policies(self.preset, **box)
        facts = provenance()
        rows = [{**row, **facts} for row in rows]
        _print(rows)
        if self.out is not None:
            append_rows(self.out / ROWS, rows)

    def _check(self, versions: list[str]) -> None:
        from jumpyworld.cli.flags import spelt
        from jumpyworld.errors import ConfigError

        check_only(self.only, versions)
        for name in ("what", "batches"):
            if not getattr(self, name):
                raise ConfigError(f"{spelt(name)}: nothing is named")
        if not 0 < self.seconds < math.inf or self.rounds < 1 or min(self.batches) < 1:
            words = [spelt(name, getattr(self, name)) for name in ("seconds", "rounds", "batches")]
            raise ConfigError(f"{' '.join(words)}: all must be above 0, and finite")
        if len(set(self.batches)) < len(self.batches):
            raise ConfigError(f"{spelt('batches', self.batches)}: one is given twice")


@dataclasses.dataclass(frozen=True)
class BenchPlan:
    """Time plans: the paper's search beside cheaper ones, and what they cost in quality.

    Without --ghm the weights are random, which is enough for times. With --ghm, --policy and
    --dataset the regret of each method is measured as well, against the paper's search with four
    times the samples.
    """

    domain: str = "antmaze-medium"
    """Whose sizes and planning settings; with --ghm, the domain itself."""
    preset: Literal["paper", "base", "small", "debug"] = "small"
    """Network without --ghm."""
    set: tuple[str, ...] = ()
    """Settings of that network that differ, as FIELD=VALUE."""
    ghm: Path | None = None
    """A trained model: run or checkpoint folder."""
    policy: str | None = None
    """The policy that it models: run or checkpoint folder, or scripted[:REACH]."""
    dataset: Path | None = None
    """States and goals for the regret come from its validation split."""
    pairs: Literal["in-support", "random"] = "random"
    """Goals: those that the data reached from the state 10 to 100 steps later, or any."""
    reward: Literal["count", "indicator", "neg-distance"] = "count"
    """What is planned for: objects in place (the domain's own), all of them, or the distance to the
    goal, which every chain tells something about where few arrive."""
    states: int = 50
    """How many of them."""
    minutes: float = math.inf
    """Of the whole command, after which no further state is judged; the rows say how many were."""
    reference: Path | None = None
    """Folder where the reference's findings are kept, state by state: after an interruption, or
    with other methods, only states that are missing are judged again."""
    reference_precision: Literal["fp32", "bf16"] = "fp32"
    """Of the reference's inner layers; bf16 takes half the time. Candidates are drawn in fp32."""
    only: tuple[str, ...] = ()
    """Methods (default: all); the first is the reference of the ratios."""
    candidates: int | None = None
    """Candidates of a plan (default: the paper's)."""
    samples: int | None = None
    """Samples of the uniform search for each candidate (default: the paper's); methods with
    elimination spend by rounds of their own, which their rows name."""
    rounds: int = 30
    """Plans of each method."""
    max_rows: int = 2**17
    """Samples alive at once; more are taken in turns."""
    seed: int = 0
    """Of states, goals and noise."""
    out: Path | None = None
    """Folder for speed.jsonl; rows of an earlier run stay."""

    def run(self) -> None:
        """Measure, print a table, write rows."""
        from jumpyworld.cli.bench_plan import bench_plan
        from jumpyworld.cli.provenance import provenance
        from jumpyworld.storage.rows import append_rows

        rows = [{**row, **provenance()} for row in bench_plan(self, _say)]
        for row in rows:
            quality = ""
            if "regret" in row:
                quality = (
                    f"regret {_with_ends(row, 'regret', '.3f')} "
                    f"({_with_ends(row, 'regret_over_first', '+.3f')} over the first), "
                    f"top-1 agreement {_with_ends(row, 'agreement', '.2f')}  "
                )
            print(
                f"{row['method']:<12} {row['plan_ms']:>9.2f} ms  x{row['speedup']:<6} "
                f"{row['evaluations']:>10.0f} evaluations  {quality}{row['idea']}"
            )
        if self.out is not None:
            append_rows(self.out / ROWS, rows)


@dataclasses.dataclass(frozen=True)
class Bench:
    """Speed on this machine, as ratios to the straightforward version in the same run."""

    command: Annotated[
        Annotated[BenchTrain, tyro.conf.subcommand(name="train")]
        | Annotated[BenchPlan, tyro.conf.subcommand(name="plan")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        """Run the chosen command."""
        self.command.run()


def check_only(only: tuple[str, ...], known: list[str]) -> None:
    """Refuse names that there are not, or that come twice.

    Raises:
        ConfigError: which.
    """
    from jumpyworld.errors import ConfigError

    for name in only:
        if name not in known:
            raise ConfigError(f"--only {name}: choose from {', '.join(known)}")
        if only.count(name) > 1:
            raise ConfigError(f"--only {name}: given twice")


def ready(out: Path | None) -> None:
    """Refuse a folder that rows cannot be added to, before anything is measured.

    Rows of an earlier run are read and written again, which is all that comes at the end.

    Raises:
        DataError: why they cannot be.
    """
    from jumpyworld.storage.rows import append_rows

    if out is not None:
        append_rows(out / ROWS, [])


def _with_ends(row: dict, name: str, form: str) -> str:
    low, high = row[f"{name}_ci95"]
    return f"{row[name]:{form}} [{low:{form}}, {high:{form}}]"


def _say(line: str) -> None:
    import sys

    print(line, file=sys.stderr, flush=True)


def _print(rows: list[dict]) -> None:
    width = max(len(row.get("variant", row.get("policy", ""))) for row in rows)
    for row in rows:
        name = row.get("variant", row.get("policy", ""))
        rate = (
            f"{row['samples_per_second']:>9} samples/s  x{row['speedup']:<5}  {row['idea']}"
            if "variant" in row
            else f"{row['steps_per_second']:>9} steps/s"
        )
        print(f"batch {row['batch']:>5}  {name:<{width}}  {row['ms']:>9.3f} ms  {rate}")
