"""Checks that turn bad data into one line a user can act on.

Every message names the source, the array, the row, the column, how many entries are affected and
the first or worst value. Checks that a user may overrule have a name in ``CHECKS``; passing that
name in ``allow`` lets the data through unchanged (nothing is clipped or repaired, except that
``open-end`` closes the last trajectory at the last row).
"""

from collections.abc import Collection, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from jumpyworld.errors import ConfigError, JumpyError, data_error

CHECKS = (
    "non-finite",
    "huge-values",
    "dimensions",
    "open-end",
    "short-trajectory",
    "actions-out-of-range",
)

# Squares of larger values leave float32's useful range once they are summed over a batch.
HUGE = 1e6
# Rounding of float64 controllers to float32 overshoots a bound of 1 by less than this.
ACTION_SLACK = 1e-5


def check_allow(allow: Collection[str]) -> None:
    """Refuse names in ``allow`` that no check has, so that a typing error is not silent."""
    for name in [allow] if isinstance(allow, str) else allow:
        if isinstance(allow, str) or name not in CHECKS:
            raise ConfigError(f"allow={allow!r}: {name!r} must be one of {', '.join(CHECKS)}")


def _hint(name: str) -> str:
    return f"(allow '{name}' to accept)"


def as_float32(source: str, key: str, array: np.ndarray) -> Float[np.ndarray, "N d"]:
    """Convert observations or actions to float32 [N, d], or say why they are not that."""
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise data_error(source, f"{key} has dtype {array.dtype}, need float or integer")
    if array.ndim != 2 or array.shape[1] == 0:
        raise data_error(source, f"{key} has shape {array.shape}, need [states, dimensions]")
    with np.errstate(over="ignore"):  # becomes inf, which the finite check reports with its row
        return np.asarray(array, dtype=np.float32)


def as_flags(source: str, key: str, array: np.ndarray) -> Bool[np.ndarray, " N"]:
    """Convert an array of zeros and ones, [N] or [N, 1], to bool [N]."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        raise data_error(source, f"{key} is {array.dtype} of shape {array.shape}, need flags [N]")
    if array.dtype == np.bool_:
        return array
    bad = (array != 0) & (array != 1)
    if bad.any():
        row = int(np.argmax(bad))
        raise data_error(
            source,
            f"{key} has {bad.sum()} values other than 0 and 1, first {array[row]} at row {row}",
        )
    return array.astype(bool)


def check_leading(source: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Require every array to have as many rows as ``observations``, and at least one."""
    rows = len(arrays["observations"])
    if rows == 0:
        raise data_error(source, "observations is empty (0 rows)")
    for key, array in arrays.items():
        if array.ndim == 0 or len(array) != rows:
            raise data_error(
                source, f"{key} has shape {array.shape}, but observations has {rows} rows"
            )
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise data_error(source, f"{key} has dtype {array.dtype}, need numbers")


def check_finite(source: str, key: str, array: np.ndarray, allow: Collection[str]) -> None:
    """Refuse NaN and infinite values in an array [N, ...]."""
    if "non-finite" in allow or array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array)
    if bad.any():
        raise data_error(source, f"{key} has {_where(array, bad)} not finite {_hint('non-finite')}")


def check_huge(source: str, key: str, array: Num[np.ndarray, "N d"], allow) -> None:
    """Refuse values so large that training in float32 would overflow."""
    if "huge-values" in allow or -HUGE <= array.min() <= array.max() <= HUGE:
        return
    bad = (np.abs(array) > HUGE) & np.isfinite(array)  # the others have their own check
    if bad.any():
        what = _where(array, bad)
        raise data_error(source, f"{key} has {what} above {HUGE:g} {_hint('huge-values')}")


def check_actions(source: str, actions: Float[np.ndarray, "N da"], low, high, allow) -> None:
    """Refuse actions outside [low, high]; the worst one is named."""
    if "actions-out-of-range" in allow:
        return
    excess = np.maximum(actions - np.float32(high), np.float32(low) - actions)
    bad = excess > ACTION_SLACK
    if bad.any():
        row, column = divmod(int(np.nanargmax(excess)), actions.shape[1])
        raise data_error(
            source,
            f"actions has {bad.sum()} values in {bad.any(1).sum()} rows outside [{low}, {high}], "
            f"worst {actions[row, column]:g} at row {row}, column {column} "
            + _hint("actions-out-of-range"),
        )


def close_last(source: str, ends: Bool[np.ndarray, " N"], allow) -> Bool[np.ndarray, " N"]:
    """Require the last row to end a trajectory; allowed through, it is made to."""
    if ends[-1]:
        return ends
    if "open-end" not in allow:
        last = int(np.flatnonzero(ends)[-1]) if ends.any() else None
        tail = "no trajectory has an end" if last is None else f"the last end is at row {last}"
        raise data_error(
            source,
            f"terminals is 0 at the last row {len(ends) - 1} and {tail} {_hint('open-end')}",
        )
    ends = ends.copy()
    ends[-1] = True
    return ends


def check_lengths(source: str, starts, ends: Int[np.ndarray, " T"], allow) -> None:
    """Refuse trajectories of a single state, which hold no transition."""
    short = starts == ends
    if short.any() and (short.all() or "short-trajectory" not in allow):
        row = int(starts[np.argmax(short)])
        raise data_error(
            source,
            f"terminals leaves {short.sum()} of {len(ends)} trajectories with one state and no "
            f"transition, first at row {row} {_hint('short-trajectory')}",
        )


def known_domain(name: str | None):
    """Return the registered domain of that name or alias, or None."""
    from jumpyworld import domains

    try:
        return domains.get(name) if name else None
    except JumpyError:
        return None


def check_dimensions(source: str, domain: str | None, observation_dim, action_dim, allow) -> None:
    """Compare the widths with those of the domain, if it is a registered one."""
    known = known_domain(domain)
    if known is None or "dimensions" in allow:
        return
    for key, found, need in (
        ("observations", observation_dim, known.observation_dim),
        ("actions", action_dim, known.action_dim),
    ):
        if found != need:
            raise data_error(
                source,
                f"{key} has {found} columns, but {domain} has {need} {_hint('dimensions')}",
            )


def remarks(observations: np.ndarray, actions: np.ndarray) -> tuple[str, ...]:
    """Return lines about what is odd but not wrong: constant columns, repeated rows.

    Short or simple sets have them for good reasons, so they are for an inspection report and
    never stop a load.

    Args:
        observations: states [N, d].
        actions: actions [N, da].
    """
    lines = []
    for key, array in (("observations", observations), ("actions", actions)):
        constant = np.flatnonzero(array.min(0) == array.max(0))
        lines += [f"{key} column {c} is constant at {array[0, c]:g}" for c in constant]
    same = (observations[1:] == observations[:-1]).all(1) & (actions[1:] == actions[:-1]).all(1)
    if same.any():
        row = int(np.argmax(same)) + 1
        lines.append(f"{same.sum()} rows repeat the row before, first row {row}")
    return tuple(lines)


def _where(array: np.ndarray, bad: np.ndarray) -> str:
    row, column = divmod(int(np.argmax(bad)), max(1, bad[0].size))
    value = array.reshape(len(array), -1)[row, column]
    return f"{bad.sum()} values (first {value:g} at row {row}, column {column})"
