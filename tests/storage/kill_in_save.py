"""Saves a checkpoint again and again, killed each time one line of Python later.

A process of its own without JAX, so that it can fork: ``kill_in_save.py FOLDER`` prints how many
kills there were and after which the new checkpoint was there.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from checkpoint_samples import ENVIRONMENT, make_arrays, make_document

from jumpyworld.storage import checkpoint, runs
from jumpyworld.storage.tensors import digest

DOCUMENT = make_document()
# What a killed process has written stays written, flushed or not; flushing is for power cuts.
os.fsync = lambda descriptor: None
# Where files are touched: a kill in between (in checks, in JSON) is a kill at the line before.
TOUCHING = {"_write", "write_tensors", "write_json", "atomic_file", "sync_folder", "prune"}
TOUCHING |= {"rmtree", "_rmtree_safe_fd"}


def save(run, step):
    state = {name: make_arrays(step)[name] for name in ("half", "step")}
    path = runs.checkpoint_path(run, step)
    checkpoint.save(path, DOCUMENT, step=step, model=state, state=state, environment=ENVIRONMENT)
    runs.prune(run, 2, ())
    return digest(state)


def save_and_die(run, step, line):
    """Save ``step``, and kill this process at the given line of the package's own code."""
    left = line

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_name not in TOUCHING:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    save(run, step)
    os._exit(0)


def main(folder):
    base, run = folder / "base", folder / "run"
    base.mkdir()
    runs.prepare(base, DOCUMENT, False, print)
    digests = {step: save(base, step) for step in (1, 2)}
    digests[3] = digest({name: make_arrays(3)[name] for name in ("half", "step")})
    line, reached = 0, []
    while True:
        line += 1
        shutil.copytree(base, run)
        child = os.fork()
        if child == 0:
            save_and_die(run, 3, line)
        _, status = os.waitpid(child, 0)
        warnings = []
        step, path = runs.newest(run, warnings.append)
        _, _, state = checkpoint.read_state(path)
        assert not warnings, "a checkpoint under its final name is whole"
        for saved in runs.saved_steps(run):
            checkpoint.verify(runs.checkpoint_path(run, saved))
        assert digest(state) == digests[step], f"line {line}: wrong arrays"
        assert step in (2, 3)
        reached.append(step)
        runs.prepare(run, DOCUMENT, False, print)
        names = sorted(p.name for p in (run / "checkpoints").iterdir())
        assert all(name.startswith("step-") for name in names), f"line {line}: {names}"
        if step == 2:
            save(run, 3)  # the next attempt is not in the way of the last
            assert runs.newest(run, warnings.append)[0] == 3
        shutil.rmtree(run)
        if os.WIFEXITED(status):
            break
    assert os.WEXITSTATUS(status) == 0
    assert reached == sorted(reached)
    print(line - 1, reached.index(3))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
