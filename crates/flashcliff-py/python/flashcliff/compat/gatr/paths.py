"""The paths of GATr's names."""

from __future__ import annotations

from . import config, interface, layers, nets, primitives, utils
from .layers import parts

__all__ = ["PATHS"]

PATHS = (
    (
        "interface.object",
        interface,
        "embed_3d_object embed_3d_object_two_vec extract_3d_object extract_3d_object_two_vec",
    ),
    ("interface.plane", interface, "embed_oriented_plane extract_oriented_plane"),
    ("interface.point", interface, "embed_point extract_point extract_point_embedding_reg"),
    ("interface.pseudoscalar", interface, "embed_pseudoscalar extract_pseudoscalar"),
    ("interface.ray", interface, "embed_pluecker_ray extract_pluecker_ray"),
    ("interface.reflection", interface, "embed_reflection extract_reflection"),
    ("interface.rotation", interface, "embed_rotation extract_rotation"),
    ("interface.scalar", interface, "embed_scalar extract_scalar"),
    ("interface.translation", interface, "embed_translation extract_translation"),
    ("layers.attention", config, "SelfAttentionConfig"),
    ("layers.attention.attention", parts, "GeometricAttention"),
    ("layers.attention.config", config, "SelfAttentionConfig"),
    ("layers.attention.cross_attention", layers, "CrossAttention"),
    ("layers.attention.positional_encoding", layers, "ApplyRotaryPositionalEncoding"),
    ("layers.attention.qkv", parts, "MultiQueryQKVModule QKVModule"),
    ("layers.attention.self_attention", layers, "SelfAttention"),
    ("layers.dropout", layers, "GradeDropout"),
    ("layers.gatr_block", layers, "GATrBlock"),
    ("layers.layer_norm", layers, "EquiLayerNorm"),
    ("layers.linear", layers, "EquiLinear"),
    ("layers.mlp", layers, "GeoMLP GeometricBilinear ScalarGatedNonlinearity"),
    ("layers.mlp", config, "MLPConfig"),
    ("layers.mlp.config", config, "MLPConfig"),
    ("layers.mlp.geometric_bilinears", layers, "GeometricBilinear"),
    ("layers.mlp.mlp", layers, "GeoMLP"),
    ("layers.mlp.nonlinearities", layers, "ScalarGatedNonlinearity"),
    ("nets.axial_gatr", nets, "AxialGATr"),
    ("nets.gatr", nets, "GATr"),
    ("primitives.attention", primitives, "geometric_attention pga_attention sdp_attention"),
    ("primitives.bilinear", primitives, "geometric_product outer_product"),
    ("primitives.dropout", primitives, "grade_dropout"),
    ("primitives.dual", primitives, "dual equivariant_join join_norm"),
    ("primitives.invariants", primitives, "inner_product norm pin_invariants"),
    (
        "primitives.linear",
        primitives,
        "NUM_PIN_LINEAR_BASIS_ELEMENTS equi_linear grade_involute grade_project reverse",
    ),
    (
        "primitives.nonlinearities",
        primitives,
        "gated_gelu gated_gelu_divide gated_relu gated_sigmoid",
    ),
    ("primitives.normalization", primitives, "equi_layer_norm"),
    ("utils.einsum", utils, "enable_cached_einsum gatr_einsum gatr_einsum_with_path"),
    ("utils.misc", utils, "minimum_autocast_precision"),
    ("utils.tensors", utils, "construct_reference_multivector"),
    ("utils.warning", utils, "GATrDeprecationWarning"),
)
"""For each path the module that has names, and the names. A path may occur more than once."""
