"""The exceptions and warnings of this package. Wrong shapes and options are ``ValueError``, wrong
element types ``TypeError``, tensors on different devices ``RuntimeError``, as in PyTorch."""

from ._core import CudaError, UnsupportedError

__all__ = [
    "CaptureError",
    "CaptureWarning",
    "CudaError",
    "EquivarianceWarning",
    "MissingPackageError",
    "MissingScalarsError",
    "UnsupportedError",
]


class CaptureError(RuntimeError):
    """The step cannot be captured as a CUDA graph, or the graph would no longer compute what the step computes. The message
    says what to change (:func:`flashcliff.capture`)."""


class CaptureWarning(UserWarning):
    """A step given to :func:`flashcliff.capture` runs without a graph, for the reason that the message says. Each reason is
    said once for a step."""


class EquivarianceWarning(UserWarning):
    """An option breaks the equivariance of a layer, or makes part of it ineffective.

    Each kind is said once in a process: a bias on every blade, and gates of operands without
    scalars. ``warnings.simplefilter("ignore", flashcliff.EquivarianceWarning)`` silences them.
    """


class MissingPackageError(ImportError):
    """A function needs a package that is not installed. The message says how to install it."""


class MissingScalarsError(ValueError, NotImplementedError):
    """An initialization sets the bias of scalar inputs, and a layer has none. GATr and L-GATr raise
    ``NotImplementedError`` for it, so this error is one of both kinds."""
