"""A policy that JAX cannot see: wrap it, train a model of it, check the model, plan with it.

    python examples/outside_policy.py                   # seconds on a CPU
    python examples/outside_policy.py --steps 5000

``from_callable`` takes any function of NumPy arrays. A PyTorch module goes in the same way:

    def controller(states, z):
        with torch.no_grad():
            return module(torch.from_numpy(np.concatenate([states, z], 1))).numpy()

Training asks it through a call to the host at every step, for all rows of the batch at once.
"""

import argparse
import tempfile

import equinox as eqx
import jax
import numpy as np

import jumpyworld
from jumpyworld.data import Dataset
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.job import ghm_job
from jumpyworld.planning import CompPlan, GoalProposal, Task, Uniform
from jumpyworld.policies import from_callable
from jumpyworld.training import TrainingConfig, train

STEP = 0.2
rng = np.random.default_rng(0)
HIDDEN = rng.normal(0, 0.02, (4, 16)).astype(np.float32)


def controller(states, z):
    """Go for z, as a small network of somebody else's would: [B, 2], [B, 2] to [B, 2]."""
    odd = np.tanh(np.concatenate([states, z], 1) @ HIDDEN) @ HIDDEN.T[:, :2]
    return np.clip(z - states + odd, -1, 1)


def simulate(states, z, steps, noise=0.0):
    """Return where the controller leads, all states on the way [steps + 1, B, 2]."""
    way, acts = [states], []
    for _ in range(steps):
        acts.append(np.clip(controller(way[-1], z) + noise * rng.normal(size=z.shape), -1, 1))
        way.append((way[-1] + STEP * acts[-1]).astype(np.float32))
    return np.stack(way), np.stack([*acts, acts[-1]]).astype(np.float32)


def nearness(states, goal):
    """Return minus the distance to the goal: a reward that is never all zero."""
    return -(((states - goal) ** 2).sum(-1) ** 0.5)


def main():
    """Wrap, train, check, plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="gradient steps of the model")
    args = parser.parse_args()

    policy = from_callable(controller, observation_dim=2, action_dim=2, z_dim=2)
    start, target = rng.uniform(-3, 3, (2, 100, 2)).astype(np.float32)
    states, actions = simulate(start, target, steps=60, noise=0.5)
    ends = np.zeros(states.shape[:2], bool)
    ends[-1] = True
    # Trajectory after trajectory: [100, 61, ...] to rows.
    rows = [np.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]) for x in (states, actions, ends)]
    log = Dataset.from_arrays(*rows, source="controller log")

    # A target that moves by a tenth a step is renewed 40 times in 400 steps: four horizons of 10.
    config = GHMConfig.preset(
        "debug", batch_size=64, gamma_max=0.9, target_rate=0.1, learning_rate=5e-3
    )
    with tempfile.TemporaryDirectory() as run:
        done = train(ghm_job(log, policy, config), f"{run}/ghm", TrainingConfig(steps=args.steps))
        ghm = jumpyworld.load(f"{run}/ghm")
    print(f"model: {done.step} steps in {done.seconds:.0f} s")

    # What the model says of the controller, beside what the controller does.
    s, z = (np.broadcast_to(np.float32(x), (512, 2)) for x in ((-2, -1), (2, 1)))
    sample = eqx.filter_jit(ghm.sample)  # uncompiled, every call would take a second
    real = simulate(s[:1], z[:1], steps=400)[0][1:, 0]
    print(f"{'horizon':>7} {'model: x, y':>16} {'real: x, y':>16}")
    for horizon in (1, 2, 5, 10):
        gamma = 1 - 1 / horizon
        drawn = sample(jax.random.key(0), s, controller(s, z), z, gamma)
        share = (1 - gamma) * gamma ** np.arange(len(real))
        mean, true = np.asarray(drawn).mean(0), share @ real
        print(f"{horizon:>7} {mean[0]:>8.2f}{mean[1]:>8.2f} {true[0]:>8.2f}{true[1]:>8.2f}")

    planner = CompPlan(
        ghm, policy, horizons=(10, 10), discount=0.95, proposal=GoalProposal(16), search=Uniform(8)
    )
    plan = planner(jax.random.key(1), s[0], Task(nearness, z[0]))
    print(f"plan: first action {np.asarray(plan.action).round(2)}, value {float(plan.value):.2f}")


if __name__ == "__main__":
    main()
