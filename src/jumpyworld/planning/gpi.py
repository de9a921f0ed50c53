"""GPI and GGPI: CompPlan with other switching probabilities.

Paper: section 3.3. They set horizons, and GGPI the tail; ``CompPlan`` does the rest.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any

from jumpyworld.errors import ConfigError, check_whole
from jumpyworld.planning.compplan import CompPlan, MakeProposal
from jumpyworld.planning.gsp import Tail, as_discount
from jumpyworld.planning.proposals import AbstractProposal
from jumpyworld.planning.repertoire import SampleActions, SampleSuccessors


def gpi_discount(discount: float, model: Any) -> float:
    """Return the discount that a single jump is made with: no larger than the model's largest."""
    return min(discount, float(getattr(model, "gamma_max", discount)))


class GPI(CompPlan):
    """Generalised policy improvement: the best single policy, followed for ever.

    Paper: section 3.3, alpha = (1, 0, ..., 0), and section 4.2. Here it is a sequence of one, which
    is the same: whatever the first step does, the one policy follows.
    Deviation: a model is not asked beyond its largest trained discount; where that is below
    ``discount`` it replaces it. Proposals of the model are drawn at that same single horizon (paper
    silent), unless they are wrapped in a ``FirstProposal``. With ``horizons`` one z is repeated
    over those instead, so that the full discount is met by a chain.
    """

    def __init__(
        self,
        ghm: SampleSuccessors,
        policy: SampleActions,
        *,
        discount: float,
        proposal: AbstractProposal | MakeProposal,
        horizons: Sequence[float] | None = None,
        **settings: Any,
    ):
        """Check and keep the settings; all others are CompPlan's.

        Args:
            ghm: the model.
            policy: pi.
            discount: the global one.
            proposal: makes candidates; with ``horizons``, wrap a chain in ``OneZProposal``.
            horizons: of a chain under one z; None for a single jump at the discount.
            settings: CompPlan's.
        """
        discount = as_discount(discount)  # before the model's own may take its place
        if horizons is None:
            discount = gpi_discount(discount, ghm)
            horizons = (1 / (1 - discount),)
        super().__init__(
            ghm, policy, horizons=horizons, discount=discount, proposal=proposal, **settings
        )


class GGPI(CompPlan):
    """Geometric generalised policy improvement: equal switching probabilities.

    Paper: section 3.3, alpha_1 = ... = alpha_{n-1} = alpha; a sequence pi_1 -> ... -> pi_n has no
    alpha_n (definition gsp-weights): the last policy is never left, and its weight is all that the
    others leave over. Hence ``tail="absorb"``.
    Deviation: the last policy is asked of the model at no more than the largest discount that it
    was trained for. Its weight is the same.
    """

    def __init__(
        self,
        ghm: SampleSuccessors,
        policy: SampleActions,
        *,
        alpha: float,
        num_segments: int,
        discount: float,
        proposal: AbstractProposal | MakeProposal,
        tail: Tail = "absorb",
        **settings: Any,
    ):
        """Check and keep the settings; all others are CompPlan's.

        Args:
            ghm: the model.
            policy: pi.
            alpha: switching probability, in (0, 1).
            num_segments: policies in a sequence, n.
            discount: the global one.
            proposal: makes candidates.
            tail: ``truncate`` leaves the last policy too, and forgets what comes after.
            settings: CompPlan's.
        """
        if not (isinstance(alpha, Real) and 0 < alpha < 1):
            raise ConfigError(f"alpha={alpha}: must be a number in (0, 1)")
        discount = as_discount(discount)
        check_whole("num_segments", num_segments, 1)
        last = gpi_discount(discount, ghm)
        betas = [discount * (1 - alpha)] * (num_segments - 1) + [last]
        super().__init__(
            ghm,
            policy,
            horizons=[1 / (1 - beta) for beta in betas],
            discount=discount,
            proposal=proposal,
            tail=tail,
            **settings,
        )
