"""Planners by name: one set of settings, from which every planner takes what it knows.

    settings = planner_settings(domain, "gcbc", candidates=64, horizons=(20, 40))
    planner = make_planner("compplan", settings, policy, ghm=model)

Settings that nobody asks for are the paper's (``planning_preset``). They are plain values: what a
result row records, and what two runs are compared by.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from jumpyworld.domains import Domain
from jumpyworld.errors import ConfigError
from jumpyworld.flows import Solver
from jumpyworld.planning import (
    GGPI,
    GPI,
    AbstractPlanner,
    AbstractProposal,
    ActionPlan,
    BridgeProposal,
    CompPlan,
    Elimination,
    FirstProposal,
    GoalProposal,
    HighLevelProposal,
    MixtureProposal,
    OneZProposal,
    Places,
    TraceProposal,
    Traces,
    UnconditionalProposal,
    Uniform,
    ZeroShot,
    fast_search,
    planning_preset,
)
from jumpyworld.planning.bridge import PATIENCE
from jumpyworld.planning.bridge import STRIDE as BRIDGE_STRIDE
from jumpyworld.planning.gpi import gpi_discount
from jumpyworld.planning.gsp import as_discount, discounts_of_horizons
from jumpyworld.planning.trace import STRIDE as TRACE_STRIDE

PlannerName = Literal["zero-shot", "compplan", "gpi", "ggpi", "actionplan"]
COMPOSING: tuple[PlannerName, ...] = ("compplan", "gpi", "ggpi")
"""Planners over policies, with their geometric horizon model."""
PLANNING: tuple[PlannerName, ...] = (*COMPOSING, "actionplan")
"""All but zero-shot."""
STRIDES = {"bridge": BRIDGE_STRIDE, "trace": TRACE_STRIDE}
"""Proposals made of the data, and how much of a segment's horizon each of their steps covers."""
ProposalName = Literal["goal", "unconditional", "high-level", "mixture", "bridge", "trace"]
_OWN: dict[str, tuple[PlannerName, ...]] = {
    "alpha": ("ggpi",),
    "gpi_chain": ("gpi",),
    "action_horizon": ("actionplan",),
    # GGPI's last policy is never left, by definition.
    "tail": ("compplan", "gpi", "actionplan"),
    "world_model": ("actionplan",),
}
_OF_ALL_PLANNING = (
    "discount", "candidates", "solver", "ode_steps", "policy_steps", "precision", "when_all_zero",
    "max_rows", "replan_every", "reward", "ghm_seed",
)  # fmt: skip
_OF_COMPOSING = ("ghm", "precedents", "precedent_share")


def takers(name: str) -> tuple[PlannerName, ...]:
    """Return the planners that something can make a difference to.

    Args:
        name: a field of ``PlannerSettings``, or any other flag of ``jumpy eval``.
    """
    if name in _OWN:
        return _OWN[name]
    if name in _OF_ALL_PLANNING:
        return PLANNING
    composing = name in _OF_COMPOSING or name in PlannerSettings.__dataclass_fields__
    return COMPOSING if composing else ("zero-shot", *PLANNING)


def takes(planner: str, name: str, *, gpi_chain: bool = False, proposal: str | None = None) -> bool:
    """Say whether a planner is among ``takers``; GPI without its chain has but one segment.

    Where candidates are made of the data, GPI's are the first of CompPlan's horizons all the same.
    """
    of_chains = {"horizons", "allow_extrapolation", "tail"}
    of_chains -= {"horizons"} if proposal in STRIDES else set()
    idle = planner == "gpi" and not gpi_chain and name in of_chains
    return planner in takers(name) and not idle


@dataclass(frozen=True)
class PlannerSettings:
    """All that planners can be told; see ``CompPlan`` for most of it.

    Attributes:
        horizons: mean steps of each segment.
        discount: the global one.
        proposal: where candidates come from; ``mixture`` is half goal, half unconditional,
            ``bridge`` the data's jumps between places, given that they get to the goal, ``trace``
            ways of single cubes in the data.
        patience: of ``bridge``.
        stride: of ``bridge`` and ``trace``; None for each one's own.
        refuse: refuse jumps of the model that have no precedent, where places are given.
        candidates: M.
        append_goal: let the last z of a proposed sequence be the goal.
        search: ``uniform`` or ``elimination``.
        samples: chains N of each candidate, for ``uniform``.
        rounds: (count, samples) of each round, for ``elimination``; None for ``fast_search``'s.
        objective: ``q`` or ``v``.
        tail: ``truncate`` or ``absorb``; GGPI always absorbs.
        solver: of the ODE; the model's own by default.
        ode_steps: steps of the ODE; the model's own by default.
        policy_steps: midpoint steps of the policy's flow in chains; None solves it as it acts.
        precision: of inner layers in chains, the model's (or world model's) and the policy's:
            ``fp32`` or ``bf16``.
        include_base: let the base policy's own sequence stand among the candidates.
        warm_start: sequences of the last plan that stand among them.
        margin: by which share another must be better to be chosen.
        when_all_zero: ``base`` or ``candidate``.
        alpha: GGPI's switching probability; None gives its policies the first horizon's length.
        gpi_chain: let GPI follow one policy through all horizons, instead of one jump.
        action_horizon: steps of ActionPlan.
        max_rows: chains alive at once: what bounds memory.
        allow_extrapolation: let horizons exceed what the model was trained for.
    """

    horizons: tuple[float, ...]
    discount: float
    proposal: ProposalName
    candidates: int
    patience: float = PATIENCE
    stride: float | None = None
    refuse: bool = True
    append_goal: bool = False
    search: Literal["uniform", "elimination"] = "uniform"
    samples: int = 256
    rounds: tuple[tuple[int, int], ...] | None = None
    objective: Literal["q", "v"] = "q"
    tail: Literal["truncate", "absorb"] = "truncate"
    solver: Solver | None = None
    ode_steps: int | None = None
    policy_steps: int | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    include_base: bool = False
    warm_start: int = 0
    margin: float = 0.0
    when_all_zero: Literal["base", "candidate"] = "base"
    alpha: float | None = None
    gpi_chain: bool = False
    action_horizon: int = 25
    max_rows: int = 2**16
    allow_extrapolation: bool = False

    def used_by(self, planner: PlannerName, model: Any = None) -> dict[str, Any]:
        """Return the settings that a planner's decisions depend on, as plain values.

        Args:
            planner: which.
            model: what it plans with; GPI does not look beyond what that was trained for.
        """
        values = dataclasses.asdict(self)
        unused = {name for name in values if not takes(planner, name, gpi_chain=self.gpi_chain)}
        unused |= {"allow_extrapolation"}  # what is permitted
        # Of the machine alone, unless candidates have no room at once: turns have other noise.
        standing = self.candidates + self.include_base + 2 * self.warm_start
        unused |= {"max_rows"} if standing <= self.max_rows else set()
        # Results from before there were these settings keep their names.
        unused |= set() if self.append_goal else {"append_goal"}
        unused |= {"policy_steps"} if self.policy_steps is None else set()
        unused |= set() if self.proposal == "bridge" else {"patience"}
        unused |= set() if self.proposal in STRIDES else {"stride"}
        unused |= {"refuse"} if self.refuse else set()
        unused |= {"samples"} if self.search == "elimination" else {"rounds"}
        if planner == "gpi" and not self.gpi_chain:
            # One segment has no tail; the names of results have always said which.
            values["tail"], unused = "truncate", unused - {"tail"}
            values["discount"] = gpi_discount(self.discount, model)
        if planner == "ggpi":
            values["tail"], unused = "absorb", unused - {"tail"}
        if self.proposal in STRIDES and planner in ("gpi", "ggpi"):
            # Their own horizons are others; candidates are those of CompPlan.
            values["proposal_horizons"] = self.horizons
        return {name: value for name, value in values.items() if name not in unused}


def planner_settings(domain: Domain, policy: str, **asked: Any) -> PlannerSettings:
    """Return the paper's settings for a domain and base policy, with what is asked for.

    A hierarchical policy's "conditional" proposals are those of its high level.

    Args:
        domain: where.
        policy: the algorithm's name.
        asked: fields of ``PlannerSettings``; None leaves the default.
    """
    preset = planning_preset(domain.name, policy)
    conditional: ProposalName = "high-level" if policy == "hfbc" else "goal"
    defaults: dict[str, Any] = {
        "horizons": preset.horizons,
        "discount": preset.discount,
        "proposal": conditional if preset.proposal == "conditional" else "unconditional",
        "candidates": preset.candidates,
        "samples": preset.samples,
    }
    changes = {name: value for name, value in asked.items() if value is not None}
    settings = PlannerSettings(**{**defaults, **changes})
    if settings.search == "elimination" and "samples" in changes:
        raise ConfigError(f"samples={settings.samples}: elimination spends by its rounds")
    if settings.proposal in STRIDES and settings.append_goal:
        raise ConfigError(f"append_goal=True: a {settings.proposal} ends at the goal by itself")
    if settings.proposal in STRIDES and settings.stride is None:
        settings = dataclasses.replace(settings, stride=STRIDES[settings.proposal])
    if settings.search == "elimination" and settings.rounds is None:
        rounds = fast_search(settings.candidates).rounds
        return dataclasses.replace(settings, rounds=rounds)
    if settings.search == "uniform" and settings.rounds is not None:
        raise ConfigError(f"rounds={settings.rounds}: only elimination has rounds")
    return settings


def make_planner(
    name: PlannerName,
    settings: PlannerSettings,
    policy: Any,
    *,
    ghm: Any = None,
    world_model: Any = None,
    whole: Any = None,
    places: Places | None = None,
    traces: Traces | None = None,
) -> AbstractPlanner:
    """Return a planner.

    Args:
        name: which.
        settings: of which it takes what it knows.
        policy: pi.
        ghm: the policy's model; compplan, gpi and ggpi need one.
        world_model: a one-step model; actionplan needs one.
        whole: where ``policy`` is the low level of a hierarchy, that hierarchy: it acts by itself,
            proposes subgoals or actions, and acts where there is no plan.
        places: where the data go from where, for compplan, gpi and ggpi: bridges are made of their
            jumps, and jumps of the model without a precedent are refused.
        traces: ways of single cubes, for the proposal of that name.

    Raises:
        ConfigError: a model is missing, or a setting is wrong.
    """
    if name == "zero-shot":
        return ZeroShot(policy if whole is None else whole)
    common: dict[str, Any] = {
        "tail": settings.tail,
        "solver": settings.solver,
        "num_steps": settings.ode_steps,
        "policy_steps": settings.policy_steps,
        "when_all_zero": settings.when_all_zero,
        "max_rows": settings.max_rows,
        "discount": settings.discount,
        "precision": settings.precision,
    }
    if name == "actionplan":
        if world_model is None:
            raise ConfigError("world-model is missing: actionplan plans with one")
        return ActionPlan(
            world_model,
            policy if whole is None else whole,
            action_horizon=settings.action_horizon,
            candidates=settings.candidates,
            **common,
        )
    if ghm is None:
        raise ConfigError(f"ghm is missing: {name} plans with one")
    proposal = _proposal(settings, policy if whole is None else whole, places, traces)
    common |= {
        "base": whole,
        "places": places if settings.refuse else None,
        "search": _search(settings),
        "objective": settings.objective,
        "include_base": settings.include_base,
        "warm_start": settings.warm_start,
        "margin": settings.margin,
        "allow_extrapolation": settings.allow_extrapolation,
    }
    if name == "compplan":
        return CompPlan(ghm, policy, horizons=settings.horizons, proposal=proposal, **common)
    if name == "gpi":
        if settings.gpi_chain:
            chain = OneZProposal(proposal)
            return GPI(ghm, policy, horizons=settings.horizons, proposal=chain, **common)
        if settings.proposal in STRIDES:
            proposal = FirstProposal(proposal, settings.horizons)
        return GPI(ghm, policy, proposal=proposal, **common)
    common["tail"] = "absorb"
    discounts_of_horizons(settings.horizons)  # refuses those that are none
    alpha, segments = _alpha(settings), len(settings.horizons)
    return GGPI(ghm, policy, alpha=alpha, num_segments=segments, proposal=proposal, **common)


def _search(settings: PlannerSettings) -> Uniform | Elimination:
    if settings.search == "uniform":
        return Uniform(settings.samples)
    return Elimination(settings.rounds or fast_search(settings.candidates).rounds)


def _proposal(
    settings: PlannerSettings, policy: Any, places: Places | None, traces: Traces | None
) -> AbstractProposal:
    number, to_goal = settings.candidates, settings.append_goal
    stride = STRIDES.get(settings.proposal, 1.0) if settings.stride is None else settings.stride
    if settings.proposal == "bridge":
        if places is None:
            raise ConfigError("places is missing: bridges are made of the data's jumps")
        # Planners differ in their horizons and meet the same bridges: they differ in judgement.
        chosen = {"patience": settings.patience, "stride": stride}
        return BridgeProposal(places, settings.horizons, number, **chosen)
    if settings.proposal == "trace":
        if traces is None:
            raise ConfigError("traces is missing: they are what is proposed")
        return TraceProposal(traces, settings.horizons, number, stride=stride)
    if settings.proposal == "goal":
        return GoalProposal(number, append_goal=to_goal)
    if settings.proposal == "unconditional":
        return UnconditionalProposal(number, append_goal=to_goal)
    if settings.proposal == "high-level":
        return HighLevelProposal(policy=policy, number=number, append_goal=to_goal)
    if number < 2:
        raise ConfigError(f"candidates={number}: a mixture needs at least 2")
    half = number // 2
    return MixtureProposal(
        (
            GoalProposal(number - half, append_goal=to_goal),
            UnconditionalProposal(half, append_goal=to_goal),
        )
    )


def _alpha(settings: PlannerSettings) -> float:
    """Return GGPI's switching probability: beta = discount (1 - alpha) is the first horizon's."""
    if settings.alpha is not None:
        return settings.alpha
    alpha = 1 - (1 - 1 / settings.horizons[0]) / as_discount(settings.discount)
    if not 0 < alpha < 1:
        raise ConfigError(
            f"horizons: {settings.horizons[0]:g} steps is not below the discount's "
            f"{1 / (1 - settings.discount):g}, of which ggpi makes its alpha; give alpha"
        )
    return alpha
