"""The paths of lgatr 2.0's names."""

from __future__ import annotations

from . import config, interface, layers, nets, primitives, utils
from .layers import parts

__all__ = ["PATHS"]

PATHS = (
    ("interface.axialvector", interface, "embed_axialvector extract_axialvector"),
    ("interface.bivector", interface, "embed_bivector extract_bivector"),
    ("interface.pseudoscalar", interface, "embed_pseudoscalar extract_pseudoscalar"),
    ("interface.scalar", interface, "embed_scalar extract_scalar"),
    ("interface.spurions", interface, "get_num_spurions get_spurions"),
    ("interface.vector", interface, "embed_vector extract_vector"),
    ("layers", config, "CrossAttentionConfig MLPConfig SelfAttentionConfig"),
    ("layers.attention", config, "CrossAttentionConfig SelfAttentionConfig"),
    ("layers.attention.config", config, "CrossAttentionConfig SelfAttentionConfig"),
    ("layers.attention.cross_attention", layers, "CrossAttention"),
    ("layers.attention.qkv", parts, "MultiQueryQKVModule QKVModule"),
    ("layers.attention.self_attention", layers, "SelfAttention"),
    ("layers.conditional_lgatr_block", layers, "ConditionalLGATrBlock"),
    ("layers.dropout", layers, "GradeDropout"),
    ("layers.layer_norm", layers, "EquiLayerNorm"),
    ("layers.lgatr_block", layers, "LGATrBlock"),
    ("layers.linear", layers, "EquiLinear"),
    ("layers.mlp", layers, "GeoMLP GeometricBilinear ScalarGatedNonlinearity"),
    ("layers.mlp", config, "MLPConfig"),
    ("layers.mlp.config", config, "MLPConfig"),
    ("layers.mlp.geometric_bilinears", layers, "GeometricBilinear"),
    ("layers.mlp.mlp", layers, "GeoMLP"),
    ("layers.mlp.nonlinearities", layers, "ScalarGatedNonlinearity"),
    (
        "layers.slim_layers",
        layers,
        "ConditionalSlimBlock SlimBlock SlimCrossAttention SlimDropout SlimGLU SlimLinear SlimMLP SlimRMSNorm "
        "SlimSelfAttention",
    ),
    ("nets.conditional_lgatr", nets, "ConditionalLGATr"),
    ("nets.conditional_slim", nets, "ConditionalLGATrSlim"),
    ("nets.lgatr", nets, "LGATr"),
    ("nets.slim", nets, "LGATrSlim"),
    ("primitives.attention", primitives, "scaled_dot_product_attention sdp_attention"),
    ("primitives.bilinear", primitives, "geometric_product"),
    ("primitives.config", config, "PrimitivesConfig"),
    ("primitives.dropout", primitives, "grade_dropout"),
    ("primitives.invariants", primitives, "abs_squared_norm inner_product"),
    ("primitives.linear", primitives, "equi_linear grade_involute grade_project reverse"),
    ("primitives.normalization", primitives, "equi_layer_norm"),
    ("utils.autocast", utils, "autocast_dtype minimum_autocast_precision naive_amp"),
    ("utils.compile", utils, "compile_model"),
    ("utils.misc", utils, "get_nonlinearity residual_add"),
)
"""For each path the module that has names, and the names. A path may occur more than once."""
