"""Configurations as JSON data, and back: values only, never the name of something to run.

A dataclass is written field by field and read against its own annotations, so that a file can
neither add a field nor change a type, and which class is built is the caller's choice alone.
"""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from jumpyworld.errors import CheckpointError, ConfigError

T = TypeVar("T")


def to_json(value: Any, where: str = "config") -> Any:
    """Return ``value`` (a dataclass of plain values, nested at will) as JSON data.

    Raises:
        ConfigError: a field holds something JSON cannot give back, with the field's name.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: to_json(getattr(value, f.name), f"{where}.{f.name}") for f in fields}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(f"{where}: the key {key!r} is not a string")
        return {key: to_json(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} is {value}: settings must be finite")
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise ConfigError(f"{where} is a {type(value).__name__}: settings hold plain values only")


def from_json(cls: type[T], data: Any, where: str = "config") -> T:
    """Return the dataclass ``cls`` made of JSON ``data``, checked against its annotations.

    Raises:
        CheckpointError: an unknown or missing field, or a value of another type.
    """
    if not isinstance(data, dict):
        raise CheckpointError(f"{where}: {cls.__name__} needs an object, not {brief(data)}")
    hints, members = typing.get_type_hints(cls), dataclasses.fields(typing.cast(Any, cls))
    fields = {field.name: field for field in members if field.init}
    for name in data:
        if name not in fields:
            raise CheckpointError(f"{where}.{brief(name)}: {cls.__name__} has no such field")
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _value(hints[name], data[name], f"{where}.{name}")
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise CheckpointError(f"{where}.{name}: missing")
    try:
        return cls(**values)
    except (ConfigError, ValueError, TypeError) as error:
        raise CheckpointError(f"{where}: {error}") from error


def defaults(config: Any) -> dict[str, Any]:
    """Return as JSON the values that fields of a dataclass have when nobody sets them."""
    if not dataclasses.is_dataclass(config):
        return {}
    return {
        field.name: to_json(field.default, field.name)
        for field in dataclasses.fields(config)
        if field.default is not dataclasses.MISSING
    }


def with_changes(config: T, changes: Mapping[str, Any], where: str = "config") -> T:
    """Return the dataclass ``config`` with fields set to JSON values, as strictly as from a file.

    Raises:
        ConfigError: an unknown field, with the nearest ones, or a value that is not allowed.
    """
    cls, data = type(config), to_json(config, where)
    for name in changes:
        if name not in data:
            near = difflib.get_close_matches(name, data, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(data)}"
            raise ConfigError(f"{where}: {cls.__name__} has no field {brief(name)}: {hint}")
    try:
        return from_json(cls, {**data, **changes}, where)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error


def differences(stored: Any, asked: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, stored value, asked value) wherever two pieces of JSON data differ."""
    if isinstance(stored, dict) and isinstance(asked, dict):
        for name in sorted(stored.keys() | asked.keys()):
            field = f"{where}.{name}" if where else name
            yield from differences(stored.get(name), asked.get(name), field)
    elif stored != asked or isinstance(stored, bool) != isinstance(asked, bool):
        yield where, stored, asked


def _value(hint: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, data, where)
    if origin is typing.Annotated:
        return _value(arguments[0], data, where)
    if origin is typing.Literal:
        if data in arguments and type(data) in {type(choice) for choice in arguments}:
            return data
    elif dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), data, where)
    elif origin in (tuple, list) and isinstance(data, list):
        if origin is list or arguments[1:] == (Ellipsis,):
            return origin(_value(arguments[0], item, f"{where}[]") for item in data)
        if len(arguments) == len(data):
            return tuple(_value(h, d, f"{where}[]") for h, d in zip(arguments, data, strict=True))
    elif origin is dict and isinstance(data, dict):
        return {key: _value(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    elif hint is float and type(data) in (int, float):
        return float(data)
    elif hint in (str, bool, int, float) and type(data) is hint:
        return data
    if origin is typing.Literal:
        wanted = f"one of {', '.join(map(str, arguments))}"
    elif origin in (tuple, list):
        inner = (getattr(item, "__name__", str(item)) for item in arguments if item is not Ellipsis)
        wanted = f"a list in brackets of {', '.join(inner)}"
    else:
        wanted = getattr(hint, "__name__", hint)
    raise CheckpointError(f"{where}: {brief(data)} is not {wanted}")


def _union(choices: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in choices:
        return None
    reason: CheckpointError | None = None
    for choice in choices:
        if choice is not type(None):
            try:
                return _value(choice, data, where)
            except CheckpointError as error:
                reason = reason or error
    raise reason or CheckpointError(f"{where}: {brief(data)} is not None")


def brief(data: Any) -> str:
    """Return ``data`` for a message: short, and with control characters escaped."""
    text = repr(data)
    return text if len(text) <= 40 else text[:37] + "..."
