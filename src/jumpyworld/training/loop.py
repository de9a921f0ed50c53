"""Train: start or go on, save, log, stop.

    lock the run folder; refuse another description; find the newest verified checkpoint
    until steps are done, time is up or a signal came:
        run a chunk of steps (``chunk.py``)
        every log_every steps: one row of means
        every save_every steps, and at the end: a checkpoint
    a row of the steps since the last one, which goes when the run goes on: its sums are in the
        checkpoint, and the row in its place is the one that a run without a stop would have

Step k uses the key fold_in(key(seed), k) and nothing else that is not in the checkpoint, so the
same call after a crash gives the bits of a run that never stopped.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jumpyworld.errors import CheckpointError
from jumpyworld.storage import checkpoint, manifest, runs, schema, trees
from jumpyworld.storage.metrics import WALL_CLOCK, MetricsLog
from jumpyworld.training.chunk import Carry, ChunkRunner, check_state
from jumpyworld.training.config import TrainingConfig
from jumpyworld.training.job import DivergedError, Result, Status, TrainingJob

Progress = Callable[[int, int | None], None]


def train(
    job: TrainingJob,
    out: Path,
    config: TrainingConfig,
    *,
    overwrite: bool = False,
    any_versions: bool = False,
    progress: Progress | None = None,
    compiling: Callable[[], None] | None = None,
    warn: runs.Warn = runs.python_warning,
) -> Result:
    """Train ``job`` in the run folder ``out``, from its newest checkpoint if it has one.

    Args:
        job: what to train.
        out: the run folder; made if missing.
        config: how long, how often; all of it but the seeds may change between calls.
        overwrite: remove the run that is there and start anew.
        any_versions: go on although JAX or its PRNG settings differ from those of the checkpoint,
            which gives up bit-identity.
        progress: called with (steps done, steps in all) after each chunk; None in all where only
            ``minutes`` end it.
        compiling: called once, before the programs are compiled.
        warn: called with one line for each thing that went well but should be known.

    Returns:
        How it ended; a finished run is returned as such and not touched.

    Raises:
        CheckpointError: the folder belongs to another job or a live process, or cannot be written.
        DivergedError: the loss or the weights stay not finite, or were so in every step; nothing
            of that is saved.
    """
    began, out = time.monotonic(), Path(out)
    document = manifest.make_document(
        job.kind, job.config, job.spec, job.fingerprints, config.seeds
    )
    defaults = schema.defaults(job.config)
    with runs.locked(out), _stop_signals() as stop:
        runs.prepare(out, document, overwrite, warn, defaults)
        found = runs.newest(out, warn)
        step, path = found or (0, None)
        if path is not None:
            _check_resumable(path, document, defaults, any_versions, warn)
        if path is not None and config.steps is not None and step >= config.steps:
            return Result("finished", step, out, path, time.monotonic() - began)
        runs.set_aside_after(out, step, warn)
        runs.write_config(out, document, schema.to_json(config, "training"))
        runner = ChunkRunner(job, config.seeds)
        carry = runner.start() if path is None else _restore(runner, path)
        if path is None:
            check_state(carry)
        session = _Session(runner, document, out, config, began, progress, compiling)
        status, step = session.run(carry, step, stop)
    last = runs.checkpoint_path(out, step) if step else None
    return Result(status, step, out, last, time.monotonic() - began)


class _Session:
    """One call's loop: the counters that decide when to log, save and stop."""

    def __init__(
        self,
        runner: ChunkRunner,
        document: dict[str, Any],
        out: Path,
        config: TrainingConfig,
        began: float,
        progress: Progress | None,
        compiling: Callable[[], None] | None,
    ):
        self._runner, self._document, self._out, self._config = runner, document, out, config
        self._progress = progress or (lambda done, total: None)
        self._compiling = compiling or (lambda: None)
        minutes = config.minutes
        self._deadline = None if minutes is None else began + 60.0 * minutes
        self._environment = manifest.environment()
        self._rate = 0.0  # steps per second of the last chunk; 0 before the first

    def run(self, carry: Carry, step: int, stop: list[int]) -> tuple[Status, int]:
        """Train until there is a reason to stop; return it and the step reached, which is saved."""
        config, saved = self._config, step
        columns = ("step", "seed", *self._runner.metrics, "skipped", *WALL_CLOCK)
        early = self._runner.is_averaging(carry)
        with MetricsLog(self._out, columns, step, early=early) as log:
            self._compiling()
            self._runner.compile(carry)
            self._progress(step, config.steps)
            seconds, timed = 0.0, 0
            while (status := self._status(step, stop)) is None:
                end = self._next_stop(step)
                before = time.monotonic()
                carry = self._runner.run(carry, step, end)
                elapsed = time.monotonic() - before
                self._rate = (end - step) / max(elapsed, 1e-9)
                seconds, timed, step = seconds + elapsed, timed + end - step, end
                if step % config.log_every == 0:
                    carry = self._log(carry, step, log, timed / seconds)
                    seconds, timed = 0.0, 0
                due = step % config.save_every == 0 or step in config.keep_steps
                # Without one good step there is nothing to save; a resumed run begins anew, with
                # the same bits, and meets the error below again.
                if due and not self._runner.untrained(carry, step):
                    self._save(carry, step, log)
                    saved = step
                self._progress(step, config.steps)
            if seeds := self._runner.untrained(carry, step):
                raise DivergedError(
                    f"seed {seeds[0]}: loss or weights not finite in each of the {step} steps, so "
                    "nothing was learnt: lower the learning rate, or look for bad values in the "
                    "data"
                )
            if saved != step:
                self._save(carry, step, log)
            # Whoever interrupts is not kept waiting for a row, and means to go on.
            if status != "interrupted" and self._runner.is_averaging(carry):
                self._log(carry, step, log, timed / seconds)
        return status, step

    def _log(self, carry: Carry, step: int, log: MetricsLog, rate: float) -> Carry:
        """Write the rows of a step; return a carry that begins the next ones."""
        rows, carry = self._runner.rows(carry, step)
        for row in rows:
            log.write({"step": step, **row, WALL_CLOCK[0]: round(rate, 3)})
        return carry

    def _status(self, step: int, stop: list[int]) -> Status | None:
        if self._config.steps is not None and step >= self._config.steps:
            return "finished"
        if stop:
            return "interrupted"
        # At least one chunk, or a box shorter than the compilation would never get anywhere.
        if self._deadline is not None and self._rate and time.monotonic() >= self._deadline:
            return "paused"
        return None

    def _next_stop(self, step: int) -> int:
        """Return where the next chunk ends: never past a row, a save, the end or the time box."""
        config, length = self._config, self._config.chunk
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            length = max(1, min(length, int(self._rate * left)))
        ends = [step + length]
        ends += [step - step % every + every for every in (config.log_every, config.save_every)]
        ends += [kept for kept in config.keep_steps if kept > step]
        return min(ends if config.steps is None else [*ends, config.steps])

    def _save(self, carry: Carry, step: int, log: MetricsLog) -> None:
        log.sync()
        models = [trees.to_arrays(model) for model in self._runner.models(carry)]
        model = models[0]
        if len(models) > 1:
            model = {name: np.stack([np.asarray(m[name]) for m in models]) for name in model}
        checkpoint.save(
            runs.checkpoint_path(self._out, step),
            self._document,
            step=step,
            model=model,
            state=trees.to_arrays(carry),
            environment=self._environment,
        )
        runs.prune(self._out, self._config.keep, self._config.keep_steps)


def _check_resumable(
    path: Path,
    document: dict[str, Any],
    defaults: dict[str, Any],
    any_versions: bool,
    warn: runs.Warn,
) -> None:
    """Refuse a checkpoint of another description, or of a JAX that would not give the same bits."""
    stored = manifest.read_manifest(path)
    runs.check_same(path, checkpoint.read_document(path, stored), document, defaults)
    there, here = stored.environment, manifest.environment()
    changed = {
        field: f"{field} was {schema.brief(old)} and is {schema.brief(new)} now"
        for field, old, new in schema.differences(there, here)
        if field.startswith(("versions.", "prng."))
    }
    decisive = ("versions.jax", "versions.jaxlib", "prng.")
    found = [line for field, line in changed.items() if field.startswith(decisive)]
    if found and not any_versions:
        raise CheckpointError(
            f"{path}: {'; '.join(found)}: go on with the old versions, or allow any versions "
            "and give up bit-identity"
        )
    if there.get("backend") != here["backend"]:
        found.append(
            f"it was written on {schema.brief(there.get('backend'))}, not {here['backend']}"
        )
    for line in found:
        warn(f"{path}: {line}; the run goes on, but not bit for bit")
    for field, line in changed.items():
        if not field.startswith(decisive):
            warn(f"{path}: {line}; the run goes on, perhaps not bit for bit")


def _restore(runner: ChunkRunner, path: Path) -> Carry:
    _, _, arrays = checkpoint.read_state(path)
    return trees.from_arrays(runner.template(), arrays, str(path))


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Yield a list that SIGTERM or SIGINT is added to; a second one interrupts at once."""
    received: list[int] = []

    def receive(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may handle signals
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
