"""Errors of the library in the words of the command line: flags as a user typed them.

The library names its own arguments, ``discount=nan: must lie in (0, 1)``, and files. Whoever typed
``--discount nan`` or ``--precedents DATA`` looks for that. This is the one place that knows both.
"""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OTHER_NAMES = {
    "number": "candidates",
    "num_steps": "ode_steps",
    "share": "precedent_share",
    "gamma": "gammas",
}
"""Arguments of the library that a flag of another name sets."""
_VALUE = r"(?P<value>\(\([^:]*\)\)|\([^)]*\)|\[[^\]]*\]|[^\s:;,)]+)"
_ASSIGNED = re.compile(r"(?<![\w./-])(?P<name>[a-z_]+)(?:\[\d+\])?=" + _VALUE)
_FIRST = re.compile(rf"^(?P<name>[a-z_]+)(?: is {_VALUE}: (?:it )?|: )(?=\S)")
_MUST = re.compile(r"^(?P<name>[a-z_]+) (?P<demand>must .*?)(?:, not (?P<value>\S+))?$")
_OF_A_CLASS = re.compile(r"^[A-Z]\w+: (--[a-z-]+ \S+);")


def in_flags(message: str, command: Any) -> str:
    """Return an error's message with the flags of the command that it is about.

    Args:
        message: one line.
        command: the dataclass that was run; commands within commands count.
    """
    typed = dict(_typed(command))
    for name, value in typed.items():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Path | str) and f"{one}" and message.startswith(f"{one}: "):
                return f"{spelt(name)} {message}"

    def assigned(found: re.Match[str]) -> str:
        name = _flag_of(found["name"], typed)
        return found[0] if name is None else _with_value(name, typed[name], found["value"])

    def first(found: re.Match[str]) -> str:
        name = _flag_of(found["name"], typed)
        return found[0] if name is None else f"{_with_value(name, typed[name], found['value'])}: "

    def must(found: re.Match[str]) -> str:
        name = _flag_of(found["name"], typed)
        if name is None:
            return found[0]
        return f"{_with_value(name, typed[name], found['value'])}: {found['demand']}"

    said = _MUST.sub(must, _FIRST.sub(first, _ASSIGNED.sub(assigned, message)))
    return _OF_A_CLASS.sub(r"\1:", said)


def spelt(name: str, value: Any = None) -> str:
    """Return a flag as a user types it."""
    flag = name.replace("_", "-")
    if value is None or value is True:
        return f"--{flag}"
    if value is False:
        return f"--no-{flag}"
    values = value if isinstance(value, tuple) else (value,)
    words = (f"{one:g}" if isinstance(one, float) else str(one) for one in values)
    return f"--{flag} {' '.join(words)}".rstrip()


def _with_value(name: str, typed: Any, told: str | None) -> str:
    """Return a flag with what was typed; what was not has the value that the message tells."""
    if isinstance(typed, bool):
        return spelt(name, told != "False")
    if isinstance(typed, tuple) and told and told[0] not in "([":
        return spelt(name, told)  # the one of several that is meant
    return spelt(name, typed if typed not in (None, ()) else told)


def _flag_of(name: str, typed: dict[str, Any]) -> str | None:
    # Where there is a number of something, --pairs itself says which.
    names = (f"num_{name}", name, OTHER_NAMES.get(name, name))
    return next((one for one in names if one in typed), None)


def _typed(command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the flags of a command and of those within it, by name; not what has only a place."""
    import tyro

    hints = typing.get_type_hints(type(command), include_extras=True)
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if dataclasses.is_dataclass(value):
            yield from _typed(value)
        elif tyro.conf.Positional not in getattr(hints[field.name], "__metadata__", ()):
            yield field.name, value
