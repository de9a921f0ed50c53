"""What a planner is given and what it hands out: numbers that are numbers, keys that are keys.

Values are checked in the dtype that they are computed in: 1e300 is finite in float64 and infinite
in float32. Whatever is wrong is told in one line that names the argument.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from numbers import Real
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.errors import ConfigError, JumpyError, PlanError, brief, check_whole
from jumpyworld.policies.base import as_key

T = TypeVar("T")
TOO_MANY = 2**31
"""Sizes and counts in compiled programs have 32 bits."""


def as_floats(value: Any, name: str) -> Float[Array, "..."]:
    """Return real, finite numbers as a float array of the default precision; traced ones as such.

    Raises:
        PlanError: they are no numbers, of uneven lengths, complex or not finite; it says where.
    """
    if isinstance(value, Tracer):
        return jnp.asarray(value, float)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{name}: is no array of numbers ({one_line(error)})") from error
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise PlanError(f"{name}: must be numbers, and is an array of {array.dtype}")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise PlanError(f"{name}: must be real numbers, and is complex ({array.dtype})")
    with np.errstate(over="ignore"):  # told below, as not finite
        array = array.astype(jax.dtypes.canonicalize_dtype(float), copy=False)
    _require_finite(array, f"{name}: ")
    # What is on a device already stays there.
    return jnp.asarray(value if isinstance(value, jax.Array) else array, float)


def finite_actions(actions: Array, remark: str = "") -> Array:
    """Return actions that can be executed, as they are; traced ones unseen.

    Args:
        actions: of any batch shape.
        remark: to add to the message.

    Raises:
        PlanError: some are not finite; it says where.
    """
    if not isinstance(actions, Tracer):
        _require_finite(np.asarray(actions), "action: the policy returned ", remark)
    return actions


def one_key(key: Any) -> PRNGKeyArray:
    """Return a typed key.

    Raises:
        PlanError: it is no key of ``jax.random``.
    """
    try:
        typed = as_key(key)
    except (ConfigError, TypeError, ValueError) as error:
        raise PlanError(f"key of type {type(key).__name__}: give a jax.random key") from error
    if typed.ndim:
        raise PlanError(f"key: {len(typed)} of them, and one is needed")
    return typed


def many_keys(keys: Any, count: int) -> PRNGKeyArray:
    """Return keys of a batch, typed or the older rows of uint32 words.

    Raises:
        PlanError: they are not so many, or no keys.
    """
    if np.shape(keys)[:1] != (count,):
        many = np.shape(keys)[0] if np.ndim(keys) else "one"
        raise PlanError(f"keys: {many} for a batch of {count} states")
    one_key(keys[0])
    return keys


def check_budget(budget_ms: Any) -> None:
    """Raise PlanError unless a time budget is a number, at least 0."""
    if not (isinstance(budget_ms, int | float | np.number) and budget_ms >= 0):
        raise PlanError(f"budget_ms={budget_ms}: must be a number, at least 0")


def check_interval(replan_every: int) -> None:
    """Raise ConfigError unless there is at least one step between plans."""
    check_whole("replan_every", replan_every, 1)


def check_size(name: str, value: int, least: int) -> None:
    """Raise ConfigError unless a setting is a whole number that compiled programs can count to."""
    check_whole(name, value, least)
    if value >= TOO_MANY:
        raise ConfigError(f"{name}={value}: must be below 2^31")


def as_limit(limit: Any) -> float | None:
    """Return the size that actions are clipped to as a plain number; None for no limit.

    Raises:
        ConfigError: actions cannot be clipped to it.
    """
    if limit is None:
        return None
    if not isinstance(limit, Real):
        told = f"action_limit={brief(limit)}"
        raise ConfigError(f"{told}: must be one number above 0, or None for no limit")
    value = float(limit)
    if not value > 0:
        raise ConfigError(f"action_limit={value:g}: must be above 0, or None for no limit")
    return value


def check_sampler(name: str, value: Any) -> None:
    """Raise ConfigError unless a model or policy can be asked for samples."""
    if not callable(getattr(value, "sample", None)):
        raise ConfigError(f"{name}={brief(value)}: has no method sample")


def check_hashable(parts: Any) -> None:
    """Raise PlanError where compiled programs could not be found again by what they are for.

    Args:
        parts: a pytree; all that is no array must be hashable.
    """
    for path, part in jax.tree_util.tree_leaves_with_path(parts):
        if eqx.is_array(part):
            continue
        try:
            hash(part)
        except TypeError as error:
            who = jax.tree_util.keystr(path[-1:], simple=True)
            raise PlanError(
                f"{who} {type(part).__name__}: must be hashable (a frozen dataclass, a plain "
                f"class) or an equinox Module ({one_line(error)})"
            ) from error


def answer_of(who: str, part: Any, call: Callable[[], T]) -> T:
    """Call a user's part, and say whose error it is.

    Args:
        who: what the part is to a planner, such as ``policy``.
        part: the object, whose class is named.
        call: asks it.

    Raises:
        PlanError: it raised something that is not our own error.
    """
    try:
        return call()
    except JumpyError:
        raise
    except Exception as error:
        name = type(part).__name__
        raise PlanError(f"{who} {name}: raised {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """Return an error's type and the first line of what it says."""
    lines = f"{error}".strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _require_finite(array: np.ndarray, subject: str, remark: str = "") -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(np.argwhere(bad)[0].tolist())
        raise PlanError(
            f"{subject}{bad.sum()} values that are not finite, first at {first}{remark}"
        )
