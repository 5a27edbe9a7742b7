"""Attention masks and ragged batches, as options of :func:`flashcliff.nn.transformer.attend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...nn.transformer.ragged import as_sequences
from .._xformers import bias_options

__all__ = ["attention_options"]


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
        cu_seqlens_key: boundaries of the sequences of keys; the same by default.
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
    found = bias_options("attention_mask", attention_mask)
    if "cu_seqlens" not in found:
        return found
    bounds = found["cu_seqlens"], found.get("cu_seqlens_key")
    return {**found, **_ragged("attention_mask", *bounds, items, keys)}


def _ragged(name: str, query: Any, key: Any, items: int, keys: int) -> dict[str, Any]:
    options = {"cu_seqlens": as_sequences(name, query).check(items)}
    if key is not None:
        options["cu_seqlens_key"] = as_sequences(f"{name}_key", key).check(keys)
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
