"""Logged behaviour on the host: arrays of states, and where each trajectory begins and ends.

Rows are states. A trajectory of L transitions has L + 1 rows, so that every state that was seen
appears once, and row i and row i + 1 are a transition unless i ends a trajectory:

    row           0   1   2   3 | 4   5   6
    observations  s0  s1  s2  s3| s0  s1  s2
    actions       a0  a1  a2  a3| a0  a1  a2      the last action led to no recorded state
    starts = [0, 4]   ends = [3, 6]   valid_indices = [0, 1, 2, 4, 5]

This is the layout of OGBench's files. Sources that store transitions instead do not know the last
action; there the last row repeats the one before and ``extras["padded"]`` marks it.

Shapes: N states, T trajectories, d observation and da action dimensions.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from jumpyworld.data import validate
from jumpyworld.errors import data_error

# Neighbouring rows come from one float32 array, so a larger gap means rows that do not belong
# together; relative for values above one.
CONTINUITY = 1e-5


@dataclass(frozen=True)
class Trajectory:
    """One trajectory of L transitions, as read-only views of the dataset.

    Attributes:
        observations: states [L + 1, d].
        actions: actions [L + 1, da]; the last one led to no recorded state.
        extras: further arrays [L + 1, ...] by name.
    """

    observations: Float[np.ndarray, "rows d"]
    actions: Float[np.ndarray, "rows da"]
    extras: Mapping[str, Shaped[np.ndarray, "rows ..."]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Trajectories as flat arrays; read-only, and checked for bounds that tile the rows.

    Attributes:
        observations: states, float32 [N, d].
        actions: actions, float32 [N, da].
        starts: first row of each trajectory, int64 [T].
        ends: last row of each trajectory, inclusive, int64 [T].
        extras: further arrays [N, ...] by name: ``qpos``, ``qvel``, ``rewards``; ``masks`` is 0
            where the transition out of a row reached a true terminal; ``padded`` see above.
        domain: OGBench dataset name such as ``antmaze-large-navigate-v0``, if known.
        source: where the data came from, for messages.
    """

    observations: Float[np.ndarray, "N d"]
    actions: Float[np.ndarray, "N da"]
    starts: Int[np.ndarray, " T"]
    ends: Int[np.ndarray, " T"]
    extras: Mapping[str, Shaped[np.ndarray, "N ..."]] = field(default_factory=dict)
    domain: str | None = None
    source: str = "memory"

    def __post_init__(self):
        rows = {"observations": self.observations, "actions": self.actions, **self.extras}
        validate.check_leading(self.source, rows)
        for key in ("observations", "actions"):
            object.__setattr__(self, key, _frozen(validate.as_float32(self.source, key, rows[key])))
        for key in ("starts", "ends"):
            object.__setattr__(self, key, _frozen(np.asarray(getattr(self, key), dtype=np.int64)))
        extras = {key: _frozen(array) for key, array in self.extras.items()}
        object.__setattr__(self, "extras", extras)
        following = np.append(self.starts[1:], len(self.observations))
        if (
            self.starts.ndim != 1
            or self.starts.shape != self.ends.shape
            or len(self.starts) == 0
            or self.starts[0] != 0
            or (self.ends < self.starts).any()
            or (self.ends + 1 != following).any()
        ):
            raise data_error(self.source, "starts and ends do not tile the rows")

    @classmethod
    def from_arrays(
        cls,
        observations: np.ndarray,
        actions: np.ndarray,
        terminals: np.ndarray,
        *,
        extras: Mapping[str, np.ndarray] | None = None,
        domain: str | None = None,
        source: str = "memory",
        action_low: float = -1.0,
        action_high: float = 1.0,
        allow: Collection[str] = (),
    ) -> "Dataset":
        """Build a dataset from rows of states, and validate it.

        Args:
            observations: states [N, d].
            actions: actions [N, da].
            terminals: 1 at the last state of each trajectory, else 0: [N].
            extras: further arrays [N, ...] by name.
            domain: OGBench dataset name or alias; if registered, the widths are compared.
            source: where the data came from, for messages.
            action_low: lower bound of each action dimension.
            action_high: upper bound of each action dimension.
            allow: names of checks to let pass, from ``validate.CHECKS``.

        Raises:
            DataError: a check failed; the message names the array, row, column, count and value.
        """
        validate.check_allow(allow)
        extras = {key: np.asarray(array) for key, array in (extras or {}).items()}
        observations, actions, terminals = map(np.asarray, (observations, actions, terminals))
        arrays = {"observations": observations, "actions": actions, "terminals": terminals}
        for key in ("observations", "actions"):
            arrays[key] = validate.as_float32(source, key, arrays[key])
        validate.check_leading(source, {**arrays, **extras})
        known = validate.known_domain(domain)
        domain = known.name if known else domain
        widths = (arrays["observations"].shape[1], arrays["actions"].shape[1])
        validate.check_dimensions(source, domain, *widths, allow)
        for key, array in {**arrays, **extras}.items():
            validate.check_finite(source, key, array, allow)
        validate.check_huge(source, "observations", arrays["observations"], allow)
        validate.check_actions(source, arrays["actions"], action_low, action_high, allow)
        flags = validate.as_flags(source, "terminals", terminals)
        starts, ends = bounds(validate.close_last(source, flags, allow))
        validate.check_lengths(source, starts, ends, allow)
        return cls(arrays["observations"], arrays["actions"], starts, ends, extras, domain, source)

    @property
    def num_states(self) -> int:
        """Number of rows N."""
        return len(self.observations)

    @property
    def num_trajectories(self) -> int:
        """Number of trajectories T."""
        return len(self.starts)

    @property
    def num_transitions(self) -> int:
        """Number of rows that have a successor, N - T."""
        return self.num_states - self.num_trajectories

    @property
    def observation_dim(self) -> int:
        """Width d of a state."""
        return self.observations.shape[1]

    @property
    def action_dim(self) -> int:
        """Width da of an action."""
        return self.actions.shape[1]

    @property
    def lengths(self) -> Int[np.ndarray, " T"]:
        """Transitions in each trajectory [T]."""
        return self.ends - self.starts

    @property
    def terminals(self) -> Bool[np.ndarray, " N"]:
        """True at the last state of each trajectory [N]."""
        flags = np.zeros(self.num_states, dtype=bool)
        flags[self.ends] = True
        return flags

    @cached_property
    def valid_indices(self) -> Int[np.ndarray, " V"]:
        """Rows that have a successor, int64 [N - T]."""
        return _frozen(np.flatnonzero(~self.terminals))

    def trajectory(self, i: int) -> Trajectory:
        """Return trajectory ``i``; negative ``i`` counts from the end."""
        rows = slice(self.starts[i], self.ends[i] + 1)
        extras = {key: array[rows] for key, array in self.extras.items()}
        return Trajectory(self.observations[rows], self.actions[rows], extras)

    def fingerprint(self) -> str:
        """Return a sha256 over all arrays and bounds: equal data, equal text, on any machine."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        named = {"observations": self.observations, "actions": self.actions}
        named |= {"starts": self.starts, "ends": self.ends}
        named |= {f"extras/{key}": self.extras[key] for key in sorted(self.extras)}
        for key, array in named.items():
            array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.data)
        return digest.hexdigest()


def bounds(terminals: Bool[np.ndarray, " N"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last row of each trajectory, int64 [T] each.

    Args:
        terminals: True at the last state of each trajectory [N]; the last row must be True.
    """
    ends = np.flatnonzero(terminals)
    return np.concatenate([[0], ends[:-1] + 1]).astype(np.int64), ends.astype(np.int64)


def states_from_transitions(
    source: str,
    observations: np.ndarray,
    next_observations: np.ndarray,
    last: Bool[np.ndarray, " M"],
    others: Mapping[str, np.ndarray],
    allow: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Turn M transitions into rows of states by appending each trajectory's final state.

    Args:
        source: where the data came from, for messages.
        observations: states [M, d].
        next_observations: successors [M, d].
        last: True at the last transition of each trajectory [M].
        others: further arrays [M, ...]; their final rows repeat the row before.
        allow: names of checks to let pass.

    Returns:
        Arrays with M + T rows: ``observations``, ``terminals``, ``padded`` (True on the final
        rows) and the others by name.
    """
    s = validate.as_float32(source, "observations", observations)
    s_next = validate.as_float32(source, "next_observations", next_observations)
    arrays = {"observations": s, "next_observations": s_next, "terminals": last, **others}
    validate.check_leading(source, arrays)
    if s.shape != s_next.shape:
        shapes = f"{s_next.shape}, but observations has {s.shape}"
        raise data_error(source, f"next_observations has shape {shapes}")
    validate.check_finite(source, "next_observations", s_next, allow)
    last = validate.close_last(source, last, allow)
    with np.errstate(invalid="ignore"):  # inf - inf, if allowed in
        gap = np.abs(s_next[:-1] - s[1:]) / np.maximum(1, np.abs(s[1:]))
    broken = (gap > CONTINUITY) & ~last[:-1, None]
    if broken.any():
        row, column = divmod(int(np.argmax(broken)), s.shape[1])
        raise data_error(
            source,
            f"next_observations differs from the next row's observation in "
            f"{broken.any(1).sum()} rows inside trajectories, first at row {row}, column {column} "
            f"({s_next[row, column]:g} against {s[row + 1, column]:g})",
        )
    place = np.arange(len(s)) + np.cumsum(last) - last
    final = place[last] + 1
    out = {key: _spread(array, place, array[last], final) for key, array in others.items()}
    out["observations"] = _spread(s, place, s_next[last], final)
    out["terminals"] = np.zeros(len(s) + len(final), dtype=bool)
    out["terminals"][final] = True
    out["padded"] = out["terminals"].copy()
    return out


def _spread(array, place, final_rows, final) -> np.ndarray:
    out = np.empty((len(place) + len(final), *array.shape[1:]), array.dtype)
    out[place] = array
    out[final] = final_rows
    return out


def _frozen(array: np.ndarray) -> np.ndarray:
    # A view, so that the caller's own array keeps its flags.
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
