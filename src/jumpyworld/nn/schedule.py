"""Learning rates that change while training."""

import optax


def cosine_rate(first: float, steps: int, final_fraction: float) -> float | optax.Schedule:
    """Return a rate that falls from ``first`` along a cosine; the number itself where it does not.

    Args:
        first: rate of the first step.
        steps: after how many the fall ends; the rate stays where it is then.
        final_fraction: last rate over the first, in [0, 1].
    """
    # A constant needs no count of steps, so that its optimiser's state has none.
    if final_fraction == 1:
        return first
    return optax.cosine_decay_schedule(first, steps, final_fraction)
