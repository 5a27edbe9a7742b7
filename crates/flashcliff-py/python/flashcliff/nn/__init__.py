"""Layers of Clifford-algebra networks; :mod:`flashcliff.nn.transformer` has geometric algebra transformers, and
:mod:`flashcliff.nn.convolution` layers of fields on grids, whose blades are last.

Multivectors are tensors ``[blades, *batch, channels]``, blades in short-lex order (1, e1, e2, ...,
e12, ...), null vectors first. Every layer takes its :class:`flashcliff.Algebra` first. Parameters
have the names, shapes and initialisation of the library that each layer comes from.
"""

from .. import _torch as _torch
from . import convolution, models, transformer
from ._module import CliffordModule
from .embedding import PointEmbedding, embed_grade, embed_points, select_grade
from .fcgp_norm import FCGPNorm
from .flash_clifford import FlashCliffordLayer
from .fully_connected import FullyConnectedSteerableGeometricProduct
from .gate import MVGate
from .grade_norm import GradeNorm
from .grade_rms import GradeRMSNorm
from .layer_norm import MVLayerNorm
from .linear import MVLinear
from .messages import EGCL
from .perceptron import CEMLP
from .potential import Potential
from .products import Product, Sandwich
from .sgp_norm import SGPNorm
from .silu import MVSiLU
from .steerable import SteerableGeometricProduct
from .traceless import SymmetricTraceless, TracelessLayer, TracelessLinear

__all__ = [
    "CEMLP",
    "CliffordModule",
    "EGCL",
    "FCGPNorm",
    "FlashCliffordLayer",
    "FullyConnectedSteerableGeometricProduct",
    "GradeNorm",
    "GradeRMSNorm",
    "MVGate",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "PointEmbedding",
    "Potential",
    "Product",
    "SGPNorm",
    "Sandwich",
    "SteerableGeometricProduct",
    "SymmetricTraceless",
    "TracelessLayer",
    "TracelessLinear",
    "convolution",
    "embed_grade",
    "embed_points",
    "models",
    "select_grade",
    "transformer",
]
