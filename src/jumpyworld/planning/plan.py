"""What a planner answers.

Shapes: K segments, M candidates, T rounds, W remembered sequences, da action, dz policy encoding.
"""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int


class Memory(eqx.Module):
    """The best sequences of the last plan, to stand among the next one's candidates.

    Attributes:
        z: sequences, best first [W, K, dz].
        valid: whether there was a last plan; set it to False when an episode begins.
    """

    z: Float[Array, "W K dz"]
    valid: Bool[Array, ""]


class Plan(eqx.Module):
    """The chosen action and sequence, and all that was found and spent on the way.

    A batch of plans has one more leading axis everywhere.

    Attributes:
        action: to execute now [da].
        z: the sequence chosen; until the next plan, follow pi of its first [K, dz].
        value: its estimated value, sum_k w_k r(S_k); NaN where nothing was estimated, or nothing
            that is finite.
        candidate_values: mean value of each candidate [M].
        candidates: their sequences [M, K, dz]; None in batches.
        chosen: number of the candidate chosen; -1 for the base policy as a way out.
        spent: chains spent on each candidate in each round [T, M]; fresh ones, where the search has
            them, are a round of their own, the last.
        evaluations: of the model's network, proposals included, the policy's own not; a float,
            rounded beyond 2^24, as there may be more than an int32 can count.
        all_zero: no candidate is worth anything but zero, and some are worth that: there is nothing
            to choose by. Where the task's goal is an aim there is a way out (``when_all_zero``).
        invalid: candidates whose value was asked for and is not finite. Where that is all of them
            (``all_invalid``), nothing is known of any; the way out is the same.
        weight_sum: sum of the segments' weights; 1 - weight_sum of the future was not looked at.
        memory: for the next plan, if the planner keeps any.
    """

    action: Float[Array, " da"]
    z: Float[Array, "K dz"]
    value: Float[Array, ""]
    candidate_values: Float[Array, " M"]
    candidates: Float[Array, "M K dz"] | None
    chosen: Int[Array, ""]
    spent: Int[Array, "T M"]
    evaluations: Float[Array, ""]
    all_zero: Bool[Array, ""]
    invalid: Int[Array, ""]
    weight_sum: Float[Array, ""]
    memory: Memory | None

    @property
    def all_invalid(self) -> Bool[Array, ""]:
        """Whether no candidate has a finite value: model, policy or reward are broken."""
        judged = (self.spent.sum(-2) > 0).sum(-1)
        return (judged > 0) & (self.invalid >= judged)
