"""Networks: MLPs, embeddings of time and discount, the FiLM U-Net, the normaliser, rates, clipping.

Modules are Equinox modules, un-batched (callers ``vmap``), with ``key`` keyword-only.
"""

from jumpyworld.nn.clip import clip_to_typical
from jumpyworld.nn.embed import ContextEncoder, DiscountEmbedding, TimeEmbedding, sinusoid
from jumpyworld.nn.film_unet import FieldNetwork, FiLMBlock, FiLMUNet, hidden_as, layer_norm
from jumpyworld.nn.mlp import MLP, Linear, mish
from jumpyworld.nn.normaliser import Normaliser, make_normaliser
from jumpyworld.nn.schedule import cosine_rate

__all__ = [
    "MLP",
    "ContextEncoder",
    "DiscountEmbedding",
    "FiLMBlock",
    "FiLMUNet",
    "FieldNetwork",
    "Linear",
    "Normaliser",
    "TimeEmbedding",
    "clip_to_typical",
    "cosine_rate",
    "hidden_as",
    "layer_norm",
    "make_normaliser",
    "mish",
    "sinusoid",
]
