"""GC-1S: one step of policy improvement over the behaviour's own goal-conditioned value.

Paper: appendix on base policies, item GC-1S. Everything is GC-TD3's (``gctd3``) but the action
that the target bootstraps on:

    critic  (Q(S, A, G) - 1{S' = G} - gamma Qbar(S', A', G))^2      A' = the data's action at S'

Q is then the value of the behaviour (SARSA), never asked about actions that the data do not hold.
At the last state of a trajectory A' is the recorded action where the source stored one, as in
OGBench's files. A source that stores transitions did not: there A' repeats the action before
(``extras["padded"]``), for one row of each trajectory. With ``n_step`` A' is the data's action
where the target bootstraps (the last state's for n rows of each trajectory), and Q is still the
behaviour's, if that acts by the state alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jumpyworld.data.sampling import Batch, DeviceData
from jumpyworld.policies import gctd3
from jumpyworld.policies.base import Metrics, rebuild
from jumpyworld.policies.fql import Actors, OneStepPolicy
from jumpyworld.policies.gctd3 import GCTD3Config, TDState
from jumpyworld.policies.settings import PolicySpec


@dataclass(frozen=True)
class GC1SConfig(GCTD3Config):
    """Settings of GC-1S; the same as those of GC-TD3."""


def dataset_actions(actors: Actors, batch: Batch, s_next, g, key) -> Float[Array, "B da"]:
    """Return A' of the target: what the data did at S'."""
    del actors, s_next, g, key
    return batch.next_actions


def init(key: PRNGKeyArray, config: GC1SConfig, spec: PolicySpec) -> TDState:
    """Return the state before the first step."""
    return gctd3.init(key, config, spec)


def step(
    state: TDState, data: DeviceData, key: PRNGKeyArray, config: GC1SConfig
) -> tuple[TDState, Metrics]:
    """Take one gradient step; pure.

    Args:
        state: before the step.
        data: dataset on the device.
        key: randomness of this step.
        config: settings, static.
    """
    return gctd3.update(state, data, key, config, dataset_actions)


def probe(state: TDState, data: DeviceData, key: PRNGKeyArray, config: GC1SConfig) -> Metrics:
    """Return whether the critics' slopes agree; see ``probe.extraction_probe``."""
    return gctd3.probe(state, data, key, config)


def inference_model(state: TDState) -> OneStepPolicy:
    """Return the policy to save and act with: the student."""
    return gctd3.inference_model(state)


def from_checkpoint(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> OneStepPolicy:
    """Return the policy that a checkpoint describes; see ``base.rebuild``."""
    return rebuild(GC1SConfig, lambda *args: inference_model(init(*args)), document, arrays)
