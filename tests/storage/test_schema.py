import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from jumpyworld.errors import CheckpointError, ConfigError
from jumpyworld.storage.schema import differences, from_json, to_json


@dataclasses.dataclass(frozen=True)
class Inner:
    depth: int = 2


@dataclasses.dataclass(frozen=True)
class Outer:
    rate: float
    name: Literal["a", "b"] = "a"
    widths: tuple[int, ...] = (1, 2)
    pair: tuple[int, str] = (1, "x")
    clip: float | None = None
    flag: bool = False
    inner: Inner = Inner()
    by_name: dict[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.rate < 0:
            raise ConfigError("rate is negative")


def test_a_configuration_comes_back_equal():
    value = Outer(0.1, "b", (3,), (4, "y"), 1.5, True, Inner(7), {"k": 2.0})
    assert from_json(Outer, to_json(value)) == value
    assert from_json(Outer, {"rate": 1}) == Outer(1.0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rate": "0.1"}, "config.rate"),
        ({"rate": True}, "config.rate"),
        ({"name": "c"}, "config.name"),
        ({"widths": [1, 2.5]}, "config.widths"),
        ({"widths": 3}, "config.widths"),
        ({"pair": [1]}, "config.pair"),
        ({"clip": "no"}, "config.clip"),
        ({"flag": 1}, "config.flag"),
        ({"inner": {"depth": 1, "class": "os.system"}}, "config.inner.'class'"),
        ({"inner": []}, "config.inner"),
        ({"extra": 1}, "config.'extra'"),
        ({"rate": -1.0}, "rate is negative"),
        ({"rate": None}, "config.rate"),
    ],
)
def test_other_data_is_an_error_that_names_the_field(change, field):
    with pytest.raises(CheckpointError, match=field.replace(".", r"\.")):
        from_json(Outer, {"rate": 1.0, **change})


def test_a_missing_field_is_named():
    with pytest.raises(CheckpointError, match=r"config\.rate: missing"):
        from_json(Outer, {})


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), Path("x"), np.float32(1), len, {1: 2}, {"a": object()}]
)
def test_only_plain_finite_values_are_settings(value):
    with pytest.raises(ConfigError, match=r"config\.by_name"):
        to_json(Outer(1.0, by_name=value))


def test_differences_name_the_field_and_both_values():
    old, new = to_json(Outer(1.0)), to_json(Outer(2.0, inner=Inner(3)))
    assert list(differences(old, new)) == [("inner.depth", 2, 3), ("rate", 1.0, 2.0)]
    assert list(differences({"a": 1}, {"a": True})) == [("a", 1, True)]
    assert list(differences({}, {"a": 1})) == [("a", None, 1)]
