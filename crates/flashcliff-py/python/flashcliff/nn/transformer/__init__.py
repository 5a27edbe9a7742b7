"""Geometric algebra transformers over any algebra: GATr, L-GATr and their relatives.

Multivectors are ``[blades, *batch, items, channels]`` and scalars ``[*batch, items, channels]``. The layers have the
names of the state dicts of GATr and L-GATr; :mod:`flashcliff.compat.gatr` and :mod:`flashcliff.compat.lgatr` have their
constructors and their layout.
"""

from .attention import GeometricAttention, attend, attention_dtype, distance_features
from .bilinear import GeometricBilinear, equi_join
from .block import Block, ConditionalBlock, GeometricMLP, checkpoint_items
from .cross import CrossBlock
from .explain import Paths, explain
from .frames import (
    ComponentDropout,
    ComponentGelu,
    ComponentLinear,
    ComponentMLP,
    ComponentNorm,
    FrameAttention,
    FrameBlock,
    FramePredictor,
    FrameTransformer,
    from_frames,
    polar_frames,
    to_frames,
)
from .gate import GradeDropout, ScalarGate
from .geometry import Geometry, geometry_of
from .heads import CrossAttention, SelfAttention
from .linear import EquiLinear
from .network import GATransformer, join_reference
from .norm import EquiLayerNorm, equi_layer_norm
from .ragged import Sequences
from .rotary import RotaryEncoding

__all__ = [
    "Block",
    "ComponentDropout",
    "ComponentGelu",
    "ComponentLinear",
    "ComponentMLP",
    "ComponentNorm",
    "ConditionalBlock",
    "CrossAttention",
    "CrossBlock",
    "EquiLayerNorm",
    "EquiLinear",
    "FrameAttention",
    "FrameBlock",
    "FramePredictor",
    "FrameTransformer",
    "GATransformer",
    "GeometricAttention",
    "GeometricBilinear",
    "GeometricMLP",
    "Geometry",
    "GradeDropout",
    "Paths",
    "RotaryEncoding",
    "ScalarGate",
    "SelfAttention",
    "Sequences",
    "attend",
    "attention_dtype",
    "checkpoint_items",
    "distance_features",
    "equi_join",
    "equi_layer_norm",
    "explain",
    "from_frames",
    "geometry_of",
    "join_reference",
    "polar_frames",
    "to_frames",
]
