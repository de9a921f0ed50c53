"""What ``jumpy sweep`` refuses before anything runs: what its stages would refuse, hours later.

Every command is parsed as it will be, and asked for what it checks before it loads anything; then
planners are built, with stand-ins where models and policies are not trained yet.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumpyworld.cli.data import Generate
    from jumpyworld.cli.eval import Eval
    from jumpyworld.cli.fidelity import Fidelity
    from jumpyworld.cli.train_loop import TrainCommand
    from jumpyworld.experiments.stages import Stage


def check_stages(stages: Sequence["Stage"], changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse changes that a stage cannot take.

    Args:
        stages: all of a sweep, each after those that it needs.
        changes: per kind of stage, what is set differently.

    Raises:
        ConfigError: which change, and what is wrong with it.
    """
    from jumpyworld.cli import parse

    _check_names(changes)
    known: dict[Path, Any] = {}
    seen = set()
    for stage in stages:
        kind, likeness = _likeness(stage)
        if likeness in seen:
            continue
        seen.add(likeness)
        command = parse(stage.command)
        with _named(kind, command):
            _CHECKS[kind](getattr(command, "command", command), stage, known)


def _check_names(changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse flags that a command does not have; settings of what is trained are checked later."""
    from jumpyworld.cli.data import Generate
    from jumpyworld.cli.eval import Eval
    from jumpyworld.cli.fidelity import Fidelity
    from jumpyworld.errors import ConfigError

    verbs = {"data": ("data generate", Generate), "eval": ("eval", Eval)}
    verbs["fidelity"] = ("fidelity", Fidelity)
    for kind, (verb, command) in verbs.items():
        flags = {field.name for field in dataclasses.fields(command)}
        for name, value in changes.get(kind, {}).items():
            if name not in flags:
                raise ConfigError(f"--set {kind}.{name}={value}: jumpy {verb} has no --{name}")


def _likeness(stage: "Stage") -> tuple[str, tuple[str, ...]]:
    """Return a stage's kind, and what is the same in stages of which one need be checked.

    Seeds and the sizes of mazes and scenes decide nothing that is refused.
    """
    words = list(Path(stage.name).parts)
    words[1] = words[1].partition("-")[0]
    verb = stage.command[0]
    if verb == "train":
        words[2:] = [word.rpartition("-")[0] for word in words[2:]]
        return stage.command[1], tuple(words)
    if verb != "data":
        del words[3]
    return verb, tuple(words)


@contextlib.contextmanager
def _named(kind: str, command: Any) -> Iterator[None]:
    """Word an error as one of ``--set KIND...``."""
    from jumpyworld.cli.flags import in_flags
    from jumpyworld.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        said = in_flags(" ".join(str(error).split()), command).removeprefix("--set: ")
        if said.startswith("--set."):
            raise ConfigError(f"--set {kind}.{said[6:]}") from error
        raise ConfigError(f"--set {kind}: {said}") from error


def _check_data(command: "Generate", stage: "Stage", known: dict[Path, Any]) -> None:
    from jumpyworld import domains
    from jumpyworld.domains.generate.request import Request
    from jumpyworld.errors import ConfigError

    del stage, known
    Request.make(domains.get(command.name), command.seed, command.episodes, command.expert)
    if command.workers is not None and command.workers < 1:
        raise ConfigError(f"--workers {command.workers}: must be at least 1")


def _check_training(command: "TrainCommand", stage: "Stage", known: dict[Path, Any]) -> None:
    from jumpyworld import domains

    command.training(default_steps=1)
    known[command.out] = command.settings(domains.get(Path(stage.name).parts[1]).name)


def _check_evaluation(command: "Eval", stage: "Stage", known: dict[Path, Any]) -> None:
    from jumpyworld import domains
    from jumpyworld.cli.eval import SETTINGS
    from jumpyworld.cli.eval_checks import check_flags, read_rounds
    from jumpyworld.evaluation.planners import make_planner, planner_settings

    domain, policy = domains.get(command.domain), Path(stage.name).parts[2]
    check_flags(command, domain)
    asked = {name: getattr(command, name) for name in SETTINGS}
    settings = planner_settings(domain, policy, rounds=read_rounds(command.rounds), **asked)
    trained = known.get(command.ghm) if command.ghm is not None else None
    ghm = _StandIn(getattr(trained, "gamma_max", 1.0))
    models: dict[str, Any] = {"ghm": ghm, "world_model": _StandIn()}
    whole = _StandIn() if policy == "hfbc" else None
    for name in command.planner:
        make_planner(name, settings, _StandIn(), whole=whole, **models)


def _check_fidelity(command: "Fidelity", stage: "Stage", known: dict[Path, Any]) -> None:
    from jumpyworld.evaluation.draws import check_discounts

    del stage
    protocol = command.protocol()
    for path in command.ghm:
        largest = getattr(known.get(path), "gamma_max", 1.0)
        check_discounts(protocol.gammas, largest, command.allow_extrapolation)


_CHECKS = {
    "data": _check_data,
    "policy": _check_training,
    "ghm": _check_training,
    "world-model": _check_training,
    "eval": _check_evaluation,
    "fidelity": _check_fidelity,
}


class _StandIn:
    """What a planner asks of a model and of a policy while it is built.

    It is not planned with: whatever asks it for samples does more than check.
    """

    def __init__(self, gamma_max: float = 1.0):
        self.gamma_max = gamma_max

    def sample(self, *args: Any, **options: Any) -> Any:
        """Be a model and a policy."""
        raise AssertionError("a planner that is only built was asked to plan")

    def propose(self, *args: Any) -> Any:
        """Be a hierarchy's high level."""
        raise AssertionError("a planner that is only built was asked to plan")

    def with_inner_layers(self, dtype: Any) -> "_StandIn":
        """Be rounded."""
        del dtype
        return self
