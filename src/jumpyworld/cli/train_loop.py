"""What ``jumpy train policy``, ``ghm`` and ``world-model`` share: flags, progress, the last line.

The defaults are those of ``training.TrainingConfig``, written here as well because importing that
would make ``jumpy --help`` wait for JAX; a test compares the two.
"""

import abc
import dataclasses
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro

if TYPE_CHECKING:
    from jumpyworld.data import Dataset
    from jumpyworld.training import Result, TrainingConfig, TrainingJob

C = TypeVar("C")
Preset = Literal["paper", "base", "small", "debug"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainCommand(abc.ABC):
    """Flags of every training command; a subclass says what is trained."""

    dataset: Path
    """Data to learn from: an npz or HDF5 file, or a folder with one data set."""
    out: Path
    """Run folder. Holding an unfinished run of the same settings, it is continued."""
    preset: Preset = "base"
    """Settings: the paper's; ours for minutes on a GPU; for a CPU; for seconds of trying."""
    changes: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]],
        tyro.conf.arg(name="set", metavar="FIELD=VALUE"),
    ] = ()
    """Settings to change, after the preset: --set width=256 frame=moving (values are JSON)."""
    steps: int | None = None
    """Gradient steps in all (default: the preset's, or no limit with --minutes)."""
    minutes: float | None = None
    """Time box of this call, compiling included, loading the data not: save and stop after it; the
    same command continues."""
    seed: int = 0
    """Fixes the result: initial weights, batches and noise."""
    num_seeds: int = 1
    """Train the seeds SEED, SEED + 1, ... at once."""
    save_every: int = 10_000
    """Steps between checkpoints: what a crash can cost. The last three are kept."""
    keep_steps: tuple[int, ...] = ()
    """Steps at which to save as well, and whose checkpoints are kept for good."""
    log_every: int = 1_000
    """Steps averaged in one row of OUT/metrics.jsonl and metrics.csv; the last may have fewer."""
    overwrite: bool = False
    """Remove the run in OUT and start anew."""
    any_versions: bool = False
    """Continue a run of another JAX version, which gives up bit-identity."""
    allow: tuple[str, ...] = ()
    """Checks of the data to let pass; a message that refuses the data names them."""

    def run(self) -> None:
        """Load the data, train, and say in one line how it ended."""
        from jumpyworld import data

        self.training(default_steps=1)  # refuses bad flags before the data are read
        job = self.job(data.load(self.dataset, allow=self.allow))
        run_job(self, job, self.training(job.config.gradient_steps))

    @abc.abstractmethod
    def settings(self, domain: str | None) -> Any:
        """Return the settings of what is trained, on data of a domain if that is known.

        Raises:
            ConfigError: a setting is wrong; nothing needs to be loaded to find out.
        """

    @abc.abstractmethod
    def job(self, dataset: "Dataset") -> "TrainingJob":
        """Return what to train."""

    def training(self, default_steps: int) -> "TrainingConfig":
        """Return the settings of the loop."""
        from jumpyworld.training import TrainingConfig

        steps = default_steps if self.steps is None and self.minutes is None else self.steps
        names = ("minutes", "seed", "num_seeds", "save_every", "keep_steps", "log_every")
        return TrainingConfig(steps=steps, **{name: getattr(self, name) for name in names})

    def warn_of_a_fall_cut_short(self, config: Any) -> None:
        """Warn where rates fall until ``gradient_steps`` and the run may end elsewhere."""
        target = getattr(config, "final_target_rate", None)  # policies have none
        if config.final_lr_fraction == 1 and target is None:
            return
        fall = f"rates fall until gradient_steps={config.gradient_steps}"
        if self.steps is None and self.minutes is not None:
            warn(f"--minutes {self.minutes:g}: {fall}, however many steps that is; set that too")
        elif self.steps is not None and self.steps < config.gradient_steps:
            share = 100 * (1 - self.steps / config.gradient_steps)
            warn(f"--steps {self.steps}: {fall}, {share:.0f} % of it after the end; set that too")

    def changed(self, config: C) -> C:
        """Return ``config`` with the fields that ``--set`` names."""
        from jumpyworld.storage.schema import with_changes

        return with_changes(config, read_changes(sum(self.changes, ())), "--set")


def read_changes(words: tuple[str, ...]) -> dict[str, Any]:
    """Return field=value words as a dict; a value that is no JSON is a string.

    Raises:
        ConfigError: a word has another form, or a field is named twice.
    """
    from jumpyworld.errors import CheckpointError, ConfigError
    from jumpyworld.storage.manifest import parse_json

    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not (name and sign):
            raise ConfigError(f"--set {word}: must be FIELD=VALUE")
        if name in found:
            raise ConfigError(f"--set {name}: given twice")
        try:
            # JSON has no .5, which people write.
            plain = re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", text)
            found[name] = parse_json(plain.encode(), Path("--set"))
        except CheckpointError:
            found[name] = text
    return found


def warn(line: str) -> None:
    """Print a warning as one line on standard error."""
    print(f"jumpy: warning: {' '.join(line.split())}", file=sys.stderr)


def run_job(flags: TrainCommand, job: "TrainingJob", config: "TrainingConfig") -> None:
    """Train with progress and say how it ended.

    Raises:
        KeyboardInterrupt: a signal came; what was done is saved.
    """
    from jumpyworld.cli import console
    from jumpyworld.storage.metrics import read_rows
    from jumpyworld.training import train

    worked = False
    deadline = None if config.minutes is None else time.monotonic() + 60.0 * config.minutes
    with console.progress(job.kind, "steps", deadline) as show:

        def update(done: int, total: int | None) -> None:
            nonlocal worked
            worked = True
            show(done, total)

        result = train(
            job,
            flags.out,
            config,
            overwrite=flags.overwrite,
            any_versions=flags.any_versions,
            progress=update,
            compiling=lambda: show.say("compiling"),
            warn=warn,
        )
    if result.status == "interrupted":
        raise KeyboardInterrupt(f"at step {result.step} (the same command continues)")
    ended = "finished" if result.status == "finished" else "time is up"
    if not worked:
        ended = "already finished; more --steps continue it, --overwrite starts anew"
    print(f"{flags.out}: {summary(result)}; {ended}")
    for line in lost_again(read_rows(result.run / "metrics.jsonl")):
        warn(f"{flags.out}: {line}")


def summary(result: "Result") -> str:
    """Return steps, seconds, newest checkpoint and the last row of losses as one phrase."""
    from jumpyworld.storage.metrics import read_rows

    checkpoint = "no checkpoint" if result.checkpoint is None else result.checkpoint.name
    parts = [f"{result.step} steps", f"{result.seconds:.1f} s", checkpoint]
    rows = read_rows(result.run / "metrics.jsonl")
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    for name in sorted(name for name in last[0] if name.endswith("loss")) if last else ():
        values = ["-" if row.get(name) is None else f"{row[name]:.4g}" for row in last]
        parts.append(f"{name} {' | '.join(values)}")
    if last and last[0]["step"] != result.step:
        parts.append(f"logged at step {last[0]['step']}")
    return ", ".join(parts)


def lost_again(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line for each seed whose loss ends far above what it was: finite, and spoilt.

    Steps that are not finite are skipped and counted; one that is merely wild passes, and can undo
    a whole run. Far is a hundred times the best, and above the first: a sum of losses, some of
    them negative, may pass near 0 on its way.
    """
    lines = []
    for seed in dict.fromkeys(row.get("seed") for row in rows):
        told = [row for row in rows if row.get("seed") == seed and row.get("loss") is not None]
        if not told:
            continue
        best, last = min(told, key=lambda row: row["loss"]), told[-1]
        if 0 < 100 * best["loss"] < last["loss"] > told[0]["loss"]:
            lines.append(
                f"seed {seed}: the loss was {best['loss']:.3g} at step {best['step']} and is "
                f"{last['loss']:.3g} at step {last['step']}, so that what was learnt may be lost: "
                "use an earlier checkpoint, or train again (docs/failures.md)"
            )
    return lines
