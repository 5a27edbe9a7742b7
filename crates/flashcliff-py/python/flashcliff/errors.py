"""The exceptions of this package. Wrong shapes and options are ``ValueError``, wrong element types
``TypeError``, tensors on different devices ``RuntimeError``, as in PyTorch."""

from ._core import CudaError, UnsupportedError

__all__ = ["CudaError", "UnsupportedError"]
