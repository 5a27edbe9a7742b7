"""GATr's networks with its names, arguments, layout and state dicts (geometric-algebra-transformer 1.4).

A model of GATr runs with these classes in place of GATr's, and its state dicts load and save as they are::

    from flashcliff.compat.gatr import GATr, MLPConfig, SelfAttentionConfig
    from flashcliff.compat.gatr.interface import embed_point, extract_point

    net = GATr(in_mv_channels=1, out_mv_channels=1, hidden_mv_channels=16, in_s_channels=None, out_s_channels=None,
               hidden_s_channels=128, attention=SelfAttentionConfig(), mlp=MLPConfig())
    mv, scalars = net(embed_point(points)[..., None, :])  # points [batch, items, 3]

Tensors are ``[*batch, items, channels, 16]``. Three things differ:

- **Ragged batches.** The networks, blocks and attention take ``cu_seqlens``, the boundaries of graphs in one flat axis
  of items. The default reference of the join is then the mean of each graph; GATr's is the mean over all graphs of a
  flat batch, and a ``BlockDiagonalMask`` keeps it. xformers is not needed.
- **Networks without scalars.** ``hidden_s_channels`` may be ``None``.
- **Errors.** Unknown arguments, and scalars that do not fit the channels, are errors; GATr ignores some of them.

Names are at GATr's paths too, so ``flashcliff.compat.gatr.layers.attention.config`` can be imported from. Names with an
underscore, ``utils.clifford``, ``utils.compile_linear`` and helpers of experiments are not offered.

Sources: arXiv 2305.18415; github.com/Qualcomm-AI-research/geometric-algebra-transformer.
"""

from .._paths import offer
from . import interface, layers, nets, primitives, utils
from .config import MLPConfig, SelfAttentionConfig
from .layers import (
    ApplyRotaryPositionalEncoding,
    CrossAttention,
    EquiLayerNorm,
    EquiLinear,
    GATrBlock,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    ScalarGatedNonlinearity,
    SelfAttention,
)
from .masks import attention_options
from .nets import AxialGATr, GATr
from .paths import PATHS

__all__ = [
    "ApplyRotaryPositionalEncoding",
    "AxialGATr",
    "CrossAttention",
    "EquiLayerNorm",
    "EquiLinear",
    "GATr",
    "GATrBlock",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "MLPConfig",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
    "attention_options",
    "interface",
    "layers",
    "nets",
    "primitives",
    "utils",
]

offer(__name__, PATHS)
