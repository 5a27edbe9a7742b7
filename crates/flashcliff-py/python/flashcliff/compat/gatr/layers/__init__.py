"""GATr's layers, with tensors ``[*batch, items, channels, 16]``."""

from ..config import SelfAttentionConfig
from .attention import CrossAttention, SelfAttention
from .block import GATrBlock
from .linear import EquiLayerNorm, EquiLinear, GradeDropout, ScalarGatedNonlinearity
from .mlp import GeometricBilinear, GeoMLP
from .rotary import ApplyRotaryPositionalEncoding

__all__ = [
    "ApplyRotaryPositionalEncoding",
    "CrossAttention",
    "EquiLayerNorm",
    "EquiLinear",
    "GATrBlock",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
]
