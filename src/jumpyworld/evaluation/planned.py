"""Several planners on the same episodes: what is kept, what is paired, what a result row says.

A finished planner leaves two things in a folder: a row in ``success.jsonl`` and, under
``episodes/``, every episode's outcome. Both carry an id, the hash of all that decides the outcome,
so that the same request is answered from the folder, and a later planner is compared with an
earlier one episode by episode.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jumpyworld.errors import JumpyError, data_error, unwritable
from jumpyworld.evaluation.stats import paired_difference, wilson
from jumpyworld.evaluation.success import Success
from jumpyworld.storage.files import write_json
from jumpyworld.storage.manifest import JSON_LIMIT, parse_json, read_bytes, sha256_json
from jumpyworld.storage.rows import read_rows, replace_rows

ROWS = "success.jsonl"


@dataclass(frozen=True)
class Contender:
    """One planner with everything that decides its outcome.

    Attributes:
        planner: its name.
        who: plain values that say who acts: domain, policy, model and planner settings.
        episodes: plain values that say what it meets: seed, tasks, episodes, max_steps.
    """

    planner: str
    who: dict[str, Any]
    episodes: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """What a row records."""
        return {**self.who, **self.episodes}

    @property
    def id(self) -> str:
        """Hash of it all."""
        return sha256_json([self.planner, self.who, self.episodes])[:16]


@dataclass(frozen=True)
class Outcomes:
    """What came of a contender's episodes.

    Attributes:
        success: bool [tasks, episodes].
        steps: int [tasks, episodes].
    """

    success: np.ndarray
    steps: np.ndarray


class Results:
    """The folder of results."""

    def __init__(self, folder: Path):
        """Read the rows that are there.

        Raises:
            DataError: the folder or its rows cannot be read.
        """
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise data_error(self.folder, "is no folder")
        self.rows = {row.get("id"): row for row in read_rows(self.folder / ROWS)}

    def prepare(self) -> None:
        """Make the folder, so that a disk that refuses says so before the work."""
        try:
            (self.folder / "episodes").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def path(self, contender: Contender) -> Path:
        """Return where a contender's episodes are kept."""
        return self.folder / "episodes" / f"{contender.planner}-{contender.id}.json"

    def finished(self, contender: Contender) -> Outcomes | None:
        """Return a contender's outcomes if both its row and its episodes are there and sound."""
        if contender.id not in self.rows:
            return None
        try:
            return _read(self.path(contender))[1]
        except JumpyError:
            return None

    def write(self, contender: Contender, success: Success, row: dict[str, Any]) -> None:
        """Keep a finished contender; the row comes last and vouches for the episodes."""
        document = {
            "planner": contender.planner,
            "who": contender.who,
            "episodes": contender.episodes,
            "success": success.outcomes.astype(int).tolist(),
            "steps": success.steps.tolist(),
        }
        path = self.path(contender)
        try:
            write_json(path, document)
        except OSError as error:
            raise unwritable(path, error) from error
        self.write_row({**row, "id": contender.id})

    def write_row(self, row: dict[str, Any]) -> None:
        """Add a row, or put it in the place of the one with its id."""
        replace_rows(self.folder / ROWS, [row], ("id",))
        self.rows[row["id"]] = row

    def find(self, wanted: Contender) -> Outcomes | None:
        """Return stored outcomes of the wanted one's episodes, perhaps out of a larger set."""
        for path in sorted((self.folder / "episodes").glob(f"{wanted.planner}-*.json")):
            try:
                document, outcomes = _read(path)
            except JumpyError:
                continue  # damaged or somebody else's; nothing here depends on it
            there, asked = dict(document["episodes"]), dict(wanted.episodes)
            tasks, wanted_tasks = there.pop("tasks"), asked.pop("tasks")
            many, wanted_many = there.pop("episodes"), asked.pop("episodes")
            found = sha256_json([document["planner"], document["who"], there])
            fits = many >= wanted_many and set(wanted_tasks) <= set(tasks)
            if fits and found == sha256_json([wanted.planner, wanted.who, asked]):
                rows = [tasks.index(task) for task in wanted_tasks]
                keep = np.ix_(rows, range(wanted_many))
                return Outcomes(outcomes.success[keep], outcomes.steps[keep])
        return None


def _read(path: Path) -> tuple[dict[str, Any], Outcomes]:
    try:
        document = parse_json(read_bytes(path, JSON_LIMIT), path)
        shape = (len(document["episodes"]["tasks"]), document["episodes"]["episodes"])
        success = np.asarray(document["success"], np.int64)
        steps = np.asarray(document["steps"], np.int64)
        sound = success.shape == steps.shape == shape and set(np.unique(success)) <= {0, 1}
        if not sound or not {"planner", "who"} <= document.keys():
            raise ValueError("outcomes of another shape")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise data_error(path, f"holds no outcomes of episodes ({error})") from error
    return document, Outcomes(success > 0, steps)


def success_fields(success: Success) -> dict[str, Any]:
    """Return what a result row says of outcomes and decisions; what does not apply is left out."""
    facts = asdict(success.decisions)
    plans = facts.pop("plans")
    if not facts["weight_sum"]:  # nothing is planned
        facts = {name: facts[name] for name in ("plan_ms", "batch_ms", "batch")}
    return {
        "tasks": [
            {
                "task": task,
                "episodes": n,
                "successes": k,
                "ci95": _ends(wilson(k, n)),
                # Episode by episode, so that a row can be paired with any other of these episodes.
                "solved": "".join("01"[int(solved)] for solved in outcomes),
            }
            for task, (k, n), outcomes in zip(
                success.task_ids, success.tasks, success.outcomes, strict=True
            )
        ],
        "mean": round(success.mean, 4),
        "ci95": _ends(success.ci95),
        "episode_steps": round(float(success.steps.mean()), 1),
        "decisions": plans,
        **{name: _rounded(value) for name, value in facts.items() if value is not None},
    }


def difference_fields(baseline: str, ours: Outcomes, theirs: Outcomes) -> dict[str, Any]:
    """Return what a row says of the same episodes with the baseline."""
    diff, interval = paired_difference(ours.success, theirs.success)
    return {"baseline": baseline, "diff": round(diff, 4), "diff_ci95": _ends(interval)}


def _ends(interval: tuple[float, float]) -> list[float]:
    return [round(end, 4) for end in interval]


def _rounded(value: float) -> float:
    """Keep four significant digits."""
    return value if isinstance(value, int) else float(f"{value:.4g}")
