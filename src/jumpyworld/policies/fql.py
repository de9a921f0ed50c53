"""Flow Q-learning: the policy extraction that CRL, GC-TD3 and GC-1S share.

Paper: Eq. flow-q-learning in the appendix on base policies.

    behaviour  |u(t, X_t, S) - (A - X_0)|^2                a flow that does not see the goal
    teacher    mu_psi(S, X_0)       Euler steps of u from X_0, clipped at the end, no gradient
    student    mu_omega(S, G, X_0)  one evaluation of a network, from the same X_0
    minimise   -Q(S, mu_omega, G) / stop_grad(mean |Q|) + lambda |mu_omega - mu_psi|^2
    act        X_0 ~ N(0, I), the student's action, clipped to [-1, 1]

Deviations: the printed equation has a minus before both terms and swaps the names psi and omega;
the Q term is divided by mean |Q|, because the paper's lambda (0.1 to 3) only fits that form; the
squared distance is averaged over action dimensions, as in every public code whose lambda has that
range (``distill_reduction="sum"`` is the printed norm); Q sees the student's action clipped to
[-1, 1], the distance does not. The law of the actor's trajectory goals is
not stated: geometric, as for the critic.

Shapes: B batch, d state and goal, da action.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.data.sampling import DeviceData
from jumpyworld.nn import Normaliser
from jumpyworld.policies.base import AbstractPolicy, Metrics
from jumpyworld.policies.networks import (
    Aggregation,
    Net,
    clip_action,
    draw_flow,
    flow_map,
    flow_matching_loss,
    frozen,
)
from jumpyworld.policies.settings import PolicyConfig, PolicySpec, Table

Value = Callable[[Array, Array, Array], Float[Array, ""]]
"""(s [d], a [da], g [d]) to Q; its own weights must not be those being trained."""

_LAMBDA = {
    "antmaze": (0.2, (0.1, 0.15, 0.2, 0.3, 0.4)),
    "cube": (1.0, (0.7, 0.8, 0.9, 1.0, 3.0)),
}
_STEPS = {"cube-1": 500_000, "cube-2": 500_000, "cube-3": 1_000_000, "cube-4": 3_000_000}


@dataclass(frozen=True)
class FQLConfig(PolicyConfig):
    """Settings of the extraction; see ``PolicyConfig`` for the shared ones.

    Attributes:
        distill_coefficient: lambda. Paper {0.1 ... 0.4} antmaze, {0.7 ... 3} cube.
        distill_reduction: squared distance as ``mean`` or ``sum`` over action dimensions.
        normalise_q: divide the Q term by mean |Q|.
        bc_goal: give the behaviour flow the goal as well. Paper: no.
        actor_trajectory: share of the actor's goals from the row's future, the rest is random.
            Paper 0.5.
        actor_aggregation: of the two critics, in what the actor climbs. Paper silent; FQL and
            horizon-reduction take the mean here whatever their targets take.
        flow_steps: Euler steps of the teacher.
    """

    distill_coefficient: float = 0.2
    distill_reduction: Literal["mean", "sum"] = "mean"
    normalise_q: bool = True
    bc_goal: bool = False
    actor_trajectory: float = 0.5
    actor_aggregation: Aggregation = "mean"
    flow_steps: int = 10
    renamed: ClassVar[Mapping[str, tuple[str, ...]]] = {"aggregation": ("actor_aggregation",)}

    @classmethod
    def paper_table(cls, domain: str) -> Table:
        """Return the paper's row for a domain's alias."""
        discount = (0.99, (0.99,))
        if domain.endswith("-giant"):
            discount = (0.995, (0.995, 0.997))
        elif domain == "cube-4":
            discount = (0.99, (0.99, 0.995))
        steps = (1_000_000, (1_000_000, 3_000_000))
        if domain in _STEPS:
            steps = (_STEPS[domain], (_STEPS[domain],))
        family = "cube" if domain.startswith("cube") else "antmaze"
        return {
            "distill_coefficient": _LAMBDA[family],
            "discount": discount,
            "gradient_steps": steps,
        }


class Actors(eqx.Module):
    """The two networks of the extraction.

    Attributes:
        behaviour: u, velocity over actions given s (and g with ``bc_goal``).
        student: mu_omega, noise, s and g to an action.
    """

    behaviour: Net
    student: Net

    def __init__(self, config: FQLConfig, spec: PolicySpec, *, key: PRNGKeyArray):
        behaviour_key, student_key = jax.random.split(key)
        d, da = spec.observation_dim, spec.action_dim
        condition = 2 * d if config.bc_goal else d
        self.behaviour = Net(da + 1 + condition, config.hidden, da, key=behaviour_key)
        self.student = Net(da + 2 * d, config.hidden, da, key=student_key)


class OneStepPolicy(AbstractPolicy):
    """Actions by one evaluation of the student.

    Attributes:
        student: noise, s and z to an action.
        normaliser: units of states and goals.
    """

    student: Net
    normaliser: Normaliser

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.normaliser.offset.shape[-1]

    @property
    def action_dim(self) -> int:
        """Width da of an action."""
        return self.student.outputs

    def act(self, key, s, z, temperature):
        """Draw one action; a flow has no temperature."""
        x0 = jax.random.normal(key, (self.action_dim,), self.dtype)
        s, z = self.normaliser.normalise(s), self.normaliser.normalise(z)
        return clip_action(student_action(self.student, s, z, x0))


def student_action(
    student: Net, s: Float[Array, " d"], g: Float[Array, " d"], x0: Float[Array, " da"]
) -> Float[Array, " da"]:
    """Return mu_omega(s, g, x0), not clipped: the distance to the teacher needs the overshoot."""
    return student(x0, s, g)


def teacher_action(
    behaviour: Net, condition: Float[Array, " c"], x0: Float[Array, " da"], num_steps: int
) -> Float[Array, " da"]:
    """Return mu_psi(s, x0) in [-1, 1]; no gradient passes."""
    return jax.lax.stop_gradient(clip_action(flow_map(frozen(behaviour), x0, condition, num_steps)))


def value_term(q: Float[Array, " B"], normalise: bool) -> Float[Array, ""]:
    """Return -mean Q, divided by mean |Q| if asked; the divisor carries no gradient."""
    if not normalise:
        return -jnp.mean(q)
    # A floor, not a summand, so that scaling Q changes nothing at all.
    return -jnp.mean(q) / jax.lax.stop_gradient(jnp.maximum(jnp.mean(jnp.abs(q)), 1e-8))


def distill_term(
    student: Float[Array, "B da"], teacher: Float[Array, "B da"], reduction: str
) -> Float[Array, ""]:
    """Return the batch mean of |mu_omega - mu_psi|^2, summed or averaged over dimensions."""
    square = jnp.square(student - teacher)
    return jnp.mean(square) if reduction == "mean" else jnp.mean(jnp.sum(square, axis=-1))


def extraction_loss(
    actors: Actors,
    value: Value,
    s: Float[Array, "B d"],
    a: Float[Array, "B da"],
    g: Float[Array, "B d"],
    key: PRNGKeyArray,
    config: FQLConfig,
) -> tuple[Float[Array, ""], Metrics]:
    """Return the behaviour loss plus the student's loss; they share no weights.

    Args:
        actors: both networks.
        value: Q with frozen weights.
        s: states in the networks' units [B, d].
        a: actions of the data [B, da].
        g: goals of the actor in the networks' units [B, d].
        key: randomness of noise and times.
        config: settings.
    """
    flow_key, noise_key = jax.random.split(key)
    condition = jnp.concatenate([s, g], axis=-1) if config.bc_goal else s
    x0, t = draw_flow(flow_key, a)
    flow = jax.vmap(flow_matching_loss, (None, 0, 0, 0, 0))
    behaviour = jnp.mean(flow(actors.behaviour, x0, a, t, condition))

    noise = jax.random.normal(noise_key, a.shape, a.dtype)
    teach = jax.vmap(teacher_action, (None, 0, 0, None))
    teacher = teach(actors.behaviour, condition, noise, config.flow_steps)
    student = jax.vmap(student_action, (None, 0, 0, 0))(actors.student, s, g, noise)
    q = jax.vmap(value)(s, clip_action(student), g)
    q_loss = value_term(q, config.normalise_q)
    distill = distill_term(student, teacher, config.distill_reduction)
    actor = q_loss + config.distill_coefficient * distill
    return behaviour + actor, {
        "behaviour/loss": behaviour,
        "actor/loss": actor,
        "actor/distill": distill,
        "actor/q": jnp.mean(q),
        "actor/q_abs": jnp.mean(jnp.abs(q)),
        "actor/saturation": jnp.mean((jnp.abs(student) > 1.0).astype(q.dtype)),
    }


def draw_actor_goals(
    data: DeviceData, key: PRNGKeyArray, index: Int[Array, " B"], config: FQLConfig
) -> Float[Array, "B d"]:
    """Draw the actor's goals, raw units [B, d]. Paper: 0.5 trajectory, 0.5 random."""
    share = config.actor_trajectory
    mixture = GoalMixture(0.0, share, 0.0, 1.0 - share, config.discount)
    return data.observations[sample_goal_indices(data, key, index, mixture)]
