"""Runs of seconds, and what is in their folders."""

import numpy as np

from jumpyworld.cli import run
from jumpyworld.data import Dataset
from jumpyworld.data.ogbench import write_npz
from jumpyworld.storage import checkpoint, runs
from jumpyworld.storage.tensors import digest

TINY = ("--preset", "debug", "--set", "hidden=[8]", "batch_size=4")
TINY_MODEL = ("--preset", "debug", "--set", "width=8", "embed_dim=4", "batch_size=12")


def write_walks(path, d=2, da=2, seed=0):
    rng = np.random.default_rng(seed)
    terminals = np.zeros((3, 40), bool)
    terminals[:, -1] = True
    states = 4 + rng.normal(size=(3, 40, d)).cumsum(1) / 10
    actions = rng.uniform(-1, 1, (120, da))
    dataset = Dataset.from_arrays(states.reshape(120, d), actions, terminals.reshape(-1))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_npz(path, dataset)
    return path


def jumpy(*words):
    return run([str(word) for word in words])


def train_gcbc(data, out, *words):
    return jumpy("train", "policy", "gcbc", "--dataset", data, "--out", out, *TINY, *words)


def train_ghm(data, policy, out, *words):
    words = ("--dataset", data, "--policy", policy, "--out", out, *TINY_MODEL, *words)
    return jumpy("train", "ghm", *words)


def state(out):
    """Return a hash of everything in the newest checkpoint."""
    return digest(checkpoint.read_state(runs.newest(out)[1])[2])


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def refused(capsys, *parts):
    """Check that the error was one line with these parts."""
    error = capsys.readouterr().err
    assert error.startswith("jumpy: error: ") and error.count("\n") == 1, error
    assert "Traceback" not in error
    for part in parts:
        assert part in error
