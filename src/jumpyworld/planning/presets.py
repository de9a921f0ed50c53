"""The paper's planning settings, as data.

Paper: table of planning hyperparameters. All base policies but HFBC share one row per domain.
Point mazes are not in the paper; theirs are the ant's.
"""

from dataclasses import dataclass
from typing import Literal

from jumpyworld.domains import registry
from jumpyworld.planning.inputs import check_size
from jumpyworld.planning.search import Elimination

ProposalKind = Literal["conditional", "unconditional"]


@dataclass(frozen=True)
class PlanningPreset:
    """One row of the paper's planning table.

    Attributes:
        candidates: M.
        horizons: effective horizons of the segments, in steps.
        proposal: ``conditional`` (on the goal) or ``unconditional``.
        samples: chains N of each candidate.
        replan_every: control steps between plans.
        discount: the global one.
    """

    candidates: int
    horizons: tuple[float, ...]
    proposal: ProposalKind
    samples: int
    replan_every: int
    discount: float


POLICIES = ("crl", "gctd3", "gcbc", "gc1s", "hfbc")
"""The five base policies of the table."""


def _row(policy: str, family: str, cubes: int) -> PlanningPreset:
    if family == "maze":
        if policy == "hfbc":
            return PlanningPreset(32, (25.0,) * 24, "conditional", 128, 1, 0.999)
        horizons = (50.0, 50.0, 100.0, 100.0, 200.0)
        return PlanningPreset(256, horizons, "conditional", 256, 1, 0.999)
    if policy == "hfbc":
        return PlanningPreset(32, (25.0,) * (3 + cubes), "unconditional", 128, 1, 0.99)
    return PlanningPreset(1024, (20.0,) * cubes + (80.0,), "unconditional", 128, 1, 0.99)


PAPER: dict[tuple[str, str], PlanningPreset] = {
    (domain, policy): _row(policy, family, cubes)
    for policy in POLICIES
    for domain, family, cubes in (
        ("antmaze-medium", "maze", 0),
        ("antmaze-large", "maze", 0),
        ("antmaze-giant", "maze", 0),
        ("cube-1", "cube", 1),
        ("cube-2", "cube", 2),
        ("cube-3", "cube", 3),
        ("cube-4", "cube", 4),
    )
}
"""(domain's alias, policy) to the paper's settings."""


def planning_preset(domain: str, policy: str) -> PlanningPreset:
    """Return the paper's settings for a domain and base policy.

    Args:
        domain: name or alias.
        policy: the algorithm's name; one that the paper does not plan with takes the common row.

    Raises:
        ConfigError: no such domain.
    """
    alias = registry.get(domain).alias.replace("pointmaze", "antmaze")
    return PAPER[alias, policy if policy in POLICIES else "gcbc"]


def fast_search(candidates: int) -> Elimination:
    """Return rounds that decide like the paper's uniform search at 5 to 18 times fewer chains.

    Found on synthetic bandits with the paper's 32, 256 and 1024 candidates; the same proportions
    for other numbers.

    Raises:
        ConfigError: that is no number of candidates.
    """
    check_size("candidates", candidates, 1)

    def best(share: int) -> int:
        return max(min(candidates, 2), candidates // share)

    if candidates >= 512:
        rounds = ((candidates, 4), (best(8), 8), (best(32), 32), (best(128), 128))
    elif candidates >= 64:
        rounds = ((candidates, 16), (best(8), 48), (best(64), 192))
    else:
        rounds = ((candidates, 16), (best(8), 64))
    return Elimination(rounds)
