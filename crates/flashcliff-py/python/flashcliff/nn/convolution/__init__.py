"""Convolutions of multivectors on grids: layers of cliffordlayers, of group action networks and of Clifford-steerable networks.

Tensors are ``[batch, channels, *space, blades]`` here, as in cliffordlayers, with the blades last; other layers of :mod:`flashcliff.nn`
have them first. Layers take a signature ``g``, the square of each vector, in any order. Names, shapes and starts of parameters are those
of the package that each layer comes from, so its state dicts load.

PyTorch computes the convolutions, on GPUs by cuDNN. This package expands their kernels, keeps them between calls without gradients, and
folds the two matrices of a norm into one. No kernel joins a convolution with a norm or a gate.
"""

from .batch_norm import CliffordBatchNorm1d, CliffordBatchNorm2d, CliffordBatchNorm3d
from .conjugate import MultiVectorAct, PGAConjugateLinear
from .fields import (
    CliffordConv2dScalarVectorDecoder,
    CliffordConv2dScalarVectorEncoder,
    CliffordConv3dMaxwellDecoder,
    CliffordConv3dMaxwellEncoder,
)
from .flax import from_flax
from .grids import CliffordConv1d, CliffordConv2d, CliffordConv3d
from .group_norm import CliffordGroupNorm1d, CliffordGroupNorm2d, CliffordGroupNorm3d
from .kernel_network import KernelNetwork
from .linear import CliffordLinear
from .steerable import CliffordSteerableConv, CliffordSteerableKernel
from .vector_gates import (
    CliffordG3GroupNorm,
    CliffordG3LinearVSiLU,
    CliffordG3MeanVSiLU,
    CliffordG3SumVSiLU,
)
from .vectors import CliffordG3Conv2d, CliffordG3ConvTranspose2d

__all__ = [
    "CliffordBatchNorm1d",
    "CliffordBatchNorm2d",
    "CliffordBatchNorm3d",
    "CliffordConv1d",
    "CliffordConv2d",
    "CliffordConv2dScalarVectorDecoder",
    "CliffordConv2dScalarVectorEncoder",
    "CliffordConv3d",
    "CliffordConv3dMaxwellDecoder",
    "CliffordConv3dMaxwellEncoder",
    "CliffordG3Conv2d",
    "CliffordG3ConvTranspose2d",
    "CliffordG3GroupNorm",
    "CliffordG3LinearVSiLU",
    "CliffordG3MeanVSiLU",
    "CliffordG3SumVSiLU",
    "CliffordGroupNorm1d",
    "CliffordGroupNorm2d",
    "CliffordGroupNorm3d",
    "CliffordLinear",
    "CliffordSteerableConv",
    "CliffordSteerableKernel",
    "KernelNetwork",
    "MultiVectorAct",
    "PGAConjugateLinear",
    "from_flax",
]
