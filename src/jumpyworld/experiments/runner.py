"""Run stages as local processes: in order, several at once, and again without doing anything twice.

    OUT/stages/NAME.json    what finished, under the digest of its command and all below it
    OUT/logs/NAME.log       everything a stage printed
    OUT/lock                held by the live sweep and its stages, whoever of them lives longest

A stage that fails stops those that need it and no others. An interrupt is passed on to the running
stages, each of which saves and ends; the same call continues.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from jumpyworld.errors import ConfigError, unwritable
from jumpyworld.experiments.stages import Stage, fingerprints
from jumpyworld.storage.files import write_json

POLL_S = 0.05
GRACE_S = 120.0
"""How long an interrupted stage may take to save before it is killed."""


@dataclass
class Outcome:
    """Names of stages, by what became of them.

    Attributes:
        done: ran now.
        finished: had run before.
        failed: with why.
        blocked: need one that failed.
    """

    done: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)


@dataclass
class _Running:
    stage: Stage
    process: subprocess.Popen
    log: IO[bytes]
    since: float


def is_finished(stage: Stage, digest: str, out: Path) -> bool:
    """Whether the very same stage ran to its end in ``out``, and its folder is still there."""
    try:
        record = json.loads(_record(out, stage).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    same = isinstance(record, dict) and record.get("digest") == digest
    return same and (out / stage.folder).is_dir()


def run(
    stages: Sequence[Stage],
    out: Path,
    prefix: Sequence[str],
    *,
    jobs: int = 1,
    environment: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda line: None,
    grace: float = GRACE_S,
) -> Outcome:
    """Run every stage that is not finished, each after those it needs.

    Args:
        stages: every one after those it needs.
        out: the sweep's folder.
        prefix: words before a stage's command.
        jobs: stages at once.
        environment: of the processes; None for ours.
        say: called with one line whenever something begins or ends.
        grace: seconds that interrupted stages have to save.

    Raises:
        ConfigError: ``jobs`` is below 1, or another sweep runs in ``out``.
        DataError: ``out`` cannot be written.
        KeyboardInterrupt: after all running stages have ended.
    """
    if jobs < 1:
        raise ConfigError(f"jobs={jobs}: must be at least 1")
    digests = fingerprints(stages, out)
    running: list[_Running] = []
    with _locked(out) as lock:
        known = {each.name for each in stages if is_finished(each, digests[each.name], out)}
        outcome = Outcome(finished=[each.name for each in stages if each.name in known])
        waiting = [each for each in stages if each.name not in known]
        if outcome.finished:
            say(f"{len(outcome.finished)} of {len(stages)} stages are finished")
        try:
            while waiting or running:
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    _conclude(each, outcome, digests, out, say)
                _block(waiting, outcome, say)
                _start(waiting, running, outcome, jobs, prefix, out, environment, lock, say)
                if running:
                    time.sleep(POLL_S)
        except BaseException:
            _stop(running, grace, say)
            raise
    return outcome


def _start(waiting, running, outcome, jobs, prefix, out, environment, lock, say) -> None:
    """Start what is ready, in order, while there is room."""
    ready = {*outcome.done, *outcome.finished}
    for stage in list(waiting):
        if len(running) >= jobs:
            return
        busy = {each.stage.folder for each in running}
        if set(stage.needs) <= ready and stage.folder not in busy:
            waiting.remove(stage)
            path = _log(out, stage)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                log = path.open("ab")
            except OSError as error:
                raise unwritable(path, error) from error
            # In a session of its own: Ctrl-C in the terminal reaches us alone, so that a stage
            # gets one interrupt, not two. With the lock: a stage outlives a sweep that is killed,
            # and until it ends no other sweep may write beside it.
            try:
                process = subprocess.Popen(
                    [*prefix, *stage.command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=None if environment is None else dict(environment),
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            except OSError:
                log.close()
                raise
            running.append(_Running(stage, process, log, time.monotonic()))
            say(f"{stage.name}: started")


def _conclude(each: _Running, outcome: Outcome, digests, out: Path, say) -> None:
    each.log.close()
    name, status = each.stage.name, each.process.returncode
    seconds = round(time.monotonic() - each.since, 1)
    if status:
        why = f"exit status {status}: {_last_line(_log(out, each.stage))}"
        outcome.failed[name] = why
        say(f"{name}: failed after {seconds:g} s, {why}")
        return
    record = {"digest": digests[name], "command": list(each.stage.command), "seconds": seconds}
    path = _record(out, each.stage)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
    except OSError as error:
        raise unwritable(path, error) from error
    outcome.done.append(name)
    say(f"{name}: done in {seconds:g} s")


def _block(waiting: list[Stage], outcome: Outcome, say) -> None:
    """Give up on what needs a stage that failed; the order makes one pass enough."""
    for stage in list(waiting):
        lost = [name for name in stage.needs if name in outcome.failed or name in outcome.blocked]
        if lost:
            waiting.remove(stage)
            outcome.blocked.append(stage.name)
            say(f"{stage.name}: skipped, it needs {lost[0]}")


def _stop(running: list[_Running], grace: float, say) -> None:
    """Interrupt what runs, wait for it, and kill what does not end."""
    if not running:
        return
    say(f"stopping {len(running)} running stages")
    try:
        for each in running:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGINT)
        end = time.monotonic() + grace
        for each in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.process.wait(max(0.0, end - time.monotonic()))
    finally:
        for each in running:
            if each.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.process.pid, signal.SIGKILL)
                each.process.wait()
            each.log.close()


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[int]:
    import fcntl  # not on Windows

    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / "lock").open("ab")
    except OSError as error:
        raise unwritable(out, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"{out}: another sweep is running here, or a stage that a killed one left behind"
            ) from error
        yield file.fileno()


def _record(out: Path, stage: Stage) -> Path:
    return out / "stages" / f"{stage.name}.json"


def _log(out: Path, stage: Stage) -> Path:
    return out / "logs" / f"{stage.name}.log"


def _last_line(path: Path) -> str:
    """Return what a stage said last, an error first: its two streams end in any order."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4000))
        lines = file.read().decode(errors="replace").strip().splitlines() or ["it printed nothing"]
    errors = [line for line in lines if line.startswith("jumpy: error:")]
    text = "".join(c for c in (errors or lines)[-1] if c.isprintable())[:300]
    return f"{text} ({path})"
