"""How right is a model? EMD to real rollouts, beside its noise floor, from Python.

    python examples/measure_fidelity.py                 # half a minute on a CPU
    python examples/measure_fidelity.py --steps 25000 --pairs 32 --rollouts 16 --length 600

Two models of a scripted policy are compared: one that has hardly been trained, and the same one
later. ``jumpy fidelity`` does all this and more, and keeps the rollouts.
"""

import argparse
import tempfile

import jax

import jumpyworld
from jumpyworld import data, domains
from jumpyworld.cli import run as jumpy
from jumpyworld.evaluation.fidelity import draw_pairs, measure_fidelity, rollouts
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.job import ghm_job
from jumpyworld.policies import ScriptedGoalPolicy
from jumpyworld.training import TrainingConfig, train

GAMMAS = (0.0, 0.8, 0.95)  # mean horizons of 1, 5 and 20 steps


def main():
    """Make data, train, roll out, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="gradient steps of the model")
    parser.add_argument("--pairs", type=int, default=8, help="starts and goals")
    parser.add_argument("--rollouts", type=int, default=2, help="real rollouts of each pair")
    parser.add_argument("--length", type=int, default=80, help="steps of a rollout")
    args = parser.parse_args()

    domain = domains.get("pointmaze-medium")
    policy = ScriptedGoalPolicy(domain.grid, noise=0.3)
    with tempfile.TemporaryDirectory() as folder:
        jumpy(["data", "generate", domain.name, "--episodes", "10", "--out", f"{folder}/data"])
        logged, held_out = (data.load(f"{folder}/data", split=s) for s in ("train", "val"))

        # Goals that the data reached 10 to 100 steps later: what lies beyond, no model can know.
        pairs = draw_pairs("in-support", held_out, args.pairs, seed=0)
        truth = rollouts(
            domain, policy, pairs, jax.random.key(0),
            repeats=args.rollouts, steps=args.length, workers=1,
        )  # fmt: skip

        config = GHMConfig.preset("debug", gamma_max=0.95, batch_size=64)
        job = ghm_job(logged, policy, config)
        keep = TrainingConfig(steps=args.steps, keep_steps=(20,))
        train(job, f"{folder}/ghm", keep)
        models = {
            20: jumpyworld.load(f"{folder}/ghm/checkpoints/step-{20:09d}"),
            args.steps: jumpyworld.load(f"{folder}/ghm"),
        }

    print(f"{'steps':>6} {'horizon':>7} {'EMD':>12} {'floor':>6}   metres; a step is .2, a cell 4")
    for steps, ghm in models.items():
        key = jax.random.key(1)
        found = measure_fidelity(ghm, policy, pairs, truth, GAMMAS, key, samples=128)
        for row in found:
            horizon = 1 / (1 - row.gamma)
            emd = f"{row.emd:.2f} ± {row.ci95:.2f}"
            print(f"{steps:>6} {horizon:>7.0f} {emd:>12} {row.floor:>6.2f}")


if __name__ == "__main__":
    main()
