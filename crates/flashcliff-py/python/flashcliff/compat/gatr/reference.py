"""The reference multivector of the join."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..._ops import remedies
from ...nn import transformer

__all__ = ["component_of", "reference_component"]

EUCLIDEAN = 14
"""The blade ``e1 e2 e3``, the only one of the reference that the join reads."""


def reference_component(
    join_reference: Any,
    multivectors: Tensor,
    cu_seqlens: Tensor | transformer.Sequences | None = None,
) -> Tensor:
    """The component of the reference at ``e1 e2 e3``, which broadcasts to ``[*batch, items, channels]``.

    Args:
        join_reference: ``"data"``: the mean of the input over all axes but the first of the batch; ``"canonical"``: 1;
            or a multivector that broadcasts to ``[*batch, items, 1, 16]``.
        multivectors: the network's input ``[16, *batch, items, channels]``.
        cu_seqlens: boundaries of the graphs of a ragged batch; ``"data"`` is then the mean of each graph.

    Source: GATr (arXiv 2305.18415, section 3).
    """
    if isinstance(join_reference, Tensor):
        return component_of("join_reference", join_reference, multivectors)
    if join_reference == "data":
        return transformer.join_reference(multivectors, cu_seqlens)
    if join_reference == "canonical":
        return multivectors.new_ones(1)
    raise ValueError(
        f'join_reference: expected "data", "canonical" or a tensor, got {join_reference!r}'
    )


def component_of(name: str, reference: Any, multivectors: Tensor) -> Tensor:
    """The component of a multivector ``[..., 16]``; ``multivectors`` are ``[16, *batch, items, channels]``."""
    remedies.check_tensor(name, reference)
    batch = (*multivectors.shape[1:-1], 1)
    shape = reference.shape
    fits = 1 <= len(shape) <= len(batch) + 1 and shape[-1] == multivectors.shape[0]
    inner = shape[:-1]
    if not fits or any(
        size not in (1, wanted) for size, wanted in zip(inner[::-1], batch[::-1], strict=False)
    ):
        wanted = [*batch, multivectors.shape[0]]
        raise ValueError(f"{name}: expected to broadcast to {wanted}, got {list(shape)}")
    return reference[..., EUCLIDEAN]
