"""Fast operators for Clifford-algebra neural networks.

Faster modules for a model that you have:

- :func:`flashcliff.accelerate`: replaces modules of GATr, L-GATr, CGENN and flash-clifford within a model.
- :mod:`flashcliff.compat`: the names, arguments, layouts and state dicts of these libraries.

Operators and networks:

- :mod:`flashcliff.functional`: differentiable operators on PyTorch tensors, on CPUs and NVIDIA GPUs.
- :func:`flashcliff.operator`: an operator of a function of multivectors, with gradients of every order.
- :mod:`flashcliff.nn`: layers and models as PyTorch modules; transformers are in ``nn.transformer``, convolutions in
  ``nn.convolution``.
- :mod:`flashcliff.graphs`: messages on graphs, gatherings and sums of rows that belong to others.
- :mod:`flashcliff.atoms`: batches of atoms with neighbours, forces and stress of an energy, a calculator of ASE.
- :mod:`flashcliff.rotors`: exponentials and logarithms of bivectors, and versors that act.
- :mod:`flashcliff.jax`: the operators, and networks of files, on arrays of JAX, within ``jax.jit``.
- :mod:`flashcliff.arrays`: the operators, forward only, on arrays of NumPy, CuPy and others.

Training and tools:

- :func:`flashcliff.capture`: a training step as one CUDA graph.
- :mod:`flashcliff.optim`: AdamW and Lion with all parameters of a GPU in one launch, Muon for stacks of matrices.
- :func:`flashcliff.profile`: what a region of code spends in the operators.
- :mod:`flashcliff.testing`: checks that models are equivariant and that their forces conserve energy.
- :func:`flashcliff.info`: versions, kernels and devices, and what is slow here.
- :func:`flashcliff.backend`: Triton kernels instead of CUDA kernels; AMD and Intel GPUs have them without being asked.
- :func:`flashcliff.save_network`, :func:`flashcliff.load_network`, :func:`flashcliff.export`: networks in files that run
  without Python.

Multivectors are ``[blades, *batch, channels]``, blades in short-lex order (``1, e1, e2, e3, e12,
...``; see :class:`Algebra`). Importing this package imports neither PyTorch nor NumPy.
"""

from __future__ import annotations

import importlib
import os

from . import _core
from ._core import __version__, get_num_threads, set_num_threads
from .algebra import Algebra, algebras
from .errors import (
    CaptureError,
    CaptureWarning,
    CudaError,
    EquivarianceWarning,
    MissingPackageError,
    MissingScalarsError,
    UnsupportedError,
)

__all__ = [
    "Algebra",
    "CaptureError",
    "CaptureWarning",
    "CudaError",
    "EquivarianceWarning",
    "MissingPackageError",
    "MissingScalarsError",
    "UnsupportedError",
    "__version__",
    "accelerate",
    "algebras",
    "arrays",
    "atoms",
    "backend",
    "build_info",
    "capture",
    "compat",
    "export",
    "functional",
    "get_num_threads",
    "graphs",
    "info",
    "load_network",
    "nn",
    "operator",
    "operators",
    "optim",
    "profile",
    "rotors",
    "save_network",
    "set_num_threads",
    "testing",
]

_MODULES = (
    "arrays",
    "atoms",
    "compat",
    "functional",
    "graphs",
    "jax",
    "nn",
    "operators",
    "optim",
    "rotors",
    "testing",
)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_core.after_fork)


def build_info() -> dict[str, object]:
    """The properties of this build: ``version``, ``cuda`` (whether it has CUDA kernels),
    ``simd`` (the SIMD units in use) and ``calls`` (the way that calls of operators go, see :func:`flashcliff.native.state`)."""
    from . import native

    return {
        "version": __version__,
        "cuda": _core.CUDA,
        "simd": _core.tier(),
        "calls": native.state().said,
    }


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name == "accelerate":
        # Loaded when it is asked for, because it imports PyTorch.
        return importlib.import_module(".compat", __name__).accelerate
    if name == "backend":
        return importlib.import_module("._ops.backends", __name__).backend
    if name == "operator":
        return importlib.import_module(".operators", __name__).operator
    if name == "capture":
        return importlib.import_module("._capture", __name__).capture
    if name == "save_network":
        return importlib.import_module(".nn.transformer.files", __name__).save_network
    if name == "load_network":
        return importlib.import_module(".nn.transformer.loaded", __name__).load_network
    if name == "export":
        return importlib.import_module("._export", __name__).export
    if name == "info":
        return importlib.import_module("._info", __name__).info
    if name == "profile":
        return importlib.import_module("._profile", __name__).profile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
