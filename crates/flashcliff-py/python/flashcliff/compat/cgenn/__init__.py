"""CGENN's algebra and layers with its names, arguments and layout, and its state dicts.

CGENN's tensors are ``[batch, channels, ..., blades]``, flashcliff's ``[blades, batch, ...,
channels]``. The layers here take and give CGENN's layout; between two of them nothing is copied,
since what they give is a view. A metric may have any order of signs. If it is not flashcliff's, null
vectors first and negative ones last, layers that tell blades apart put them in flashcliff's order and
back, which copies their inputs and outputs.

A model of CGENN runs with these classes in place of CGENN's, with no other change, and its state
dict has the same names and shapes, the buffers of the algebra included::

    from flashcliff.compat.cgenn import CliffordAlgebra, MVLinear, SteerableGeometricProductLayer

    algebra = CliffordAlgebra((1.0, 1.0, 1.0))
    layer = SteerableGeometricProductLayer(algebra, 16)
    layer.load_state_dict(torch.load("theirs.pt"))

CGENN's own layers run with :class:`CliffordAlgebra` as well. :func:`load_state_dict` fills the
layers and models of :mod:`flashcliff.nn`, :func:`state_dict` writes what CGENN's models load.

Source: github.com/DavidRuhe/clifford-group-equivariant-neural-networks (arXiv 2305.11141).
"""

from .algebra import CliffordAlgebra
from .layers import (
    FullyConnectedSteerableGeometricProductLayer,
    MVLayerNorm,
    MVLinear,
    MVSiLU,
    NormalizationLayer,
    SteerableGeometricProductLayer,
)
from .layout import from_cgenn, to_cgenn
from .messages import CEMLP, EGCL
from .state_dicts import load_state_dict, state_dict

__all__ = [
    "CEMLP",
    "CliffordAlgebra",
    "EGCL",
    "FullyConnectedSteerableGeometricProductLayer",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "NormalizationLayer",
    "SteerableGeometricProductLayer",
    "from_cgenn",
    "load_state_dict",
    "state_dict",
    "to_cgenn",
]
