"""The attention arguments of L-GATr's backends, as options of :func:`flashcliff.nn.transformer.attend`.

There is one attention here, so the arguments of all backends say what to compute, not with which kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...nn.transformer.ragged import as_sequences
from .._xformers import bias_options

__all__ = ["attention_options", "converted"]

BACKENDS = ("native", "varlen", "xformers", "flash")

# Arguments that choose a kernel, or tell it what it could find out.
_NO_EFFECT = (
    "backend",
    "dtype",
    "op",
    "enable_gqa",
    "deterministic",
)

# Arguments of which one value is the rule, and another would change the numbers.
_ONLY: dict[str, tuple[object, ...]] = {
    "dropout_p": (0,),
    "p": (0,),
    "scale": (None,),
    "softmax_scale": (None,),
    "softcap": (0,),
    "window_size": (None, (-1, -1), [-1, -1]),
    "alibi_slopes": (None,),
    "block_table": (None,),
    "return_attn_probs": (False,),
    "return_aux": (None,),
    "score_mod": (None,),
    "block_mask": (None,),
    "kernel_options": (None,),
    "return_lse": (False,),
}

_INSTEAD = {
    "dropout_p": "the network's dropout_prob drops outputs of attention",
    "p": "the network's dropout_prob drops outputs of attention",
    "block_mask": "attn_mask takes a tensor of booleans, cu_seqlens_q a ragged batch",
    "score_mod": "attn_mask takes a tensor of numbers that are added to the logits",
}

# Boundaries of queries and keys, and their longest lengths.
_BOUNDS = (
    ("cu_seq_q", "cu_seq_k", "max_q", "max_k"),
    ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
)


_CONVERTED = "_options"


def converted(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments by which a layer within others is given options that :func:`attention_options` returned."""
    return {_CONVERTED: options}


def attention_options(given: Mapping[str, Any], cross: bool = False) -> dict[str, Any]:
    """The options ``mask``, ``is_causal``, ``cu_seqlens`` and ``cu_seqlens_key`` of attention.

    ====================== ================================================================================
    backend                arguments
    ====================== ================================================================================
    native                 ``attn_mask``, ``is_causal``
    varlen                 ``cu_seq_q``, ``cu_seq_k``, ``max_q``, ``max_k``, ``is_causal``
    flash                  ``cu_seqlens_q``, ``cu_seqlens_k``, ``max_seqlen_q``, ``max_seqlen_k``, ``causal``
    xformers               ``attn_bias``: a tensor, a ``BlockDiagonalMask``, a ``BlockDiagonalCausalMask`` or a
                           ``LowerTriangularMask``
    flex                   none: ``block_mask`` and ``score_mod`` raise an error
    ====================== ================================================================================

    Element types and names of kernels are accepted and have no effect: attention runs in the type of its inputs. Longest
    lengths save reading boundaries that are on a GPU (:class:`flashcliff.nn.transformer.Sequences`). A mask that
    would change the numbers in a way that is not supported is a ``ValueError``.

    Args:
        given: the keyword arguments.
        cross: whether queries and keys are of different sets.
    """
    if _CONVERTED in given:
        return dict(given[_CONVERTED])
    options: dict[str, Any] = {}
    left = {name: value for name, value in given.items() if name not in _NO_EFFECT}
    _check_backend(given.get("backend"))
    for name, values in _ONLY.items():
        if name in left and not any(_is(left.pop(name), value) for value in values):
            hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise ValueError(f"{name}: expected {values[0]}, got {given[name]!r}{hint}")
    mask = left.pop("attn_mask", None)
    causal = bool(left.pop("is_causal", False))
    of_flash = bool(left.pop("causal", False))
    for pair in _BOUNDS:
        _add_bounds(options, pair, left)
    if cross and (of_flash or (causal and "cu_seqlens" in options)):
        # Kernels do not agree which key the first query sees if there are more keys than queries.
        name = "causal" if of_flash else "is_causal"
        raise ValueError(f"{name}: expected False in cross-attention of ragged batches, got True")
    bias = left.pop("attn_bias", None)
    if left:
        raise TypeError(f"attention: unexpected arguments {', '.join(sorted(left))}")
    if isinstance(bias, Tensor):
        if mask is not None:
            raise ValueError("attn_bias: expected None with attn_mask, got a tensor")
        mask = bias
    elif bias is not None:
        options |= bias_options("attn_bias", bias)
    if mask is not None:
        options["mask"] = mask
    if causal or of_flash:
        options["is_causal"] = True
    return options


def _check_backend(name: object) -> None:
    if name == "flex":
        raise ValueError(
            "backend: flex_attention is not supported; attn_mask takes a mask, cu_seqlens_q a ragged batch"
        )
    if name is not None and name not in BACKENDS:
        raise ValueError(f"backend: expected one of {', '.join(BACKENDS)}, got {name!r}")


def _is(value: object, expected: object) -> bool:
    if expected is None or isinstance(expected, bool):
        return value is expected
    return not isinstance(value, Tensor) and value == expected


def _add_bounds(options: dict[str, Any], names: tuple[str, ...], left: dict[str, Any]) -> None:
    query, key, longest, longest_key = (left.pop(name, None) for name in names)
    if query is None and key is None:
        return
    if query is None or key is None:
        present, absent = names[:2] if key is None else names[1::-1]
        raise ValueError(f"{absent}: expected boundaries, as {present} has, got None")
    options["cu_seqlens"] = as_sequences(names[0], query, longest)
    if key is not query:
        options["cu_seqlens_key"] = as_sequences(names[1], key, longest_key)
