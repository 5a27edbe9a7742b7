"""Counterparts of the networks of the packages gatr and lgatr."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import gatr, lgatr
from ..lgatr import v1
from .counterpart import Call, Counterpart, Draw, NotReplaced

# Sizes of random input: batch, items, and items of a condition.
_BATCH, _ITEMS, _OTHERS = 2, 5, 4


def _channels(linear: Any) -> tuple[int | None, int | None]:
    """The scalar channels of input and output of a linear layer, read from its matrices; ``None`` for none."""
    if linear.s2s is not None:
        outputs, inputs = linear.s2s.weight.shape
        return int(inputs), int(outputs)
    # Without input scalars there is a bias, but not for 0 of them.
    none = None if linear.bias is not None else 0
    inputs = none if linear.s2mvs is None else linear.s2mvs.weight.shape[1]
    return inputs, None if linear.mvs2s is None else linear.mvs2s.weight.shape[0]


def _sizes(net: Any) -> dict[str, Any]:
    first, last = net.linear_in, net.linear_out
    if not len(net.blocks):
        raise NotReplaced("expected at least one block")
    of_input, hidden = _channels(first)
    return {
        "num_blocks": len(net.blocks),
        "in_mv_channels": first.weight.shape[1],
        "out_mv_channels": last.weight.shape[0],
        "hidden_mv_channels": first.weight.shape[0],
        "in_s_channels": of_input,
        "out_s_channels": _channels(last)[1],
        "hidden_s_channels": hidden,
    }


def _both(
    net: Any,
    kind: Callable[..., nn.Module],
    shared: Mapping[str, Any],
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    calls: Callable[[Draw], list[Call]],
    **others: Any,
) -> Counterpart:
    """A counterpart, whose arguments both packages name alike.

    Args:
        net: the network of the package.
        kind: our class.
        shared: arguments that both have.
        ours: configurations as objects of ours.
        theirs: configurations as objects of the package.
        calls: calls on random input.
        others: see :class:`Counterpart`.
    """
    make = functools.partial(kind, **shared, **ours)
    package: Any = type(net)
    fresh = functools.partial(package, **shared, **theirs)
    return Counterpart(make, fresh, calls, **others)


def _inputs(draw: Draw, items: Sequence[int], channels: int, scalars: int | None) -> list[Any]:
    mv = draw(*items, channels, 16)
    return [mv, None if scalars is None else draw(*items, scalars)]


def _mask(items: int, others: int, like: Tensor) -> Tensor:
    """A mask that leaves each item the first of the others."""
    kept = torch.arange(items * others, device=like.device).view(items, others) % 3 != 1
    kept[:, 0] = True
    return kept


def _copied(config: Any, to: Any, without: tuple[str, ...] = ()) -> Any:
    """A configuration of ours with the fields of the other that ours has too."""
    names = {field.name for field in dataclasses.fields(to)} - set(without)
    return to(**{name: value for name, value in vars(config).items() if name in names})


# The network sets these from its own arguments.
_SET = ("additional_qk_mv_channels", "additional_qk_s_channels")


def _reinserted(net: Any) -> dict[str, Any]:
    return {
        "reinsert_mv_channels": net._reinsert_mv_channels,
        "reinsert_s_channels": net._reinsert_s_channels,
    }


# The tables of GATr are rounded to float32, and its rotary layer keeps cosines of positions.
_OF_GATR: dict[str, Any] = {
    "tolerance": 1e-5,
    "caches": frozenset(("cos_cached", "device_cached", "seq_len_cached", "sin_cached")),
}


def of_gatr(net: Any) -> Counterpart:
    """The counterpart of ``gatr.GATr``."""
    sizes, block = _sizes(net), net.blocks[0]
    parts = [
        name
        for name, on in (("mlp", block._checkpoint_mlp), ("attention", block._checkpoint_attn))
        if on
    ]
    shared = {
        **sizes,
        "dropout_prob": block.attention.config.dropout_prob,
        "checkpoint": ["block"] if net._checkpoint_blocks else (parts or None),
        **_reinserted(net),
    }

    def calls(draw: Draw) -> list[Call]:
        items = _BATCH, _ITEMS
        inputs = [_inputs(draw, items, net_in, net_s) for _ in range(2)]
        mask = _mask(_ITEMS, _ITEMS, inputs[0][0])
        options = {"attention_mask": mask, "join_reference": "canonical"}
        return [(inputs[0], {}), (inputs[1], options)]

    net_in, net_s = sizes["in_mv_channels"], sizes["in_s_channels"]
    return _both(net, gatr.GATr, shared, *_gatr_configs(block), calls, **_OF_GATR)


def _gatr_configs(block: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    attention, mlp = block.attention.config, block.mlp.config
    ours = {
        "attention": _copied(attention, gatr.SelfAttentionConfig, _SET),
        "mlp": _copied(mlp, gatr.MLPConfig, ("mv_channels", "s_channels")),
    }
    return ours, {"attention": attention, "mlp": mlp}


def of_axial(net: Any) -> Counterpart:
    """The counterpart of ``gatr.AxialGATr``."""
    sizes, block = _sizes(net), net.blocks[0]
    # The first block attends along the second axis, the second block along the first.
    along_second, along_first = [b.attention.config.pos_encoding for b in (*net.blocks, block)][:2]
    shared = {
        **sizes,
        "checkpoint_blocks": net._checkpoint_blocks,
        "pos_encodings": (along_first, along_second),
        "collapse_dims": (net._collapse_dims_for_even_blocks, net._collapse_dims_for_odd_blocks),
    }

    def calls(draw: Draw) -> list[Call]:
        items = _BATCH, _ITEMS, 3
        return [(_inputs(draw, items, sizes["in_mv_channels"], sizes["in_s_channels"]), {})]

    return _both(net, gatr.AxialGATr, shared, *_gatr_configs(block), calls, **_OF_GATR)


def of_lgatr(net: Any) -> Counterpart:
    """The counterpart of ``lgatr.LGATr`` of 2.0 or 1.4."""
    sizes, block = _sizes(net), net.blocks[0]
    shared = {
        "dropout_prob": _dropout(block.attention),
        "checkpoint_blocks": net._checkpoint_blocks,
        **_reinserted(net),
    }

    def calls(draw: Draw) -> list[Call]:
        items = _BATCH, _ITEMS
        inputs = [_inputs(draw, items, net_in, net_s) for _ in range(2)]
        return [(inputs[0], {}), (inputs[1], {"attn_mask": _mask(_ITEMS, _ITEMS, inputs[0][0])})]

    net_in, net_s = sizes["in_mv_channels"], sizes["in_s_channels"]
    if hasattr(block.attention, "config"):
        _check_global()
        attention, mlp = block.attention.config, block.mlp.config
        ours = {
            "attention": _copied(attention, v1.SelfAttentionConfig, _SET),
            "mlp": _copied(mlp, v1.MLPConfig, ("mv_channels", "s_channels")),
        }
        theirs = {"attention": attention, "mlp": mlp}
        return _both(net, v1.LGATr, {**sizes, **shared}, ours, theirs, calls)
    sizes, net_s = _without_none(sizes), net_s or None
    ours, theirs = _lgatr_configs(net, sizes)
    shared |= {
        "norm_elementwise_affine": block.norm1.elementwise_affine,
        "naive_amp": net._naive_amp,
    }
    return _both(net, lgatr.LGATr, {**sizes, **shared}, ours, theirs, calls)


def _check_global() -> None:
    """Checks that the global configurations of lgatr 1.4 and of ours are alike, which layers read when they are made."""
    theirs: Any = sys.modules.get("lgatr.primitives.config")
    for name, ours in vars(v1.gatr_config).items():
        found = getattr(getattr(theirs, "gatr_config", None), name, ours)
        if found != ours:
            raise NotReplaced(
                f"lgatr's gatr_config.{name} is {found} and that of flashcliff.compat.lgatr.v1 {ours}: set both alike"
            )


def _without_none(sizes: Mapping[str, Any]) -> dict[str, int]:
    return {name: 0 if size is None else size for name, size in sizes.items()}


def _dropout(attention: Any) -> float | None:
    return None if attention.dropout is None else attention.dropout._dropout_prob


def _lgatr_configs(net: Any, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    block = net.blocks[0]
    attention = _attention_config(block)
    mlp = _mlp_config(block.mlp, sizes["hidden_mv_channels"])
    ours = {
        "attention": _copied(attention, lgatr.SelfAttentionConfig, _SET),
        "mlp": mlp,
        "primitives": _copied(net.primitives, lgatr.PrimitivesConfig),
    }
    return ours, {"attention": attention, "mlp": vars(mlp), "primitives": net.primitives}


def of_conditional(net: Any) -> Counterpart:
    """The counterpart of ``lgatr.ConditionalLGATr`` of 2.0."""
    _check_version(net)
    sizes, block = _without_none(_sizes(net)), net.blocks[0]
    cross = block.crossattention.config
    ours, theirs = _lgatr_configs(net, sizes)
    ours["crossattention"] = _copied(cross, lgatr.CrossAttentionConfig)
    theirs["crossattention"] = cross
    shared = {
        **sizes,
        "mv_channels_cond": cross.kv_mv_channels,
        "s_channels_cond": cross.kv_s_channels,
        "dropout_prob": _dropout(block.attention),
        "norm_elementwise_affine": block.norm1.elementwise_affine,
        "checkpoint_blocks": net._checkpoint_blocks,
        "naive_amp": net._naive_amp,
    }

    def calls(draw: Draw) -> list[Call]:
        found = []
        for masked in (False, True):
            first = _inputs(draw, (_BATCH, _ITEMS), net_in, sizes["in_s_channels"] or None)
            other = _inputs(
                draw, (_BATCH, _OTHERS), cross.kv_mv_channels, cross.kv_s_channels or None
            )
            found.append(_conditional_call(first, other, masked))
        return found

    net_in = sizes["in_mv_channels"]
    return _both(net, lgatr.ConditionalLGATr, shared, ours, theirs, calls)


def _conditional_call(first: list[Any], other: list[Any], masked: bool) -> Call:
    """A call with items and a condition, each multivectors or vectors and scalars."""
    positional = [first[0], other[0], first[1], other[1]]
    if not masked:
        return positional, {}
    attention = {"attn_mask": _mask(_ITEMS, _ITEMS, first[0])}
    cross = {"attn_mask": _mask(_ITEMS, _OTHERS, first[0])}
    return positional, {"attn_kwargs": attention, "crossattn_kwargs": cross}


def of_slim(net: Any) -> Counterpart:
    """The counterpart of ``lgatr.LGATrSlim`` of 2.0."""
    arguments = _slim_arguments(net, "attention")

    def calls(draw: Draw) -> list[Call]:
        inputs = [_vectors(draw, _ITEMS, net.linear_in) for _ in range(2)]
        return [(inputs[0], {}), (inputs[1], {"attn_mask": _mask(_ITEMS, _ITEMS, inputs[0][0])})]

    return _both(net, lgatr.LGATrSlim, arguments, {}, {}, calls)


def of_conditional_slim(net: Any) -> Counterpart:
    """The counterpart of ``lgatr.ConditionalLGATrSlim`` of 2.0."""
    arguments = _slim_arguments(net, "selfattention")
    condition = net.blocks[0].crossattention.linear_in_kv
    arguments["v_channels_cond"] = condition._in_v_channels
    arguments["s_channels_cond"] = condition._in_s_channels

    def calls(draw: Draw) -> list[Call]:
        found = []
        for masked in (False, True):
            first = _vectors(draw, _ITEMS, net.linear_in)
            other = _vectors(draw, _OTHERS, condition)
            found.append(_conditional_call(first, other, masked))
        return found

    return _both(net, lgatr.ConditionalLGATrSlim, arguments, {}, {}, calls)


def _vectors(draw: Draw, items: int, linear: Any) -> list[Tensor]:
    """Vectors and scalars for a linear layer."""
    batch = _BATCH, items
    return [draw(*batch, linear._in_v_channels, 4), draw(*batch, linear._in_s_channels)]


def _slim_arguments(net: Any, attention: str) -> dict[str, Any]:
    """The arguments that both slim networks have. ``attention`` is the name of self-attention in a block."""
    _check_version(net)
    if not len(net.blocks):
        raise NotReplaced("expected at least one block")
    first, last, block = net.linear_in, net.linear_out, net.blocks[0]
    attending = getattr(block, attention)
    gates = [layer for layer in block.mlp.layers if hasattr(layer, "nonlinearity")]
    vectors, scalars = first._out_v_channels, first._out_s_channels
    return {
        "num_blocks": len(net.blocks),
        "in_v_channels": first._in_v_channels,
        "out_v_channels": last._out_v_channels,
        "hidden_v_channels": vectors,
        "in_s_channels": first._in_s_channels,
        "out_s_channels": last._out_s_channels,
        "hidden_s_channels": scalars,
        "num_heads": attending.num_heads,
        "nonlinearity": _name(gates[0].nonlinearity),
        "nonlinearity_v": _name(gates[0].nonlinearity_v),
        # A gate has three vectors for each channel: one that it multiplies, and two of whose product it is made.
        "mlp_ratio": gates[0].linear._out_v_channels // (3 * vectors) if vectors else 1,
        "attn_ratio": _attention_ratio(attending, vectors, scalars),
        "num_layers_mlp": len(gates) + 1,
        "dropout_prob": _dropout(attending),
        "norm_elementwise_affine": block.norm1.elementwise_affine,
        "checkpoint_blocks": net._checkpoint_blocks,
        "naive_amp": net._naive_amp,
    }


def _attention_ratio(attention: Any, vectors: int, scalars: int) -> int:
    """The smallest ratio with the sizes of the attention. Ratios of the same sizes make the same network."""
    heads, sizes = attention.num_heads, (attention.hidden_v_channels, attention.hidden_s_channels)
    for ratio in range(1, heads * (max(sizes) + 1) + 1):
        if (max(ratio * vectors // heads, 1), max(ratio * scalars // heads, 4)) == sizes:
            return ratio
    raise NotReplaced(f"its attention has the sizes {sizes}, which no ratio gives")


def _check_version(net: Any) -> None:
    if not hasattr(net, "_naive_amp"):
        raise NotReplaced(
            "expected the class of lgatr 2.0; for 1.4 import it from flashcliff.compat.lgatr.v1"
        )


def _attention_config(block: Any) -> Any:
    config = block.attention.qkv_module.config
    # The factor of each head is a parameter, and the module forgets who asked for it.
    return dataclasses.replace(config, head_scale=block.attention.use_head_scale)


def _mlp_config(mlp: Any, channels: int) -> lgatr.MLPConfig:
    """The sizes and the activation of an MLP, read from its layers."""
    gates = [layer for layer in mlp.layers if hasattr(layer, "nonlinearity")]
    linears = [
        layer for layer in mlp.layers if hasattr(layer, "weight") or hasattr(layer, "linear_out")
    ]
    first = linears[0].linear_out if hasattr(linears[0], "linear_out") else linears[0]
    names = {_name(gate.nonlinearity) for gate in gates} or {"gelu"}
    if len(names) > 1:
        raise NotReplaced(f"expected one activation, got {sorted(names)}")
    return lgatr.MLPConfig(
        nonlinearity=names.pop(),
        mlp_ratio=first.weight.shape[0] // channels if len(linears) > 1 else 1,
        num_layers_mlp=len(linears),
    )


def _name(function: Any) -> str:
    """The name of an activation, which may be a partial function."""
    return str(getattr(getattr(function, "func", function), "__name__", function))


NETWORKS = {
    "gatr": {"GATr": of_gatr, "AxialGATr": of_axial},
    "lgatr": {
        "LGATr": of_lgatr,
        "ConditionalLGATr": of_conditional,
        "LGATrSlim": of_slim,
        "ConditionalLGATrSlim": of_conditional_slim,
    },
}
"""Makers of the counterparts of networks, by package and class name."""
