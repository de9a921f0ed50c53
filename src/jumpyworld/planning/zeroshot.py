"""ZeroShot: no planning; the base policy goes for the goal. What planners are compared with."""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.planning.base import AbstractPlanner
from jumpyworld.planning.inputs import as_limit, check_sampler
from jumpyworld.planning.plan import Memory, Plan
from jumpyworld.planning.repertoire import SampleActions, draw_actions
from jumpyworld.planning.tasks import Task, vector_goal


class ZeroShot(AbstractPlanner):
    """The base policy pi_g, in the shape of a planner.

    Paper: "zero-shot" in the table success.zeroshot.plan.

    Attributes:
        policy: pi.
        action_limit: actions are clipped to [-limit, limit]; None leaves them alone.
    """

    policy: SampleActions
    action_limit: float | None = eqx.field(static=True, default=1.0, converter=as_limit)

    def __check_init__(self):
        check_sampler("policy", self.policy)

    def plan(
        self, key: PRNGKeyArray, state: Float[Array, " d"], task: Task, memory: Memory | None
    ) -> Plan:
        """Return pi_g's action; the sequence is g alone, and nothing is estimated or spent."""
        z = vector_goal(task, "ZeroShot", self.policy)[None]
        return Plan(
            action=draw_actions(self.policy, key, state[None], z, self.action_limit)[0],
            z=z,
            value=jnp.full((), jnp.nan, state.dtype),
            candidate_values=jnp.zeros((0,), state.dtype),
            candidates=jnp.zeros((0, *z.shape), z.dtype),
            chosen=jnp.full((), -1, jnp.int32),
            spent=jnp.zeros((0, 0), jnp.int32),
            evaluations=jnp.zeros(()),
            all_zero=jnp.zeros((), bool),
            invalid=jnp.zeros((), jnp.int32),
            weight_sum=jnp.zeros((), state.dtype),
            memory=None,
        )

    def act_between(
        self, key: PRNGKeyArray, state: Float[Array, " d"], plan: Plan
    ) -> Float[Array, " da"]:
        """Return pi_g's action."""
        return draw_actions(self.policy, key, state[None], plan.z[:1], self.action_limit)[0]
