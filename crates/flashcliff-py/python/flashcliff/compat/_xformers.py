"""Attention biases of xformers as options of :func:`flashcliff.nn.transformer.attend`. They are known by the names of their
classes, since xformers need not be installed."""

from __future__ import annotations

from typing import Any

import torch

from ..nn.transformer import Sequences

__all__ = ["bias_options"]

_BLOCK_DIAGONAL = {"BlockDiagonalMask": False, "BlockDiagonalCausalMask": True}


def bias_options(name: str, bias: Any) -> dict[str, Any]:
    """The options ``is_causal``, ``cu_seqlens`` and ``cu_seqlens_key`` of a bias; ``name`` is the argument that an error
    names."""
    kind = type(bias).__name__
    if kind == "LowerTriangularMask":
        return {"is_causal": True}
    if kind not in _BLOCK_DIAGONAL:
        raise ValueError(
            f"{name}: expected a tensor, a BlockDiagonalMask, a BlockDiagonalCausalMask or a LowerTriangularMask, "
            f"got a {kind}"
        )
    query, key = bias.q_seqinfo, bias.k_seqinfo
    options: dict[str, Any] = {"cu_seqlens": _sequences(name, query)}
    if key is not query:
        options["cu_seqlens_key"] = _sequences(f"{name}_key", key)
    return {**options, "is_causal": True} if _BLOCK_DIAGONAL[kind] else options


def _sequences(name: str, info: Any) -> Sequences:
    longest = getattr(info, "max_seqlen", None)
    return Sequences(torch.as_tensor(info.seqstart), longest, name=name)
