"""The one training loop: every policy, the GHM and the world model go through it.

An algorithm hands over pure functions (a ``TrainingJob``); the loop adds what all of them need:
compiled chunks, exact resume, checkpoints, the log, the clock, signals and the guard against NaN.
"""

from jumpyworld.training.config import TrainingConfig
from jumpyworld.training.job import DivergedError, Result, TrainingJob
from jumpyworld.training.loop import train

__all__ = ["DivergedError", "Result", "TrainingConfig", "TrainingJob", "train"]
