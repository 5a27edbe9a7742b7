"""The paths of lgatr 1.4's names."""

from __future__ import annotations

from .. import interface
from . import attention, blocks, config, layers, nets, parts, primitives, slim, slim_layers, utils

__all__ = ["PATHS"]

PATHS = (
    (
        "interface",
        interface,
        "embed_axialvector embed_pseudoscalar embed_scalar embed_vector extract_axialvector extract_pseudoscalar "
        "extract_scalar extract_vector get_num_spurions get_spurions",
    ),
    ("interface.axialvector", interface, "embed_axialvector extract_axialvector"),
    ("interface.pseudoscalar", interface, "embed_pseudoscalar extract_pseudoscalar"),
    ("interface.scalar", interface, "embed_scalar extract_scalar"),
    ("interface.spurions", interface, "get_num_spurions get_spurions"),
    ("interface.vector", interface, "embed_vector extract_vector"),
    ("layers", config, "CrossAttentionConfig MLPConfig SelfAttentionConfig"),
    ("layers", attention, "CrossAttention SelfAttention"),
    ("layers", blocks, "ConditionalLGATrBlock LGATrBlock"),
    ("layers.attention", attention, "CrossAttention SelfAttention"),
    ("layers.attention", config, "CrossAttentionConfig SelfAttentionConfig"),
    ("layers.attention.attention", parts, "GeometricAttention"),
    ("layers.attention.config", config, "CrossAttentionConfig SelfAttentionConfig"),
    ("layers.attention.cross_attention", attention, "CrossAttention"),
    ("layers.attention.qkv", parts, "MultiQueryQKVModule QKVModule"),
    ("layers.attention.self_attention", attention, "SelfAttention"),
    ("layers.conditional_lgatr_block", blocks, "ConditionalLGATrBlock"),
    ("layers.dropout", layers, "GradeDropout"),
    ("layers.layer_norm", layers, "EquiLayerNorm"),
    ("layers.lgatr_block", blocks, "LGATrBlock"),
    ("layers.linear", layers, "EquiLinear"),
    ("layers.mlp", layers, "GeoMLP GeometricBilinear ScalarGatedNonlinearity"),
    ("layers.mlp", config, "MLPConfig"),
    ("layers.mlp.config", config, "MLPConfig"),
    ("layers.mlp.geometric_bilinears", layers, "GeometricBilinear"),
    ("layers.mlp.mlp", layers, "GeoMLP"),
    ("layers.mlp.nonlinearities", layers, "ScalarGatedNonlinearity"),
    ("nets", slim, "ConditionalLGATrSlim LGATrSlim"),
    ("nets.conditional_lgatr", nets, "ConditionalLGATr"),
    ("nets.conditional_lgatr_slim", slim_layers, "ConditionalLGATrSlimBlock CrossAttention"),
    ("nets.conditional_lgatr_slim", slim, "ConditionalLGATrSlim"),
    ("nets.lgatr", nets, "LGATr"),
    ("nets.lgatr_slim", slim, "LGATrSlim"),
    (
        "nets.lgatr_slim",
        slim_layers,
        "Dropout GatedLinearUnit LGATrSlimBlock Linear MLP RMSNorm SelfAttention",
    ),
    ("primitives.attention", primitives, "scaled_dot_product_attention sdp_attention"),
    ("primitives.bilinear", primitives, "geometric_product"),
    ("primitives.config", config, "LGATrConfig gatr_config"),
    ("primitives.dropout", primitives, "grade_dropout"),
    ("primitives.invariants", primitives, "abs_squared_norm inner_product"),
    ("primitives.linear", primitives, "equi_linear grade_involute grade_project reverse"),
    ("primitives.nonlinearities", primitives, "gated_gelu gated_relu gated_sigmoid gated_silu"),
    ("primitives.normalization", primitives, "equi_layer_norm"),
    ("utils.einsum", utils, "cached_einsum custom_einsum"),
    ("utils.misc", utils, "minimum_autocast_precision"),
)
"""For each path the module that has names, and the names. A path may occur more than once."""
