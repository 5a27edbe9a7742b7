"""Features of multivectors and scalars side by side, for one dot product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .geometry import indices

__all__ = ["joined_features", "merged_heads"]


def joined_features(
    parts: Sequence[Tensor], scalars: Tensor | None, blades: tuple[int, ...] | None = None
) -> Tensor:
    """Features ``[*batch, heads, items, features]``, a feature's channels side by side.

    Args:
        parts: features of multivectors ``[features, *batch, items, channels, heads]``.
        scalars: ``[*batch, items, heads, scalars]``, or ``None``.
        blades: the blades of the first part that are taken; all by default.
    """
    first, *others = parts
    if blades is not None:
        first = first.index_select(0, indices(blades, first))
    # Heads come first, and then go before the items.
    moved = [part.movedim(-1, 1).movedim(0, -2).flatten(-2) for part in (first, *others)]
    moved = [part.movedim(0, -3) for part in moved]
    if scalars is not None:
        moved.append(scalars.movedim(-2, -3))
    return moved[0] if len(moved) == 1 else torch.cat(moved, dim=-1)


def merged_heads(
    features: Tensor, blades: int, channels: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """Multivectors ``[blades, *batch, items, heads * channels]`` and scalars ``[*batch, items, heads * scalars]`` of a
    type, of features ``[*batch, heads, items, blades * channels + scalars]``; ``None`` for no scalars."""
    features = features.to(dtype)
    mv, s = features[..., : blades * channels], features[..., blades * channels :]
    mv = mv.unflatten(-1, (blades, channels)).movedim(-2, 0).movedim(-3, -2).flatten(-2)
    return mv, s.movedim(-3, -2).flatten(-2) if s.shape[-1] else None
