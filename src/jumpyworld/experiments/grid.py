"""The grid: which cells each of the paper's tables has, and how some of them are chosen.

Point mazes are cells of every table too, though the paper has none; they are taken only where a
filter names them, so that a table alone means the paper's.
"""

import fnmatch
from collections.abc import Callable, Sequence

from jumpyworld.errors import ConfigError
from jumpyworld.experiments.cells import (
    BASELINES,
    FIELDS,
    OUR_DOMAINS,
    PAPER_DOMAINS,
    POLICIES,
    Cell,
)

_make = Cell.make


def _main(domain: str, policy: str) -> list[Cell]:
    return [_make(domain, policy, planner) for planner in ("zero-shot", "compplan")]


def _planners(domain: str, policy: str) -> list[Cell]:
    names = ("zero-shot", "actionplan", "gpi", "compplan")
    return [_make(domain, policy, planner) for planner in names]


def _emd(domain: str, policy: str) -> list[Cell]:
    return [_make(domain, policy, None, objective=each) for each in ("td-flow", "td-hc")]


def _replan(domain: str, policy: str) -> list[Cell]:
    return [_make(domain, policy, "compplan", replan_every=every) for every in (1, 5)]


def _objective(domain: str, policy: str) -> list[Cell]:
    return [_make(domain, policy, "compplan", maximise=each) for each in ("q", "v")]


def _proposal(domain: str, policy: str) -> list[Cell]:
    kinds = ("conditional", "unconditional")
    return [_make(domain, policy, "compplan", proposal=kind) for kind in kinds]


def _consistency(domain: str, policy: str) -> list[Cell]:
    return [_make(domain, policy, "compplan", objective=each) for each in ("td-flow", "td-hc")]


def _hierarchical(domain: str, policy: str) -> list[Cell]:
    return [_make(domain, policy, "zero-shot")] if policy in BASELINES else _main(domain, policy)


_COLUMNS: dict[str, Callable[[str, str], list[Cell]]] = {
    "main": _main,
    "per-task": _main,
    "hierarchical": _hierarchical,
    "planners": _planners,
    "emd": _emd,
    "replan": _replan,
    "objective": _objective,
    "proposal": _proposal,
    "consistency": _consistency,
}
TABLES = tuple(_COLUMNS)


def rows(table: str) -> list[tuple[str, str, list[Cell]]]:
    """Return (domain, policy, cells in the order of the columns) of each row, ours last."""
    policies = (*BASELINES, "hfbc") if table == "hierarchical" else POLICIES
    domains = (*PAPER_DOMAINS, *OUR_DOMAINS)
    return [(d, p, _COLUMNS[table](d, p)) for d in domains for p in policies]


def select(tables: Sequence[str] = (), filters: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of some tables that pass every filter, each once, in the tables' order.

    Args:
        tables: names; none means all of them.
        filters: ``field=value`` words. Values are separated by commas and may have ``*``; a field
            that a cell does not have passes no filter.

    Raises:
        ConfigError: an unknown table or field, or a value that no cell of the tables has.
    """
    for name in tables:
        if name not in TABLES:
            raise ConfigError(f"--table {name}: must be one of {', '.join(TABLES)}")
    found = [cell for t in tables or TABLES for _, _, cells in rows(t) for cell in cells]
    found = list(dict.fromkeys(found))
    fields = set()
    for word in filters:
        field, sign, text = word.partition("=")
        if not sign or field not in FIELDS:
            raise ConfigError(f"--cells {word}: must be FIELD=VALUE, FIELD of {', '.join(FIELDS)}")
        known = sorted({str(getattr(cell, field)) for cell in found} - {"None"})
        wanted = set()
        for pattern in text.split(","):
            matches = fnmatch.filter(known, pattern)
            if not matches:
                left = ", ".join(known) or "no cell that has one"
                raise ConfigError(f"--cells {field}={pattern}: no such cell; there is {left}")
            wanted |= set(matches)
        found = [cell for cell in found if str(getattr(cell, field)) in wanted]
        fields.add(field)
    if "domain" not in fields:
        found = [cell for cell in found if cell.domain in PAPER_DOMAINS]
    return found
