"""A proposal of your own, and planners side by side in the real maze.

    python examples/compare_planners.py                 # half a minute on a CPU
    python examples/compare_planners.py --episodes 50 --max-steps 1000 --candidates 128

A proposal says which sequences of subgoals a planner looks at. This one hands out what somebody who
walked here before did next. The policy goes for places at most three cells away, so that alone it
solves no task of the maze; GPI, which looks for one good subgoal, is not enough either.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from maze_model import MazeModel

from jumpyworld import domains
from jumpyworld.evaluation.success import evaluate, open_environments
from jumpyworld.planning import (
    GPI,
    AbstractProposal,
    CompPlan,
    OneZProposal,
    Uniform,
    ZeroShot,
)
from jumpyworld.policies import ScriptedGoalPolicy


class MemoryProposal(AbstractProposal):
    """What came next, at the remembered moments nearest to this state; then the goal.

    Attributes:
        windows: stretches of K + 1 remembered places [L, K + 1, d].
        number: how many to hand out.
    """

    windows: jax.Array
    number: int = eqx.field(static=True)

    @property
    def count(self):
        """Number of candidates, known before anything runs: shapes are static."""
        return self.number

    def sample(self, key, question):
        """Return [count, K, d]; pure and traceable, as it becomes part of a compiled plan."""
        gap = jnp.square(self.windows[:, 0] - question.state).sum(-1)
        # Many are about as near as the nearest; a little noise lets each have its turn.
        gap = gap + jax.random.uniform(key, gap.shape)
        z = self.windows[jax.lax.top_k(-gap, self.number)[1], 1:]
        return z.at[:, -1].set(question.task.goal)


def remembered_walks(grid, segments, walks=400, seed=0):
    """Return stretches of places, two cells apart, on shortest ways through the maze."""
    rng, windows = np.random.default_rng(seed), []
    for _ in range(walks):
        cell, goal = (grid.free_cells[i] for i in rng.integers(0, len(grid.free_cells), 2))
        following, way = grid.next_cells(goal), [cell]
        while way[-1] != goal:
            row, column = way[-1]
            way.append(tuple(following[row][column]))
        way = way[::2] + [goal] * segments
        windows += [way[i : i + segments + 1] for i in range(len(way) - segments)]
    return jnp.asarray([[grid.centre_of(c) for c in window] for window in windows], jnp.float32)


def main():
    """Print one row per planner: successes on five tasks in the same episodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--domain", default="pointmaze-medium")
    parser.add_argument("--episodes", type=int, default=1, help="of each task")
    parser.add_argument("--max-steps", type=int, default=300)
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--samples", type=int, default=4, help="chains of each candidate")
    args = parser.parse_args()

    domain = domains.get(args.domain)
    policy = ScriptedGoalPolicy(domain.grid, reach=3)
    model = MazeModel(policy)
    horizons = (50, 50, 50, 50, 50)
    memory = MemoryProposal(remembered_walks(domain.grid, len(horizons)), args.candidates)
    common = {"discount": 0.995, "search": Uniform(args.samples)}
    planners = {
        "zero-shot": ZeroShot(policy),
        "gpi": GPI(model, policy, horizons=horizons, proposal=OneZProposal(memory), **common),
        "compplan": CompPlan(model, policy, horizons=horizons, proposal=memory, **common),
    }
    # All of them meet the same starts and goals, so that rows can be compared pair by pair.
    print(f"{'planner':<12} {'successes':>9} {'mean steps':>10} {'no plan':>8}")
    with open_environments(domain, 5 * args.episodes, workers=1) as envs:
        for name, planner in planners.items():
            found = evaluate(
                domain, planner, envs=envs,
                episodes=args.episodes, max_steps=args.max_steps, replan_every=25,
            )  # fmt: skip
            wins = f"{found.outcomes.sum()}/{found.outcomes.size}"
            no_plan = f"{100 * found.decisions.all_zero:.0f} %"
            print(f"{name:<12} {wins:>9} {found.steps.mean():>10.0f} {no_plan:>8}")


if __name__ == "__main__":
    main()
