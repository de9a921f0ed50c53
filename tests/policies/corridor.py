"""A corridor where one action is worth little and much else moves: far goals, fast nuisances.

The state is a place in [0, 24] and the cosines and sines of four phases, which turn whatever is
done. Of three actions the first moves by at most .12, the second turns the phases a little, the
third does nothing. The behaviour walks to and fro between places of its own choice.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jumpyworld import policies
from jumpyworld.data import Dataset, device_data
from jumpyworld.policies import PolicySpec, fql

LENGTH, PACE, PHASES, DA = 24.0, 0.12, 4, 3
TASKS = ((2.0, 22.0), (22.0, 2.0), (4.0, 16.0), (20.0, 9.0), (12.0, 6.0), (12.0, 18.0))
BOUNDED = {"critic_loss": "bce", "mask_at_goal": True, "target_rate": 0.02}


def quickly(function):
    """Compile for a program that runs for seconds: half of them would go into optimising it."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 1})


def state(place, phases):
    return jnp.concatenate([place[:, None], 2 * jnp.cos(phases), 2 * jnp.sin(phases)], axis=1)


def move(key, place, phases, actions):
    """One step of many walkers at once."""
    place_key, phase_key = jax.random.split(key)
    drift = 0.03 * jax.random.normal(place_key, place.shape)
    place = jnp.clip(place + PACE * actions[:, 0] + drift, 0, LENGTH)
    noise = 0.1 * jax.random.normal(phase_key, phases.shape)
    return place, phases + 0.6 + 0.3 * actions[:, 1:2] + noise


def begin(key, place):
    return place, jax.random.uniform(key, (len(place), PHASES), maxval=2 * jnp.pi)


@functools.cache
def behave(episodes=80, steps=500):
    """The behaviour's data set."""
    keys = jax.random.split(jax.random.key(0), 3)
    target, place = jax.random.uniform(keys[0], (2, episodes), maxval=LENGTH)

    def body(carry, key):
        (place, phases), target = carry
        act_key, move_key, target_key = jax.random.split(key, 3)
        mean = jnp.zeros((episodes, DA)).at[:, 0].set(0.8 * jnp.sign(target - place))
        spread = jnp.broadcast_to(jnp.array([0.3, 0.5, 0.5]), mean.shape)
        actions = jnp.clip(mean + spread * jax.random.normal(act_key, mean.shape), -1, 1)
        after = move(move_key, place, phases, actions)
        fresh = jax.random.uniform(target_key, target.shape, maxval=LENGTH)
        target = jnp.where(jnp.abs(target - after[0]) < 0.3, fresh, target)
        return (after, target), (state(place, phases), actions)

    start = begin(keys[1], place), target
    _, (states, actions) = jax.lax.scan(body, start, jax.random.split(keys[2], steps + 1))
    rows = [np.asarray(jnp.swapaxes(x, 0, 1)).reshape(-1, x.shape[-1]) for x in (states, actions)]
    return Dataset.from_arrays(*rows, np.arange(len(rows[0])) % (steps + 1) == steps)


def train(name, seeds, steps, **changes):
    """The states of several seeds after training, stacked, and the settings."""
    dataset, algorithm = behave(), policies.get(name)
    data = device_data(dataset)
    spec = PolicySpec.from_arrays(dataset.observations, dataset.actions)
    small = {"hidden": (64, 64), "batch_size": 256, "learning_rate": 1e-3, "flow_steps": 3}
    config = algorithm.config(**{**small, **BOUNDED, **changes})

    def one(key, data):
        def body(i, state):
            return algorithm.step(state, data, jax.random.fold_in(key, i), config)[0]

        return jax.lax.fori_loop(0, steps, body, algorithm.init(key, config, spec))

    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    return quickly(jax.vmap(one, (0, None)))(keys, data), config, data


def success(policy, repeats=20, steps=400):
    """Share of tasks in which a policy comes within .5 of the goal's place."""
    keys = jax.random.split(jax.random.key(9), 3)
    start, goal = (jnp.repeat(jnp.array(side), repeats) for side in zip(*TASKS, strict=True))
    goals = state(*begin(keys[1], goal))

    def body(carry, key):
        (place, phases), done = carry
        act_key, move_key = jax.random.split(key)
        act = jax.vmap(lambda k, s, g: policy.act(k, s, g, jnp.ones(())))
        s = state(place, phases)
        after = move(move_key, place, phases, act(jax.random.split(act_key, len(s)), s, goals))
        return (after, done | (jnp.abs(after[0] - goal) < 0.5)), None

    first = begin(keys[0], start), jnp.zeros(len(goal), bool)
    (_, done), _ = jax.lax.scan(body, first, jax.random.split(keys[2], steps))
    return jnp.mean(done.astype(jnp.float32))


def slopes(climbed, data, config, number=2000):
    """Each row's distance to a random goal, and how far the actor is moved towards it.

    The second is where the slope of -Q / mean |Q| in the first action and that of the distillation
    balance: the way off the behaviour's action, towards the goal if positive. One is the way from
    standing still to full pace. Both see the critic alone, not what the student made of it.
    """
    assert config.normalise == "none", "the critic is asked in raw units"
    rows = np.random.default_rng(5).choice(np.asarray(data.valid_indices), (2, number))
    s, a, g = data.observations[rows[0]], data.actions[rows[0]], data.observations[rows[1]]
    slope = jax.vmap(jax.grad(climbed, argnums=1))(s, a, g)[:, 0]
    seen = fql.draw_actor_goals(data, jax.random.key(5), jnp.asarray(rows[0]), config)
    scale = jnp.mean(jnp.abs(jax.vmap(climbed)(s, a, seen)))
    way = g[:, 0] - s[:, 0]
    balance = DA * slope / (2 * config.distill_coefficient * scale)
    return jnp.abs(way), balance * jnp.sign(way)
