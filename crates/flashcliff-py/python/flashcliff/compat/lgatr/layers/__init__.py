"""L-GATr's layers, with tensors ``[*batch, items, channels, 16]``, and L-GATr-slim's layers, with
``[*batch, items, 4, channels]``."""

from .attention import CrossAttention, SelfAttention
from .blocks import ConditionalLGATrBlock, LGATrBlock
from .linear import (
    EquiLayerNorm,
    EquiLinear,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    ScalarGatedNonlinearity,
)
from .slim import SlimDropout, SlimGLU, SlimLinear, SlimMLP, SlimRMSNorm
from .slim_attention import SlimCrossAttention, SlimSelfAttention
from .slim_blocks import ConditionalSlimBlock, SlimBlock

__all__ = [
    "ConditionalLGATrBlock",
    "ConditionalSlimBlock",
    "CrossAttention",
    "EquiLayerNorm",
    "EquiLinear",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "LGATrBlock",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SlimBlock",
    "SlimCrossAttention",
    "SlimDropout",
    "SlimGLU",
    "SlimLinear",
    "SlimMLP",
    "SlimRMSNorm",
    "SlimSelfAttention",
]
