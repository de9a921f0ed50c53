"""Measuring: rollouts of many environments in lockstep, and how right a model is."""

from jumpyworld.evaluation.fidelity import Fidelity, emd, geometric_resample, measure_fidelity
from jumpyworld.evaluation.lockstep import Lockstep

__all__ = ["Fidelity", "Lockstep", "emd", "geometric_resample", "measure_fidelity"]
