"""Which rows are alike: seeds of one recipe, and measurements with the paper's planner settings.

A recipe is everything but seeds: how policy and model were trained, for how many steps, and what
the planner was told. Rows say it under ``trained``. Older ones have fingerprints alone, which tell
models apart but not seeds from recipes, or the policy's own settings; where a row says nothing, no
other is like it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jumpyworld import domains
from jumpyworld.evaluation.planners import planner_settings
from jumpyworld.experiments.cells import Cell
from jumpyworld.planning import fast_search
from jumpyworld.storage.manifest import sha256_json

_NOT_SETTINGS = ("seed", "policy", "model", "simulator")
_OF_FIDELITY = ("num_pairs", "rollouts", "rollout_steps", "samples")
_OF_TRAINING = ("steps", "preset", "transitions")
# The paper's ODE; None is the model's own.
_ODE = {"solver": (None, "euler"), "ode_steps": (None, 20)}
_OF_PRECEDENTS = {"precedents": None, "precedent_share": 0.9, "reward": "count"}


def recipe(data: dict[str, Any], source: str, *, with_steps: bool = True) -> str:
    """Return a hash of all that decides a row but seeds.

    Args:
        data: the row.
        source: where it stands, which is all that is known of a row that says nothing.
        with_steps: whether checkpoints of one training are told apart: of the model's where there
            is one, since those of its policy would be other policies; else of the policy's.
    """
    config = _dict(data.get("config"))
    fidelity = data.get("kind") == "fidelity"
    settings = {k: v for k, v in config.items() if k not in _NOT_SETTINGS and not fidelity}
    settings |= {name: data.get(name) for name in _OF_FIDELITY if fidelity}
    trained = _dict(data.get("trained"))
    prints = _prints(data)
    who: Any = source
    if trained:
        last = "model" if "model" in trained else "policy"
        who = {
            name: [each.get("recipe"), each.get("steps") if with_steps or name != last else None]
            for name, each in _parts(trained)
        }
    elif "policy" in prints:
        who = [prints.get(name) for name in ("policy", "model", "ghm")]
    elif "steps" in data:
        who = [config, *(data.get(name) for name in _OF_TRAINING)]
    return sha256_json([settings, who])


def seeds(data: dict[str, Any]) -> str:
    """Return the seeds of a row: of its episodes and of all that was trained."""
    trained = {name: each.get("seed") for name, each in _parts(_dict(data.get("trained")))}
    return sha256_json([data.get("seed"), trained])


def trained_steps(data: dict[str, Any]) -> int:
    """Return for how many steps policy and model were trained together, as far as a row says."""
    told = [each.get("steps") for _, each in _parts(_dict(data.get("trained")))]
    return sum(steps for steps in told if isinstance(steps, int))


def makers(data: dict[str, Any]) -> dict[str, Any]:
    """Return what tells a row's policy and model from others: recipe and steps, or their hashes.

    None stands for what the row does not say.
    """
    trained, prints = _dict(data.get("trained")), _prints(data)
    parts = {name: _dict(trained.get(name)) for name in ("policy", "model")}
    return {
        name: prints.get(name)
        if each.get("recipe") is None
        else (each["recipe"], each.get("steps"))
        for name, each in parts.items()
    }


def episodes(data: dict[str, Any]) -> str:
    """Return which episodes (or pairs, of a fidelity row) were met: one seed, the same ones."""
    return str(data.get("seed"))


def varying(rows: Sequence[dict[str, Any]]) -> str:
    """Return which seeds differ among rows of one recipe: of training, of episodes or of both."""
    words = []
    if all(_dict(data.get("trained")) for data in rows):
        parts = [_parts(_dict(data["trained"])) for data in rows]
        if len({str([(name, each.get("seed")) for name, each in made]) for made in parts}) > 1:
            words.append("training")
    elif not all("policy" in _prints(data) for data in rows):
        return "training or episodes"  # the row has one seed and does not say of what
    if len({episodes(data) for data in rows}) > 1:
        words.append("episodes")
    return " and ".join(words)


def training(data: dict[str, Any]) -> str:
    """Return in a few words what a row's policy and model are."""
    config, trained = _dict(data.get("config")), dict(_parts(_dict(data.get("trained"))))
    words = []
    for name in ("policy", "model"):
        known = trained.get(name, {})
        mark, sign, added = str(known.get("recipe") or config.get(name) or "").partition("+")
        steps = known.get("steps") or data.get("steps" if name == "policy" else "model_steps")
        if mark or steps is not None:
            many = f" {steps} steps" if steps is not None else ""
            words.append(f"{name} {mark[:6]}{sign}{added}".rstrip() + many)
    return ", ".join(words)


def differences(cell: Cell, data: dict[str, Any]) -> tuple[str, ...]:
    """Return the settings of a row that are not the paper's, as words; what it does not say is not.

    What a cell says itself (proposal, objective, steps between plans) is no difference.
    """
    config, domain = _dict(data.get("config")), domains.get(cell.domain)
    paper: dict[str, Any] = {}
    if cell.planner not in (None, "zero-shot"):
        paper = dataclasses.asdict(planner_settings(domain, cell.policy)) | _OF_PRECEDENTS
        del paper["proposal"], paper["objective"]
        many = config.get("candidates")
        if config.get("search") == "elimination" and isinstance(many, int) and many > 0:
            paper["rounds"] = fast_search(many).rounds  # "elimination" says it all
    paper |= {"max_steps": domain.max_episode_steps, "tasks": (1, 2, 3, 4, 5)}
    found = []
    for name, value in config.items():
        usual = _ODE.get(name, (paper.get(name),))
        if name in paper and _plain(value) not in map(_plain, usual):
            found.append(_words(name, value))
    return tuple(sorted(found))


def _words(name: str, value: Any) -> str:
    """Return a setting as it would be read aloud."""
    if name == "precedents":  # a hash
        return name
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if not isinstance(value, list | tuple):
        return f"{name} {value}"
    if name == "rounds":
        pairs = [each if isinstance(each, list | tuple) else [each] for each in value]
        return f"{name} {' '.join('x'.join(map(str, each)) for each in pairs)}"
    if name == "horizons" and len(value) > 1 and len(set(value)) == 1:
        return f"{name} {len(value)}x{_number(value[0])}"
    return f"{name} {' '.join(map(_number, value))}"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _plain(value: Any) -> Any:
    """Return a value of a file or of the library, both with tuples."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _prints(data: dict[str, Any]) -> dict[str, Any]:
    """Return where a row has the hashes of its weights."""
    return _dict(data.get("fingerprints" if data.get("kind") == "fidelity" else "config"))


def _parts(trained: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, _dict(trained[name])) for name in sorted(trained)]
