"""What stands below the report's tables: every row that no cell of theirs shows."""

import collections
from collections.abc import Sequence

from jumpyworld.experiments import grid, likeness
from jumpyworld.experiments.results import Collected, Row
from jumpyworld.experiments.words import NONE, details, success, table

_MEASURED = (
    "ms", "plan_ms", "samples_per_second", "steps_per_second", "speedup", "ratio", "seconds",
)  # fmt: skip
_SPEED_OF = ("domain", "policy", "batch", "pairs", "reward")


def others(found: Collected) -> str:
    """List cells that no table has, and other settings and recipes of those that one has."""
    shown = {cell for name in grid.TABLES for _, _, cells in grid.rows(name) for cell in cells}
    rest = [each for cell, each in found.success.items() if cell not in shown]
    lines = []
    for each in sorted(
        (*rest, *found.others), key=lambda each: (str(each.cell), str(each.differs))
    ):
        cell = each.cell
        every = f"every {cell.replan_every}" if cell.replan_every else None
        said = [word for word in (cell.objective, cell.proposal, every, cell.maximise) if word]
        data = each.rows[-1].data
        settings = ", ".join((*said, *each.differs))
        words = [cell.domain, cell.policy, cell.planner or "", settings or NONE]
        words += [likeness.training(data) or NONE, success(each)]
        lines.append([*words, *details([each], [""], True)])
    titles = ["domain", "policy", "planner", "settings", "trained", "ours", "n", "sd / se"]
    titles += ["paired gain", "device", "minutes"]
    note = (
        "Cells that no table of the paper has; and of those above, other settings, or policies\n"
        "and models of another recipe (by its hash, or by that of the weights). Settings that are\n"
        "not named are the paper's."
    )
    return f"## Other measurements\n\n{note}\n\n{table(titles, lines)}" if lines else ""


def fidelity(found: Collected) -> str:
    """List all fidelity rows that give figures by discount; others are counted as set aside."""
    lines = []
    for row in found.fidelity:
        data = row.data
        if not data.get("rows"):
            continue
        facts = []
        for each in data["rows"]:
            floor = f"/{each['floor']:.2f}" if each.get("floor") is not None else ""
            facts.append(f"{each['gamma']:g}: {each['emd']:.2f}{floor}")
        words = [str(data.get(k, NONE)) for k in ("domain", "policy", "objective", "pairs", "seed")]
        count = fidelity_count((row,))
        lines.append([*words, ", ".join(facts), count, str(data.get("device", NONE))])
    titles = ["domain", "policy", "objective", "pairs", "seed", "discount: EMD/floor", "n"]
    return f"## All fidelity rows\n\n{table([*titles, 'device'], lines)}" if lines else ""


def fidelity_count(rows: Sequence[Row]) -> str:
    """Return pairs x rollouts x seeds, and samples."""
    data = rows[0].data
    pairs, rollouts = data.get("num_pairs", "?"), data.get("rollouts", "?")
    return f"{pairs}x{rollouts}x{len(rows)}, {data.get('samples', '?')} samples"


def speed(found: Collected) -> str:
    """List all speed rows; plans with their regret, what it is over the first's, and agreement."""
    lines = []
    for row in found.speed:
        data = row.data
        of = ", ".join(str(data[name]) for name in _SPEED_OF if name in data)
        method = str(data.get("method", data.get("variant", NONE)))
        figures = [f"{name} {data[name]}" for name in _MEASURED if name in data]
        words = [str(data.get("what", NONE)), of or NONE, method, _network(data)]
        words.append(str(data.get("rounds", NONE)))
        words += [", ".join(figures) or NONE, _with_interval(data, "regret")]
        words += [_with_interval(data, name) for name in ("regret_over_first", "agreement")]
        lines.append([*words, str(data.get("device", NONE))])
    titles = ["what", "of", "method", "network", "rounds", "measured", "regret"]
    titles += ["regret_over_first", "top-1 agreement"]
    return f"## Speed\n\n{table([*titles, 'device'], lines)}" if lines else ""


def _network(data: dict) -> str:
    """Return a row's network: preset, or a trained one by its hash, and what was changed."""
    name = str(data.get("network", data.get("preset", NONE)))
    mark = str(data["ghm"])[:6] if "ghm" in data else ""
    changes = data.get("changes")
    return " ".join([name, mark, *map(str, changes if isinstance(changes, list) else ())]).strip()


def _with_interval(data: dict, name: str) -> str:
    """Return a number with its ends; older rows have a half width alone."""
    value, reach = data.get(name), data.get(f"{name}_ci95")
    if value is None:
        return NONE
    sign = "+" if name.endswith("over_first") else ""
    if reach is None:
        reach = ""
    elif isinstance(reach, int | float):
        reach = f" +- {reach:.2f}"
    else:
        reach = f" [{reach[0]:{sign}.2f}, {reach[1]:{sign}.2f}]"
    states = f", {data['states']} states" if "states" in data and name == "regret" else ""
    return f"{value:{sign}.2f}{reach}{states}"


def aside(found: Collected) -> str:
    """Count the rows that were set aside, by reason."""
    if not found.aside:
        return ""
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for why, row in found.aside:
        reasons[why].append(row.source)
    lines = []
    for why, sources in sorted(reasons.items()):
        more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
        lines.append([why, str(len(sources)), ", ".join(sources[:3]) + more])
    return f"## Rows set aside\n\n{table(['why', 'rows', 'where'], lines)}"
