"""Runs of the toy regression, and what to compare of them."""

import dataclasses

from toy_regression import Toy, make_job

from jumpyworld.storage import checkpoint, runs
from jumpyworld.storage.metrics import WALL_CLOCK, read_rows
from jumpyworld.storage.tensors import digest
from jumpyworld.training import TrainingConfig, train

CONFIG = TrainingConfig(steps=60, save_every=20, log_every=15, chunk=10)


def run(folder, job=None, **settings):
    options = {
        k: settings.pop(k) for k in ("overwrite", "progress", "any_versions") if k in settings
    }
    warnings = []
    config = dataclasses.replace(CONFIG, **settings)
    job = make_job(Toy(), seed=config.seed) if job is None else job
    result = train(job, folder, config, warn=warnings.append, **options)
    return result, warnings


def final(folder):
    """Return hashes of everything in the newest checkpoint, by array."""
    _, path = runs.newest(folder)
    _, _, state = checkpoint.read_state(path)
    return {name: digest({name: array}) for name, array in state.items()}


def log(folder):
    rows = read_rows(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k not in WALL_CLOCK} for row in rows]
