"""A reward that is no goal: two places worth visiting, and a region to keep out of.

    python examples/custom_reward.py                    # seconds on a CPU
    python examples/custom_reward.py --candidates 256 --samples 256

The policy is scripted: it follows the shortest way, but only to places at most three cells off. The
model is exact (``maze_model.py``); with ``--policy RUN --ghm RUN`` it is yours.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from maze_model import MazeModel

import jumpyworld
from jumpyworld import domains
from jumpyworld.planning import CompPlan, ListProposal, Task, Uniform
from jumpyworld.policies import ScriptedGoalPolicy


def two_places_and_a_hole(states, places):
    """Return 1 near the first or second place [3, 2] and -5 near the third.

    Places are handed in, not caught from outside: another set of them compiles nothing.
    """
    gaps = jnp.abs(states[..., None, :] - places).max(-1)
    near = (gaps[..., 0] < 1.0) | (gaps[..., 1] < 1.0)
    return near.astype(jnp.float32) - 5.0 * (gaps[..., 2] < 2.0).astype(jnp.float32)


def random_sequences(cells, count, segments, seed=0):
    """Return sequences of cell centres [count, segments, 2]; the reward will sort them out."""
    rng = np.random.default_rng(seed)
    return cells[rng.integers(0, len(cells), (count, segments))]


def main():
    """Plan for the same reward twice, the hole once on this way and once on that."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=192)
    parser.add_argument("--samples", type=int, default=16, help="chains of each candidate")
    parser.add_argument("--policy", help="run folder of a policy for pointmaze-large")
    parser.add_argument("--ghm", help="run folder of its model")
    args = parser.parse_args()

    grid = domains.get("pointmaze-large").grid
    policy = jumpyworld.load(args.policy) if args.policy else ScriptedGoalPolicy(grid, reach=3)
    model = jumpyworld.load(args.ghm) if args.ghm else MazeModel(policy)
    cells = np.array([grid.centre_of(cell) for cell in grid.free_cells], np.float32)
    start, west, south = (np.float32(grid.centre_of(c)) for c in ((3, 6), (3, 4), (5, 6)))

    planner = CompPlan(
        model, policy, horizons=(30, 30), discount=0.98,
        proposal=ListProposal(random_sequences(cells, args.candidates, segments=2)),
        search=Uniform(args.samples, common_noise=True),
    )  # fmt: skip
    print(f"start {start}, places worth 1: west {west}, south {south}")
    for name, hole in (("west", west), ("south", south)):
        task = Task(two_places_and_a_hole, np.stack([west, south, hole]))
        plan = planner(jax.random.key(0), start, task)
        values = np.asarray(plan.candidate_values)
        print(
            f"hole in the {name}: go by {np.asarray(plan.z[0])} to {np.asarray(plan.z[1])}, "
            f"first action {np.asarray(plan.action).round(2)}, value {float(plan.value):.2f} "
            f"(median of the candidates {np.median(values):.2f})"
        )


if __name__ == "__main__":
    main()
