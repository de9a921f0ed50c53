"""The policies that a planner composes, and the model that says where each of them leads.

Any object with ``sample(key, states, actions, z, gamma)`` can stand for the geometric horizon
model, and any with ``sample(key, states, z)`` for the policy: exact samplers in tests, a user's
own.

Shapes: R rows, d state, da action, dz policy-encoding dimensions.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

from typing import Any, Literal, Protocol

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError, PlanError
from jumpyworld.flows import Solver
from jumpyworld.planning.inputs import answer_of, as_limit
from jumpyworld.planning.precedents import Precedents

Precision = Literal["fp32", "bf16"]


class SampleActions(Protocol):
    """A policy: a state and z to an action."""

    def sample(self, key: PRNGKeyArray, states: Array, z: Array) -> Array:
        """Draw one action per row."""
        ...


class SampleSuccessors(Protocol):
    """A geometric horizon model: where pi_z is after a geometric number of steps."""

    def sample(self, key: PRNGKeyArray, states: Array, actions: Any, z: Any, gamma: Any) -> Array:
        """Draw one successor state per row; actions and z None for the behaviour's model."""
        ...


class Repertoire(eqx.Module):
    """Policies {pi_z} and their model, and how a planner asks them.

    Attributes:
        model: the geometric horizon model.
        policy: pi, as it acts.
        chained: pi inside chains, perhaps in a lower precision; None for ``policy`` itself.
        solver: ODE solver while planning; None for the model's own.
        num_steps: ODE steps while planning; None for the model's own.
        action_limit: actions are clipped to [-limit, limit] before they are scored or executed;
            None leaves them alone.
        precedents: jumps that the data know; others are refused. None believes the model.
    """

    model: SampleSuccessors
    policy: SampleActions
    chained: SampleActions | None = None
    solver: Solver | None = eqx.field(static=True, default=None)
    num_steps: int | None = eqx.field(static=True, default=None)
    action_limit: float | None = eqx.field(static=True, default=1.0, converter=as_limit)
    precedents: Precedents | None = None

    def act(
        self, key: PRNGKeyArray, states: Float[Array, "R d"], z: Float[Array, "R dz"]
    ) -> Float[Array, "R da"]:
        """Draw A ~ pi_z(s) for each row."""
        return draw_actions(self.policy, key, states, z, self.action_limit)

    def act_in_chain(
        self, key: PRNGKeyArray, states: Float[Array, "R d"], z: Float[Array, "R dz"]
    ) -> Float[Array, "R da"]:
        """Draw A ~ pi_z(s) for each row of chains that are only imagined."""
        policy = self.policy if self.chained is None else self.chained
        return draw_actions(policy, key, states, z, self.action_limit)

    def jump(
        self,
        key: PRNGKeyArray,
        states: Float[Array, "R d"],
        actions: Float[Array, "R da"] | None,
        z: Float[Array, "R dz"] | None,
        beta: Float[Array, ""],
    ) -> Float[Array, "R d"]:
        """Draw S+ ~ m_beta of pi_z at (s, a) for each row; None, None is the behaviour's model."""
        options: dict[str, Any] = {}
        if self.solver is not None:
            options["solver"] = self.solver
        if self.num_steps is not None:
            options["num_steps"] = self.num_steps
        successors = self._ask_model(key, states, actions, z, beta, **options)
        if self.precedents is None:
            return successors
        return self.precedents.keep(states, successors, beta)

    def _ask_model(self, key: PRNGKeyArray, states: Array, *asked: Any, **options: Any) -> Array:
        """Return what the model answers, in the states' dtype; refuse what is no successor each."""

        def ask() -> Array:
            sample: Any = self.model.sample
            return jnp.asarray(sample(key, states, *asked, **options))

        successors = answer_of("model", self.model, ask)
        if successors.shape != states.shape:
            raise PlanError(
                f"model {type(self.model).__name__}: returned shape {successors.shape} for states "
                f"of shape {states.shape}; must be the same"
            )
        return successors.astype(states.dtype)

    @property
    def evaluations_per_jump(self) -> int:
        """Network evaluations of one sample; 1 for a model that is no ODE."""
        steps: int = self.num_steps or getattr(self.model, "eval_steps", 1)
        solver: str = self.solver or getattr(self.model, "solver", "euler")
        return 2 * steps if solver == "midpoint" else steps


def rounded(model: SampleSuccessors, precision: Precision) -> SampleSuccessors:
    """Return the model with its inner layers in a precision.

    Raises:
        ConfigError: no such precision, or a model without inner layers.
    """
    if precision == "fp32":
        return model
    if precision != "bf16":
        raise ConfigError(f"precision={precision!r}: must be 'fp32' or 'bf16'")
    with_inner_layers: Any = getattr(model, "with_inner_layers", None)
    if with_inner_layers is None:
        raise ConfigError(f"precision='bf16': {type(model).__name__} has no layers to round")
    return with_inner_layers(jnp.bfloat16)


def rounded_policy(policy: SampleActions, precision: Precision) -> SampleActions:
    """Return the policy for use inside chains: rounded, if it can be, where the model is."""
    with_inner_layers: Any = getattr(policy, "with_inner_layers", None)
    if precision == "fp32" or with_inner_layers is None:
        return policy
    return with_inner_layers(jnp.bfloat16)


def draw_actions(
    policy: SampleActions,
    key: PRNGKeyArray,
    states: Float[Array, "R d"],
    z: Float[Array, "R dz"],
    limit: float | None,
) -> Float[Array, "R da"]:
    """Draw one action per row, clipped to the limit.

    Raises:
        PlanError: the policy raised something that is not our own error, or returned another shape
            than one action per row; the message says what.
    """

    def ask() -> Array:
        actions = jnp.asarray(policy.sample(key, states, z))
        return actions if limit is None else jnp.clip(actions, -limit, limit)

    actions = answer_of("policy", policy, ask)
    if actions.ndim != 2 or len(actions) != len(states):
        raise PlanError(
            f"policy {type(policy).__name__}: returned shape {actions.shape} for states of shape "
            f"{states.shape}; must be one action per row, [{len(states)}, da]"
        )
    return actions
