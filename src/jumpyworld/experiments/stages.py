"""From cells to commands: the stages that produce them, shared ones once.

    data/DOMAIN                             jumpy data generate
    policies/DOMAIN/POLICY-SEED             jumpy train policy
    models/DOMAIN/POLICY-SEED/OBJECTIVE-SEED    jumpy train ghm
    models/DOMAIN/world-model-SEED          jumpy train world-model (for ActionPlan)
    results/DOMAIN/POLICY/SEED              jumpy eval, a cell at a time, and jumpy fidelity

Cells of one seed share their folder, so that ``jumpy eval`` finds the zero-shot episodes there and
pairs every planner with them. As in the paper one base policy serves every seed and the models have
the seeds; the baselines, which have no model, are trained anew for each.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jumpyworld.errors import ConfigError
from jumpyworld.evaluation.planners import takers, takes
from jumpyworld.experiments.cells import BASELINES, WITH_MODEL, Cell
from jumpyworld.planning.presets import planning_preset
from jumpyworld.storage.manifest import sha256_json

ScaleName = Literal["paper", "base", "small", "debug"]
Flags = dict[str, Any]
KINDS = ("data", "policy", "ghm", "world-model", "eval", "fidelity")
LOOP_FLAGS = ("steps", "minutes", "save_every", "log_every")
"""Of training commands; every other name is a setting of what is trained."""

_CELLS = {name: f"choose it with --cells {name}=..." for name in ("domain", "policy")}
_MADE = "the sweep trains or makes it itself"
_SEEDS = "choose seeds with --seeds"
FIXED: dict[str, dict[str, str]] = {
    "data": {"name": _CELLS["domain"], "out": "choose the folder with --out"},
    "eval": {
        **_CELLS,
        "planner": "choose it with --cells planner=...",
        "proposal": "choose it with --cells proposal=...",
        "replan_every": "choose it with --cells replan_every=...",
        "objective": "choose it with --cells maximise=...",
        **dict.fromkeys(("ghm", "world_model"), _MADE),
        **dict.fromkeys(("seed", "policy_seed", "ghm_seed"), _SEEDS),
        "out": "choose the folder with --out",
    },
    "fidelity": {
        **_CELLS,
        **dict.fromkeys(("ghm", "dataset"), _MADE),
        **dict.fromkeys(("seed", "policy_seed", "ghm_seed"), _SEEDS),
        "pairs": "the table is of random pairs",
        "samples": "it draws and measures nothing",
        "out": "choose the folder with --out",
    },
}
"""Flags that say which cell a command is of, and what says so: set, they would make two cells the
same, or a row that belongs to neither."""


@dataclass(frozen=True)
class Scale:
    """How large everything is.

    Attributes:
        data: flags of ``jumpy data generate``.
        evaluation: flags of every ``jumpy eval``.
        search: flags of planners with a model, after the paper's for the domain and policy.
        fidelity: flags of ``jumpy fidelity``.
    """

    data: Flags = field(default_factory=dict)
    evaluation: Flags = field(default_factory=dict)
    search: Flags = field(default_factory=dict)
    fidelity: Flags = field(default_factory=dict)


SCALES: dict[str, Scale] = {
    # 20 episodes, not the paper's 10: its base rates are multiples of .05.
    "paper": Scale(
        evaluation={"episodes": 20},
        search={"search": "uniform", "solver": "euler", "ode_steps": 20},
        fidelity={"preset": "paper", "gammas": (0.99, 0.995)},
    ),
    "base": Scale(
        evaluation={"episodes": 20},
        search={"search": "elimination"},
        fidelity={"preset": "quick"},
    ),
    "small": Scale(
        data={"episodes": 200},
        evaluation={"episodes": 10},
        search={"search": "uniform", "candidates": 64, "samples": 32},
        fidelity={"preset": "quick", "num_pairs": 16},
    ),
    "debug": Scale(
        data={"episodes": 10},
        evaluation={"episodes": 1, "tasks": 1, "max_steps": 20},
        search={"search": "uniform", "candidates": 4, "samples": 2},
        fidelity={
            "num_pairs": 2,
            "num_rollouts": 2,
            "num_samples": 8,
            "rollout_steps": 20,
            "gammas": 0.995,
        },
    ),
}


@dataclass(frozen=True)
class Stage:
    """One command.

    Attributes:
        name: unique.
        command: words after ``jumpy``.
        needs: stages that must be finished first.
        folder: of its result, below the sweep's; stages that share one run one after another.
    """

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...]
    folder: str


@dataclass(frozen=True)
class Request:
    """How cells are to be produced.

    Attributes:
        out: folder of the sweep.
        scale: one of ``SCALES``.
        seeds: of the models and of evaluation.
        changes: per kind of stage, what is set differently (``read_changes``).
    """

    out: Path
    scale: ScaleName = "base"
    seeds: Sequence[int] = (0,)
    changes: Mapping[str, Flags] = field(default_factory=dict)


def read_changes(words: Sequence[str]) -> dict[str, Flags]:
    """Return ``KIND.FIELD=VALUE`` words by kind; a value that is no JSON is a string.

    Raises:
        ConfigError: a word has another form, names what cannot be set, comes twice, or holds a
            number that is not finite, which no result could be written with.
    """
    found: dict[str, Flags] = {}
    for word in words:
        name, sign, text = word.partition("=")
        kind, dot, setting = name.partition(".")
        if not (sign and dot and setting) or kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise ConfigError(f"--set {word}: must be KIND.FIELD=VALUE, KIND one of {kinds}")
        setting = setting.replace("-", "_")
        why = FIXED.get(kind, {}).get(setting)
        if why is not None:
            raise ConfigError(f"--set {word}: cannot be set; {why}")
        if setting in found.get(kind, {}):
            raise ConfigError(f"--set {kind}.{setting}: given twice")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if not _finite(value):
            raise ConfigError(f"--set {kind}.{setting}={text}: must be finite")
        found.setdefault(kind, {})[setting] = value
    return found


def _finite(value: Any) -> bool:
    """Say whether all numbers in a value are finite; words are what a command reads them as."""
    if isinstance(value, list | dict):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    try:
        return value is None or math.isfinite(float(value))
    except OverflowError:  # an integer beyond all floats
        return False
    except ValueError:
        return True


def plan(cells: Sequence[Cell], request: Request) -> list[Stage]:
    """Return the stages that produce ``cells``, each once, every stage after those it needs.

    Raises:
        ConfigError: a change of evaluation is for planners that are not among the cells.
    """
    changes = request.changes.get("eval", {})
    acting = [cell for cell in cells if cell.planner is not None]
    for name, value in changes.items():
        if acting and not any(_taken(cell, name, changes) for cell in acting):
            whose = ", ".join(takers(name))
            raise ConfigError(f"--set eval.{name}={value}: no cell has it; it is for {whose}")
    builder = _Builder(request)
    measured: dict[tuple[str, str, int], list[str]] = {}
    # Zero-shot first: those that come later find its episodes and pair themselves with them.
    for cell in sorted(cells, key=lambda cell: cell.planner != "zero-shot"):
        for seed in request.seeds:
            if cell.planner is None:
                objectives = measured.setdefault((cell.domain, cell.policy, seed), [])
                objectives.append(cell.objective or "td-hc")
            else:
                builder.evaluate(cell, seed)
    for (domain, policy, seed), objectives in measured.items():
        builder.measure(domain, policy, seed, objectives)
    return list(builder.stages.values())


class _Builder:
    """Adds stages below their needs; a stage that is there already is not added again."""

    def __init__(self, request: Request):
        self.request = request
        self.scale = SCALES[request.scale]
        self.stages: dict[str, Stage] = {}

    def data(self, domain: str) -> str:
        return self._add("data", f"data/{domain}", ("data", "generate", domain), self.scale.data)

    def policy(self, domain: str, policy: str, seed: int) -> str:
        seed = seed if policy in BASELINES else 0
        return self._train("policy", f"policies/{domain}/{policy}-{seed}", domain, (policy,), seed)

    def model(self, domain: str, policy: str, objective: str, seed: int) -> str:
        whose = self.policy(domain, policy, seed)
        name = f"models/{domain}/{Path(whose).name}/{objective}-{seed}"
        words = ("--policy", self._composed(policy, whose), "--objective", objective)
        return self._train("ghm", name, domain, words, seed, whose)

    def world_model(self, domain: str, seed: int) -> str:
        return self._train("world-model", f"models/{domain}/world-model-{seed}", domain, (), seed)

    def evaluate(self, cell: Cell, seed: int) -> None:
        whose = self.policy(cell.domain, cell.policy, seed)
        who = self._composed(cell.policy, whose)
        needs, words = [whose], ["--domain", cell.domain, "--policy", who]
        if cell.planner in WITH_MODEL:
            needs.append(self.model(cell.domain, cell.policy, cell.objective or "td-hc", seed))
            words += ["--ghm", self._path(needs[-1])]
        if cell.planner == "actionplan":
            needs.append(self.world_model(cell.domain, seed))
            words += ["--world-model", self._path(needs[-1])]
        flags = {"planner": cell.planner, **self.scale.evaluation, **self._search(cell)}
        changes = self.request.changes.get("eval", {})
        own = {k: v for k, v in changes.items() if _taken(cell, k, changes)}
        folder = f"results/{cell.domain}/{cell.policy}/{seed}"
        name = f"{folder}/{cell.slug}"
        self._add("", name, ("eval", *words), {**flags, "seed": seed, **own}, needs, folder)

    def measure(self, domain: str, policy: str, seed: int, objectives: Sequence[str]) -> None:
        whose, data = self.policy(domain, policy, seed), self.data(domain)
        models = [self.model(domain, policy, each, seed) for each in objectives]
        words = [word for model in models for word in ("--ghm", self._path(model))]
        words += ["--policy", self._composed(policy, whose), "--dataset", self._path(data)]
        flags = {"pairs": "random", **self.scale.fidelity, "seed": seed}
        folder = f"results/{domain}/{policy}/{seed}"
        command, needs = ("fidelity", *words), [data, whose, *models]
        self._add("fidelity", f"{folder}/fidelity", command, flags, needs, folder)

    def _search(self, cell: Cell) -> Flags:
        """Return what a planner is told: the paper's row, the cell's choice, the scale's size."""
        if cell.planner == "zero-shot":
            return {}
        preset = planning_preset(cell.domain, cell.policy)
        flags: Flags = {"replan_every": cell.replan_every, "discount": preset.discount}
        flags["candidates"] = preset.candidates
        if cell.planner in WITH_MODEL:
            conditional = "high-level" if cell.policy == "hfbc" else "goal"
            unconditional = cell.proposal == "unconditional"
            flags["proposal"] = "unconditional" if unconditional else conditional
            flags |= {"objective": cell.maximise, **self.scale.search}
            if flags["search"] == "uniform":  # elimination spends by its rounds
                flags.setdefault("samples", preset.samples)
        elif "candidates" in self.scale.search:
            flags["candidates"] = self.scale.search["candidates"]
        if cell.planner in ("compplan", "ggpi"):
            flags["horizons"] = preset.horizons
        return flags

    def _train(self, kind, name, domain, words, seed, *needs: str) -> str:
        data = self.data(domain)
        changes = dict(self.request.changes.get(kind, {}))
        flags = {flag: changes.pop(flag) for flag in LOOP_FLAGS if flag in changes}
        settings = [f"{key}={_setting(value)}" for key, value in sorted(changes.items())]
        command = ["train", kind, *words, "--dataset", self._path(data)]
        flags = {"preset": self.request.scale, "seed": seed, **flags}
        if settings:
            flags["set"] = settings
        return self._add("", name, command, flags, [data, *needs])

    def _add(self, kind, name, words, flags: Flags, needs=(), folder: str | None = None) -> str:
        if name not in self.stages:
            folder = folder or name
            flags = {**flags, **self.request.changes.get(kind, {}), "out": self._path(folder)}
            command = (*words, *_words(flags))
            self.stages[name] = Stage(name, command, tuple(dict.fromkeys(needs)), folder)
        return name

    def _composed(self, policy: str, name: str) -> str:
        """Return the policy that a model is of: of HFBC, the low level."""
        return self._path(name) + (":low" if policy == "hfbc" else "")

    def _path(self, name: str) -> str:
        return str(self.request.out / name)


def _taken(cell: Cell, name: str, changes: Flags) -> bool:
    """Say whether a cell gets a change: ``jumpy eval`` refuses what its planner does not take."""
    how = {"gpi_chain": bool(changes.get("gpi_chain")), "proposal": changes.get("proposal")}
    return takes(cell.planner or "", name, **how)


def fingerprints(stages: Sequence[Stage], out: Path) -> dict[str, str]:
    """Return per stage a digest of its command and of all that it stands on.

    The folder itself does not count: a sweep that is moved, or named by another path, goes on.
    """
    found: dict[str, str] = {}
    for stage in stages:
        words = [word.replace(f"{out}/", "", 1) for word in stage.command]
        found[stage.name] = sha256_json([words, [found[name] for name in stage.needs]])
    return found


def _words(flags: Flags) -> list[str]:
    words = []
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list | tuple):
            words += [flag, *map(_text, value)]
        else:
            words += [flag, _text(value)]
    return words


def _text(value: Any) -> str:
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
