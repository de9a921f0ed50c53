"""A cell of the grid: one thing to measure, fully said.

The paper's tables leave out what a table does not vary. ``Cell.make`` fills that in with the
paper's defaults, so that the same measurement is the same cell in every table: CompPlan of the main
table is the "1 step" of the replanning table and the "max Q" of the objective table.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from jumpyworld.domains import registry
from jumpyworld.errors import ConfigError
from jumpyworld.planning.presets import planning_preset

PAPER_DOMAINS = (
    "antmaze-medium", "antmaze-large", "antmaze-giant", "cube-1", "cube-2", "cube-3", "cube-4",
)  # fmt: skip
OUR_DOMAINS = ("pointmaze-medium", "pointmaze-large", "pointmaze-giant")
"""Not in the paper; small enough for a processor."""
POLICIES = ("crl", "gc1s", "gcbc", "gctd3", "hfbc")
BASELINES = ("hiql", "sharsa")
PLANNERS = ("zero-shot", "compplan", "gpi", "ggpi", "actionplan")
WITH_MODEL = ("compplan", "gpi", "ggpi")


@dataclass(frozen=True)
class Cell:
    """What is measured; fields that do not apply are None.

    Attributes:
        domain: alias.
        policy: the algorithm's name.
        planner: None where the model itself is measured (EMD).
        objective: loss of the model, ``td-hc`` or ``td-flow``.
        proposal: ``conditional`` or ``unconditional``.
        replan_every: control steps between plans.
        maximise: ``q`` (over first actions too) or ``v``.
    """

    domain: str
    policy: str
    planner: str | None
    objective: str | None = None
    proposal: str | None = None
    replan_every: int | None = None
    maximise: str | None = None

    @classmethod
    def make(cls, domain: str, policy: str, planner: str | None, **said: Any) -> "Cell":
        """Return the cell with everything unsaid as in the paper's main results.

        Args:
            domain: alias.
            policy: the algorithm's name.
            planner: or None for a model's EMD.
            said: fields that are not the default; None counts as unsaid.
        """
        defaults: dict[str, Any] = {}
        if planner is None:
            defaults = {"objective": "td-hc"}
        elif planner in WITH_MODEL:
            proposal = planning_preset(domain, policy).proposal
            defaults = {"objective": "td-hc", "proposal": proposal, "maximise": "q"}
        if planner not in (None, "zero-shot"):
            defaults["replan_every"] = 1
        said = {name: value for name, value in said.items() if value is not None}
        # What a planner does not have cannot tell two of its measurements apart.
        return cls(domain, policy, planner, **{k: said.get(k, v) for k, v in defaults.items()})

    @property
    def slug(self) -> str:
        """A folder's name for the cell within its domain and policy."""
        words = [self.planner or "fidelity", self.objective, self.proposal]
        if self.replan_every is not None:
            words.append(f"every{self.replan_every}")
        if self.maximise is not None:
            words.append(f"max{self.maximise}")
        return "-".join(word for word in words if word)


FIELDS = tuple(field.name for field in dataclasses.fields(Cell))


def canonical_domain(name: Any) -> str:
    """Return a domain's alias; a name that is not registered stays as it is."""
    try:
        return registry.get(str(name)).alias
    except ConfigError:
        return str(name)
