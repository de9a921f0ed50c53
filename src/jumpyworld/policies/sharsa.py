"""SHARSA: HFBC whose subgoals are chosen by a value of the behaviour at the scale of h steps.

A hierarchical baseline of the paper, which acts by itself. Paper: lookahead, discount and steps of
its table (shared with HFBC); the rest is horizon-reduction's, whose flags for cubes cube presets
have, and whose flags for humanoidmaze are the defaults.

    S_n ~ data;  G: 0.2 S_n, 0.5 a later state (uniform), 0.3 any state
    k = steps to W = S_{n+h}, or to G or the trajectory's end where they come sooner
    y = discount^k                    where G is reached (W = G); the bootstrap is masked
        discount^k V(S_{n+k}, G)      elsewhere
    critic   cross-entropy of Q(S_n, W, G) with y              for each of two critics
    value    cross-entropy of V(S_n, G) with Qbar(S_n, W, G)
    levels   flow cloning, see ``hfbc``; the high level's goals are in the future, ``actor_goals``
    act      draw 32 subgoals, keep the one of the largest min Q, act with the low level

Q and V are probabilities, stored as logits.

Deviations: horizon-reduction counts k < h as success, so that a goal exactly h steps away is left
to V(G, G), and a trajectory's end within h steps counts as well, whatever the goal; here it is the
goal alone that counts, for k <= h. Its discount is .999, and its goals are parts of states.

Shapes: B batch, d state, goal and subgoal, da action, E critics.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.data.sampling import DeviceData
from jumpyworld.policies.base import AbstractPolicy, Metrics, rebuild
from jumpyworld.policies.hfbc import (
    HFBCConfig,
    HFBCPolicy,
    draw_batch,
    hierarchy_loss,
    init_policy,
    subgoal_rows,
)
from jumpyworld.policies.networks import (
    Aggregation,
    Ensemble,
    Net,
    aggregate,
    copy,
    descend,
    frozen,
    polyak,
    start_optimiser,
)
from jumpyworld.policies.settings import PolicySpec, Table

NUM_CRITICS = 2


@dataclass(frozen=True)
class SHARSAConfig(HFBCConfig):
    """Settings of SHARSA; see ``HFBCConfig`` for the hierarchy's.

    Attributes:
        actor_trajectory: share of the high level's goals from the row's future, the rest is
            random; horizon-reduction 1 (cube) or 0.5 (puzzle).
        actor_goals: law of those from the future; horizon-reduction ``geometric`` (cube, puzzle)
            or ``uniform`` (humanoidmaze), which mazes take here.
        target_aggregation: of the two critics in the target of V; horizon-reduction ``min`` (cube,
            puzzle) or ``mean`` (humanoidmaze). Subgoals are chosen by the minimum in any case.
        num_subgoals: subgoals drawn per action.
        target_rate: share of the online critic that enters the target each step.
    """

    actor_trajectory: float = 1.0
    actor_goals: Literal["uniform", "geometric"] = "uniform"
    target_aggregation: Aggregation = "mean"
    num_subgoals: int = 32
    target_rate: float = 0.005
    renamed: ClassVar[Mapping[str, tuple[str, ...]]] = {"aggregation": ("target_aggregation",)}

    @classmethod
    def paper_table(cls, domain: str) -> Table:
        """Return the paper's row, which HFBC shares, with horizon-reduction's flags for cubes."""
        table = super().paper_table(domain)
        if not domain.startswith("cube"):
            return table
        cube = {"actor_goals": "geometric", "target_aggregation": "min"}
        return table | {field: (value, (value,)) for field, value in cube.items()}


class SHARSAPolicy(AbstractPolicy):
    """The best of many subgoals, then the low level.

    Attributes:
        hierarchy: both levels.
        critic: logits of Q(s, w, g), E networks.
        num_subgoals: subgoals drawn per action.
    """

    hierarchy: HFBCPolicy
    critic: Ensemble
    num_subgoals: int = eqx.field(static=True)

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.hierarchy.observation_dim

    @property
    def action_dim(self) -> int:
        """Width da of an action."""
        return self.hierarchy.action_dim

    def subgoal(
        self, key: PRNGKeyArray, s: Float[Array, " d"], g: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        """Return the best of ``num_subgoals`` draws of the high level, raw units."""
        keys = jax.random.split(key, self.num_subgoals)
        draws = jax.vmap(self.hierarchy.subgoal, (0, None, None))(keys, s, g)
        units = self.hierarchy.low.normaliser.normalise
        score = jax.vmap(lambda w: jnp.min(self.critic(units(s), units(w), units(g))))
        return draws[jnp.argmax(score(draws))]

    def act(self, key, s, z, temperature):
        """Draw one action; the subgoal is drawn anew each time."""
        high_key, low_key = jax.random.split(key)
        return self.hierarchy.low.act(low_key, s, self.subgoal(high_key, s, z), temperature)

    def with_flow_steps(self, num_steps: int) -> "SHARSAPolicy":
        """Return the policy with its flows solved in so many midpoint steps."""
        return dataclasses.replace(self, hierarchy=self.hierarchy.with_flow_steps(num_steps))


class SHARSANetworks(eqx.Module):
    """What is trained.

    Attributes:
        high: velocity over subgoals.
        low: velocity over actions.
        value: (s, g) to the logit of V.
        critic: (s, w, g) to the logit of Q, E networks.
    """

    high: Net
    low: Net
    value: Net
    critic: Ensemble


class SHARSAState(eqx.Module):
    """All that training changes.

    Attributes:
        step: gradient steps done, int32.
        policy: whose two fields and critic are trained.
        value: V, trained.
        target: moving average of the critic.
        opt_state: the optimiser's.
    """

    step: Int[Array, ""]
    policy: SHARSAPolicy
    value: Net
    target: Ensemble
    opt_state: optax.OptState

    @property
    def networks(self) -> SHARSANetworks:
        """What is trained, in one module."""
        hierarchy = self.policy.hierarchy
        return SHARSANetworks(hierarchy.high, hierarchy.low.field, self.value, self.policy.critic)


class ValueBatch(eqx.Module):
    """Transitions of h steps, in the networks' units.

    Attributes:
        s: states [B, d].
        g: goals [B, d].
        w: states k steps later [B, d].
        steps: k [B].
        reached: whether w is the goal [B].
    """

    s: Float[Array, "B d"]
    g: Float[Array, "B d"]
    w: Float[Array, "B d"]
    steps: Int[Array, " B"]
    reached: Bool[Array, " B"]


def cross_entropy(logit: Float[Array, "..."], target: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the cross-entropy of sigmoid(logit) with a probability; no gradient to the latter."""
    target = jax.lax.stop_gradient(target)
    return jax.nn.softplus(logit) - target * logit


def critic_target(
    steps: Int[Array, ""],
    reached: Bool[Array, ""],
    next_v: Float[Array, ""],
    discount: float,
) -> Float[Array, ""]:
    """Return discount^k where the goal was reached, discount^k V(S_{n+k}, G) elsewhere."""
    future = jnp.where(reached, jnp.ones_like(next_v), next_v)
    return jnp.power(discount, steps.astype(next_v.dtype)) * future


def value_losses(
    networks: SHARSANetworks, target: Ensemble, row: ValueBatch, config: SHARSAConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Return the losses of Q and V on one row; each sees the other without a gradient."""
    next_v = jax.nn.sigmoid(frozen(networks.value)(row.w, row.g)[0])
    y = jax.lax.stop_gradient(critic_target(row.steps, row.reached, next_v, config.discount))
    logits = networks.critic(row.s, row.w, row.g)[:, 0]
    critic_loss = jnp.mean(cross_entropy(logits, jnp.broadcast_to(y, logits.shape)))
    values = jax.nn.sigmoid(frozen(target)(row.s, row.w, row.g)[:, 0])
    q = aggregate(values, config.target_aggregation)
    value_loss = cross_entropy(networks.value(row.s, row.g)[0], q)
    return critic_loss + value_loss, {
        "critic/loss": critic_loss,
        "value/loss": value_loss,
        "critic/target": y,
        "value/target": q,
    }


def draw_value_batch(
    data: DeviceData, key: PRNGKeyArray, index: Int[Array, " B"], config: SHARSAConfig, normalise
) -> ValueBatch:
    """Draw goals for rows [B] and follow the data to them, or h steps towards them.

    Args:
        data: dataset on the device.
        key: randomness.
        index: rows [B].
        config: lookahead and discount.
        normalise: raw units to the networks'.
    """
    mixture = GoalMixture(0.2, 0.0, 0.5, 0.3, config.discount)
    goals = sample_goal_indices(data, key, index, mixture)
    later = subgoal_rows(data, index, goals, config.lookahead)
    return ValueBatch(
        s=normalise(data.observations[index]),
        g=normalise(data.observations[goals]),
        w=normalise(data.observations[later]),
        steps=later - index,
        reached=later == goals,
    )


def actor_mixture(config: SHARSAConfig) -> GoalMixture:
    """Return the law of the high level's goals."""
    share = config.actor_trajectory
    geometric = share if config.actor_goals == "geometric" else 0.0
    return GoalMixture(0.0, geometric, share - geometric, 1.0 - share, config.discount)


def make_policy(key: PRNGKeyArray, config: SHARSAConfig, spec: PolicySpec) -> SHARSAPolicy:
    """Return an untrained policy."""
    hierarchy_key, critic_key = jax.random.split(key)
    inputs = 3 * spec.observation_dim
    critic = Ensemble(
        NUM_CRITICS,
        lambda k: Net(inputs, config.hidden, 1, key=k, layer_norm=config.layer_norm),
        key=critic_key,
    )
    hierarchy = init_policy(hierarchy_key, config, spec)
    return SHARSAPolicy(hierarchy, critic, config.num_subgoals)


def init(key: PRNGKeyArray, config: SHARSAConfig, spec: PolicySpec) -> SHARSAState:
    """Return the state before the first step."""
    policy_key, value_key = jax.random.split(key)
    policy = make_policy(policy_key, config, spec)
    inputs = 2 * spec.observation_dim
    value = Net(inputs, config.hidden, 1, key=value_key, layer_norm=config.layer_norm)
    hierarchy = policy.hierarchy
    networks = SHARSANetworks(hierarchy.high, hierarchy.low.field, value, policy.critic)
    return SHARSAState(
        step=jnp.zeros((), jnp.int32),
        policy=policy,
        value=value,
        target=copy(policy.critic),
        opt_state=start_optimiser(networks, config.rate),
    )


def step(
    state: SHARSAState, data: DeviceData, key: PRNGKeyArray, config: SHARSAConfig
) -> tuple[SHARSAState, Metrics]:
    """Take one gradient step; pure.

    Args:
        state: before the step.
        data: dataset on the device.
        key: randomness of this step.
        config: settings, static.
    """
    batch_key, value_key = jax.random.split(key)
    units = state.policy.hierarchy.low.normaliser.normalise
    index, batch = draw_batch(data, batch_key, config, actor_mixture(config), units)
    value_batch = draw_value_batch(data, value_key, index, config, units)

    def loss_fn(networks: SHARSANetworks) -> tuple[Float[Array, ""], Metrics]:
        each = jax.vmap(lambda row: value_losses(networks, state.target, row, config))
        losses, metrics = each(value_batch)
        actors, actor_metrics = hierarchy_loss(networks.high, networks.low, batch)
        return jnp.mean(losses) + actors, jax.tree.map(jnp.mean, metrics) | actor_metrics

    networks, opt_state, metrics = descend(loss_fn, state.networks, state.opt_state, config.rate)
    policy = eqx.tree_at(
        lambda p: (p.hierarchy.high, p.hierarchy.low.field, p.critic),
        state.policy,
        (networks.high, networks.low, networks.critic),
    )
    target = polyak(state.target, networks.critic, config.target_rate)
    return SHARSAState(state.step + 1, policy, networks.value, target, opt_state), metrics


def inference_model(state: SHARSAState) -> SHARSAPolicy:
    """Return the policy to save and act with."""
    return state.policy


def from_checkpoint(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> SHARSAPolicy:
    """Return the policy that a checkpoint describes; see ``base.rebuild``."""
    return rebuild(SHARSAConfig, make_policy, document, arrays)
