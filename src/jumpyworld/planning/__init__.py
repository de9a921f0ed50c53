"""Planning: compose policies to solve tasks that none of them solves alone.

    planner = CompPlan(ghm, policy, horizons=(50, 50, 100), discount=0.999,
                       proposal=GoalProposal(256), search=Elimination())
    plan = planner(key, state, goal_task(domain, goal))

``gsp`` holds the mathematics of switching policies, ``estimate`` the value of a sequence,
``proposals`` where candidates come from, ``search`` how chains are spent on them.
"""

from jumpyworld.planning.actionplan import ActionPlan, OneStep
from jumpyworld.planning.actor import Actor
from jumpyworld.planning.base import AbstractPlanner, decide
from jumpyworld.planning.bridge import BridgeProposal
from jumpyworld.planning.combined import FirstProposal, MixtureProposal, OneZProposal
from jumpyworld.planning.compplan import CompPlan
from jumpyworld.planning.gpi import GGPI, GPI
from jumpyworld.planning.gsp import (
    discounts_of_horizons,
    effective_discounts,
    gsp_weights,
    sequence_value,
    switching_probabilities,
)
from jumpyworld.planning.plan import Memory, Plan
from jumpyworld.planning.precedents import GoalFeatures, Places, find_places
from jumpyworld.planning.presets import PAPER, PlanningPreset, fast_search, planning_preset
from jumpyworld.planning.proposals import (
    AbstractProposal,
    BaseProposal,
    GoalProposal,
    HighLevelProposal,
    ListProposal,
    UnconditionalProposal,
)
from jumpyworld.planning.ready import bridge_planner
from jumpyworld.planning.search import Elimination, Uniform
from jumpyworld.planning.tasks import RewardName, Task, goal_task
from jumpyworld.planning.trace import TraceProposal, Traces, find_traces
from jumpyworld.planning.zeroshot import ZeroShot

__all__ = [
    "GGPI",
    "GPI",
    "PAPER",
    "AbstractPlanner",
    "AbstractProposal",
    "ActionPlan",
    "Actor",
    "BaseProposal",
    "BridgeProposal",
    "CompPlan",
    "Elimination",
    "FirstProposal",
    "GoalFeatures",
    "GoalProposal",
    "HighLevelProposal",
    "ListProposal",
    "Memory",
    "MixtureProposal",
    "OneStep",
    "OneZProposal",
    "Places",
    "Plan",
    "PlanningPreset",
    "RewardName",
    "Task",
    "TraceProposal",
    "Traces",
    "UnconditionalProposal",
    "Uniform",
    "ZeroShot",
    "bridge_planner",
    "decide",
    "discounts_of_horizons",
    "effective_discounts",
    "fast_search",
    "find_places",
    "find_traces",
    "goal_task",
    "gsp_weights",
    "planning_preset",
    "sequence_value",
    "switching_probabilities",
]
