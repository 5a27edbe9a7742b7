"""L-GATr's networks with its names, arguments, layout and state dicts (lgatr 2.0; :mod:`.v1` is for 1.4).

A model of lgatr runs with these classes in place of lgatr's, with no other change, and its state dicts load and save
as they are::

    from flashcliff.compat.lgatr import LGATr, embed_vector, extract_vector

    net = LGATr(num_blocks=6, in_mv_channels=1, out_mv_channels=1, hidden_mv_channels=16, in_s_channels=0,
                out_s_channels=0, hidden_s_channels=32, attention={"num_heads": 8}, mlp={})
    mv, scalars = net(embed_vector(momenta))  # momenta [batch, particles, 1, 4]

Tensors are ``[*batch, items, channels, 16]``. Ragged batches have one batch row, and the boundaries of their sequences
as ``cu_seqlens_q`` and ``cu_seqlens_k``, or one of the other arguments of :func:`attention_options`.

Names are at lgatr's paths too, so ``flashcliff.compat.lgatr.layers.attention.config`` can be imported from. Names with an
underscore and ``primitives.attention_backends`` are not offered.

Sources: arXiv 2405.14806, 2411.00446, 2512.17011 (slim); github.com/heidelberg-hepml/lgatr.
"""

from .._paths import offer
from . import interface, layers, nets, primitives, utils, v1
from .config import CrossAttentionConfig, MLPConfig, PrimitivesConfig, SelfAttentionConfig
from .interface import (
    embed_axialvector,
    embed_bivector,
    embed_pseudoscalar,
    embed_scalar,
    embed_vector,
    extract_axialvector,
    extract_bivector,
    extract_pseudoscalar,
    extract_scalar,
    extract_vector,
    get_num_spurions,
    get_spurions,
)
from .layers import (
    ConditionalLGATrBlock,
    CrossAttention,
    EquiLayerNorm,
    EquiLinear,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    LGATrBlock,
    ScalarGatedNonlinearity,
    SelfAttention,
)
from .nets import ConditionalLGATr, ConditionalLGATrSlim, LGATr, LGATrSlim
from .options import attention_options
from .paths import PATHS
from .precision import naive_amp

__all__ = [
    "ConditionalLGATr",
    "ConditionalLGATrBlock",
    "ConditionalLGATrSlim",
    "CrossAttention",
    "CrossAttentionConfig",
    "EquiLayerNorm",
    "EquiLinear",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "LGATr",
    "LGATrBlock",
    "LGATrSlim",
    "MLPConfig",
    "PrimitivesConfig",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
    "attention_options",
    "embed_axialvector",
    "embed_bivector",
    "embed_pseudoscalar",
    "embed_scalar",
    "embed_vector",
    "extract_axialvector",
    "extract_bivector",
    "extract_pseudoscalar",
    "extract_scalar",
    "extract_vector",
    "get_num_spurions",
    "get_spurions",
    "interface",
    "layers",
    "naive_amp",
    "nets",
    "primitives",
    "utils",
    "v1",
]

offer(__name__, PATHS)
