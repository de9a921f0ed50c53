"""Ways of an object: pieces of the data in which some cube went where one of ours has to go.

    trace      rows t..e of a trajectory: a cube lies or is carried at t, rests again at e
    gap        |hand(t) - hand(s)|^2 + |cube(t) - cube_i(s)|^2 + |cube(e) - cube_i(g)|^2, scaled,
               for each cube i of ours that is out of place: how far a trace is from its need
    candidate  the trace with the least gap; and others, drawn in proportion to exp(-gap / 2)
    z_k        arm and cube at t + steps_k of the trace; all other cubes as they are in s, and ours
               too while the trace's has not moved; from e + RELEASE on the cube is where the goal
               has it, and after that segment it is the goal itself

A policy that learnt from play reaches what is half a grasp away and little else, and a goal with
two cubes elsewhere is many grasps away. Nobody may have moved these two cubes like this, but the
data hold thousands of ways of one cube, and cubes are alike: what any did serves for each.
Nothing here asks the model. Not in the paper.

Shapes: N rows of width d, T traces, q numbers that are compared, M candidates, K segments, n cubes.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jumpyworld.domains.base import Domain
from jumpyworld.domains.cube import ARM_DIM, CUBE_DIM, EFFECTOR, GRIPPER, CubeDomain
from jumpyworld.errors import ConfigError
from jumpyworld.planning.estimate import Question
from jumpyworld.planning.proposals import AbstractProposal
from jumpyworld.planning.tasks import vector_goal

STRIDE = 1.0
# In observation units, in which a decimetre is 1: how far apart two things are still alike.
_HAND, _GRIP, _CUBE = 0.6, 0.5, 0.3
# A cube rests that moves less than a millimetre a step for so many steps.
_STILL, _REST = 0.01, 15
# A trace begins at most so many steps before its cube moves, and ends so many after it rests, while
# the hand lets go.
_APPROACH, RELEASE = 60, 3
# Less than that is a cube that was touched, and not one that was put somewhere.
_MOVED = 0.1
_KEPT = 300_000
_IN_PLACE = 0.75


@dataclass(frozen=True, eq=False)
class Traces:
    """The ways of single cubes in a data set.

    Attributes:
        domain: whose.
        states: all rows [N, d].
        keys: what traces are compared by [T, q].
        first: row t of each [T].
        last: row that is RELEASE steps after it came to rest [T].
        slot: which cube moved [T].
    """

    domain: CubeDomain
    states: Float[np.ndarray, "N d"]
    keys: Float[np.ndarray, "T q"]
    first: Int[np.ndarray, " T"]
    last: Int[np.ndarray, " T"]
    slot: Int[np.ndarray, " T"]


def find_traces(
    domain: Domain, observations: Float[np.ndarray, "N d"], ends: Int[np.ndarray, " E"]
) -> Traces:
    """Find where single cubes were moved.

    Args:
        domain: one with cubes.
        observations: of all trajectories, one after the other.
        ends: last row of each trajectory.

    Raises:
        ConfigError: the domain has no cubes, or none of them ever comes to rest.
    """
    if not isinstance(domain, CubeDomain):
        raise ConfigError(f"{domain.alias}: traces are ways of cubes, and it has none")
    if np.shape(observations)[1:] != (domain.observation_dim,):
        raise ConfigError(
            f"observations of shape {np.shape(observations)}: {domain.alias} has states of "
            f"{domain.observation_dim} dimensions"
        )
    states = np.asarray(observations, np.float32)
    parts: list[tuple[np.ndarray, ...]] = []
    end_of = np.asarray(ends)[np.searchsorted(ends, np.arange(len(states)))]
    for cube in range(domain.num_cubes):
        positions = domain.goal_features(states)[:, cube]
        arrival = arrivals_at_rest(positions, end_of)
        first = np.flatnonzero(arrival >= 0)
        end = arrival[first]
        keys = _key(states[first], positions[first], positions[end], np)
        last = np.minimum(end + RELEASE, end_of[end])
        parts.append((keys, first, last, np.full(len(first), cube)))
    keys, first, last, slot = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(first):
        raise ConfigError(f"{domain.alias}: in these data no cube is moved and comes to rest")
    kept = slice(None, None, -(-len(first) // _KEPT))  # neighbours in time are much the same
    return Traces(domain, states, keys[kept], first[kept], last[kept], slot[kept])


def arrivals_at_rest(
    positions: Float[np.ndarray, "N 3"], end_of: Int[np.ndarray, " N"]
) -> Int[np.ndarray, " N"]:
    """Return for each row where the cube next comes to rest, -1 where it is not about to move.

    Args:
        positions: of one cube.
        end_of: last row of each row's trajectory.
    """
    rows, last = np.arange(len(positions)), np.arange(len(positions)) == end_of
    step = np.linalg.norm(np.diff(positions, axis=0, append=positions[-1:]), axis=-1)
    still = (step < _STILL) & ~last
    run_end = _next(~still)
    run_start = rows - _since(still)
    rest = still & (run_end - run_start >= _REST)
    rest |= _touched(rest, positions, end_of)
    begins = np.flatnonzero(rest & ~np.r_[True, rest[:-1]] & ~np.r_[True, last[:-1]])
    following = np.searchsorted(begins, rows, side="right")
    arrival = np.r_[begins, len(rows)][following]
    soon = _next(~rest) - rows <= _APPROACH
    return np.where((arrival <= end_of) & soon, arrival, -1)


class TraceProposal(AbstractProposal):
    """Traces of the data that bring one cube from where it is to where it belongs.

    Attributes:
        number: candidates.
        steps: of the trace, up to the end of each segment [K].
        states: of the data [N, d].
        keys: what traces are compared by [T, q].
        first: first row of each trace [T].
        last: last row of each [T].
        slot: which cube moved [T].
        domain: with cubes.
    """

    number: int = eqx.field(static=True)
    steps: Int[Array, " K"]
    states: Float[Array, "N d"]
    keys: Float[Array, "T q"]
    first: Int[Array, " T"]
    last: Int[Array, " T"]
    slot: Int[Array, " T"]
    domain: CubeDomain = eqx.field(static=True)

    def __init__(
        self, traces: Traces, horizons: Sequence[float], number: int, *, stride: float = STRIDE
    ):
        """Lay traces over the segments of a plan.

        Args:
            traces: from ``find_traces``.
            horizons: mean steps of each segment [K], those of the planner.
            number: candidates.
            stride: steps of the trace that a segment covers, as a share of its horizon.

        Raises:
            ConfigError: a number is out of range.
        """
        if not 1 <= number <= len(traces.keys):
            raise ConfigError(
                f"TraceProposal: number={number}; must be at least 1 and at most "
                f"{len(traces.keys)}, the traces"
            )
        if not (np.isfinite(stride) and stride > 0):
            raise ConfigError(f"stride={stride:g}: must be finite and above 0 for traces")
        with np.errstate(over="ignore"):
            steps = np.cumsum(np.maximum(1, np.round(stride * np.asarray(horizons, np.float64))))
        steps = np.minimum(steps, len(traces.states))  # farther than any trace is long
        self.number, self.domain = number, traces.domain
        self.steps = jnp.asarray(steps, jnp.int32)
        self.states, self.keys = jnp.asarray(traces.states), jnp.asarray(traces.keys)
        self.first, self.last = (
            jnp.asarray(rows, jnp.int32) for rows in (traces.first, traces.last)
        )
        self.slot = jnp.asarray(traces.slot, jnp.int32)

    @property
    def count(self) -> int:
        """Number of candidates."""
        return self.number

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Draw all candidates for one state."""
        if len(self.steps) != len(question.betas):
            raise ConfigError(
                f"TraceProposal: made for {len(self.steps)} horizons, asked for "
                f"{len(question.betas)}"
            )
        state = question.state
        goal = vector_goal(question.task, "TraceProposal", question.repertoire.policy)
        goal = goal.astype(state.dtype)
        here, there = self.domain.goal_features(state), self.domain.goal_features(goal)
        away = jnp.sqrt(jnp.square(here - there).sum(-1)) > _IN_PLACE * self.domain.tolerance
        chances = jnp.where(away[:, None], -0.5 * self.gaps(state, goal), -jnp.inf).reshape(-1)
        picks = jnp.argmax(chances)[None]
        if self.number > 1:
            drawn = chances + jax.random.gumbel(key, chances.shape, chances.dtype)
            drawn = drawn.at[picks].set(-jnp.inf)
            picks = jnp.concatenate([picks, jax.lax.top_k(drawn, self.number - 1)[1]])
        traces = len(self.first)
        z = self._follow(state, goal, picks // traces, picks % traces)
        return jnp.where(away.any(), z, jnp.broadcast_to(goal, z.shape))

    def gaps(self, state: Float[Array, " d"], goal: Float[Array, " d"]) -> Float[Array, "n T"]:
        """Return how far each trace is from what each cube needs."""
        here, there = self.domain.goal_features(state), self.domain.goal_features(goal)
        hands = jnp.broadcast_to(state, (len(here), *state.shape))
        asked = _key(hands, here, there, jnp).astype(self.keys.dtype)
        return jnp.square(self.keys[None] - asked[:, None]).sum(-1)

    def _follow(
        self, state: Array, goal: Array, cube: Int[Array, " M"], trace: Int[Array, " M"]
    ) -> Float[Array, "M K d"]:
        """Return the subgoals along traces, one for each candidate, that move one cube each."""
        rows = self.first[trace][:, None] + self.steps[None]
        arrived = rows >= self.last[trace][:, None]
        found = self.states[jnp.minimum(rows, self.last[trace][:, None])].astype(state.dtype)
        column = jnp.arange(CUBE_DIM)
        ours = ARM_DIM + CUBE_DIM * cube[:, None] + column[None]
        theirs = ARM_DIM + CUBE_DIM * self.slot[trace][:, None] + column[None]
        carried = jnp.take_along_axis(found, theirs[:, None], axis=-1)
        begin = jnp.take_along_axis(self.states[self.first[trace]], theirs, axis=-1)[:, None, :3]
        lies = jnp.abs(carried[..., :3] - begin.astype(carried.dtype)).max(-1) < _MOVED
        carried = jnp.where(lies[..., None], state[ours][:, None], carried)
        carried = jnp.where(arrived[..., None], goal[ours][:, None], carried)
        z = jnp.broadcast_to(state, found.shape).at[..., :ARM_DIM].set(found[..., :ARM_DIM])
        z = z.at[jnp.arange(len(cube))[:, None], :, ours].set(jnp.swapaxes(carried, 1, 2))
        before = jnp.concatenate([jnp.zeros_like(arrived[:, :1]), arrived[:, :-1]], axis=1)
        return jnp.where(before[..., None], goal[None, None], z)


def _key(states: Any, here: Any, there: Any, xp: Any) -> Any:
    """Return what decides whether a trace fits: hand, gripper, cube now, cube then [..., q]."""
    hand, grip = states[..., EFFECTOR] / _HAND, states[..., GRIPPER] / _GRIP
    return xp.concatenate([hand, grip, here / _CUBE, there / _CUBE], axis=-1)


def _touched(
    rest: Bool[np.ndarray, " N"], positions: Float[np.ndarray, "N 3"], end_of: Int[np.ndarray, " N"]
) -> Bool[np.ndarray, " N"]:
    """Return the rows of movements, from rest to rest, that leave the cube where it was."""
    first = np.flatnonzero(~rest & np.r_[False, rest[:-1]])
    after = _next(rest)[first]
    inside = after <= end_of[first]
    first, after = first[inside], after[inside]
    same = np.linalg.norm(positions[after] - positions[first], axis=-1) < _MOVED
    change = np.zeros(len(rest) + 1, np.int64)
    np.add.at(change, first[same], 1)
    np.add.at(change, after[same], -1)
    return np.cumsum(change)[:-1] > 0


def _next(marked: Bool[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """Return the first marked row from each row on; N where there is none."""
    found = np.where(marked, np.arange(len(marked)), len(marked))
    return np.minimum.accumulate(found[::-1])[::-1]


def _since(marked: Bool[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """Return how many rows back the run of marked rows began that each row is in."""
    rows = np.arange(len(marked))
    return rows - np.maximum.accumulate(np.where(marked, -1, rows)) - 1
