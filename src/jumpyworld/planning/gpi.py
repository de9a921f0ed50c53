"""GPI and GGPI: CompPlan with other switching probabilities.

Paper: section 3.3. Both set horizons and nothing else; ``CompPlan`` does the rest.
"""

from collections.abc import Sequence
from typing import Any

from jumpyworld.errors import ConfigError
from jumpyworld.planning.compplan import CompPlan, MakeProposal
from jumpyworld.planning.gsp import as_discount
from jumpyworld.planning.proposals import AbstractProposal
from jumpyworld.planning.repertoire import SampleActions, SampleSuccessors


class GPI(CompPlan):
    """Generalised policy improvement: the best single policy, followed for ever.

    Paper: section 3.3, alpha = (1, 0, ..., 0), and section 4.2. Here it is a sequence of one, which
    is the same: whatever the first step does, the one policy follows.
    Deviation: a model is not asked beyond its largest trained discount; where that is below
    ``discount`` it replaces it. With ``horizons`` one z is repeated over those instead, so that the
    full discount is met by a chain.
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
            discount = min(discount, float(getattr(ghm, "gamma_max", discount)))
            horizons = (1 / (1 - discount),)
        super().__init__(
            ghm, policy, horizons=horizons, discount=discount, proposal=proposal, **settings
        )


class GGPI(CompPlan):
    """Geometric generalised policy improvement: equal switching probabilities.

    Paper: section 3.3, alpha_1 = ... = alpha_{n-1} = alpha; the last policy is never left.
    Deviation: the last policy's discount is at most the largest that the model was trained for.
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
            settings: CompPlan's.
        """
        if not 0 < alpha < 1:
            raise ConfigError(f"alpha={alpha:g}: must lie in (0, 1)")
        discount = as_discount(discount)
        if num_segments < 1:
            raise ConfigError(f"num_segments={num_segments}: must be at least 1")
        last = min(discount, float(getattr(ghm, "gamma_max", discount)))
        betas = [discount * (1 - alpha)] * (num_segments - 1) + [last]
        super().__init__(
            ghm,
            policy,
            horizons=[1 / (1 - beta) for beta in betas],
            discount=discount,
            proposal=proposal,
            **settings,
        )
