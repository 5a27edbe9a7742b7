"""Counterparts of the networks of GATr and L-GATr, by their shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from .. import gatr, lgatr
from ..lgatr import v1
from .blocks import attention_config, checkpointed, copied, dropout_of, mlp_config, with_mask
from .counterpart import Call, Counterpart, Draw, Form, NotReplaced
from .layers import grouped, items_of, primitives_of, tensors, with_condition
from .slim import is_network as is_slim
from .structure import channels, heads_of, maps_of, mask_name, parameters, scalars, signature

__all__ = ["FORMS"]


def _is_network(m: Any) -> bool:
    """Whether a module has a linear layer, a list of blocks and another linear layer."""
    if not isinstance(getattr(m, "blocks", None), nn.ModuleList) or is_slim(m):
        return False
    return hasattr(m, "linear_in") and hasattr(m, "linear_out")


def _network(m: Any) -> list[Counterpart]:
    if not len(m.blocks):
        raise NotReplaced("expected at least one block")
    if maps_of(m.linear_in) == 9:
        axial = hasattr(m, "_collapse_dims_for_even_blocks")
        return [_axial(m) if axial else _gatr(m)]
    if hasattr(m.blocks[0], "crossattention"):
        return _conditional(m)
    return _lgatr(m)


def _sizes(net: Any) -> dict[str, Any]:
    (in_mv, hidden), (in_s, hidden_s) = channels(net.linear_in), scalars(net.linear_in)
    return {
        "num_blocks": len(net.blocks),
        "in_mv_channels": in_mv,
        "out_mv_channels": channels(net.linear_out)[1],
        "hidden_mv_channels": hidden,
        "in_s_channels": in_s,
        "out_s_channels": scalars(net.linear_out)[1],
        "hidden_s_channels": hidden_s,
    }


def _reinserted(net: Any) -> dict[str, Any]:
    names = "reinsert_mv_channels", "reinsert_s_channels"
    return {name: getattr(net, f"_{name}", None) for name in names}


def _gatr(net: Any) -> Counterpart:
    """The counterpart of GATr."""
    sizes, block = _sizes(net), net.blocks[0]
    whole = getattr(net, "_checkpoint_blocks", False)
    calls = with_mask(items_of(sizes["in_mv_channels"], sizes["in_s_channels"]), mask_name(net))
    make = partial(
        gatr.GATr,
        **sizes,
        attention=attention_config(block.attention),
        mlp=mlp_config(block.mlp)[0],
        dropout_prob=dropout_of(net),
        checkpoint=["block"] if whole else checkpointed(block),
        **_reinserted(net),
    )
    return Counterpart(
        make, _with_canonical(calls) if "join_reference" in signature(net) else calls
    )


def _with_canonical(calls: Callable[[Draw], list[Call]]) -> Callable[[Draw], list[Call]]:
    """The same calls, and all of them with the canonical reference of the join."""

    def found(draw: Draw) -> list[Call]:
        canonical = {"join_reference": "canonical"}
        return [*calls(draw), *((given, {**named, **canonical}) for given, named in calls(draw))]

    return found


def _axial(net: Any) -> Counterpart:
    """The counterpart of GATr with two axes of items."""
    sizes, block = _sizes(net), net.blocks[0]
    # The first block attends along the second axis, the second block along the first.
    along_second, along_first = [b.attention.config.pos_encoding for b in (*net.blocks, block)][:2]
    calls = items_of(sizes["in_mv_channels"], sizes["in_s_channels"], ((2, 5, 3),))
    make = partial(
        gatr.AxialGATr,
        **sizes,
        attention=attention_config(block.attention),
        mlp=mlp_config(block.mlp)[0],
        checkpoint_blocks=getattr(net, "_checkpoint_blocks", False),
        pos_encodings=(along_first, along_second),
        collapse_dims=(net._collapse_dims_for_even_blocks, net._collapse_dims_for_odd_blocks),
    )
    return Counterpart(make, calls)


def _lgatr(net: Any) -> list[Counterpart]:
    """The counterparts of L-GATr of 2.0, or of 1.4 and its ancestors."""
    sizes, block = _sizes(net), net.blocks[0]
    calls = with_mask(items_of(sizes["in_mv_channels"], sizes["in_s_channels"]), mask_name(net))
    attention = attention_config(block.attention)
    mlp, product = mlp_config(block.mlp)
    shared = {
        "attention": attention,
        "mlp": mlp,
        "dropout_prob": dropout_of(net),
        "checkpoint_blocks": getattr(net, "_checkpoint_blocks", False),
        **_reinserted(net),
    }
    if isinstance(attention, v1.SelfAttentionConfig):
        makers = grouped(maps_of(net), partial(v1.LGATr, **sizes, **shared), product)
        return [Counterpart(make, calls) for make in makers]
    shared |= _second(net, block.norm1)
    return _with_groups(net, partial(lgatr.LGATr, **_without_none(sizes), **shared), calls, product)


def _second(net: Any, norm: nn.Module) -> dict[str, Any]:
    """Arguments that networks of 2.0 have."""
    affine = bool(parameters(norm))
    return {"norm_elementwise_affine": affine, "naive_amp": getattr(net, "_naive_amp", False)}


def _with_groups(
    net: Any, make: Callable[..., nn.Module], calls: Callable[[Draw], list[Call]], product: bool
) -> list[Counterpart]:
    """Counterparts of a network of 2.0, whose products have bivectors or have none."""
    groups = primitives_of(maps_of(net), product)
    return [Counterpart(partial(make, primitives=group), calls) for group in groups]


def _without_none(sizes: dict[str, Any]) -> dict[str, Any]:
    return {name: 0 if size is None else size for name, size in sizes.items()}


def _conditional(net: Any) -> list[Counterpart]:
    """The counterparts of L-GATr with a condition."""
    sizes, block = _sizes(net), net.blocks[0]
    cross, other = block.crossattention, block.crossattention.kv_linear
    cond_mv, cond_s = channels(other)[0], scalars(other)[0]
    channels_of_input = sizes["in_mv_channels"], sizes["in_s_channels"]
    calls = with_condition(
        lambda draw: tensors(draw, (2, 5), *channels_of_input),
        lambda draw: tensors(draw, (2, 4), cond_mv, cond_s),
    )
    attended = block.attention if hasattr(block, "attention") else block.selfattention
    attention, (mlp, product) = attention_config(attended), mlp_config(block.mlp)
    second = isinstance(attention, lgatr.SelfAttentionConfig)
    shared = {
        "attention": attention,
        "crossattention": copied(
            cross.config,
            lgatr.CrossAttentionConfig if second else v1.CrossAttentionConfig,
            head_scale="head_scale" in cross._parameters,
            num_heads=heads_of(cross),
        ),
        "mlp": mlp,
        "dropout_prob": dropout_of(net),
        "checkpoint_blocks": getattr(net, "_checkpoint_blocks", False),
    }
    if second:
        shared |= {"mv_channels_cond": cond_mv, "s_channels_cond": cond_s or 0}
        shared |= _second(net, block.norm1)
        make = partial(lgatr.ConditionalLGATr, **_without_none(sizes), **shared)
        return _with_groups(net, make, calls, product)
    shared |= {"condition_mv_channels": cond_mv, "condition_s_channels": cond_s}
    makers = grouped(maps_of(net), partial(v1.ConditionalLGATr, **sizes, **shared), product)
    return [Counterpart(make, calls) for make in makers]


FORMS = [Form("a network", _is_network, _network)]
"""Networks of GATr and L-GATr."""
