"""GC-BC: goal-conditioned behaviour cloning with flow matching.

Paper: appendix on base policies, item GC-BC.

    S, A ~ data;  G = a later state of the trajectory, offset geometric with the goal discount
    X_0 ~ N(0, I), t ~ U([0, 1]),  X_t = (1 - t) X_0 + t A
    minimise |v(t, X_t, S, G) - (A - X_0)|^2
    act: X_0 ~ N(0, I), Euler steps of v to t = 1, then clip to [-1, 1]

Deviation: the paper prints v(t, S, G), without X_t. Widths, batch size and learning rate are those
of horizon-reduction's flow cloning; the paper gives none.

Shapes: B batch, d state and goal, da action.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.data.relabel import GoalMixture, sample_goal_indices
from jumpyworld.data.sampling import DeviceData, sample_transitions
from jumpyworld.flows import Solver
from jumpyworld.nn import Normaliser
from jumpyworld.policies.base import AbstractPolicy, Metrics, rebuild
from jumpyworld.policies.networks import (
    Net,
    clip_action,
    descend,
    draw_flow,
    flow_map,
    flow_matching_loss,
    start_optimiser,
)
from jumpyworld.policies.settings import PolicyConfig, PolicySpec, Table

# domain -> (our goal discount, the paper's sweep, gradient steps); pointmaze is ours, with
# the widths of the rest.
_PAPER = {
    "antmaze-medium": (0.99, (0.98, 0.99), 125_000),
    "antmaze-large": (0.99, (0.98, 0.99), 125_000),
    "antmaze-giant": (0.995, (0.99, 0.995), 125_000),
    "cube-1": (0.95, (0.95, 0.96), 500_000),
    "cube-2": (0.96, (0.96, 0.97), 1_000_000),
    "cube-3": (0.97, (0.96, 0.97, 0.98), 2_000_000),
    "cube-4": (0.98, (0.96, 0.98, 0.99), 3_000_000),
    "pointmaze-medium": (0.99, (0.98, 0.99), 40_000),
    "pointmaze-large": (0.99, (0.98, 0.99), 40_000),
    "pointmaze-giant": (0.995, (0.99, 0.995), 40_000),
}


@dataclass(frozen=True)
class GCBCConfig(PolicyConfig):
    """Settings of GC-BC; see ``PolicyConfig`` for the shared ones.

    Attributes:
        layer_norm: LayerNorm in the field. Paper silent.
        flow_steps: Euler steps of an action. Paper silent.
    """

    hidden: tuple[int, ...] = (1024, 1024, 1024, 1024)
    batch_size: int = 1024
    gradient_steps: int = 125_000
    layer_norm: bool = True
    flow_steps: int = 10

    @classmethod
    def paper_table(cls, domain: str) -> Table:
        """Return the paper's row for a domain's alias."""
        discount, swept, steps = _PAPER.get(domain, _PAPER["antmaze-medium"])
        return {"discount": (discount, swept), "gradient_steps": (steps, (steps,))}


class GCBCPolicy(AbstractPolicy):
    """Actions drawn by a goal-conditioned flow.

    Attributes:
        field: velocity over actions given (s, z).
        normaliser: units of states and goals.
        flow_steps: steps of the solver.
        solver: Euler, as trained and evaluated.
    """

    field: Net
    normaliser: Normaliser
    flow_steps: int = eqx.field(static=True)
    solver: Solver = eqx.field(static=True, default="euler")

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.normaliser.offset.shape[-1]

    @property
    def action_dim(self) -> int:
        """Width da of an action."""
        return self.field.outputs

    def act(self, key, s, z, temperature):
        """Draw one action; a flow has no temperature."""
        x0 = jax.random.normal(key, (self.action_dim,), self.dtype)
        condition = jnp.concatenate([self.normaliser.normalise(s), self.normaliser.normalise(z)])
        return clip_action(flow_map(self.field, x0, condition, self.flow_steps, self.solver))

    def with_flow_steps(self, num_steps: int) -> "GCBCPolicy":
        """Return the policy with its flow solved in so many midpoint steps."""
        return dataclasses.replace(self, flow_steps=num_steps, solver="midpoint")


class GCBCState(eqx.Module):
    """All that training changes.

    Attributes:
        step: gradient steps done, int32.
        policy: whose ``field`` is trained.
        opt_state: the optimiser's.
    """

    step: Int[Array, ""]
    policy: GCBCPolicy
    opt_state: optax.OptState


def cloning_loss(
    field: Net,
    s: Float[Array, "B d"],
    g: Float[Array, "B d"],
    a: Float[Array, "B da"],
    x0: Float[Array, "B da"],
    t: Float[Array, " B"],
) -> Float[Array, ""]:
    """Return the mean of |v(t, X_t, S, G) - (A - X_0)|^2 over the batch, in the network's units."""
    condition = jnp.concatenate([s, g], axis=-1)
    return jnp.mean(jax.vmap(flow_matching_loss, (None, 0, 0, 0, 0))(field, x0, a, t, condition))


def init(key: PRNGKeyArray, config: GCBCConfig, spec: PolicySpec) -> GCBCState:
    """Return the state before the first step."""
    d, da = spec.observation_dim, spec.action_dim
    field = Net(da + 1 + 2 * d, config.hidden, da, key=key, layer_norm=config.layer_norm)
    policy = GCBCPolicy(field, spec.normaliser(config.normalise), config.flow_steps)
    opt_state = start_optimiser(field, config.rate)
    return GCBCState(jnp.zeros((), jnp.int32), policy, opt_state)


def step(
    state: GCBCState, data: DeviceData, key: PRNGKeyArray, config: GCBCConfig
) -> tuple[GCBCState, Metrics]:
    """Take one gradient step; pure.

    Args:
        state: before the step.
        data: dataset on the device.
        key: randomness of this step.
        config: settings, static.
    """
    row_key, goal_key, flow_key = jax.random.split(key, 3)
    batch = sample_transitions(data, row_key, config.batch_size)
    mixture = GoalMixture(0.0, 1.0, 0.0, 0.0, config.discount)
    goals = data.observations[sample_goal_indices(data, goal_key, batch.index, mixture)]
    s = state.policy.normaliser.normalise(batch.observations)
    g = state.policy.normaliser.normalise(goals)
    x0, t = draw_flow(flow_key, batch.actions)

    def loss_fn(field: Net) -> tuple[Float[Array, ""], Metrics]:
        loss = cloning_loss(field, s, g, batch.actions, x0, t)
        return loss, {"actor/loss": loss}

    field, opt_state, metrics = descend(loss_fn, state.policy.field, state.opt_state, config.rate)
    policy = eqx.tree_at(lambda p: p.field, state.policy, field)
    return GCBCState(state.step + 1, policy, opt_state), metrics


def inference_model(state: GCBCState) -> GCBCPolicy:
    """Return the policy to save and act with."""
    return state.policy


def from_checkpoint(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> GCBCPolicy:
    """Return the policy that a checkpoint describes; see ``base.rebuild``."""
    return rebuild(GCBCConfig, lambda *args: inference_model(init(*args)), document, arrays)
