"""Policies: the repertoire that world models describe and planners compose.

Five base policies (``gcbc``, ``hfbc``, ``crl``, ``gctd3``, ``gc1s``), two hierarchical baselines
(``hiql``, ``sharsa``), a scripted one, and ``from_callable`` for a user's own.
"""

from jumpyworld.policies.base import AbstractPolicy
from jumpyworld.policies.outside import OutsidePolicy, from_callable
from jumpyworld.policies.registry import ALGORITHMS, Algorithm, get
from jumpyworld.policies.scripted import ScriptedGoalPolicy
from jumpyworld.policies.settings import PolicyConfig, PolicySpec

__all__ = [
    "ALGORITHMS",
    "AbstractPolicy",
    "Algorithm",
    "OutsidePolicy",
    "PolicyConfig",
    "PolicySpec",
    "ScriptedGoalPolicy",
    "from_callable",
    "get",
]
