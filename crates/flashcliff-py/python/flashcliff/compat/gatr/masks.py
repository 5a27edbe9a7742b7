"""Attention masks and ragged batches, as options of :func:`flashcliff.nn.transformer.attend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["attention_options", "boundaries"]

_BLOCK_DIAGONAL = {"BlockDiagonalMask": False, "BlockDiagonalCausalMask": True}


def attention_options(
    attention_mask: Any,
    cu_seqlens: Any = None,
    cu_seqlens_key: Any = None,
    *,
    shape: Sequence[int],
    keys: int | None = None,
) -> dict[str, Any]:
    """The options ``mask``, ``is_causal``, ``cu_seqlens`` and ``cu_seqlens_key`` of attention.

    Args:
        attention_mask: a tensor of booleans (true: may attend) or of numbers that are added to the logits, ``[items,
            keys]`` or ``[*batch, heads or 1, items, keys]``, or an object of xformers: ``BlockDiagonalMask``,
            ``BlockDiagonalCausalMask`` or ``LowerTriangularMask``.
        cu_seqlens: boundaries of the sequences of a ragged batch, ``[sequences + 1]`` integers.
        cu_seqlens_key: those of the keys; the same by default.
        shape: ``[*batch, items]`` of the queries.
        keys: how many keys there are; as many as queries by default.
    """
    items = shape[-1]
    keys = items if keys is None else keys
    if cu_seqlens is not None and attention_mask is not None:
        raise ValueError(
            "attention_mask: expected None with cu_seqlens, which say who attends to whom, "
            f"got a {type(attention_mask).__name__}"
        )
    if cu_seqlens is not None:
        return _ragged("cu_seqlens", cu_seqlens, cu_seqlens_key, items, keys)
    if cu_seqlens_key is not None:
        raise ValueError("cu_seqlens: expected boundaries, as cu_seqlens_key has, got None")
    if attention_mask is None:
        return {}
    if isinstance(attention_mask, Tensor):
        return {"mask": _checked_mask(attention_mask, shape, keys)}
    name = type(attention_mask).__name__
    if name == "LowerTriangularMask":
        return {"is_causal": True}
    if name not in _BLOCK_DIAGONAL:
        raise ValueError(
            "attention_mask: expected a tensor, a BlockDiagonalMask, a BlockDiagonalCausalMask or a "
            f"LowerTriangularMask, got a {name}"
        )
    of_query, of_key = attention_mask.q_seqinfo, attention_mask.k_seqinfo
    second = None if of_key is of_query else torch.as_tensor(of_key.seqstart)
    options = _ragged("attention_mask", torch.as_tensor(of_query.seqstart), second, items, keys)
    return {**options, "is_causal": True} if _BLOCK_DIAGONAL[name] else options


def boundaries(name: str, given: Any, items: int) -> Tensor:
    """Checked boundaries, on the host, where attention reads them."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a tensor of integers, got {given!r}")
    if given.is_floating_point() or given.dtype == torch.bool:
        raise TypeError(f"{name}: expected a tensor of integers, got {given.dtype}")
    found = given.cpu()
    fits = found.dim() == 1 and len(found) > 0 and found[0] == 0 and found[-1] == items
    if not fits or (found.diff() < 0).any():
        raise ValueError(f"{name}: expected ascending boundaries from 0 to {items}, got {found}")
    return found


def _ragged(name: str, query: Any, key: Any, items: int, keys: int) -> dict[str, Any]:
    options = {"cu_seqlens": boundaries(name, query, items)}
    if key is not None:
        options["cu_seqlens_key"] = boundaries(f"{name}_key", key, keys)
    elif keys != items:
        raise ValueError(f"{name}_key: expected boundaries from 0 to {keys}, got None")
    return options


def _checked_mask(mask: Tensor, shape: Sequence[int], keys: int) -> Tensor:
    *batch, items = shape
    found = mask
    while found.dim() > len(batch) + 3 and found.shape[0] == 1:
        found = found[0]
    fits = 2 <= found.dim() <= len(batch) + 3
    if not fits or found.shape[-2] not in (1, items) or found.shape[-1] not in (1, keys):
        wanted = ", ".join(map(str, (*batch, "heads", items, keys)))
        raise ValueError(
            f"attention_mask: expected to broadcast to [{wanted}], got {list(mask.shape)}"
        )
    return found
