"""Measuring: rollouts of many environments in lockstep, and how right a model is.

Names are imported when they are first used: the worker processes of this room need neither JAX nor
each other's libraries, and start the faster for it.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jumpyworld.evaluation.episode import Episode, run_episode
    from jumpyworld.evaluation.fidelity import Fidelity, geometric_resample, measure_fidelity
    from jumpyworld.evaluation.lockstep import Lockstep
    from jumpyworld.evaluation.transport import emd

__all__ = [
    "Episode",
    "Fidelity",
    "Lockstep",
    "emd",
    "geometric_resample",
    "measure_fidelity",
    "run_episode",
]

_HOMES = {
    "Episode": "episode",
    "Fidelity": "fidelity",
    "Lockstep": "lockstep",
    "emd": "transport",
    "geometric_resample": "fidelity",
    "measure_fidelity": "fidelity",
    "run_episode": "episode",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
