"""Small checkpoints to save, damage and read, made of NumPy arrays alone."""

import ml_dtypes
import numpy as np

from jumpyworld.storage import checkpoint, manifest, runs

ENVIRONMENT = {"versions": {"jax": "0"}, "prng": {}, "backend": "cpu"}


def make_arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "layers/0/weight": rng.standard_normal((8, 4)).astype(np.float32),
        "half": rng.standard_normal(5).astype(ml_dtypes.bfloat16),
        "step": np.int32(seed),
        "flag": np.array([True, False, True]),
        "empty": np.zeros((0, 3), np.float32),
    }


def make_document(**change):
    fields = {"config": {"width": 32, "rate": 1e-3}, "spec": {}, "seeds": [0]}
    fields |= {"kind": "toy", "fingerprints": {"dataset": "d0", "policy": None}}
    return manifest.make_document(**{**fields, **change})


def save_step(run, step, **change):
    (run / runs.CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    arrays = make_arrays(step)
    checkpoint.save(
        runs.checkpoint_path(run, step),
        make_document(**change),
        step=step,
        model={"w": arrays["layers/0/weight"]},
        state=arrays,
        environment=ENVIRONMENT,
    )
    return runs.checkpoint_path(run, step)
