"""``jumpy sweep``: produce cells of the paper's tables."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

# jumpy sweep --table main --cells domain=pointmaze-large policy=gcbc --scale small --out sweep
# jumpy sweep --table replan objective --scale base --seeds 0 1 2 --jobs 2 --out sweep
# jumpy report --results sweep/results --out report.md

Table = Literal[
    "main", "per-task", "hierarchical", "planners", "emd", "replan", "objective", "proposal",
    "consistency",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Produce cells of the paper's tables: data, policies, models, results; shared stages once.

    Every stage is a jumpy command in a process of its own. Interrupted or failed, the same command
    continues; what is finished is not done again. See `jumpy report` for the tables.
    """

    table: tuple[Table, ...] = ()
    """Tables to fill (default: all that --cells leaves; without either, --dry-run alone)."""
    cells: tuple[str, ...] = ()
    """Only cells with FIELD=VALUE[,VALUE...]: domain, policy, planner, objective (td-hc, td-flow),
    proposal, replan_every, maximise (q, v). Point mazes, which the paper does not have, must be
    named: domain=pointmaze-*."""
    scale: Literal["paper", "base", "small", "debug"] = "base"
    """Sizes: the paper's; ours for a GPU; for a CPU; for trying the machinery."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of models and evaluation; the paper has three."""
    jobs: int = 1
    """Stages at once; with several, none of them takes a GPU's memory in advance."""
    out: Path = Path("sweep")
    """Folder for data/, policies/, models/, results/, logs/ and stages/."""
    changes: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]],
        tyro.conf.arg(name="set", metavar="KIND.FIELD=VALUE"),
    ] = ()
    """Settings to change, by kind of stage (data, policy, ghm, world-model, eval, fidelity):
    --set ghm.width=256 policy.steps=1000 eval.episodes=5 data.workers=4. What the cells are
    (--cells), their seeds and folders cannot be set."""
    dry_run: bool = False
    """Print the commands in order and run nothing."""

    def run(self) -> None:
        """Run the stages, or print their commands."""
        import signal
        import sys

        from jumpyworld.experiments import runner

        stages = self._stages()
        if self.dry_run:
            _print(stages, self.out)
            return

        def stop(number, frame):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, stop)
        try:
            outcome = runner.run(
                stages,
                self.out,
                [sys.executable, "-m", "jumpyworld.cli"],
                jobs=self.jobs,
                environment=_environment(self.jobs),
                say=lambda line: print(line, flush=True),
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("(the same command continues)") from None
        finally:
            signal.signal(signal.SIGTERM, before)
        print(
            f"{self.out}: {len(outcome.done)} stages done, {len(outcome.finished)} were finished, "
            f"{len(outcome.failed)} failed, {len(outcome.blocked)} skipped"
        )
        if outcome.failed:
            raise SystemExit(1)

    def _stages(self):
        from jumpyworld.cli.sweep_checks import check_stages
        from jumpyworld.errors import ConfigError
        from jumpyworld.experiments import grid, stages

        if not self.table and not self.cells and not self.dry_run:
            raise ConfigError(
                "--table or --cells is missing: all tables are months of work "
                "(--dry-run prints their commands)"
            )
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"--seeds {self.seeds}: must be different and not negative")
        if self.jobs < 1:
            raise ConfigError(f"--jobs {self.jobs}: must be at least 1")
        changes = stages.read_changes(sum(self.changes, ()))
        request = stages.Request(self.out, self.scale, self.seeds, changes)
        found = stages.plan(grid.select(self.table, self.cells), request)
        if not found:
            raise ConfigError(f"--cells {' '.join(self.cells)}: no cell has all of these")
        if changes:
            check_stages(found, changes)
        return found


def _print(stages, out: Path) -> None:
    """Print commands as a shell would take them; finished ones as comments."""
    import shlex
    import sys

    from jumpyworld.experiments import runner
    from jumpyworld.experiments.stages import fingerprints

    digests = fingerprints(stages, out)
    left = 0
    for stage in stages:
        finished = runner.is_finished(stage, digests[stage.name], out)
        left += not finished
        print(f"{'# finished: ' if finished else ''}jumpy {shlex.join(stage.command)}")
    print(f"{len(stages)} stages, {left} to run", file=sys.stderr)


def _environment(jobs: int) -> dict[str, str]:
    """Return ours; several processes cannot each take most of a GPU, as JAX does by default."""
    import os

    own = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if jobs > 1 else {}
    return {**own, **os.environ}
