"""Soft actor-critic for the ant's runner: losses, jitted updates, and the training loop.

    ants step with the sampled policy; transitions go to the replay buffer in the canonical frame
    for each minibatch (half of it mirrored left to right):
        y          = r + gamma * alive * (min_i Q'_i(s', a') - alpha * log pi(a' | s'))
        critics    descend  sum_i (Q_i(s, a) - y)^2
        actor      descends alpha * log pi(a | s) - min_i Q_i(s, a)
        alpha      moves the entropy towards its target
        Q'         follow Q with rate tau;  the expert is a running mean of the actor
    every 20,000 steps the expert is measured; the best measured one is returned

Shapes: B batch, U updates per call, 28 features, 8 actions. Everything is sized for one CPU core.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.domains.generate.ant_expert import (
    ACTION_DIM,
    FEATURE_DIM,
    LAYER_NORM_EPS,
    AntExpert,
)
from jumpyworld.domains.generate.ant_runner import (
    ACTION_MIRROR,
    FEATURE_MIRROR,
    AntVector,
    measure_expert,
)
from jumpyworld.errors import ConfigError

LOG_STD_RANGE = (-5.0, 2.0)


@dataclass(frozen=True)
class SACConfig:
    """Settings of the runner's training; the defaults are those of the packaged expert.

    Attributes:
        width: units in each of the two hidden layers, even.
        num_envs: ants that run side by side.
        updates_per_round: updates after each step of all ants.
        warmup_steps: steps with uniform actions before the first update.
        batch_size: transitions per update.
        buffer_size: transitions kept.
        learning_rate: Adam's, at the start.
        final_learning_rate: Adam's at the end; it falls linearly over the budget.
        gamma: discount per control step of 0.1 s.
        tau: rate at which target critics follow.
        ema: rate at which the expert follows the actor.
        target_entropy: nats wanted of the 8-dimensional policy.
        initial_temperature: alpha at the start; at 1 the first minute goes into entropy.
        reward_scale: times metres per step; 10 makes rewards metres per second.
        rough_starts: share of episodes that start tilted and tumbling.
        eval_steps: steps between measurements.
    """

    width: int = 128
    num_envs: int = 16
    updates_per_round: int = 4
    warmup_steps: int = 4_000
    batch_size: int = 256
    buffer_size: int = 1_000_000
    learning_rate: float = 5e-4
    final_learning_rate: float = 1e-4
    gamma: float = 0.99
    tau: float = 0.005
    ema: float = 0.002
    target_entropy: float = -4.0
    initial_temperature: float = 0.05
    reward_scale: float = 10.0
    rough_starts: float = 0.2
    eval_steps: int = 20_000


class Batch(NamedTuple):
    """Transitions in the canonical frame; leading axes [U, B] or [B]."""

    features: Float[Array, "*n 28"]
    actions: Float[Array, "*n 8"]
    rewards: Float[Array, "*n"]
    next_features: Float[Array, "*n 28"]
    alive: Float[Array, "*n"]


class Mlp(eqx.Module):
    """Two hidden layers of Linear, LayerNorm without affine, ReLU; then Linear.

    Without its affine part LayerNorm folds into the neighbouring weights (``ant_expert``).
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __init__(self, sizes: tuple[int, ...], *, last_scale: float = 1.0, key: PRNGKeyArray):
        """Draw uniform weights of variance 1/inputs, those of the last layer ``last_scale`` x."""
        scales = [1.0] * (len(sizes) - 2) + [last_scale]
        keys = jax.random.split(key, len(scales))
        self.weights = tuple(
            scale * jax.random.uniform(k, (i, o), minval=-1.0, maxval=1.0) * (3.0 / i) ** 0.5
            for k, i, o, scale in zip(keys, sizes[:-1], sizes[1:], scales, strict=True)
        )
        self.biases = tuple(jnp.zeros(o) for o in sizes[1:])

    def __call__(self, x: Float[Array, "B i"]) -> Float[Array, "B o"]:
        """Return outputs [B, o] for inputs [B, i]."""
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ w + b[None]
            x = x - x.mean(-1, keepdims=True)
            variance = jnp.square(x).mean(-1, keepdims=True)
            x = jax.nn.relu(x * jax.lax.rsqrt(variance + LAYER_NORM_EPS))
        return x @ self.weights[-1] + self.biases[-1][None]


def sample_actions(
    key: PRNGKeyArray, actor: Mlp, features: Float[Array, "B 28"]
) -> tuple[Float[Array, "B 8"], Float[Array, " B"]]:
    """Draw actions [B, 8] from the squashed Gaussian, with log densities [B]."""
    mean, log_std = jnp.split(actor(features), 2, axis=-1)
    log_std = jnp.clip(log_std, *LOG_STD_RANGE)
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)
    # log(1 - tanh(u)^2), in the form that does not round to log 0 for large u.
    log_squash = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return jnp.tanh(u), (log_normal - log_squash).sum(-1)


def q_values(critics: tuple[Mlp, Mlp], features, actions) -> Float[Array, "2 B"]:
    """Return both critics' values [2, B]."""
    x = jnp.concatenate([features, actions], -1)
    return jnp.stack([critic(x)[:, 0] for critic in critics])


def critic_loss(
    critics, key: PRNGKeyArray, target_critics, actor: Mlp, alpha, batch: Batch, gamma: float
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return the squared error of both critics against the soft target, and metrics."""
    next_actions, log_prob = sample_actions(key, actor, batch.next_features)
    next_q = q_values(target_critics, batch.next_features, next_actions).min(0)
    target = batch.rewards + gamma * batch.alive * (next_q - alpha * log_prob)
    q = q_values(critics, batch.features, batch.actions)
    loss = jnp.square(q - jax.lax.stop_gradient(target)[None]).mean(-1).sum()
    return loss, {"critic/loss": loss, "critic/q": q.mean()}


def actor_loss(
    actor: Mlp, key: PRNGKeyArray, critics, alpha, features: Float[Array, "B 28"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return the soft policy loss, and metrics with the entropy estimate."""
    actions, log_prob = sample_actions(key, actor, features)
    loss = (alpha * log_prob - q_values(critics, features, actions).min(0)).mean()
    return loss, {"actor/loss": loss, "actor/entropy": -log_prob.mean()}


def temperature_loss(log_alpha, entropy, target_entropy: float) -> Float[Array, ""]:
    """Return a loss that raises alpha while the entropy is below its target."""
    return log_alpha * jax.lax.stop_gradient(entropy - target_entropy)


class SACState(eqx.Module):
    """All that training changes; ``expert`` is the running mean of ``actor``."""

    actor: Mlp
    critics: tuple[Mlp, Mlp]
    target_critics: tuple[Mlp, Mlp]
    expert: Mlp
    log_alpha: Float[Array, ""]
    opt_state: optax.OptState


@partial(jax.jit, static_argnums=1)
def init_sac(key: PRNGKeyArray, config: SACConfig) -> SACState:
    """Return fresh networks, with targets equal to the critics."""
    actor_key, key_1, key_2 = jax.random.split(key, 3)
    hidden = (config.width, config.width)
    actor = Mlp((FEATURE_DIM, *hidden, 2 * ACTION_DIM), last_scale=0.01, key=actor_key)
    sizes = (FEATURE_DIM + ACTION_DIM, *hidden, 1)
    critics = (Mlp(sizes, key=key_1), Mlp(sizes, key=key_2))
    log_alpha = jnp.asarray(math.log(config.initial_temperature), jnp.float32)
    params: Any = (actor, critics, log_alpha)
    opt_state = optax.scale_by_adam().init(params)
    # Copies, because the training step donates its state and may not see a buffer twice.
    copy = partial(jax.tree.map, jnp.copy)
    return SACState(actor, critics, copy(critics), copy(actor), log_alpha, opt_state)


def _follow(slow, fast, rate: float):
    return jax.tree.map(lambda s, f: s + rate * (f - s), slow, fast)


def sac_step(
    state: SACState, batch: Batch, key: PRNGKeyArray, learning_rate, config: SACConfig
) -> tuple[SACState, dict[str, Array]]:
    """Update critics, actor and temperature once; all gradients are taken at the old state."""
    critic_key, actor_key = jax.random.split(key)
    alpha = jnp.exp(state.log_alpha)
    critic_grad, critic_info = jax.grad(critic_loss, has_aux=True)(
        state.critics, critic_key, state.target_critics, state.actor, alpha, batch, config.gamma
    )
    actor_grad, actor_info = jax.grad(actor_loss, has_aux=True)(
        state.actor, actor_key, state.critics, alpha, batch.features
    )
    alpha_grad = jax.grad(temperature_loss)(
        state.log_alpha, actor_info["actor/entropy"], config.target_entropy
    )
    params = (state.actor, state.critics, state.log_alpha)
    grads: Any = (actor_grad, critic_grad, alpha_grad)
    # Optax raises a float to an integer count, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        steps, opt_state = optax.scale_by_adam().update(grads, state.opt_state)
    params = jax.tree.map(lambda p, s: p - learning_rate * s, params, steps)
    actor, critics, log_alpha = params
    target_critics = _follow(state.target_critics, critics, config.tau)
    expert = _follow(state.expert, actor, config.ema)
    info = {**critic_info, **actor_info, "alpha": alpha}
    return SACState(actor, critics, target_critics, expert, log_alpha, opt_state), info


@partial(jax.jit, static_argnums=4, donate_argnums=0)
def sac_steps(
    state: SACState, batches: Batch, key: PRNGKeyArray, learning_rate, config: SACConfig
) -> tuple[SACState, dict[str, Array]]:
    """Run one update per minibatch [U, B, ...]; metrics are means over them."""

    def body(state, inputs):
        batch, key = inputs
        return sac_step(state, batch, key, learning_rate, config)

    keys = jax.random.split(key, batches.rewards.shape[0])
    state, info = jax.lax.scan(body, state, (batches, keys))
    return state, jax.tree.map(jnp.mean, info)


class Replay:
    """The last ``capacity`` transitions, on the host; old ones are overwritten.

    A row is features 28, next features 28, action 8, reward, alive.
    """

    def __init__(self, capacity: int):
        """Allocate room for ``capacity`` transitions."""
        f, a = FEATURE_DIM, ACTION_DIM
        self._rows = np.zeros((capacity, 2 * f + a + 2), np.float32)
        self._splits = (f, 2 * f, 2 * f + a, 2 * f + a + 1)
        self._count = 0
        (index, sign), (action_index, action_sign) = FEATURE_MIRROR, ACTION_MIRROR
        kept = np.array([2 * f + a, 2 * f + a + 1])
        self._mirror = np.concatenate([index, f + index, 2 * f + action_index, kept])
        self._sign = np.concatenate([sign, sign, action_sign, np.ones(2)]).astype(np.float32)

    def add(self, features, next_features, actions, rewards, alive) -> None:
        """Store n transitions."""
        rows = np.column_stack([features, next_features, actions, rewards, alive])
        self._rows[(self._count + np.arange(len(rows))) % len(self._rows)] = rows
        self._count += len(rows)

    def sample(self, rng: np.random.Generator, shape: tuple[int, int]) -> Batch:
        """Draw minibatches [U, B] with replacement; the second half of each is mirrored."""
        rows = self._rows[rng.integers(0, min(self._count, len(self._rows)), shape)]
        half = shape[1] // 2
        rows[:, half:] = rows[:, half:, self._mirror] * self._sign
        parts: list[Any] = np.split(rows, self._splits, axis=-1)
        features, next_features, actions, rewards, alive = parts
        return Batch(features, actions, rewards[..., 0], next_features, alive[..., 0])


def expert_weights(actor: Mlp) -> dict[str, np.ndarray]:
    """Return the arrays ``AntExpert`` takes: those of the action means, in NumPy."""
    weights = {f"w{i}": np.asarray(w) for i, w in enumerate(actor.weights)}
    weights |= {f"b{i}": np.asarray(b) for i, b in enumerate(actor.biases)}
    weights["w2"], weights["b2"] = weights["w2"][:, :ACTION_DIM], weights["b2"][:ACTION_DIM]
    return {name: value.copy() for name, value in weights.items()}


def train_expert(
    config: SACConfig,
    *,
    seed: int,
    minutes: float | None = None,
    env_steps: int | None = None,
    progress: Callable[[dict], None] | None = None,
) -> tuple[dict[str, np.ndarray], list[dict]]:
    """Train a runner and return the weights of its best measurement, with the curve.

    Args:
        config: settings.
        seed: of networks, ants, replay and measurements. Equal seeds give equal experts only
            with ``env_steps``; a budget of minutes stops where the clock says.
        minutes: wall time, measurements and compilation included.
        env_steps: steps over all ants; exactly one of the two budgets is given.
        progress: called with each curve entry as it appears.

    Returns:
        Weights for ``AntExpert`` and ``save_expert``, and the curve: dicts with ``wall_s``,
        ``env_steps``, ``speed`` (m/s), ``falls``, ``flips`` and the losses' metrics. Best is the
        speed less 0.25 m/s for every fall and flip.
    """
    if (minutes is None) == (env_steps is None):
        raise ConfigError("train_expert: give minutes or env_steps, one of them")
    start = time.perf_counter()
    env_seed, replay_seed, eval_seed = np.random.SeedSequence(seed).generate_state(3).tolist()
    init_key, key = jax.random.split(jax.random.key(seed))
    state = init_sac(init_key, config)
    rng = np.random.default_rng(replay_seed)
    ants = AntVector(
        config.num_envs, np.random.default_rng(env_seed), rough_starts=config.rough_starts
    )
    replay = Replay(config.buffer_size)
    act = jax.jit(sample_actions)
    steps, done, info = 0, 0.0, {}
    curve: list[dict] = []
    best_score, best = -math.inf, expert_weights(state.expert)
    while done < 1.0:
        features = ants.features.copy()
        key, act_key, update_key = jax.random.split(key, 3)
        if steps < config.warmup_steps:
            actions = rng.uniform(-1.0, 1.0, (config.num_envs, ACTION_DIM)).astype(np.float32)
        else:
            actions = np.asarray(act(act_key, state.actor, features)[0])
        step = ants.step_canonical(actions)
        rewards = config.reward_scale * step.rewards
        replay.add(features, step.features, actions, rewards, ~step.falls)
        steps += config.num_envs
        if steps > config.warmup_steps:
            batches = replay.sample(rng, (config.updates_per_round, config.batch_size))
            decay = 1.0 - done * (1.0 - config.final_learning_rate / config.learning_rate)
            rate = np.float32(config.learning_rate * decay)
            state, info = sac_steps(state, batches, update_key, rate, config)
        wall = time.perf_counter() - start
        done = steps / env_steps if env_steps else wall / (60.0 * (minutes or 1.0))
        if steps % config.eval_steps < config.num_envs or done >= 1.0:
            weights = expert_weights(state.expert)
            result = measure_expert(AntExpert(weights), seed=eval_seed)
            entry = {"wall_s": round(wall, 1), "env_steps": steps, "speed": result.speed}
            entry |= {"falls": result.falls, "flips": result.flips}
            entry |= {name: float(value) for name, value in info.items()}
            curve.append(entry)
            score = result.speed - 0.25 * (result.falls + result.flips)
            if score > best_score:
                best_score, best = score, weights
            if progress:
                progress(entry)
    return best, curve
