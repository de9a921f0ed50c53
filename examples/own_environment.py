"""Your environment, your policy, your reward: from a log to a plan.

    python examples/own_environment.py                  # seconds on a CPU
    python examples/own_environment.py --steps 20000    # a model worth having: some minutes

A boat crosses a pond with a reef in its middle. Its autopilot sails straight at the place that it
is given, so alone it runs onto the reef. A log of such trips is all that the model sees. The
planner strings autopilot targets together to earn the reward: at the harbour, off the reef.
"""

import argparse
import tempfile

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

import jumpyworld
from jumpyworld.data import Dataset
from jumpyworld.ghm import GHMConfig
from jumpyworld.ghm.job import ghm_job
from jumpyworld.planning import CompPlan, ListProposal, Task, Uniform
from jumpyworld.policies import AbstractPolicy
from jumpyworld.training import TrainingConfig, train

SIDE, STEP, REEF = 10.0, 0.5, 1.5
START, HARBOUR = np.array([1.0, 5.0], np.float32), np.array([9.0, 5.0], np.float32)


class Pond(gym.Env):
    """Metres in a square; an action in [-1, 1]^2 moves half of itself, and wind adds a little."""

    observation_space = gym.spaces.Box(0.0, SIDE, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Start at ``options["start"]``, or anywhere."""
        super().reset(seed=seed)
        self.place = np.asarray((options or {}).get("start", self.np_random.uniform(0, SIDE, 2)))
        return self.place.astype(np.float32), {}

    def step(self, action):
        """Move; the reward is there for the score alone, no model is trained on it."""
        wind = self.np_random.normal(0, 0.05, 2)
        self.place = np.clip(self.place + STEP * np.clip(action, -1, 1) + wind, 0, SIDE)
        state = self.place.astype(np.float32)
        return state, float(reward(state)), False, False, {}


def reward(states):
    """Return 1 at the harbour and -10 on the reef, for states with any leading dimensions."""
    at_harbour = jnp.abs(states - HARBOUR).max(-1) < 1.0
    on_reef = jnp.abs(states - SIDE / 2).max(-1) < REEF
    return at_harbour.astype(jnp.float32) - 10.0 * on_reef.astype(jnp.float32)


class Autopilot(AbstractPolicy):
    """Sails straight at z. One state and one z at a time: batches are made for you."""

    observation_dim = 2
    action_dim = 2

    def act(self, key, s, z, temperature):
        """Return one action; it slows down to arrive."""
        gap = (z - s) / STEP
        return gap / jnp.maximum(1.0, jnp.linalg.norm(gap))


def collect_log(policy, episodes, length, seed=0):
    """Return states, actions and last-state flags of trips from one random place to another."""
    env, rng = Pond(), np.random.default_rng(seed)
    sample = jax.jit(policy.sample)
    states, actions, terminals = [], [], []
    for episode in range(episodes):
        state, _ = env.reset(seed=seed + episode)
        for i in range(length):
            if i % 25 == 0:
                z = rng.uniform(0, SIDE, 2).astype(np.float32)
            action = np.asarray(sample(jax.random.key(0), state, z))
            action = np.clip(action + rng.normal(0, 0.3, 2), -1, 1)
            states.append(state), actions.append(action), terminals.append(i == length - 1)
            state = env.step(action)[0]
    return np.array(states), np.array(actions, np.float32), np.array(terminals)


def sail(choose, seed, steps=60):
    """Return the reward per step of a trip from START; ``choose(t, state)`` acts."""
    env = Pond()
    state, _ = env.reset(seed=seed, options={"start": START})
    total = 0.0
    for t in range(steps):
        state, got, *_ = env.step(np.asarray(choose(t, state)))
        total += got
    return total / steps


def main():
    """Log, train, plan, sail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="gradient steps of the model")
    parser.add_argument("--episodes", type=int, default=20, help="trips in the log")
    parser.add_argument("--out", help="run folder to keep; a temporary one by default")
    args = parser.parse_args()

    policy = Autopilot()
    log = Dataset.from_arrays(*collect_log(policy, args.episodes, 200), source="pond log")
    print(f"log: {log.num_trajectories} trips, {log.num_transitions} transitions")

    config = GHMConfig.preset("debug", batch_size=64, gamma_max=0.95)
    with tempfile.TemporaryDirectory() as scratch:
        run = args.out or f"{scratch}/ghm"
        done = train(ghm_job(log, policy, config), run, TrainingConfig(steps=args.steps))
        ghm = jumpyworld.load(run)
    print(f"model: {done.step} steps in {done.seconds:.0f} s")

    # Any way of making candidates will do: here, one stop anywhere on a grid, then the harbour.
    stops = np.stack(np.meshgrid(*2 * [np.linspace(0.5, 9.5, 7)]), -1).reshape(-1, 1, 2)
    candidates = np.concatenate([stops, np.broadcast_to(HARBOUR, stops.shape)], 1)
    planner = CompPlan(
        ghm, policy, horizons=(10, 20), discount=0.97, proposal=ListProposal(candidates),
        search=Uniform(32, common_noise=True),
    )  # fmt: skip
    task = Task(reward)
    key = jax.random.key(0)
    plan = planner(key, START, task)
    print(f"plan: by way of {np.asarray(plan.z[0]).round(1)}, value {float(plan.value):.3f}")

    def planned(t, state, every=3):
        nonlocal plan
        if t % every:
            return planner.follow(jax.random.fold_in(key, t), state, plan)
        plan = planner(jax.random.fold_in(key, t), state, task)
        return plan.action

    def straight(t, state):
        return policy.sample(key, state, HARBOUR)

    for name, choose in (("autopilot", straight), ("planner", planned)):
        rewards = [sail(choose, seed) for seed in range(3)]
        print(f"{name:>9}: reward per step {np.mean(rewards):+.2f}")


if __name__ == "__main__":
    main()
