"""Success of a policy on a domain's five tasks, in the real environment.

Every episode has a seed of its own, (seed, task, episode), which fixes start, goal and the policy's
noise; two policies evaluated with one seed meet the same episodes.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld.domains import Domain
from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.lockstep import Lockstep
from jumpyworld.evaluation.stats import mean_of_tasks


@dataclass(frozen=True)
class Success:
    """Outcome of an evaluation.

    Attributes:
        outcomes: whether each episode succeeded, bool [tasks, episodes].
        steps: control steps each episode took, int [tasks, episodes].
    """

    outcomes: np.ndarray
    steps: np.ndarray

    @property
    def tasks(self) -> list[tuple[int, int]]:
        """(successes, episodes) of each task."""
        return [(int(row.sum()), len(row)) for row in self.outcomes]

    @property
    def mean(self) -> float:
        """Mean over tasks."""
        return mean_of_tasks(self.tasks)[0]

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % interval of the mean."""
        return mean_of_tasks(self.tasks)[1]


def episode_seed(seed: int, task: int, episode: int) -> int:
    """Return the seed of one episode; the same for every policy and planner."""
    return int(np.random.SeedSequence([seed, task, episode]).generate_state(1)[0] % 2**31)


def evaluate(
    domain: Domain,
    policy,
    *,
    episodes: int = 20,
    seed: int = 0,
    workers: int | None = None,
    max_steps: int | None = None,
) -> Success:
    """Run ``policy.sample(key, states, goals)`` on every task until success or the limit.

    Args:
        domain: where.
        policy: acts on batches [E, d] of states and goals in raw units.
        episodes: per task.
        seed: fixes all episodes.
        workers: processes.
        max_steps: episode limit; the domain's own by default.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, not {episodes}")
    jobs = [(task, e) for task in range(1, domain.num_tasks + 1) for e in range(episodes)]
    seeds = [episode_seed(seed, *job) for job in jobs]
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))

    @eqx.filter_jit
    def act(policy, t, states, goals):
        # Each episode's noise is its own, so that it does not depend on who runs beside it.
        step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, t)
        return jax.vmap(policy.sample)(step_keys, states, goals)

    limit = max_steps or domain.max_episode_steps
    steps = np.full(len(jobs), limit)
    done = np.zeros(len(jobs), bool)
    with Lockstep(domain, len(jobs), workers=workers) as envs:
        states, goals = envs.reset(
            [{"seed": s, "task": task} for s, (task, _) in zip(seeds, jobs, strict=True)]
        )
        for t in range(limit):
            actions = act(policy, jnp.int32(t), jnp.asarray(states), jnp.asarray(goals))
            states, success = envs.step(np.asarray(actions))
            steps[success & ~done] = t + 1
            done |= success
            if done.all():
                break
    shape = (domain.num_tasks, episodes)
    return Success(done.reshape(shape), steps.reshape(shape))
