"""Errors of the library in the words of the command line: flags as a user typed them.

The library names its own arguments, ``discount=nan: must lie in (0, 1)``, and files. Whoever typed
``--discount nan`` or ``--precedents DATA`` looks for that. This is the one place that knows both.
A flag is named only where no other can be meant: a message in the library's words is better than
one that blames the wrong flag.
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
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
_OF_A_CLASS = re.compile(r"^[A-Z]\w+: (--[a-z-]+ \S+);")


def in_flags(message: str, command: Any) -> str:
    """Return an error's message with the flags of the command that it is about.

    Args:
        message: one line.
        command: the dataclass that was run; commands within commands count.
    """
    typed = dict(_typed(command))
    files = [name for name, value in typed.items() if _begins_with(message, value)]
    if files:
        return f"{spelt(files[0])} {message}" if len(files) == 1 else message

    def assigned(found: re.Match[str]) -> str:
        name = _flag_of(found["name"], found["value"], typed)
        return found[0] if name is None else _with_value(name, typed[name], found["value"])

    def first(found: re.Match[str]) -> str:
        name = _flag_of(found["name"], found["value"], typed)
        return found[0] if name is None else f"{_with_value(name, typed[name], found['value'])}: "

    def must(found: re.Match[str]) -> str:
        name = _flag_of(found["name"], found["value"], typed)
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


def _flag_of(name: str, told: str | None, typed: dict[str, Any]) -> str | None:
    """Return the one flag that sets an argument to the value that is told, if there is one."""
    # Where there is a number of something, --pairs itself says which.
    names = {f"num_{name}", name, OTHER_NAMES.get(name, name)} & typed.keys()
    same = {one for one in names if told is None or _agree(typed[one], told)}
    # A flag that was not typed may have any value.
    open_to_all = {one for one in names if typed[one] in (None, ())}
    meant = same or open_to_all
    return next(iter(meant)) if len(meant) == 1 else None


def _agree(typed: Any, told: str) -> bool:
    """Return whether a message tells what was typed, or one of several that were."""
    if isinstance(typed, bool):
        return told in ("True", "False")  # messages tell the other one, too, as advice
    several = typed if isinstance(typed, tuple) else ()
    return _words(told) in (_words(typed), *map(_words, several))


def _words(value: Any) -> list[str]:
    """Return a value's words and numbers, equal however and in whichever order they are written.

    ``4x2 8x2`` is ``((4, 2), (8, 2))``; a library may have sorted what was typed.
    """
    text = re.sub(r"(?<=\d)x(?=\d)|[\s,()\[\]'\"]+", " ", str(value))
    return sorted(f"{float(one):g}" if _NUMBER.fullmatch(one) else one for one in text.split())


def _begins_with(message: str, value: Any) -> bool:
    """Return whether a message is about a file, or another thing, that a flag names."""
    several = value if isinstance(value, tuple) else (value,)
    names = [str(one) for one in several if isinstance(one, Path | str)]
    return any(name and message.startswith(f"{name}: ") for name in names)


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
