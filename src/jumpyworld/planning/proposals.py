"""Where candidate sequences come from.

    GoalProposal(256)              chains the model of pi_g: states on the base policy's own way
    UnconditionalProposal(256)     chains the model of the behaviour that made the data
    HighLevelProposal(hfbc, 32)    chains the high level of a hierarchical policy
    ListProposal(z)                a user's own
    BaseProposal()                 z_k = g for all k: the base policy itself
    BridgeProposal(places, ..)     the data's jumps, given that they arrive (``bridge``)
    TraceProposal(traces, ..)      what moved some cube from here to there (``trace``)
    OneZProposal(proposal)         one z for all segments: selects a policy instead of composing
    FirstProposal(proposal, ..)    the first z of another planner's sequences: GPI beside CompPlan
    MixtureProposal((p, q))        all of these together (these three: ``combined``)

A proposal makes a fixed number of candidates, its ``count``, so that shapes are static.

Shapes: M candidates, K segments, d state, dz policy-encoding dimensions.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

import abc
from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError, PlanError, brief
from jumpyworld.planning.estimate import Question, draw_in_turns
from jumpyworld.planning.inputs import TOO_MANY, answer_of, as_floats
from jumpyworld.planning.tasks import optional_floats, vector_goal


class AbstractProposal(eqx.Module):
    """A distribution over sequences z_1..z_K."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number M of candidates."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Draw all candidates for one state."""

    def jumps(self, num_segments: int) -> int:
        """Return how many samples of the model the candidates cost."""
        del num_segments
        return 0


class _AbstractChain(AbstractProposal):
    """Draws z_k from z_{k-1}, beginning at the state; candidates side by side, as many as fit."""

    number: eqx.AbstractVar[int]
    append_goal: eqx.AbstractVar[bool]

    @property
    def count(self) -> int:
        """Number of candidates."""
        return self.number

    def __check_init__(self) -> None:
        check_count(self, self.number)

    @abc.abstractmethod
    def link(
        self, key: PRNGKeyArray, question: Question, places: Float[Array, "M d"], beta: Array
    ) -> Float[Array, "M d"]:
        """Draw z_k for each z_{k-1}."""

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Draw all candidates for one state."""

        def step(places: Array, segment: tuple[PRNGKeyArray, Array]) -> tuple[Array, Array]:
            places = self.link(segment[0], question, places, segment[1])
            return places, places

        def draw(key: PRNGKeyArray, start: Array) -> Array:
            keys = jax.random.split(key, len(question.betas))
            return jnp.swapaxes(jax.lax.scan(step, start, (keys, question.betas))[1], 0, 1)

        start = jnp.broadcast_to(question.state, (self.count, *question.state.shape))
        z = draw_in_turns(draw, key, start, question.max_rows)
        if self.append_goal:
            goal = vector_goal(question.task, type(self).__name__, question.repertoire.policy)
            z = z.at[:, -1].set(jnp.broadcast_to(goal, z[:, -1].shape))
        return z


class GoalProposal(_AbstractChain):
    """Waypoints that the base policy would pass: A ~ pi_g(z_{k-1}), z_k ~ m_{beta_k} of pi_g.

    Paper: algorithm goal-cond-proposal ("Conditional" in the planning table).

    Attributes:
        number: candidates.
        goal: g [dz]; the task's by default.
        append_goal: let the last z be g. The paper does not.
    """

    number: int = eqx.field(static=True)
    goal: Float[Array, " dz"] | None = eqx.field(default=None, converter=optional_floats)
    append_goal: bool = eqx.field(static=True, default=False)

    def link(
        self, key: PRNGKeyArray, question: Question, places: Float[Array, "M d"], beta: Array
    ) -> Float[Array, "M d"]:
        """Draw z_k for each z_{k-1}."""
        act_key, jump_key = jax.random.split(key)
        task = question.task if self.goal is None else question.task.for_goal(self.goal)
        goal = vector_goal(task, "GoalProposal", question.repertoire.policy)
        goals = jnp.broadcast_to(goal, (len(places), *goal.shape))
        actions = question.repertoire.act_in_chain(act_key, places, goals)
        return question.repertoire.jump(jump_key, places, actions, goals, beta)

    def jumps(self, num_segments: int) -> int:
        """Return how many samples of the model the candidates cost."""
        return self.number * num_segments


class UnconditionalProposal(_AbstractChain):
    """States that the data pass, whatever the goal: z_k ~ m_{beta_k} of the behaviour.

    Paper: algorithm uncond-proposal.

    Attributes:
        number: candidates.
        append_goal: let the last z be g. The paper does not.
    """

    number: int = eqx.field(static=True)
    append_goal: bool = eqx.field(static=True, default=False)

    def link(
        self, key: PRNGKeyArray, question: Question, places: Float[Array, "M d"], beta: Array
    ) -> Float[Array, "M d"]:
        """Draw z_k for each z_{k-1}."""
        if not getattr(question.repertoire.model, "mask_action", True):
            raise ConfigError(
                "UnconditionalProposal: mask_action=False; this model's unconditional branch needs "
                "an action, which a planner does not have"
            )
        return question.repertoire.jump(key, places, None, None, beta)

    def jumps(self, num_segments: int) -> int:
        """Return how many samples of the model the candidates cost."""
        return self.number * num_segments


class HighLevelProposal(_AbstractChain):
    """Subgoals of a hierarchical policy: z_k ~ high level at (z_{k-1}, g), one lookahead apart.

    Paper: section on base policies allows a high-level policy as the proposal distribution.

    Attributes:
        policy: with ``propose(key, states, goals)``, such as HFBC.
        number: candidates.
        append_goal: let the last z be g.
    """

    policy: Any
    number: int = eqx.field(static=True)
    append_goal: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if not hasattr(self.policy, "propose"):
            raise ConfigError(
                f"HighLevelProposal: {type(self.policy).__name__} has no high level (propose)"
            )

    def link(
        self, key: PRNGKeyArray, question: Question, places: Float[Array, "M d"], beta: Array
    ) -> Float[Array, "M d"]:
        """Draw z_k for each z_{k-1}."""
        goal = vector_goal(question.task, "HighLevelProposal", self.policy)
        goals = jnp.broadcast_to(goal, places.shape)

        def ask() -> Array:
            return jnp.asarray(self.policy.propose(key, places, goals))

        z = answer_of("policy", self.policy, ask)
        if z.shape != places.shape:
            raise PlanError(
                f"policy {type(self.policy).__name__}: proposed shape {z.shape} for states of "
                f"shape {places.shape}; must be the same"
            )
        return z


class ListProposal(AbstractProposal):
    """A user's own candidates, each taken once.

    Attributes:
        z: sequences [M, K, dz].
    """

    z: Float[Array, "M K dz"]

    def __init__(self, z: Any, num_segments: int | None = None):
        """Keep the list.

        Args:
            z: sequences [M, K, dz], or single policies [M, dz] with ``num_segments``.
            num_segments: K, over which single policies are repeated.

        Raises:
            ConfigError: the list is empty, of another rank, or not of finite numbers.
        """
        try:
            array = np.asarray(as_floats(z, "ListProposal: z"))
        except PlanError as error:  # here it is a setting, and not a request
            raise ConfigError(str(error)) from error
        if array.ndim == 2 and num_segments is not None:
            array = np.repeat(array[:, None], num_segments, axis=1)
        if array.ndim != 3 or not array.size:
            raise ConfigError(
                f"ListProposal: z has shape {array.shape}; must be [M, K, dz] with M >= 1, or "
                "[M, dz] and num_segments"
            )
        self.z = jnp.asarray(array)

    @property
    def count(self) -> int:
        """Length of the list."""
        return self.z.shape[0]

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Return the list."""
        if self.z.shape[1] != len(question.betas):
            raise ConfigError(
                f"ListProposal: sequences of {self.z.shape[1]} for {len(question.betas)} horizons"
            )
        return self.z


class BaseProposal(AbstractProposal):
    """The base policy's own sequence, z_k = g for all k; several differ in their first action.

    Attributes:
        number: candidates.
    """

    number: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        check_count(self, self.number)

    @property
    def count(self) -> int:
        """Number of candidates."""
        return self.number

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Return g, over and over."""
        goal = vector_goal(question.task, "BaseProposal", question.repertoire.policy)
        return jnp.broadcast_to(goal, (self.number, len(question.betas), *goal.shape))


def draw_candidates(
    proposal: AbstractProposal, key: PRNGKeyArray, question: Question
) -> Float[Array, "M K dz"]:
    """Draw all candidates for one state, and see that they are what the proposal promised.

    Raises:
        PlanError: it raised something that is not our own error, or returned another shape than
            its count and the horizons ask for; the message says what.
    """

    def ask() -> Array:
        z = jnp.asarray(proposal.sample(key, question))
        # A goal that stands beside z has its dtype: whole numbers or 16 bits would round it.
        return z if z.dtype.name in ("float32", "float64") else z.astype(float)

    z = answer_of("proposal", proposal, ask)
    promised = (proposal.count, len(question.betas))
    if z.ndim != 3 or z.shape[:2] != promised:
        raise PlanError(
            f"proposal {type(proposal).__name__}: returned shape {z.shape}; must be [M, K, dz] "
            f"with its count M={promised[0]} and K={promised[1]} horizons"
        )
    return z


def check_count(proposal: AbstractProposal, number: int) -> None:
    """Raise ConfigError unless a proposal is told to make a whole number of candidates."""
    if not (isinstance(number, Integral) and 1 <= number < TOO_MANY):
        who = type(proposal).__name__
        raise ConfigError(f"{who}: number={number}; must be a whole number, at least 1, below 2^31")


def check_proposal(name: str, value: Any) -> None:
    """Raise ConfigError unless a setting is a proposal."""
    if not isinstance(value, AbstractProposal):
        raise ConfigError(f"{name}={brief(value)}: must be a proposal, such as GoalProposal(256)")
