"""Planners that are ready to use: made of a policy, its model and data, with settings that work.

    planner = bridge_planner(ghm, policy, domain, dataset)

The settings are the demo's, and any can be changed. Not in the paper, as bridges are not.
"""

from collections.abc import Sequence
from typing import Any

from jumpyworld.data import Dataset
from jumpyworld.domains import Domain
from jumpyworld.planning.bridge import BridgeProposal
from jumpyworld.planning.compplan import CompPlan
from jumpyworld.planning.precedents import GoalFeatures, find_places
from jumpyworld.planning.repertoire import SampleActions, SampleSuccessors
from jumpyworld.planning.search import Elimination, Search

SEGMENTS, HORIZON = 8, 50.0


def bridge_planner(
    ghm: SampleSuccessors,
    policy: SampleActions,
    domain: Domain,
    dataset: Dataset,
    *,
    horizons: Sequence[float] = (HORIZON,) * SEGMENTS,
    discount: float = 0.995,
    candidates: int = 16,
    search: Search | None = None,
    **settings: Any,
) -> CompPlan:
    """Return a planner in a maze whose candidates are ways to the goal that the data know.

    Jumps of the model that the data never made are refused, and where no candidate finds the goal
    the first of them is followed, as it leads there.

    Args:
        ghm: the model.
        policy: pi, whose model it is.
        domain: the maze.
        dataset: logged behaviour in it.
        horizons: mean steps of each segment.
        discount: the global one.
        candidates: sequences that are compared.
        search: by default 8 chains for each, and 24 more for the best quarter.
        settings: others of ``CompPlan``.

    Raises:
        ConfigError: a setting is wrong; the message names it and its value.
    """
    places = find_places(dataset.observations, dataset.ends, GoalFeatures(domain))
    proposal = BridgeProposal(places, horizons, candidates)
    chosen: dict[str, Any] = {
        "places": places,
        "when_all_zero": "candidate",
        "search": search or Elimination(((candidates, 8), (max(1, candidates // 4), 24))),
    }
    return CompPlan(
        ghm,
        policy,
        horizons=horizons,
        discount=discount,
        proposal=proposal,
        **{**chosen, **settings},
    )
