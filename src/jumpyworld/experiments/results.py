"""Result rows as cells: what was measured, over seeds, and which rows were left aside.

Rows come from many hands and versions, so nothing about them is taken for granted (``sound``): one
that cannot be understood is set aside with its reason, never an error and never silently dropped.
Rows are pooled as seeds only where all but seeds is the same (``likeness``); of several such groups
the cell has the last with the paper's settings, or else the last, and the others are kept beside
it. Where a recipe and seed was measured twice the last row counts (files in order of their names).
"""

import collections
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumpyworld.domains import registry
from jumpyworld.errors import ConfigError, data_error
from jumpyworld.evaluation.stats import mean_of_tasks
from jumpyworld.experiments import likeness, sound
from jumpyworld.experiments.aggregate import distinct_trials, pooled_half_width, spread
from jumpyworld.experiments.cells import PLANNERS, Cell, canonical_domain
from jumpyworld.storage.rows import read_rows

PAPER_GAMMA, PAPER_PAIRS = 0.995, "random"
_KINDS = {"success": "success", "sweep": "success", "fidelity": "fidelity", "speed": "speed"}
"""Kinds of rows, and what they are read as: of a sweep kept in one file, the rows are successes."""


@dataclass(frozen=True)
class Row:
    """One line of a file.

    Attributes:
        source: file and line number.
        data: the JSON object.
    """

    source: str
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        """What it says it is."""
        return str(self.data.get("kind", "without a kind"))


@dataclass(frozen=True)
class Measured:
    """A cell's success over its seeds.

    Attributes:
        cell: what.
        tasks: (successes, episodes) by task, over all seeds.
        rows: one for each seed.
    """

    cell: Cell
    tasks: dict[int, tuple[int, int]]
    rows: tuple[Row, ...]

    @property
    def mean(self) -> float:
        """Mean over tasks, which count alike."""
        return mean_of_tasks(list(self.tasks.values()))[0]

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % interval over episodes, at these models; an episode that several met is one."""
        trials = {task: self._distinct(task) for task in self.tasks}
        worth = [(k / n * trials[task], trials[task]) for task, (k, n) in self.tasks.items()]
        # Not whole numbers, of which it takes rates and sizes alone.
        return mean_of_tasks(worth)[1]  # pyright: ignore[reportArgumentType]

    def _distinct(self, task: int) -> float:
        """Return of how many independent episodes of a task the pooled ones are worth."""
        rows = [(likeness.episodes(row.data), _tasks(row.data)) for row in self.rows]
        return distinct_trials([(which, tasks[task][1]) for which, tasks in rows if task in tasks])

    @property
    def over_seeds(self) -> tuple[float, float] | None:
        """Standard deviation and standard error of the seeds' means, of two or more."""
        means = [mean_of_tasks(list(_tasks(row.data).values()))[0] for row in self.rows]
        return spread(means)

    @property
    def varying(self) -> str:
        """Which seeds they are."""
        return likeness.varying([row.data for row in self.rows])

    @property
    def differs(self) -> tuple[str, ...]:
        """Settings that are not the paper's, as words."""
        return likeness.differences(self.cell, self.rows[-1].data)

    @property
    def count(self) -> str:
        """Tasks x episodes x seeds, and on how many sets of episodes if that is fewer."""
        episodes = sorted({n for row in self.rows for _, n in _tasks(row.data).values()})
        many = "-".join(map(str, dict.fromkeys((episodes[0], episodes[-1]))))
        sets = len({likeness.episodes(row.data) for row in self.rows})
        met = f", {sets} set{'s' * (sets > 1)} of episodes" if sets < len(self.rows) else ""
        return f"{len(self.tasks)}x{many}x{len(self.rows)}{met}"

    @property
    def paired(self) -> tuple[float, tuple[float, float]] | None:
        """Mean paired difference to zero-shot with its 95 % interval, if every seed has one."""
        found = []
        for row in self.rows:
            diff, ends = row.data.get("diff"), row.data.get("diff_ci95")
            if row.data.get("baseline") != "zero-shot" or diff is None or not ends:
                return None
            found.append((likeness.episodes(row.data), float(diff), [float(end) for end in ends]))
        mean = math.fsum(diff for _, diff, _ in found) / len(found)
        below = pooled_half_width([(which, diff - ends[0]) for which, diff, ends in found])
        above = pooled_half_width([(which, ends[1] - diff) for which, diff, ends in found])
        return mean, (max(-1.0, mean - below), min(1.0, mean + above))


@dataclass(frozen=True)
class Accuracy:
    """A model's EMD at one discount over its seeds.

    Attributes:
        cell: what.
        emd: mean over pairs and seeds.
        ci95: 95 % interval over pairs; None where a row has none.
        floor: truth against truth.
        rows: one for each seed.
    """

    cell: Cell
    emd: float
    ci95: tuple[float, float] | None
    floor: float | None
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Collected:
    """Everything that was read.

    Attributes:
        success: by cell.
        others: of those cells, with other settings or other policies and models.
        accuracy: by cell, at the paper's discount and pairs.
        fidelity: all rows of that kind.
        speed: all rows of that kind.
        aside: (why, row) of every other row.
        files: how many were read.
    """

    success: dict[Cell, Measured]
    others: tuple[Measured, ...]
    accuracy: dict[Cell, Accuracy]
    fidelity: tuple[Row, ...]
    speed: tuple[Row, ...]
    aside: tuple[tuple[str, Row], ...]
    files: int


def read(paths: Sequence[Path]) -> tuple[list[Row], int]:
    """Return all rows of files, and of the ``*.jsonl`` files below folders; and how many files.

    Metrics of training runs are not results and are passed over.

    Raises:
        DataError: a path is not there, holds no such file, or has a line that is no JSON object.
    """
    files: dict[Path, str] = {}
    for path in paths:
        if path.is_dir():
            found = [p for p in sorted(path.rglob("*.jsonl")) if p.name != "metrics.jsonl"]
            if not found:
                raise data_error(path, "holds no result rows (*.jsonl)")
            files |= {file: file.relative_to(path).as_posix() for file in found}
        elif path.exists():
            files[path] = path.name
        else:
            raise data_error(path, "no such file or folder")
    rows = [
        Row(f"{name}:{number}", data)
        for path, name in files.items()
        for number, data in enumerate(read_rows(path), start=1)
    ]
    return rows, len(files)


def collect(rows: Iterable[Row], files: int = 1) -> Collected:
    """Sort rows into cells."""
    kinds: dict[str, list[Row]] = {kind: [] for kind in _KINDS.values()}
    aside: list[tuple[str, Row]] = []
    for row in rows:
        why = _odd(row)
        if why is None:
            kinds[_KINDS[row.kind]].append(row)
        else:
            aside.append((why, row))
    success: dict[Cell, Measured] = {}
    others: list[Measured] = []
    for cell, groups in _by_cell(kinds["success"], _success_cell, aside).items():
        found = [Measured(cell, _pool(group), tuple(group)) for group in groups]
        usual = [each for each in found if not each.differs] or found
        success[cell] = usual[_standing([each.rows for each in usual])]
        others += [each for each in found if each is not success[cell]]
    accuracy: dict[Cell, Accuracy] = {}
    asked = [row for row in kinds["fidelity"] if _is_the_papers(row.data)]
    for cell, groups in _by_cell(asked, _fidelity_cell, aside).items():
        standing = groups.pop(_standing(groups))
        accuracy[cell] = _accuracy(cell, standing)
        why = "fidelity of another recipe or size than the row that its cell shows"
        aside += [(why, row) for group in groups for row in group]
    fidelity, speed = tuple(kinds["fidelity"]), tuple(kinds["speed"])
    return Collected(success, tuple(others), accuracy, fidelity, speed, tuple(aside), files)


def _odd(row: Row) -> str | None:
    """Return why a row cannot be read, or None."""
    known = row.kind in _KINDS
    try:
        sound.check_values(row.data)
        if known:
            sound.check_fields(_KINDS[row.kind], row.data)
    except ValueError as error:
        return f"{row.kind if known else 'some'} row not understood: {error}"
    return None if known else f"unknown kind {row.kind}"


def _by_cell(rows: list[Row], cell_of, aside) -> dict[Cell, list[list[Row]]]:
    """Return per cell the rows of each recipe, one for each seed; repeated ones go aside."""
    cells: dict[Cell, dict[str, dict[str, Row]]] = collections.defaultdict(dict)
    for row in rows:
        try:
            groups = cells[cell_of(row.data)]
        except (ConfigError, KeyError, ValueError) as error:
            aside.append((f"{row.kind} row not understood: {_why(error)}", row))
            continue
        recipe, seed = likeness.recipe(row.data, row.source), likeness.seeds(row.data)
        group = groups[recipe] = groups.pop(recipe, {})  # the last one measured stands last
        if seed in group:
            aside.append(("measured again later", group[seed]))
        group[seed] = row
    return {cell: [_in_order(group) for group in groups.values()] for cell, groups in cells.items()}


def _standing(groups: Sequence[Sequence[Row]]) -> int:
    """Return which group a cell shows: the last, or of checkpoints of its training the latest."""
    names = [likeness.recipe(g[0].data, g[0].source, with_steps=False) for g in groups]
    alike = [i for i, name in enumerate(names) if name == names[-1]]
    return max(alike, key=lambda i: (likeness.trained_steps(groups[i][0].data), i))


def _in_order(group: dict[str, Row]) -> list[Row]:
    return sorted(group.values(), key=lambda row: (str(row.data.get("seed")), row.source))


def _why(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())


def _domain(data: dict[str, Any]) -> str:
    return registry.get(canonical_domain(data["domain"])).alias


def _success_cell(data: dict[str, Any]) -> Cell:
    if data["planner"] not in PLANNERS:
        raise ValueError(f"planner {data['planner']!r}")
    config = data.get("config")
    config = config if isinstance(config, dict) else {}
    policy = str(data["policy"])
    proposal = config.get("proposal")
    if proposal == ("high-level" if policy == "hfbc" else "goal"):
        proposal = "conditional"
    maximise = config.get("objective")
    return Cell.make(
        _domain(data),
        policy,
        data["planner"],
        objective=data.get("objective"),
        proposal=proposal,
        replan_every=config.get("replan_every"),
        maximise=maximise if maximise in ("q", "v") else None,
    )


def _tasks(data: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Return (successes, episodes) by task."""
    return {each["task"]: (each["successes"], each["episodes"]) for each in data["tasks"]}


def _pool(rows: list[Row]) -> dict[int, tuple[int, int]]:
    total: dict[int, tuple[int, int]] = {}
    for row in rows:
        for task, (k, n) in _tasks(row.data).items():
            before = total.get(task, (0, 0))
            total[task] = (before[0] + k, before[1] + n)
    return dict(sorted(total.items()))


def _is_the_papers(data: dict[str, Any]) -> bool:
    """Whether a fidelity row has the paper's kind of pairs and its discount; others are listed."""
    if not data.get("rows"):
        return True  # to be set aside with its reason
    return data.get("pairs") == PAPER_PAIRS and any(
        math.isclose(each["gamma"], PAPER_GAMMA) for each in data["rows"]
    )


def _fidelity_cell(data: dict[str, Any]) -> Cell:
    _at_gamma(data, PAPER_GAMMA)
    return Cell.make(_domain(data), str(data["policy"]), None, objective=data["objective"])


def _at_gamma(data: dict[str, Any], gamma: float) -> tuple[float, float | None, float | None]:
    """Return EMD, half width of its interval and floor; older rows give a half width alone."""
    if not data.get("rows"):
        raise KeyError("rows")
    for each in data["rows"]:
        if math.isclose(each["gamma"], gamma):
            emd, ends = each["emd"], each.get("ci95")
            half = ends[1] - emd if isinstance(ends, list | tuple) else ends
            return emd, half, each.get("floor")
    raise ValueError(f"rows: no discount {gamma}")


def _accuracy(cell: Cell, rows: list[Row]) -> Accuracy:
    facts = [_at_gamma(row.data, PAPER_GAMMA) for row in rows]
    emd = math.fsum(e for e, _, _ in facts) / len(facts)
    halves = [h for _, h, _ in facts if h is not None]
    floors = [f for _, _, f in facts if f is not None]
    ends = None
    if len(halves) == len(facts):
        pairs = [likeness.episodes(row.data) for row in rows]
        half = pooled_half_width(list(zip(pairs, halves, strict=True)))
        ends = (max(0.0, emd - half), emd + half)
    return Accuracy(
        cell, emd, ends, math.fsum(floors) / len(floors) if floors else None, tuple(rows)
    )
