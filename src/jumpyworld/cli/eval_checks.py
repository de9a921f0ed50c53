"""What ``jumpy eval`` refuses, each in one line: numbers, missing models, flags without effect.

A flag that changes nothing is refused and not ignored: whoever gave it expects something of it, and
would believe that the result shows it.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jumpyworld.cli.flags import spelt

if TYPE_CHECKING:
    from jumpyworld.cli.eval import Eval
    from jumpyworld.domains import Domain


def check_flags(flags: "Eval", domain: "Domain") -> None:
    """Refuse flags that are out of range, contradict each other or change nothing.

    Raises:
        ConfigError: which flag, its value, and what would make it meaningful.
    """
    _check_numbers(flags)
    _check_proposal(flags, domain)
    _check_effects(flags)
    _check_models(flags)


def read_rounds(words: tuple[str, ...]) -> tuple[tuple[int, int], ...] | None:
    """Return rounds of an elimination, (candidates, chains) each; None for the default ones.

    Raises:
        ConfigError: a word is not CANDIDATESxCHAINS.
    """
    from jumpyworld.errors import ConfigError

    rounds = []
    for word in words:
        count, sign, samples = word.partition("x")
        if not (sign and count.isdecimal() and samples.isdecimal()):
            raise ConfigError(f"--rounds {word}: must be CANDIDATESxCHAINS, such as 256x16")
        if not int(count) or not int(samples):
            raise ConfigError(f"--rounds {word}: must have at least one candidate and one chain")
        rounds.append((int(count), int(samples)))
    return tuple(rounds) or None


def _check_numbers(flags: "Eval") -> None:
    from jumpyworld.errors import ConfigError

    if not flags.planner or len(set(flags.planner)) < len(flags.planner):
        raise ConfigError("--planner: name one or several, each once")
    for name in ("episodes", "replan_every", "max_steps", "workers", "max_rows"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            raise ConfigError(f"{spelt(name, value)}: must be at least 1")
    if flags.seed < 0:
        raise ConfigError(f"--seed {flags.seed}: must not be negative")
    if not flags.tasks or not set(flags.tasks) <= {1, 2, 3, 4, 5}:
        raise ConfigError(f"{spelt('tasks', flags.tasks)}: must be among 1 to 5")
    if len(set(flags.tasks)) < len(flags.tasks):
        raise ConfigError(f"{spelt('tasks', flags.tasks)}: each once")
    read_rounds(flags.rounds)


def _check_proposal(flags: "Eval", domain: "Domain") -> None:
    """Refuse proposals made of data where there are no such data."""
    from jumpyworld.domains import CubeDomain, MazeDomain
    from jumpyworld.errors import ConfigError

    if flags.proposal == "trace" and not isinstance(domain, CubeDomain):
        raise ConfigError(
            f"--proposal trace: traces are ways of cubes, and {domain.alias} has none; they are "
            "for cube scenes, and in mazes there is --proposal bridge"
        )
    if flags.proposal == "bridge" and not isinstance(domain, MazeDomain):
        raise ConfigError(
            f"--proposal bridge: bridges are ways through a maze, and {domain.alias} is none; for "
            "cube scenes there is --proposal trace"
        )


def _check_models(flags: "Eval") -> None:
    """Refuse planners without what they plan with."""
    from jumpyworld.errors import ConfigError
    from jumpyworld.evaluation.planners import COMPOSING, STRIDES

    for name, planners in (("world_model", ("actionplan",)), ("ghm", COMPOSING)):
        asked = [planner for planner in flags.planner if planner in planners]
        if asked and getattr(flags, name) is None:
            raise ConfigError(f"{spelt(name)} is missing: {asked[0]} plans with one")
    if flags.precedents is None and flags.proposal in STRIDES:
        raise ConfigError(f"--proposal {flags.proposal}: needs --precedents DATA to be made of")


def _check_effects(flags: "Eval") -> None:
    """Refuse the first flag that is not at its default and changes nothing."""
    from jumpyworld.errors import ConfigError

    default = {field.name: field.default for field in dataclasses.fields(flags)}
    for name, why in (*_not_taken(flags), *_not_met(flags)):
        value = getattr(flags, name)
        if value != default[name]:
            raise ConfigError(f"{spelt(name, value)}: has no effect {why}")


def _not_taken(flags: "Eval") -> Iterator[tuple[str, str]]:
    """Yield flags that none of the planners takes, and who would."""
    from jumpyworld.evaluation.planners import takers, takes

    for field in dataclasses.fields(flags):
        name = field.name
        how: dict[str, Any] = {"gpi_chain": flags.gpi_chain, "proposal": flags.proposal}
        if any(takes(planner, name, **how) for planner in flags.planner):
            continue
        others = [planner for planner in takers(name) if planner not in flags.planner]
        why = f"on {_either(flags.planner, 'and')}; it is for --planner {_either(others)}"
        # Only what GPI has with its chain alone is taken by it and not taken.
        yield name, why + (", or --gpi-chain" if len(others) < len(takers(name)) else "")


def _not_met(flags: "Eval") -> Iterator[tuple[str, str]]:
    """Yield flags that another one leaves without effect, and which."""
    from jumpyworld.evaluation.planners import STRIDES
    from jumpyworld.loading import is_scripted

    data, proposal = flags.precedents is not None, flags.proposal
    of_data = proposal in STRIDES
    for name, idle, why in (
        ("patience", proposal != "bridge", "without --proposal bridge"),
        ("stride", not of_data, "without --proposal bridge or trace"),
        ("append_goal", of_data, f"with --proposal {proposal}, which ends at the goal by itself"),
        ("refuse", not data, "without --precedents DATA to refuse by"),
        ("refuse", proposal == "trace", "with --proposal trace, where nothing is refused"),
        ("precedents", not flags.refuse and not of_data,
         "with --no-refuse; that is for --proposal bridge, which is made of it"),
        ("precedent_share", not data, "without --precedents DATA to take it of"),
        ("precedent_share", proposal == "trace", "with --proposal trace, where nothing is refused"),
        ("precedent_share", not flags.refuse, "with --no-refuse"),
        ("rounds", flags.search != "elimination", "without --search elimination"),
        ("samples", flags.search == "elimination",
         "with --search elimination, which spends by its --rounds"),
        ("margin", not (flags.include_base or flags.warm_start),
         "without --include-base or --warm-start, the plan that it protects"),
        ("policy_seed", is_scripted(flags.policy),
         f"with --policy {flags.policy}, which was not trained"),
    ):  # fmt: skip
        if idle:
            yield name, why


def _either(words: Any, last: str = "or") -> str:
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end
