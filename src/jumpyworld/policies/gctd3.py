"""GC-TD3: a goal-conditioned critic that bootstraps on its own policy, extracted with FQL.

Paper: appendix on base policies, item GC-TD3.

    S, A, S' ~ data;  G: 0.2 S', 0.5 a later state (geometric offset), 0.3 any state
    A' = the student's action at (S', G)
    critic  (Q(S, A, G) - 1{S' = G} - gamma Qbar(S', A', G))^2           for each of two critics
    actor   see ``fql``
    Qbar <- Qbar + target_rate (Q - Qbar)

Equality S' = G is of dataset rows, not of floats. There is no terminal mask, so Q may reach
1 / (1 - gamma). Options that the paper does not use: ``critic_loss="bce"`` (values in [0, 1],
targets clipped to it), ``mask_at_goal`` (no bootstrap once the goal is reached) and
``success_on="current"`` (OGBench's 1{S = G}, with S in place of S' among the goals).
No target policy smoothing: the policy draws fresh noise anyway. Two critics, whose mean is taken
everywhere, are our reading: the paper writes one Q.

``n_step`` lets targets look n rows ahead, m = min(n, rows left in the trajectory):

    sum over k = 1 ... m of gamma^(k-1) 1{S_k = G}  +  gamma^m Qbar(S_m, A_m, G)

With ``mask_at_goal`` a goal on the way, k <= m, ends the sum: the target is gamma^(k-1) and nothing
more. Values spread n times as fast, and with them their slopes in the action. The n - 1 actions on
the way are the behaviour's: right for GC-1S, whose Q is the behaviour's, if that acts by the state
alone (one with an aim of its own that the state does not show keeps to it for n rows, so that an
action tells of the aim, and the fixed point itself moves with n); biased for GC-TD3 (off-policy,
without correction), towards the behaviour and the more so the larger n. For both, goals of a row's
own future are hindsight: the rows on the way are those of a trajectory that did arrive, and n of
them flatter more than one. And n of a trajectory's rows bootstrap on its last state, which is
trained nowhere, where one did.

Three things to know before a short training. Values settle with a time constant of
1 / (target_rate (1 - gamma)) steps, 20,000 with the defaults. A goal d steps away is felt only
after more than d / target_rate gradient steps, 20,000 for d = 100, since each renewal of the target
(1 / target_rate steps) carries values one step further, or n with ``n_step``. And where G = S' the
target rests on Q(S', A', S'), a place that is trained nowhere, so that without the mask values keep
rising towards 1 / (1 - gamma): after 2,000 steps on antmaze-medium one action seemed worth 8 to
26 % of Q, where it can save a step or two, 1 to 2 %. With the mask, ``bce`` and
``target_rate=0.02`` it was .3 to .9 % after 6,000 steps. The defaults are the paper's.

Slopes that point the right way may still be too small. In a corridor with far goals and a bounded
critic they pointed to the goal after 1,500 steps already with ``n_step=1``, but could move the
actor by a fifth of an action and less before the distillation held it
(``tests/policies/test_corridor.py``): far from the goal Q, and so its slope, is tiny beside the
batch's mean |Q|. A smaller lambda helps there, or another ``actor_value``, or ``n_step``.

Shapes: B batch, d state and goal, da action, E critics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.data.sampling import Batch, DeviceData, sample_transitions
from jumpyworld.nn import Normaliser
from jumpyworld.policies.base import Metrics, rebuild
from jumpyworld.policies.fql import (
    Actors,
    FQLConfig,
    OneStepPolicy,
    draw_actor_goals,
    extraction_loss,
    student_action,
)
from jumpyworld.policies.networks import (
    Aggregation,
    Ensemble,
    Net,
    aggregate,
    clip_action,
    copy,
    descend,
    frozen,
    polyak,
    start_optimiser,
)
from jumpyworld.policies.probe import extraction_probe
from jumpyworld.policies.settings import PolicySpec

CriticLoss = Literal["squared", "bce"]
NUM_CRITICS = 2
# Where log Q ends, so that goals which cannot be reached do not outweigh all others: 1,400 steps
# away at discount .99.
LEAST_VALUE = 1e-6


@dataclass(frozen=True)
class GCTD3Config(FQLConfig):
    """Settings of GC-TD3; see ``FQLConfig`` for the extraction's.

    Attributes:
        goal_current: share of the critic's goals that are S'. Paper 0.2.
        goal_trajectory: share from the row's future; the rest is random. Paper 0.5.
        success_on: row that must equal the goal, ``next`` (paper) or ``current`` (OGBench).
        critic_loss: ``squared`` (paper) or ``bce``.
        mask_at_goal: stop bootstrapping at the goal. Paper: no.
        target_rate: share of the online critic that enters the target critic each step.
        target_aggregation: of the two target critics, in the target. Paper silent; FQL takes the
            minimum on antmaze, horizon-reduction the minimum on cubes.
        critic_bias: added to the critics' outputs at the start. Paper silent. With ``bce`` values
            begin at .5 and sink by the discount alone; from -5 they begin near 0 and spread from
            the goal. That helped a short training in a pointmaze and not one in an antmaze.
        n_step: rows that a target looks ahead before it bootstraps, n above. Paper 1.
        actor_value: what the actor climbs: ``q`` (paper), or with ``bce`` alone ``log``, log Q, or
            ``logit``, the critics' raw output log Q / (1 - Q), as in horizon-reduction's gcfql,
            from which ``bce`` comes; both are deviations. Far from the goal they fall by about the
            same amount with every step that an action costs; near it the logit alone stays steep.
            ``actor/q`` and ``actor/q_abs`` tell of what is climbed.
    """

    goal_current: float = 0.2
    goal_trajectory: float = 0.5
    success_on: Literal["next", "current"] = "next"
    critic_loss: CriticLoss = "squared"
    mask_at_goal: bool = False
    target_rate: float = 0.005
    target_aggregation: Aggregation = "mean"
    critic_bias: float = 0.0
    n_step: int = 1
    actor_value: Literal["q", "log", "logit"] = "q"
    renamed: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "aggregation": ("target_aggregation", "actor_aggregation")
    }

    def __post_init__(self):
        super().__post_init__()
        bounded = self.actor_value == "q" or self.critic_loss == "bce"
        self.require("actor_value", bounded, "q, unless critic_loss is bce")
        total = self.goal_current + self.goal_trajectory
        self.require("goal_trajectory", total <= 1, "at most 1 - goal_current")


class TDNetworks(eqx.Module):
    """What is trained.

    Attributes:
        actors: behaviour flow and student.
        critic: E networks (s, a, g) to a value, or to its logit with ``bce``.
    """

    actors: Actors
    critic: Ensemble


class TDState(eqx.Module):
    """All that training changes.

    Attributes:
        step: gradient steps done, int32.
        networks: online networks.
        target: moving average of the critic.
        opt_state: the optimiser's.
        normaliser: units of states and goals; constant.
    """

    step: Int[Array, ""]
    networks: TDNetworks
    target: Ensemble
    opt_state: optax.OptState
    normaliser: Normaliser


def critic_values(
    critic: Ensemble,
    s: Float[Array, " d"],
    a: Float[Array, " da"],
    g: Float[Array, " d"],
    kind: CriticLoss,
) -> Float[Array, " E"]:
    """Return Q(s, a, g) of each critic."""
    out = critic(s, a, g)[:, 0]
    return out if kind == "squared" else jax.nn.sigmoid(out)


def target_value(
    target: Ensemble,
    s: Float[Array, " d"],
    a: Float[Array, " da"],
    g: Float[Array, " d"],
    config: GCTD3Config,
) -> Float[Array, ""]:
    """Return Qbar(s, a, g), the target critics' aggregated value."""
    return aggregate(critic_values(target, s, a, g, config.critic_loss), config.target_aggregation)


def climbed_value(
    critic: Ensemble,
    s: Float[Array, " d"],
    a: Float[Array, " da"],
    g: Float[Array, " d"],
    config: GCTD3Config,
) -> Float[Array, ""]:
    """Return what the actor climbs: Q, log Q from where Q is ``LEAST_VALUE``, or Q's logit."""
    if config.actor_value == "logit":
        return aggregate(critic(s, a, g)[:, 0], config.actor_aggregation)
    q = aggregate(critic_values(critic, s, a, g, config.critic_loss), config.actor_aggregation)
    return q if config.actor_value == "q" else jnp.log(jnp.maximum(q, LEAST_VALUE))


def critic_target(
    wait: Int[Array, ""], span: Int[Array, ""], next_q: Float[Array, ""], config: GCTD3Config
) -> Float[Array, ""]:
    """Return gamma^wait, if the goal is reached on the way, + gamma^span Qbar; no gradient passes.

    With ``n_step=1`` that is 1{S' = G} + gamma Qbar(S', A', G).

    Args:
        wait: rows by which the goal is past the row that the first step reaches (S itself with
            ``success_on="current"``); it is on the way if 0 <= wait < span.
        span: rows from S to S', from 1 to ``n_step``.
        next_q: the target critics' aggregated value at S'.
        config: discount, mask and kind of loss.
    """
    # A table: a computed power need not give gamma^1 to the last bit.
    powers = jnp.asarray(config.discount ** np.arange(config.n_step + 1), next_q.dtype)
    reached = (wait >= 0) & (wait < span)
    reward = jnp.where(reached, powers[jnp.clip(wait, 0, config.n_step)], 0.0)
    carry = jnp.where(reached & config.mask_at_goal, 0.0, powers[span])
    target = reward + carry * next_q
    # A cross-entropy needs a probability; without the mask the sum can exceed one.
    target = jnp.clip(target, 0.0, 1.0) if config.critic_loss == "bce" else target
    return jax.lax.stop_gradient(target)


def critic_error(
    critic: Ensemble,
    s: Float[Array, " d"],
    a: Float[Array, " da"],
    g: Float[Array, " d"],
    target: Float[Array, ""],
    kind: CriticLoss,
) -> Float[Array, ""]:
    """Return the squared error, or the cross-entropy, of one row, averaged over critics."""
    out = critic(s, a, g)[:, 0]
    if kind == "squared":
        return jnp.mean(jnp.square(out - target))
    return jnp.mean(jax.nn.softplus(out) - target * out)


def draw_critic_goals(
    data: DeviceData, key: PRNGKeyArray, index: Int[Array, " B"], config: GCTD3Config
) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
    """Draw rows of goals [B], and by how many rows each is past the one that the step reaches.

    Paper: 0.2 S', 0.5 geometric future, 0.3 random.
    """
    kind_key, goal_key = jax.random.split(key)
    success = index + 1 if config.success_on == "next" else index
    if config.goal_current == 1:
        return success, jnp.zeros_like(index)
    share = min(config.goal_trajectory / (1.0 - config.goal_current), 1.0)
    other = GoalMixture(0.0, share, 0.0, 1.0 - share, config.discount)
    drawn = sample_goal_indices(data, goal_key, index, other)
    here = jax.random.uniform(kind_key, index.shape) < config.goal_current
    goals = jnp.where(here, success, drawn)
    return goals, goals - success


NextActions = Callable[[Actors, Batch, Array, Array, PRNGKeyArray], Float[Array, "B da"]]
"""(actors, batch, s' and goals in the networks' units, key) to the actions A' of the target."""


def own_actions(actors: Actors, batch: Batch, s_next, g, key) -> Float[Array, "B da"]:
    """Return A' ~ pi_G(S'): the student's, with fresh noise, clipped, no gradient."""
    noise = jax.random.normal(key, batch.next_actions.shape, batch.next_actions.dtype)
    act = jax.vmap(student_action, (None, 0, 0, 0))
    return jax.lax.stop_gradient(clip_action(act(frozen(actors.student), s_next, g, noise)))


def init(key: PRNGKeyArray, config: GCTD3Config, spec: PolicySpec) -> TDState:
    """Return the state before the first step."""
    actor_key, critic_key = jax.random.split(key)
    inputs = 2 * spec.observation_dim + spec.action_dim
    critic = Ensemble(
        NUM_CRITICS,
        # FQL normalises the layers of critics and not those of actors.
        lambda k: Net(inputs, config.hidden, 1, key=k, layer_norm=True),
        key=critic_key,
    )
    critic = eqx.tree_at(
        lambda c: c.members.layers[-1].bias, critic, replace_fn=lambda b: b + config.critic_bias
    )
    networks = TDNetworks(Actors(config, spec, key=actor_key), critic)
    return TDState(
        step=jnp.zeros((), jnp.int32),
        networks=networks,
        target=copy(critic),
        opt_state=start_optimiser(networks, config.rate),
        normaliser=spec.normaliser(config.normalise),
    )


def update(
    state: TDState,
    data: DeviceData,
    key: PRNGKeyArray,
    config: GCTD3Config,
    next_actions: NextActions,
) -> tuple[TDState, Metrics]:
    """Take one gradient step on critic and actors, for any source of the target's actions."""
    row_key, critic_key, actor_key, next_key, loss_key = jax.random.split(key, 5)
    batch = sample_transitions(data, row_key, config.batch_size, config.n_step)
    rows, wait = draw_critic_goals(data, critic_key, batch.index, config)
    units = state.normaliser.normalise
    s, s_next = units(batch.observations), units(batch.next_observations)
    g = units(data.observations[rows])
    actor_g = units(draw_actor_goals(data, actor_key, batch.index, config))
    a_next = next_actions(state.networks.actors, batch, s_next, g, next_key)

    def target_of(wait, span, s_next, a_next, g) -> Float[Array, ""]:
        next_q = target_value(state.target, s_next, a_next, g, config)
        return critic_target(wait, span, next_q, config)

    target = jax.vmap(target_of)(wait, batch.next_index - batch.index, s_next, a_next, g)

    def loss_fn(networks: TDNetworks) -> tuple[Float[Array, ""], Metrics]:
        error = jax.vmap(critic_error, (None, 0, 0, 0, 0, None))
        critic = jnp.mean(error(networks.critic, s, batch.actions, g, target, config.critic_loss))
        value = frozen(networks.critic)  # the actor climbs Q and does not change it
        actor, metrics = extraction_loss(
            networks.actors,
            lambda s, a, g: climbed_value(value, s, a, g, config),
            s,
            batch.actions,
            actor_g,
            loss_key,
            config,
        )
        return critic + actor, {"critic/loss": critic, **metrics}

    networks, opt_state, metrics = descend(loss_fn, state.networks, state.opt_state, config.rate)
    metrics |= {"critic/target_mean": jnp.mean(target), "critic/target_max": jnp.max(target)}
    average = polyak(state.target, networks.critic, config.target_rate)
    return TDState(state.step + 1, networks, average, opt_state, state.normaliser), metrics


def step(
    state: TDState, data: DeviceData, key: PRNGKeyArray, config: GCTD3Config
) -> tuple[TDState, Metrics]:
    """Take one gradient step; pure.

    Args:
        state: before the step.
        data: dataset on the device.
        key: randomness of this step.
        config: settings, static.
    """
    return update(state, data, key, config, own_actions)


def probe(state: TDState, data: DeviceData, key: PRNGKeyArray, config: GCTD3Config) -> Metrics:
    """Return whether the critics' slopes agree; see ``probe.extraction_probe``."""
    student, critic = state.networks.actors.student, state.networks.critic
    return extraction_probe(
        student, lambda s, a, g: critic(s, a, g)[:, 0], state.normaliser, data, key, config
    )


def inference_model(state: TDState) -> OneStepPolicy:
    """Return the policy to save and act with: the student."""
    return OneStepPolicy(state.networks.actors.student, state.normaliser)


def from_checkpoint(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> OneStepPolicy:
    """Return the policy that a checkpoint describes; see ``base.rebuild``."""
    return rebuild(GCTD3Config, lambda *args: inference_model(init(*args)), document, arrays)
