"""What the tests of losses share."""

import numpy as np

from jumpyworld.policies.base import PolicySpec

SPEC = PolicySpec(3, 2, (0.0,) * 3, (1.0,) * 3)
B, D, DA = 12, 3, 2


def softplus(x):
    return np.logaddexp(0, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
