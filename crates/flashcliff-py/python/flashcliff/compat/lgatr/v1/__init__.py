"""L-GATr's networks with the names, arguments, layout and state dicts of lgatr 1.4.

They differ from 2.0: one global configuration, ``gatr_config``; norms of blocks without gains; biases of queries, keys
and values; no norm of them in cross-attention; scalars with the exact GELU; ``None`` for no scalars.

Names are at the paths of 1.4 too, layers of L-GATr-slim among them: ``v1.nets.lgatr_slim`` and
``v1.nets.conditional_lgatr_slim``.

Sources: arXiv 2405.14806, 2411.00446, 2512.17011 (slim); github.com/heidelberg-hepml/lgatr.
"""

from ..._paths import offer
from ..interface import (
    embed_axialvector,
    embed_pseudoscalar,
    embed_scalar,
    embed_vector,
    extract_axialvector,
    extract_pseudoscalar,
    extract_scalar,
    extract_vector,
    get_num_spurions,
    get_spurions,
)
from . import primitives, utils
from .attention import CrossAttention, SelfAttention
from .blocks import ConditionalLGATrBlock, LGATrBlock
from .config import CrossAttentionConfig, MLPConfig, SelfAttentionConfig, gatr_config
from .layers import (
    EquiLayerNorm,
    EquiLinear,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    ScalarGatedNonlinearity,
)
from .nets import ConditionalLGATr, LGATr
from .paths import PATHS
from .slim import ConditionalLGATrSlim, LGATrSlim

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
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
    "embed_axialvector",
    "embed_pseudoscalar",
    "embed_scalar",
    "embed_vector",
    "extract_axialvector",
    "extract_pseudoscalar",
    "extract_scalar",
    "extract_vector",
    "gatr_config",
    "get_num_spurions",
    "get_spurions",
    "primitives",
    "utils",
]

offer(__name__, PATHS)
