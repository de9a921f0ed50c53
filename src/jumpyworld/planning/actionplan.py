"""ActionPlan: plan over primitive actions with a one-step world model.

    a_k ~ pi_g(s_k),  s_{k+1} ~ p(. | s_k, a_k)        M rollouts of n steps
    execute a_1 of the rollout with the largest sum_k gamma^k r(s_{k+1})

Paper: section 4.2, alpha_1 = ... = alpha_n = 1. Then every beta is 0, the weights are
(1 - gamma) gamma^(k-1) and a jump is a step: CompPlan with z_k = g, told apart by actions alone.
The paper gives neither n nor the number of rollouts; its sum begins at gamma^1, a common factor.
"""

from typing import Any

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.planning.compplan import CompPlan
from jumpyworld.planning.inputs import check_sampler, check_size
from jumpyworld.planning.proposals import BaseProposal
from jumpyworld.planning.repertoire import SampleActions
from jumpyworld.planning.search import Search, Uniform


class OneStep(eqx.Module):
    """A one-step world model in the place of a geometric horizon model at gamma = 0.

    Attributes:
        world_model: with ``sample(key, states, actions)``.
    """

    world_model: Any
    gamma_max: float = eqx.field(static=True, default=0.0)

    @property
    def eval_steps(self) -> int:
        """ODE steps of a sample; 1 for a model that is no ODE."""
        return getattr(self.world_model, "eval_steps", 1)

    @property
    def solver(self) -> str:
        """The world model's solver."""
        return getattr(self.world_model, "solver", "euler")

    def with_inner_layers(self, dtype: Any) -> "OneStep":
        """Return this with the inner layers of its world model in a dtype.

        Raises:
            ConfigError: that has none.
        """
        change: Any = getattr(self.world_model, "with_inner_layers", None)
        if change is None:
            name = type(self.world_model).__name__
            raise ConfigError(f"precision='bf16': {name} has no layers to round")
        return OneStep(change(dtype), self.gamma_max)

    def sample(
        self, key: PRNGKeyArray, states: Array, actions: Array, z: Any, gamma: Any, **options: Any
    ) -> Array:
        """Draw next states; which policy acts later and for how long is of no concern."""
        return self.world_model.sample(key, states, actions, **options)


class ActionPlan(CompPlan):
    """Plans over primitive actions; the task must have a goal."""

    @property
    def first_horizon(self) -> float | None:
        """None: z_1 is the goal itself, and no subgoal to be reached after one step."""
        return None

    def __init__(
        self,
        world_model: Any,
        policy: SampleActions,
        *,
        discount: float,
        action_horizon: int = 25,
        candidates: int = 256,
        search: Search | None = None,
        **settings: Any,
    ):
        """Check and keep the settings; all others are CompPlan's.

        Args:
            world_model: anything with ``sample(key, states, actions)``.
            policy: pi, which proposes the actions.
            discount: gamma.
            action_horizon: steps n.
            candidates: rollouts M.
            search: one rollout of each candidate by default; with more they share the first action.
            settings: CompPlan's.
        """
        check_sampler("world_model", world_model)
        check_size("action_horizon", action_horizon, 1)
        check_size("candidates", candidates, 1)
        super().__init__(
            OneStep(world_model),
            policy,
            horizons=(1.0,) * action_horizon,
            discount=discount,
            proposal=BaseProposal(candidates),
            search=Uniform(1) if search is None else search,
            **settings,
        )
