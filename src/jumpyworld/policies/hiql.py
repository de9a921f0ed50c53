"""HIQL: one value function, and two levels of policy weighted by its advantages.

A hierarchical baseline of the paper, which acts by itself. The paper gives no settings; these are
OGBench's, whose notation for goals and targets is followed. h is the lookahead.

    value      V(s, phi(s, g)); reward -1 and bootstrap until s = g, 0 and none there
               expectile loss of r + discount m Vbar(s', g) - V(s, g)
    high level  predicts phi(s, w) of the state w that lies h steps on (or g, if sooner), weighted
                by exp(beta_high (V(w, g) - V(s, g)))
    low level   predicts a from phi(s, s_{n+h}), weighted by exp(beta_low (V(s', w) - V(s, w)))
    act         high level, its output brought to the sphere of phi, then low level

Both levels are Gaussians of unit variance around a mean, so that the negative log likelihood is
half a squared distance plus a constant, which is left out. At temperature 0 both take the mean;
this is how OGBench evaluates, and what ``sample`` does.

Shapes: B batch, d state and goal, da action, r representation, E values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.data.sampling import DeviceData, sample_transitions
from jumpyworld.nn import Normaliser
from jumpyworld.policies.base import AbstractPolicy, Metrics, rebuild
from jumpyworld.policies.hfbc import subgoal_rows
from jumpyworld.policies.networks import (
    Ensemble,
    Net,
    clip_action,
    copy,
    descend,
    frozen,
    polyak,
    start_optimiser,
)
from jumpyworld.policies.settings import PolicyConfig, PolicySpec, Table

NUM_VALUES = 2
# Largest weight of a row; OGBench's.
MAX_WEIGHT = 100.0


@dataclass(frozen=True)
class HIQLConfig(PolicyConfig):
    """Settings of HIQL; see ``PolicyConfig`` for the shared ones.

    Attributes:
        lookahead: steps h to a subgoal; OGBench 25 in mazes and 10 for cubes.
        expectile: of the value loss, in (0, 1); above .5 it leans to the larger values.
        high_alpha: inverse temperature beta_high of the high level's weights.
        low_alpha: inverse temperature beta_low of the low level's weights.
        representation_dim: r.
        target_rate: share of the online value that enters the target each step.
    """

    hidden: tuple[int, ...] = (512, 512, 512)
    batch_size: int = 1024
    lookahead: int = 25
    expectile: float = 0.7
    high_alpha: float = 3.0
    low_alpha: float = 3.0
    representation_dim: int = 10
    target_rate: float = 0.005

    def __post_init__(self):
        super().__post_init__()
        self.require("expectile", 0 < self.expectile < 1, "in (0, 1)")
        self.require("representation_dim", self.representation_dim >= 1, "at least 1")

    @classmethod
    def paper_table(cls, domain: str) -> Table:
        """Return OGBench's values for a domain's alias; the paper has no row for HIQL."""
        lookahead = 10 if domain.startswith("cube") else 25
        discount = 0.995 if domain.endswith("-giant") else 0.99
        return {"lookahead": (lookahead, (lookahead,)), "discount": (discount, (discount,))}


class Value(eqx.Module):
    """V(s, phi(s, g)) and the representation phi that it trains.

    Attributes:
        phi: (s, g) to r numbers, before they are brought to the sphere.
        heads: (s, phi) to a value, E networks.
    """

    phi: Net
    heads: Ensemble

    def represent(self, s: Float[Array, " d"], g: Float[Array, " d"]) -> Float[Array, " r"]:
        """Return phi(s, g)."""
        return to_sphere(self.phi(s, g))

    def __call__(self, s: Float[Array, " d"], g: Float[Array, " d"]) -> Float[Array, " E"]:
        """Return V(s, g) of each head."""
        return self.heads(s, self.represent(s, g))[:, 0]


class HIQLPolicy(AbstractPolicy):
    """High level to a representation, low level to an action.

    Attributes:
        high: (s, g) to the mean of a representation.
        low: (s, representation) to the mean of an action.
        normaliser: units of states and goals.
    """

    high: Net
    low: Net
    normaliser: Normaliser
    default_temperature: ClassVar[float] = 0.0

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.normaliser.offset.shape[-1]

    @property
    def action_dim(self) -> int:
        """Width da of an action."""
        return self.low.outputs

    def act(self, key, s, z, temperature):
        """Draw one action; the means of both levels at temperature 0."""
        high_key, low_key = jax.random.split(key)
        s, z = self.normaliser.normalise(s), self.normaliser.normalise(z)

        def draw(key: PRNGKeyArray, mean: Array) -> Array:
            return mean + temperature * jax.random.normal(key, mean.shape, mean.dtype)

        subgoal = to_sphere(draw(high_key, self.high(s, z)))
        return clip_action(draw(low_key, self.low(s, subgoal)))


class HIQLNetworks(eqx.Module):
    """What is trained.

    Attributes:
        value: V and phi.
        high: the high level.
        low: the low level.
    """

    value: Value
    high: Net
    low: Net


class HIQLState(eqx.Module):
    """All that training changes.

    Attributes:
        step: gradient steps done, int32.
        networks: online networks.
        target: moving average of V's heads; phi has none, as in OGBench.
        opt_state: the optimiser's.
        normaliser: units of states and goals; constant.
    """

    step: Int[Array, ""]
    networks: HIQLNetworks
    target: Ensemble
    opt_state: optax.OptState
    normaliser: Normaliser


class HIQLBatch(eqx.Module):
    """One batch in the networks' units.

    Attributes:
        s: states [B, d].
        a: actions [B, da].
        s_next: next states [B, d].
        value_g: goals of the value [B, d].
        reached: whether s is its value goal [B].
        low_g: states h steps on [B, d].
        high_g: goals of the high level [B, d].
        high_w: subgoals on the way to them [B, d].
    """

    s: Float[Array, "B d"]
    a: Float[Array, "B da"]
    s_next: Float[Array, "B d"]
    value_g: Float[Array, "B d"]
    reached: Bool[Array, " B"]
    low_g: Float[Array, "B d"]
    high_g: Float[Array, "B d"]
    high_w: Float[Array, "B d"]


def to_sphere(x: Float[Array, " r"]) -> Float[Array, " r"]:
    """Scale a vector to length sqrt(r)."""
    # Inside the root, where the gradient at zero would otherwise be infinite.
    return x * (x.shape[-1] ** 0.5) * jax.lax.rsqrt(jnp.sum(jnp.square(x)) + 1e-12)


def expectile_loss(
    advantage: Float[Array, "..."], error: Float[Array, "..."], expectile: float
) -> Float[Array, "..."]:
    """Return |expectile - 1{advantage < 0}| error^2."""
    return jnp.where(advantage >= 0, expectile, 1.0 - expectile) * jnp.square(error)


def value_loss(
    value: Value,
    target: Value,
    s: Float[Array, " d"],
    s_next: Float[Array, " d"],
    g: Float[Array, " d"],
    reached: Bool[Array, ""],
    config: HIQLConfig,
) -> Float[Array, ""]:
    """Return the expectile loss of one row, summed over the heads.

    The advantage that chooses the side is the target network's, with the smaller of the next
    values; each head then regresses on its own next value.
    """
    mask = 1.0 - reached.astype(s.dtype)
    next_v = target(s_next, g)
    advantage = -mask + config.discount * mask * jnp.min(next_v) - jnp.mean(target(s, g))
    q = jax.lax.stop_gradient(-mask + config.discount * mask * next_v)
    side = jnp.broadcast_to(jax.lax.stop_gradient(advantage), q.shape)
    return jnp.sum(expectile_loss(side, q - value(s, g), config.expectile))


def weight(advantage: Float[Array, ""], alpha: float) -> Float[Array, ""]:
    """Return min(exp(alpha A), 100); no gradient passes."""
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(alpha * advantage), MAX_WEIGHT))


def weighted_distance(
    weight: Float[Array, ""], mean: Float[Array, " m"], x: Float[Array, " m"]
) -> Float[Array, ""]:
    """Return weight |x - mean|^2 / 2: the weighted likelihood of a unit Gaussian."""
    return 0.5 * weight * jnp.sum(jnp.square(x - mean))


def row_loss(
    networks: HIQLNetworks, target: Ensemble, row: HIQLBatch, config: HIQLConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Return the three losses of one row."""
    value = networks.value
    v_loss = value_loss(
        value,
        frozen(Value(value.phi, target)),
        row.s,
        row.s_next,
        row.value_g,
        row.reached,
        config,
    )
    judge = frozen(value)  # V and phi are trained by the value loss alone

    def v(s: Array, g: Array) -> Array:
        return jnp.mean(judge(s, g))

    low_weight = weight(v(row.s_next, row.low_g) - v(row.s, row.low_g), config.low_alpha)
    low_mean = networks.low(row.s, judge.represent(row.s, row.low_g))
    low_loss = weighted_distance(low_weight, low_mean, row.a)
    high_weight = weight(v(row.high_w, row.high_g) - v(row.s, row.high_g), config.high_alpha)
    high_mean = networks.high(row.s, row.high_g)
    high_loss = weighted_distance(high_weight, high_mean, judge.represent(row.s, row.high_w))
    return v_loss + low_loss + high_loss, {
        "value/loss": v_loss,
        "low/loss": low_loss,
        "high/loss": high_loss,
        "value/mean": v(row.s, row.value_g),
        "low/weight": low_weight,
        "high/weight": high_weight,
    }


def draw_batch(data: DeviceData, key: PRNGKeyArray, config: HIQLConfig, normalise) -> HIQLBatch:
    """Draw a batch. OGBench: value goals 0.2 current, 0.5 geometric, 0.3 random; actor's uniform.

    Args:
        data: dataset on the device.
        key: randomness.
        config: batch size, lookahead and discount.
        normalise: raw units to the networks'.
    """
    row_key, value_key, actor_key = jax.random.split(key, 3)
    rows = sample_transitions(data, row_key, config.batch_size)
    value_mixture = GoalMixture(0.2, 0.5, 0.0, 0.3, config.discount)
    value_rows = sample_goal_indices(data, value_key, rows.index, value_mixture)
    high_rows = sample_goal_indices(
        data, actor_key, rows.index, GoalMixture(0.0, 0.0, 1.0, 0.0, config.discount)
    )
    low_rows = subgoal_rows(data, rows.index, jnp.full_like(high_rows, -1), config.lookahead)
    way_rows = subgoal_rows(data, rows.index, high_rows, config.lookahead)

    def at(index: Array) -> Array:
        return normalise(data.observations[index])

    return HIQLBatch(
        s=at(rows.index),
        a=rows.actions,
        s_next=at(rows.index + 1),
        value_g=at(value_rows),
        reached=value_rows == rows.index,
        low_g=at(low_rows),
        high_g=at(high_rows),
        high_w=at(way_rows),
    )


def init(key: PRNGKeyArray, config: HIQLConfig, spec: PolicySpec) -> HIQLState:
    """Return the state before the first step."""
    keys = jax.random.split(key, 4)
    d, da, r = spec.observation_dim, spec.action_dim, config.representation_dim
    heads = Ensemble(
        NUM_VALUES, lambda k: Net(d + r, config.hidden, 1, key=k, layer_norm=True), key=keys[1]
    )
    networks = HIQLNetworks(
        value=Value(Net(2 * d, config.hidden, r, key=keys[0], layer_norm=True), heads),
        # A hundredth of the usual variance, as OGBench's actors have it.
        high=Net(2 * d, config.hidden, r, key=keys[2], final_gain=0.1),
        low=Net(d + r, config.hidden, da, key=keys[3], final_gain=0.1),
    )
    return HIQLState(
        step=jnp.zeros((), jnp.int32),
        networks=networks,
        target=copy(heads),
        opt_state=start_optimiser(networks, config.rate),
        normaliser=spec.normaliser(config.normalise),
    )


def step(
    state: HIQLState, data: DeviceData, key: PRNGKeyArray, config: HIQLConfig
) -> tuple[HIQLState, Metrics]:
    """Take one gradient step; pure.

    Args:
        state: before the step.
        data: dataset on the device.
        key: randomness of this step.
        config: settings, static.
    """
    batch = draw_batch(data, key, config, state.normaliser.normalise)

    def loss_fn(networks: HIQLNetworks) -> tuple[Float[Array, ""], Metrics]:
        loss, metrics = jax.vmap(lambda row: row_loss(networks, state.target, row, config))(batch)
        return jnp.mean(loss), jax.tree.map(jnp.mean, metrics)

    networks, opt_state, metrics = descend(loss_fn, state.networks, state.opt_state, config.rate)
    target = polyak(state.target, networks.value.heads, config.target_rate)
    return HIQLState(state.step + 1, networks, target, opt_state, state.normaliser), metrics


def inference_model(state: HIQLState) -> HIQLPolicy:
    """Return the policy to save and act with."""
    return HIQLPolicy(state.networks.high, state.networks.low, state.normaliser)


def from_checkpoint(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> HIQLPolicy:
    """Return the policy that a checkpoint describes; see ``base.rebuild``."""
    return rebuild(HIQLConfig, lambda *args: inference_model(init(*args)), document, arrays)
