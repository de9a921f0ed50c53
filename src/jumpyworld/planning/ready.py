"""Planners that are ready to use: made of a policy, its model and data, with settings that work.

    planner = bridge_planner(ghm, policy, domain, dataset)

The settings are those that ``jumpy demo`` plans with, and any can be changed. Not in the paper, as
bridges are not.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from jumpyworld.data import Dataset
from jumpyworld.domains import Domain, MazeDomain
from jumpyworld.errors import ConfigError, data_error
from jumpyworld.planning.bridge import PATIENCE, STRIDE, BridgeProposal
from jumpyworld.planning.compplan import CompPlan
from jumpyworld.planning.precedents import GoalFeatures, find_places
from jumpyworld.planning.repertoire import SampleActions, SampleSuccessors
from jumpyworld.planning.search import Elimination, Search

SEGMENTS, HORIZON = 8, 50.0
# Four evaluations of the network a jump; the 20 Euler steps of a model's own take twenty.
_ODE = {"solver": "midpoint", "num_steps": 2}


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
    patience: float = PATIENCE,
    stride: float = STRIDE,
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
        patience: of bridges, the chance to go on after each jump.
        stride: of bridges, the length of a jump as a share of its segment's horizon.
        settings: others of ``CompPlan``; by default a model that is an ODE is solved with two
            midpoint steps, ``when_all_zero`` is ``candidate``, and ``places`` are the data's.

    Raises:
        ConfigError: a setting is wrong; the message names it and its value.
        DataError: the data are not of the domain.
    """
    _check(domain, dataset, settings)
    places = find_places(dataset.observations, dataset.ends, GoalFeatures(domain))
    proposal = BridgeProposal(places, horizons, candidates, patience=patience, stride=stride)
    chosen: dict[str, Any] = {
        "places": places,
        "when_all_zero": "candidate",
        "search": search or Elimination(((candidates, 8), (max(1, candidates // 4), 24))),
        # Whoever brings a model that is no ODE has no solver to choose.
        **(_ODE if hasattr(ghm, "solver") else {}),
    }
    return CompPlan(
        ghm,
        policy,
        horizons=horizons,
        discount=discount,
        proposal=proposal,
        **{**chosen, **settings},
    )


def _check(domain: Domain, dataset: Dataset, settings: dict[str, Any]) -> None:
    """Refuse what no bridges can be made of, and settings that there are not."""
    if not isinstance(domain, MazeDomain):
        raise ConfigError(f"{domain.alias}: is no maze, and bridges are ways through one")
    if dataset.observation_dim != domain.observation_dim:
        raise data_error(
            dataset.source,
            f"states of {dataset.observation_dim} dimensions, not the {domain.observation_dim} of "
            f"{domain.alias}",
        )
    if dataset.domain not in (None, domain.name):
        raise data_error(dataset.source, f"of {dataset.domain}, not {domain.name}")
    known = set(inspect.signature(CompPlan.__init__).parameters) - {"self", "proposal"}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(f"{name}={value!r}: bridge_planner has no such setting")
