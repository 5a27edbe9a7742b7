"""The helpers of ``gatr.utils`` that models of others import."""

from __future__ import annotations

from torch import Tensor

from .._blades_last import enter
from .._utils import cached_einsum as gatr_einsum
from .._utils import custom_einsum as gatr_einsum_with_path
from .._utils import minimum_autocast_precision
from .reference import EUCLIDEAN, reference_component

__all__ = [
    "GATrDeprecationWarning",
    "construct_reference_multivector",
    "enable_cached_einsum",
    "gatr_einsum",
    "gatr_einsum_with_path",
    "minimum_autocast_precision",
]


class GATrDeprecationWarning(UserWarning):
    """A warning about names of GATr that will go."""


def construct_reference_multivector(reference: Tensor | str, inputs: Tensor) -> Tensor:
    """The reference of the join, which broadcasts to ``[*batch, items, channels, 16]``.

    Args:
        reference: ``"data"``: the mean of the inputs over all axes but the first and the blades; ``"canonical"``: 1 at
            ``e1 e2 e3`` and at the pseudoscalar; or a multivector ``[..., 16]``, which is returned.
        inputs: multivectors ``[*batch, items, channels, 16]``.
    """
    if isinstance(reference, Tensor):
        return reference
    if reference == "data":
        enter("inputs", inputs)
        return inputs.mean(tuple(range(1, inputs.dim() - 1)), keepdim=True)
    # Other strings are an error there.
    component = reference_component(reference, enter("inputs", inputs))
    found = inputs.new_zeros(16)
    found[EUCLIDEAN:] = component
    return found


def enable_cached_einsum(flag: bool) -> None:
    """No effect: nothing here runs by :func:`torch.einsum` with a path that a compiler would refuse."""
    if not isinstance(flag, bool):
        raise TypeError(f"flag: expected True or False, got {flag!r}")
