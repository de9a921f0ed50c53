"""Geometric horizon models: where will this policy be, some steps from now?

``GeometricHorizonModel.sample`` answers; ``losses`` holds the TD-Flow and TD-HC objectives, one
function per term; ``algorithm`` trains (``init``, ``step``, ``inference_model``); ``world_model``
is the one-step model that action planning needs.
"""

from jumpyworld.ghm import algorithm, world_model
from jumpyworld.ghm.algorithm import GHMState, inference_model, init, step
from jumpyworld.ghm.batch import GHMBatch
from jumpyworld.ghm.config import BatchLayout, GHMConfig
from jumpyworld.ghm.frame import HORIZONS, Frame, displacement_table
from jumpyworld.ghm.losses import mixture_weights, td_hc_loss
from jumpyworld.ghm.model import Condition, GeometricHorizonModel
from jumpyworld.ghm.spec import GHMSpec
from jumpyworld.ghm.world_model import WorldModel, WorldModelConfig, WorldModelState

__all__ = [
    "HORIZONS",
    "BatchLayout",
    "Condition",
    "Frame",
    "GHMBatch",
    "GHMConfig",
    "GHMSpec",
    "GHMState",
    "GeometricHorizonModel",
    "WorldModel",
    "WorldModelConfig",
    "WorldModelState",
    "algorithm",
    "displacement_table",
    "inference_model",
    "init",
    "mixture_weights",
    "step",
    "td_hc_loss",
    "world_model",
]
