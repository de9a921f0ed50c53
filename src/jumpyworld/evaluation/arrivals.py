"""How often a plan's first subgoal is reached, in episodes as they run.

A plan counts if the episode lasts for its whole first horizon: it is reached if some state within
those steps is at z_1, as the domain counts being at a goal. Plans without a candidate (all zero)
have no subgoal and do not count. Where plans are made more often than the horizon, later plans have
a say in where the episode goes; otherwise it is the chance that pi of z_1 gets there in time.

Shapes: E environments, C environments of one call, H steps of the first horizon, d state.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from jumpyworld.domains import Domain

NEVER = -(2**31)  # earlier than any step less any horizon


class Arrivals:
    """Watches the first subgoals of all plans that are not older than their horizon."""

    def __init__(self, domain: Domain, horizon: float | None):
        """Begin with nothing.

        Args:
            domain: says when a state is at a subgoal.
            horizon: mean steps of the first segment; None watches nothing.
        """
        self._domain = domain
        self._steps = 0 if horizon is None else max(1, round(horizon))
        self._count = self._arrived = 0
        self.begin(0)

    def begin(self, environments: int) -> None:
        """Forget plans that are still watched: new episodes begin."""
        shape = (environments, self._steps)
        # A plan lives in the place of its step modulo H, until the plan H steps later takes it.
        self._made = np.full(shape, NEVER)
        self._reached = np.zeros(shape, bool)
        self._z = np.zeros((*shape, self._domain.observation_dim), np.float32)

    def plan(
        self,
        step: int,
        rows: Int[np.ndarray, " C"],
        z: Float[np.ndarray, "C d"],
        found: Bool[np.ndarray, " C"],
    ) -> None:
        """Watch plans made at a step.

        Args:
            step: control steps since the episodes began.
            rows: which environments.
            z: their first subgoals.
            found: whether there was a plan at all.
        """
        if self._steps:
            place = step % self._steps
            self._made[rows, place] = np.where(found, step, NEVER)
            self._reached[rows, place] = False
            self._z[rows, place] = z

    def see(self, step: int, rows: Int[np.ndarray, " R"], states: Float[np.ndarray, "R d"]) -> None:
        """Compare where environments are after ``step`` steps with what they were sent to."""
        if not self._steps or not len(rows):
            return
        self._reached[rows] |= np.asarray(self._domain.success(states[:, None], self._z[rows]))
        place = step % self._steps
        due = rows[self._made[rows, place] == step - self._steps]
        self._count += len(due)
        self._arrived += int(self._reached[due, place].sum())

    @property
    def share(self) -> float | None:
        """Share of the plans that counted; None where none did."""
        return self._arrived / self._count if self._count else None
