"""The paper's own numbers.

``paper/*.json`` hold the tables as printed, one cell a line, and the relative gains that its text
states; ``paper/schema.json`` says what a table's file may hold. The comparison of planners (GPI,
ActionPlan) exists in the paper only as a figure and two of those gains.

Where the paper contradicts itself the numbers are kept as they are: HFBC's zero-shot on cubes
differs between ``main`` and ``hierarchical``, and cells with ``no_difference`` repeat one value in
both columns. What is called a standard deviation over 3 seeds matches a standard error.
"""

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from jumpyworld.errors import ConfigError
from jumpyworld.experiments.cells import Cell
from jumpyworld.storage import schema

NAMES = (
    "main", "per-task", "hierarchical", "emd", "replan", "objective", "proposal", "consistency",
)  # fmt: skip


@dataclass(frozen=True)
class PaperCell:
    """One number of the paper; fields as in ``Cell``, where the table says them.

    Attributes:
        task: 1 to 5, or None for the mean over tasks.
        mean: success rate or EMD.
        spread: as printed in parentheses; None where the paper has one seed.
        no_difference: printed as showing no significant difference.
    """

    domain: str
    policy: str
    mean: float
    planner: Literal["zero-shot", "compplan"] | None = None
    task: int | None = None
    objective: Literal["td-hc", "td-flow"] | None = None
    proposal: Literal["conditional", "unconditional"] | None = None
    replan_every: int | None = None
    maximise: Literal["q", "v"] | None = None
    spread: float | None = None
    no_difference: bool = False

    @property
    def cell(self) -> Cell:
        """What was measured, with what the table leaves unsaid filled in."""
        names = ("objective", "proposal", "replan_every", "maximise")
        said = {name: getattr(self, name) for name in names}
        return Cell.make(self.domain, self.policy, self.planner, **said)


@dataclass(frozen=True)
class PaperTable:
    """One table.

    Attributes:
        table: our name of it.
        label: in the paper's source.
        metric: ``success`` (higher is better) or ``emd`` (lower is).
        unit: of the numbers.
        cells: in the paper's order.
    """

    table: str
    label: str
    metric: Literal["success", "emd"]
    unit: str
    cells: tuple[PaperCell, ...]

    def find(self, cell: Cell, task: int | None = None) -> PaperCell | None:
        """Return the paper's number for a cell, if it has one."""
        return self._index.get((cell, task))

    @functools.cached_property
    def _index(self) -> dict[tuple[Cell, int | None], PaperCell]:
        return {(each.cell, each.task): each for each in self.cells}


@dataclass(frozen=True)
class Claim:
    """A relative gain that the paper's text states.

    Attributes:
        name: what is compared.
        table: the cells it is about.
        field: of a cell, in which the two sides differ.
        better: value of that field on one side.
        worse: and on the other.
        domains: those averaged over; empty for all seven.
        gain: stated, as a share: 0.89 is 89 %.
    """

    name: str
    table: str
    field: str
    better: str | int
    worse: str | int
    domains: tuple[str, ...]
    gain: float


@functools.cache
def load(name: str) -> PaperTable:
    """Return a table by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in NAMES:
        raise ConfigError(f"table {name!r}: must be one of {', '.join(NAMES)}")
    return schema.from_json(PaperTable, _read(name), name)


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return the gains that the paper's text states."""
    return tuple(schema.from_json(Claim, each, "claims") for each in _read("claims")["claims"])


def _read(name: str) -> Any:
    file = resources.files("jumpyworld.experiments") / "paper" / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))
