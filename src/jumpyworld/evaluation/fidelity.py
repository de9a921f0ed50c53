"""How right a geometric horizon model is: EMD between its samples and real rollouts of the policy.

    for each pair (s, g):  roll the policy pi_g out from s, several times, in the real environment
    for each discount:     truth = states at t ~ Geometric(1 - gamma), t >= 1, of those rollouts
                           model = samples of the GHM at (s, a ~ pi_g(s), g, gamma)
                           EMD(model, truth), beside EMD(truth, truth'), its noise floor

Paper: appendix on the EMD study (256 pairs, 64 rollouts, 2048 samples, discount .995). EMD is
exact, Euclidean, over the whole state in raw units; rollouts go on for a fixed number of steps past
the goal, and times beyond their end are clipped (the share is reported). The noise floor compares
states of one half of the rollouts with those of the other half: what a perfect model would score.

Shapes: P pairs, R rollouts, T steps, n samples, d state dimensions.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from jumpyworld.data.dataset import Dataset
from jumpyworld.domains import Domain
from jumpyworld.errors import ConfigError, data_error
from jumpyworld.evaluation.lockstep import Lockstep


@dataclass(frozen=True)
class Pairs:
    """Where rollouts start and where they are sent.

    Attributes:
        states: observations that rollouts start from, raw units, float32 [P, d].
        goals: goal observations in raw units, float32 [P, d].
        qpos: simulator positions of the states [P, nq].
        qvel: simulator velocities of the states [P, nv].
    """

    states: np.ndarray
    goals: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray

    @classmethod
    def of_rows(cls, dataset: Dataset, rows: np.ndarray, goal_rows: np.ndarray) -> "Pairs":
        """Return pairs of rows of a dataset that stores its simulator states."""
        for key in ("qpos", "qvel"):
            if key not in dataset.extras:
                raise data_error(dataset.source, f"has no {key}, so rollouts cannot start in it")
        return cls(
            dataset.observations[rows],
            dataset.observations[goal_rows],
            dataset.extras["qpos"][rows],
            dataset.extras["qvel"][rows],
        )


@dataclass(frozen=True)
class Fidelity:
    """EMD of a model at one discount.

    Attributes:
        gamma: discount.
        emd: mean over pairs, raw units.
        ci95: half width of the 95 % interval of that mean (normal, over pairs).
        floor: the same between two halves of the truth.
        clipped: share of geometric times beyond the rollouts' end.
    """

    gamma: float
    emd: float
    ci95: float
    floor: float
    clipped: float


def random_pairs(dataset: Dataset, count: int, rng: np.random.Generator) -> Pairs:
    """Draw states and goals independently and uniformly, as the paper does."""
    rows, goal_rows = rng.choice(dataset.valid_indices, (2, count))
    return Pairs.of_rows(dataset, rows, goal_rows)


def in_support_pairs(
    dataset: Dataset, count: int, rng: np.random.Generator, *, reach: tuple[int, int] = (10, 100)
) -> Pairs:
    """Draw states and goals that the data reached from them ``reach`` steps later."""
    starts, ends = dataset.starts, dataset.ends
    if (ends - starts).max() < reach[1]:
        raise ConfigError(f"no trajectory is longer than reach={reach}")
    which = rng.choice(np.flatnonzero(ends - starts >= reach[1]), count)
    ahead = rng.integers(reach[0], reach[1], count, endpoint=True)
    rows = starts[which] + rng.integers(0, ends[which] - starts[which] - ahead + 1)
    return Pairs.of_rows(dataset, rows, rows + ahead)


def rollouts(
    domain: Domain,
    policy,
    pairs: Pairs,
    key: PRNGKeyArray,
    *,
    repeats: int,
    steps: int,
    workers: int | None = None,
) -> Float[np.ndarray, "P R T d"]:
    """Roll the policy out from every pair's state to its goal, without stopping there.

    Returns:
        States after 1 to ``steps`` steps, float32 [P, repeats, steps, d].
    """
    count = len(pairs.states) * repeats
    goals = jnp.asarray(np.repeat(pairs.goals, repeats, axis=0))
    qpos = np.repeat(pairs.qpos, repeats, axis=0).astype(float)
    qvel = np.repeat(pairs.qvel, repeats, axis=0).astype(float)
    # The policy is an argument, not a closure: its weights would be compiled in as constants.
    act = eqx.filter_jit(lambda policy, key, s, z: policy.sample(key, s, z))
    out = np.empty((steps, count, domain.observation_dim), np.float32)
    with Lockstep(domain, count, workers=workers, terminate_at_goal=False) as envs:
        states, _ = envs.reset(
            [
                {"seed": i, "qpos": p.tolist(), "qvel": v.tolist()}
                for i, (p, v) in enumerate(zip(qpos, qvel, strict=True))
            ]
        )
        for t in range(steps):
            actions = act(policy, jax.random.fold_in(key, t), jnp.asarray(states), goals)
            states, _ = envs.step(np.asarray(actions))
            out[t] = states
    shape = (steps, len(pairs.states), repeats, domain.observation_dim)
    return np.moveaxis(out.reshape(shape), 0, 2)


def geometric_resample(
    rng: np.random.Generator, paths: Float[np.ndarray, "R T d"], gamma: float, count: int
) -> tuple[Float[np.ndarray, "n d"], float]:
    """Draw states of rollouts at t ~ Geometric(1 - gamma), t >= 1, and the share clipped.

    Args:
        rng: randomness.
        paths: states after 1, 2, ... T steps [R, T, d].
        gamma: discount.
        count: n.
    """
    times = rng.geometric(1.0 - gamma, count)
    which = rng.integers(0, len(paths), count)
    limit = paths.shape[1]
    return paths[which, np.minimum(times, limit) - 1], float((times > limit).mean())


def emd(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d"]) -> float:
    """Return the exact earth mover's distance between two equally large samples.

    Uses POT where installed and SciPy's exact assignment otherwise; for uniform weights and equal
    sizes an optimal plan is an assignment, so both give the same value.
    """
    if x.shape != y.shape or x.ndim != 2:
        raise ConfigError(
            f"emd: samples of shapes {x.shape} and {y.shape} must be equal and [n, d]"
        )
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    square = (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2.0 * x @ y.T
    cost = np.sqrt(np.maximum(square, 0.0))
    try:
        import ot
    except ImportError:
        from scipy.optimize import linear_sum_assignment

        rows, columns = linear_sum_assignment(cost)
        return float(cost[rows, columns].mean())
    weights = np.full(len(x), 1.0 / len(x))
    return float(np.asarray(ot.emd2(weights, weights, cost, numItermax=2_000_000)))


def measure_fidelity(
    ghm,
    policy,
    pairs: Pairs,
    truth: Float[np.ndarray, "P R T d"],
    gammas: tuple[float, ...],
    key: PRNGKeyArray,
    *,
    samples: int,
    seed: int = 0,
    allow_extrapolation: bool = False,
) -> list[Fidelity]:
    """Return the EMD of a model to rollouts, per discount.

    Args:
        ghm: the model; ``sample(key, states, actions, z, gamma)``.
        policy: the policy that was rolled out.
        pairs: as rolled out.
        truth: from ``rollouts`` [P, R, T, d]; R even.
        gammas: discounts.
        key: randomness of the model's samples.
        samples: n per pair.
        seed: of the geometric times.
        allow_extrapolation: permit discounts above the model's largest.
    """
    if truth.shape[1] < 2:
        raise ConfigError(
            f"the noise floor needs at least 2 rollouts per pair, not {truth.shape[1]}"
        )
    half = truth.shape[1] // 2
    states = jnp.asarray(np.repeat(pairs.states, samples, axis=0))
    goals = jnp.asarray(np.repeat(pairs.goals, samples, axis=0))

    @eqx.filter_jit
    def draw(ghm, policy, key, gamma):
        action_key, sample_key = jax.random.split(key)
        actions = policy.sample(action_key, states, goals)
        return ghm.sample(sample_key, states, actions, goals, gamma)

    out = []
    for index, gamma in enumerate(gammas):
        if gamma > ghm.gamma_max + 1e-6 and not allow_extrapolation:
            raise ConfigError(f"gamma={gamma}: the model was trained up to {ghm.gamma_max:g}")
        model = np.asarray(draw(ghm, policy, jax.random.fold_in(key, index), jnp.float32(gamma)))
        model = model.reshape(len(truth), samples, -1)
        rng = np.random.default_rng([seed, index])
        distances, floors, clipped = [], [], []
        for p, paths in enumerate(truth):
            first, share = geometric_resample(rng, paths[:half], gamma, samples)
            second, _ = geometric_resample(rng, paths[half:], gamma, samples)
            distances.append(emd(model[p], first))
            floors.append(emd(second, first))
            clipped.append(share)
        spread = 1.96 * float(np.std(distances, ddof=1)) / len(distances) ** 0.5
        floor, share = float(np.mean(floors)), float(np.mean(clipped))
        out.append(Fidelity(gamma, float(np.mean(distances)), spread, floor, share))
    return out
