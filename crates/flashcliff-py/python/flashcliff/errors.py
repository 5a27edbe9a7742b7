"""The exceptions and warnings of this package. Wrong shapes and options are ``ValueError``, wrong
element types ``TypeError``, tensors on different devices ``RuntimeError``, as in PyTorch."""

from ._core import CudaError, UnsupportedError

__all__ = ["CudaError", "EquivarianceWarning", "UnsupportedError"]


class EquivarianceWarning(UserWarning):
    """A choice breaks the equivariance of a layer, or takes the effect from a part of it.

    Each kind is said once in a process: a bias on every blade, and gates of operands without
    scalars. ``warnings.simplefilter("ignore", flashcliff.EquivarianceWarning)`` silences them.
    """
