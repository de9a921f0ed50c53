"""The trainable policies by name: one line each, and nothing else to edit for a new one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jumpyworld.errors import ConfigError
from jumpyworld.policies import crl, gc1s, gcbc, gctd3, hfbc, hiql, sharsa
from jumpyworld.policies.settings import PolicyConfig


@dataclass(frozen=True)
class Algorithm:
    """The uniform interface of one policy's module.

    Attributes:
        name: as in result rows and checkpoints.
        config: the class of its settings.
        init: (key, config, spec) to state.
        step: (state, data, key, config) to (state, metrics); pure.
        inference_model: state to the policy that acts and is saved.
        from_checkpoint: (description, arrays) to the policy.
        probe: (state, data, key, config) to metrics for rows of the log, or None.
    """

    name: str
    config: type[PolicyConfig]
    init: Callable[..., Any]
    step: Callable[..., Any]
    inference_model: Callable[..., Any]
    from_checkpoint: Callable[..., Any]
    probe: Callable[..., Any] | None = None


_MODULES = {
    "gcbc": (gcbc, gcbc.GCBCConfig),
    "hfbc": (hfbc, hfbc.HFBCConfig),
    "crl": (crl, crl.CRLConfig),
    "gctd3": (gctd3, gctd3.GCTD3Config),
    "gc1s": (gc1s, gc1s.GC1SConfig),
    "hiql": (hiql, hiql.HIQLConfig),
    "sharsa": (sharsa, sharsa.SHARSAConfig),
}

ALGORITHMS = {
    name: Algorithm(
        name,
        config,
        m.init,
        m.step,
        m.inference_model,
        m.from_checkpoint,
        getattr(m, "probe", None),
    )
    for name, (m, config) in _MODULES.items()
}


def get(name: str) -> Algorithm:
    """Return an algorithm by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in ALGORITHMS:
        raise ConfigError(f"unknown policy {name!r}: choose one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]
