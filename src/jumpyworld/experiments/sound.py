"""What a result row must be like for the report to read it; whatever is odd is named.

Rows come from many hands and versions. A field may be missing, or null, unless a row says nothing
without it; one that is there must hold what it is read as, so that nothing later trips over it.
"""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from jumpyworld.domains import Domain

LARGEST, DEEPEST = 1e100, 20
"""Beyond these no number and no nesting is a measurement; sums and squares would overflow."""
TASKS = range(1, Domain.num_tasks + 1)
_PLANNER_LISTS = ("horizons", "tasks")
Test = Callable[[Any], bool]


def check_values(data: dict[str, Any]) -> None:
    """Refuse what no row of any kind may hold, at any depth.

    Raises:
        ValueError: which field, and what is wrong with it.
    """
    for where, depth, value in _walk(data):
        if depth > DEEPEST:
            raise ValueError(
                f"{where.replace('[', '.').split('.')[0]}: nested more than {DEEPEST} deep"
            )
        if isinstance(value, str) and not _is_text(value):
            raise ValueError(f"{where}: holds text that is no Unicode")
        if isinstance(value, int | float) and not _is_number(float_of(value)):
            raise ValueError(f"{where}: is {float_of(value)}, not a number below {LARGEST:g}")


def check_fields(kind: str, data: dict[str, Any]) -> None:
    """Refuse fields of another form than the report reads them in.

    Args:
        kind: what the row is read as: ``success``, ``fidelity`` or ``speed``.
        data: the row.

    Raises:
        ValueError: which field, and what it must be.
    """
    _FIELDS[kind](data)


def float_of(value: float) -> float:
    """Return a number as a float; an integer beyond all floats is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _walk(data: dict[str, Any]) -> Iterator[tuple[str, int, Any]]:
    """Yield (name, depth, value) of every key and value; by hand, as a row may be nested deeply."""
    rest: list[tuple[str, int, Any]] = [("", 0, data)]
    while rest:
        where, depth, value = rest.pop()
        yield where, depth, value
        if depth > DEEPEST:
            continue
        if isinstance(value, dict):
            for name, each in value.items():
                path = f"{where}.{name}".removeprefix(".").encode("ascii", "backslashreplace")
                yield path.decode(), depth, name
                rest.append((path.decode(), depth + 1, each))
        elif isinstance(value, list | tuple):
            rest += [(f"{where}[{i}]", depth + 1, each) for i, each in enumerate(value)]


def _success(data: dict[str, Any]) -> None:
    _required(data, "planner", "domain", "policy", "tasks")
    _fields(data, _is_text, "text", "domain", "policy", "planner", "objective", "baseline")
    _fields(data, _is_whole, "a whole number", "seed")
    _fields(data, _is_share, "a number from -1 to 1", "diff")
    _fields(data, _is_ends, "[low, high]", "diff_ci95")
    _fields(data, _is_object, "an object", "config")
    _made_by(data)
    _tasks(data["tasks"])
    config = data.get("config") or {}
    _fields(config, _is_text, "text", "proposal", of="config.")
    _fields(config, _is_count, "a whole number from 1", "replan_every", of="config.")
    _fields(config, _is_flat, "a list of numbers or words", *_PLANNER_LISTS, of="config.")


def _tasks(tasks: Any) -> None:
    if not _is_list(tasks) or not tasks:
        raise ValueError(f"tasks {_shown(tasks)}: must be a list of tasks")
    seen = set()
    for number, each in enumerate(tasks):
        where = f"tasks[{number}]"
        if not isinstance(each, dict):
            raise ValueError(f"{where} {_shown(each)}: must be an object")
        _required(each, "task", "successes", "episodes", of=f"{where}.")
        _fields(each, _is_task, f"one of {list(TASKS)}", "task", of=f"{where}.")
        _fields(each, _is_count, "a whole number from 1", "episodes", of=f"{where}.")
        _fields(each, _is_whole, "a whole number", "successes", of=f"{where}.")
        if each["task"] in seen:
            raise ValueError(f"{where}.task {each['task']}: comes twice")
        if not 0 <= each["successes"] <= each["episodes"]:
            told = f"{each['successes']}: must be 0 to {each['episodes']}, its episodes"
            raise ValueError(f"{where}.successes {told}")
        seen.add(each["task"])


def _fidelity(data: dict[str, Any]) -> None:
    _fields(data, _is_text, "text", "domain", "policy", "objective", "pairs")
    _fields(data, _is_object, "an object", "fingerprints", "config")
    _made_by(data)
    _fields(data, _is_list, "a list", "rows")
    for number, each in enumerate(data.get("rows") or ()):
        where = f"rows[{number}]"
        if not isinstance(each, dict):
            raise ValueError(f"{where} {_shown(each)}: must be an object")
        _required(each, "gamma", "emd", of=f"{where}.")
        _fields(each, _is_number, "a number", "gamma", "emd", "floor", of=f"{where}.")
        _fields(each, _is_interval, "[low, high] or a half width", "ci95", of=f"{where}.")


def _speed(data: dict[str, Any]) -> None:
    for name in ("regret", "regret_over_first", "agreement"):
        _fields(data, _is_number, "a number", name)
        _fields(data, _is_interval, "[low, high] or a half width", f"{name}_ci95")


_FIELDS = {"success": _success, "fidelity": _fidelity, "speed": _speed}


def _made_by(data: dict[str, Any]) -> None:
    _fields(data, _is_object, "an object", "trained")
    for name, each in (data.get("trained") or {}).items():
        _fields({name: each}, _is_object, "an object", name, of="trained.")
        _fields(
            each or {},
            _is_plain,
            "a word or number",
            "recipe",
            "steps",
            "seed",
            of=f"trained.{name}.",
        )


def _required(data: dict[str, Any], *names: str, of: str = "") -> None:
    for name in names:
        if data.get(name) is None:
            raise ValueError(f"{of}{name} is missing")


def _fields(data: dict[str, Any], holds: Test, what: str, *names: str, of: str = "") -> None:
    """Refuse those of some fields that are there and do not pass a test."""
    for name in names:
        value = data.get(name)
        if value is not None and not holds(value):
            raise ValueError(f"{of}{name} {_shown(value)}: must be {what}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _is_text(value: Any) -> bool:
    # JSON may hold half of a pair of surrogates, which no file can.
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(float_of(value)) < LARGEST  # false of NaN


def _is_share(value: Any) -> bool:
    return _is_number(value) and -1 <= value <= 1


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_task(value: Any) -> bool:
    return _is_whole(value) and value in TASKS


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 1


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_flat(value: Any) -> bool:
    return _is_list(value) and all(map(_is_plain, value))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_ends(value: Any) -> bool:
    return (
        _is_list(value)
        and len(value) == 2
        and all(map(_is_number, value))
        and (value[0] <= value[1])
    )


def _is_interval(value: Any) -> bool:
    return _is_number(value) or _is_ends(value)
