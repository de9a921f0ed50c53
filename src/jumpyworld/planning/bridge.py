"""Ways to the goal: the data's own jumps, given that they lead there.

    P_k       where the data are, from each place, after segment k's stride of steps, counted [C, C]
    h_k(i)    1 at the goal's place, else patience * sum_j P_{k+1}(i, j) h_{k+1}(j)
    z_k       a state of a place j ~ P_k(i, j) h_k(j), i being the place of z_{k-1}; and the goal
              itself from its place on

The unconditional proposal chains jumps of the data too, and almost none of its sequences meets a
goal that is far away. h_k(i) is the mean of patience^(jumps until the goal) from i, so that this is
exactly the chain of P, given that it arrives before it gives up, which it does with chance
1 - patience before every jump. h_K counts on with the last segment's jumps, so that a sequence
leads the right way where the goal is farther than K jumps.

Strides are of one length, a share of the segment's horizon. Jumps of geometric length, as a model's
are, make poor subgoals: a policy wastes its time on those that are next to it, and does not find
those that are far. Nothing here asks the model. Not in the paper.

Shapes: M candidates, K segments, C places, R states kept of each, d state dimensions.
"""

# Some of JAX's own signatures are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jumpyworld.errors import ConfigError
from jumpyworld.planning.estimate import Question, draw_in_turns
from jumpyworld.planning.gsp import discounts_of_horizons
from jumpyworld.planning.precedents import Places, count_steps, nearest
from jumpyworld.planning.proposals import AbstractProposal, check_count
from jumpyworld.planning.tasks import vector_goal

PATIENCE, STRIDE = 0.3, 0.5
_ENDLESS = 1 - 1e-6


class BridgeProposal(AbstractProposal):
    """Chains of the data's jumps between places, given that they arrive at the goal.

    All probabilities are logarithms: a far goal's are below what float32 can hold.

    Attributes:
        number: candidates.
        centres: of the places [C, p].
        examples: states of each place [C, R, d].
        jumps_to: log P_k [K, C, C].
        arrival: log h_K of each place (rows) for a goal in each (columns) [C, C].
        patience: chance to go on after each jump.
        features: states [..., d] to what places are made of [..., p].
    """

    number: int = eqx.field(static=True)
    centres: Float[Array, "C p"]
    examples: Float[Array, "C R d"]
    jumps_to: Float[Array, "K C C"]
    arrival: Float[Array, "C C"]
    patience: Float[Array, ""]
    features: Callable[[Any], Any] = eqx.field(static=True)

    def __init__(
        self,
        places: Places,
        horizons: Sequence[float],
        number: int,
        *,
        patience: float = PATIENCE,
        stride: float = STRIDE,
    ):
        """Count the data's jumps over the horizons of a plan.

        Args:
            places: where the data go from where.
            horizons: mean steps of each segment [K], those of the planner.
            number: candidates.
            patience: chance to go on after each jump, above 0 and at most 1: the lower, the more
                a short way with unusual jumps is preferred to a long one with usual jumps.
            stride: length of a jump as a share of its segment's horizon; 0 for geometric lengths of
                that mean, the law of the paper's unconditional proposal.

        Raises:
            ConfigError: a number is out of range.
        """
        check_count(self, number)
        if not 0 < patience <= 1:
            raise ConfigError(f"patience={patience:g}: must be above 0 and at most 1")
        if not (np.isfinite(stride) and stride >= 0):
            raise ConfigError(f"stride={stride:g}: must be a finite number, at least 0")
        chances = jump_chances(_count(places, horizons, stride))
        with np.errstate(divide="ignore"):
            jumps_to, arrival = np.log(chances), np.log(arrivals(chances[-1], patience))
        self.number, self.features = number, places.features
        self.centres, self.examples = jnp.asarray(places.centres), jnp.asarray(places.examples)
        self.jumps_to, self.arrival = jnp.asarray(jumps_to, float), jnp.asarray(arrival, float)
        self.patience = jnp.asarray(patience, float)

    @property
    def count(self) -> int:
        """Number of candidates."""
        return self.number

    def sample(self, key: PRNGKeyArray, question: Question) -> Float[Array, "M K dz"]:
        """Draw all candidates for one state."""
        if len(self.jumps_to) != len(question.betas):
            raise ConfigError(
                f"BridgeProposal: made for {len(self.jumps_to)} horizons, asked for "
                f"{len(question.betas)}"
            )
        goal = vector_goal(question.task, "BridgeProposal", question.repertoire.policy)
        start, end = self._place(question.state), self._place(goal)
        ahead = self._ahead(end)

        def step(
            here: Int[Array, " M"], segment: tuple[PRNGKeyArray, Array, Array]
        ) -> tuple[Array, Array]:
            keys, jumps, arrives = segment
            bridged = jumps[here] + arrives[None]
            # Where no way is known, the data's jumps alone are at least states of the data.
            known = (bridged > -jnp.inf).any(-1, keepdims=True)
            there = jax.random.categorical(keys[0], jnp.where(known, bridged, jumps[here]))
            there = jnp.where(here == end, end, there)
            pick = jax.random.randint(keys[1], there.shape, 0, self.examples.shape[1])
            z = self.examples[there, pick].astype(question.state.dtype)
            return there, jnp.where((there == end)[:, None], goal.astype(z.dtype)[None], z)

        def draw(key: PRNGKeyArray, here: Array) -> Array:
            keys = jax.random.split(key, (len(question.betas), 2))
            return jnp.swapaxes(jax.lax.scan(step, here, (keys, self.jumps_to, ahead))[1], 0, 1)

        here = jnp.broadcast_to(start, (self.number,))
        return draw_in_turns(draw, key, here, question.max_rows)

    def _ahead(self, end: Int[Array, ""]) -> Float[Array, "K C"]:
        """Return log h_1..h_K for a goal in a place."""
        at_goal = jnp.arange(len(self.centres)) == end

        def back(after: Array, jumps: Array) -> tuple[Array, Array]:
            before = jnp.log(self.patience) + jax.nn.logsumexp(jumps + after[None], axis=1)
            return jnp.where(at_goal, jnp.zeros_like(before), before), after

        last = self.arrival[:, end]
        return jax.lax.scan(back, last, self.jumps_to, reverse=True)[1]

    def _place(self, state: Float[Array, " d"]) -> Int[Array, ""]:
        return nearest(self.features(state[None]).astype(self.centres.dtype), self.centres, jnp)[0]


def _count(places: Places, horizons: Sequence[float], stride: float) -> Int[np.ndarray, "K C C"]:
    """Count the jumps of each segment."""
    betas, number = discounts_of_horizons(horizons), len(places.centres)
    if not stride:
        return places.count(betas)
    longest = int(np.diff(places.ends, prepend=-1).max()) - 1
    # Rounded first, as a horizon may have been a discount: half a step must not hang on its noise.
    with np.errstate(over="ignore"):  # told below, as longer than the data
        lengths = np.floor(np.round(stride * np.asarray(horizons, np.float64), 6) + 0.5)
    different, which = np.unique(np.maximum(1, lengths), return_inverse=True)
    if different[-1] > longest:
        raise ConfigError(
            f"stride={stride:g}: jumps of {different[-1]:g} steps, and the data's longest "
            f"trajectory has {longest}"
        )
    counts = [count_steps(places.labels, places.ends, int(n), number) for n in different]
    return np.stack(counts)[which]


def jump_chances(counts: Int[np.ndarray, "K C C"]) -> Float[np.ndarray, "K C C"]:
    """Return counts as probabilities; from where the data never go on, a jump stays."""
    stays = np.eye(counts.shape[-1])
    total = counts.sum(-1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), stays)


def arrivals(chances: Float[np.ndarray, "C C"], patience: float) -> Float[np.ndarray, "C C"]:
    """Return the mean of patience^(jumps until the column's place is first met) from each row's.

    It is N(i, j) / N(j, j) with N = sum_n (patience P)^n = (I - patience P)^-1. Endless patience is
    taken for all but endless, as N has then no end.
    """
    # Transposed, the diagonal outweighs its column: off it elimination cancels nothing, so that
    # even the smallest entries keep their digits.
    system = np.eye(len(chances)) - min(patience, _ENDLESS) * chances
    visits = np.linalg.inv(system.T).T
    return np.clip(visits / np.diag(visits), 0.0, 1.0)
