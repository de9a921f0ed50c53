"""Compare world models of an ant by what they get wrong in one step, on the validation split.

    python benchmarks/world_model_error.py --dataset DIR --out FILE RUN...

Root mean square over rows, draws and dimensions, in raw units: positions, pose (height,
orientation, joints) and velocities, each beside how far the data move in that step.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld import data
from jumpyworld.cli.provenance import provenance
from jumpyworld.loading import describe, load
from jumpyworld.storage.rows import append_rows

PARTS = {"position": slice(0, 2), "pose": slice(2, 15), "velocity": slice(15, 29)}
ROWS, DRAWS = 512, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    val = data.load(a.dataset, split="val")
    inside = np.concatenate([np.arange(s, e) for s, e in zip(val.starts, val.ends, strict=True)])
    rows = np.random.default_rng(0).choice(inside, ROWS, replace=False)
    states, actions = jnp.asarray(val.observations[rows]), jnp.asarray(val.actions[rows])
    after = val.observations[rows + 1]
    keys = jax.random.split(jax.random.key(0), DRAWS)
    for run in a.runs:
        model = load(run)
        drawn = jax.vmap(lambda key, model=model: model.sample(key, states, actions))(keys)
        error, moved = np.asarray(drawn) - after, after - np.asarray(states)
        row = {
            "kind": "world-model",
            "domain": val.domain,
            "normaliser": describe(run)["config"]["normaliser"],
            "config": describe(run)["config"],
            "rows": ROWS,
            "draws": DRAWS,
            "error": {name: rms(error[..., part]) for name, part in PARTS.items()},
            "moves": {name: rms(moved[..., part]) for name, part in PARTS.items()},
            **provenance(),
        }
        print(run, row["error"], row["moves"])
        append_rows(a.out, [row])


def rms(x) -> float:
    return round(float(np.sqrt(np.mean(np.square(x)))), 4)


if __name__ == "__main__":
    main()
