"""What planning was like while episodes ran: its time, its doubts, and where it was heading.

Distances are Euclidean in the coordinates that a goal is about (``domain.goal_features``): metres
in mazes, the cubes' positions in the observation's units.

Shapes: E environments, C environments of one call, K segments, d state.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from jumpyworld.domains import Domain
from jumpyworld.evaluation.arrivals import Arrivals
from jumpyworld.planning import Plan

# A subgoal that moves by more than this many tolerances between two plans is another subgoal.
JUMP_TOLERANCES = 4.0


@dataclass(frozen=True)
class Decisions:
    """Means over all plans of an evaluation. None: nothing was measured.

    Attributes:
        plans: plans made.
        plan_ms: time of a plan in ms: that of all batched calls after warm-up, divided by the plans
            they made. Places of a batch that no running episode needs cost time and are no plans.
        batch_ms: mean time of a batched call in ms, after warm-up.
        batch: environments of a batched call, needed or not.
        all_zero: share of plans in which no candidate found any reward.
        all_invalid: share of plans in which no candidate has a finite value.
        dithering: share of plans whose z_1 is farther than ``jump`` from that of the plan before.
            Here and below only plans count that follow a candidate, and not those that are a way
            out.
        jump: that distance.
        z1_distance: mean distance from the state to z_1.
        z1_reached: share of plans whose z_1 was reached within the first horizon; see ``arrivals``.
        evaluations: network evaluations of a plan.
        invalid: candidates of a plan whose value is not finite.
        weight_sum: how much of the future a plan looks at, from 0 to 1.
    """

    plans: int
    plan_ms: float | None
    batch_ms: float | None
    batch: int
    all_zero: float
    all_invalid: float
    dithering: float | None
    jump: float
    z1_distance: float | None
    z1_reached: float | None
    evaluations: float
    invalid: float
    weight_sum: float


class DecisionLog:
    """Adds up what plans say while episodes run."""

    def __init__(
        self, domain: Domain, jump: float | None = None, *, first_horizon: float | None = None
    ):
        """Begin with nothing.

        Args:
            domain: whose goal coordinates count.
            jump: distance beyond which z_1 has jumped; a few tolerances by default.
            first_horizon: steps within which z_1 should be reached; None for no such thing.
        """
        self._domain = domain
        self._jump = JUMP_TOLERANCES * domain.tolerance if jump is None else jump
        self._sums = dict.fromkeys(
            ("all_zero", "all_invalid", "evaluations", "invalid", "weight_sum"), 0.0
        )
        self._plans, self._batch = 0, 0
        self._seconds: list[float] = []
        self._timed = 0
        self._distances, self._found, self._jumps, self._pairs = 0.0, 0, 0, 0
        self._last: dict[int, np.ndarray] = {}
        self._arrivals = Arrivals(domain, first_horizon)

    def begin(self, environments: int) -> None:
        """Forget which plans came before: new episodes begin."""
        self._last = {}
        self._arrivals.begin(environments)

    @contextmanager
    def timing(self, size: int, plans: int, *, warm: bool) -> Iterator[None]:
        """Time a batched call.

        Args:
            size: environments of the call.
            plans: those of them whose episodes still run.
            warm: whether nothing can be compiled in it; only then does it count.
        """
        start = time.perf_counter()
        yield
        self._batch = size
        if warm:
            self._seconds.append(time.perf_counter() - start)
            self._timed += plans

    def add(
        self, step: int, rows: Int[np.ndarray, " C"], states: Float[np.ndarray, "C d"], plans: Plan
    ) -> None:
        """Add one plan for each of some environments.

        Args:
            step: control steps since the episodes began.
            rows: which environments.
            states: where they are.
            plans: with arrays of NumPy and a leading axis C.
        """
        self._plans += len(rows)
        for name in self._sums:
            self._sums[name] += float(np.asarray(getattr(plans, name), np.float64).sum())
        z = np.asarray(plans.z)[:, 0]
        if z.shape[-1] != self._domain.observation_dim:
            return  # z is no state here, and has no place
        found = np.asarray(plans.chosen) >= 0
        self._arrivals.plan(step, rows, z, found)
        self._distances += float(self._gap(z[found], states[found]).sum())
        self._found += int(found.sum())
        for row, subgoal, follows in zip(rows.tolist(), z, found.tolist(), strict=True):
            last = self._last.pop(row, None)
            if not follows:
                continue  # a way out has no subgoal
            if last is not None:
                self._pairs += 1
                self._jumps += bool(self._gap(subgoal, last) > self._jump)
            self._last[row] = subgoal

    def see(self, step: int, rows: Int[np.ndarray, " R"], states: Float[np.ndarray, "R d"]) -> None:
        """Note where environments are after so many control steps."""
        self._arrivals.see(step, rows, states)

    def _gap(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        gap = self._domain.goal_features(a) - self._domain.goal_features(b)
        return np.sqrt(np.square(gap).sum((-1, -2)))

    def summary(self) -> Decisions:
        """Return the means."""
        plans = max(self._plans, 1)
        all_ms = 1e3 * float(np.sum(self._seconds))
        means = {name: value / plans for name, value in self._sums.items()}
        return Decisions(
            plans=self._plans,
            plan_ms=all_ms / self._timed if self._timed else None,
            batch_ms=all_ms / len(self._seconds) if self._seconds else None,
            batch=self._batch,
            dithering=self._jumps / self._pairs if self._pairs else None,
            jump=self._jump,
            z1_distance=self._distances / self._found if self._found else None,
            z1_reached=self._arrivals.share,
            **means,
        )


@dataclass
class Trace:
    """One episode as it went, to draw it.

    Attributes:
        task: which task.
        goal: observation at the goal [d].
        success: whether it ended there.
        states: from the start to the end, each [d].
        plan_steps: steps at which a plan was made.
        z: the plans' sequences, each [K, dz].
        actions: the plans' first actions, each [da].
    """

    task: int
    goal: Float[np.ndarray, " d"]
    success: bool = False
    states: list[np.ndarray] = field(default_factory=list)
    plan_steps: list[int] = field(default_factory=list)
    z: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
