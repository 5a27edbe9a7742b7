"""Counterparts of the networks of the packages gatr and lgatr."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from .. import gatr, lgatr
from ..lgatr import v1
from .adopt import NotReplaced


def _scalars(linear: Any, name: str) -> int | None:
    """The scalar channels of a linear layer, read from its matrices; ``None`` for none."""
    matrix = getattr(linear, name)
    if matrix is None:
        return None
    return int(matrix.weight.shape[1] if name == "s2mvs" else matrix.weight.shape[0])


def _sizes(net: Any) -> dict[str, Any]:
    first, last = net.linear_in, net.linear_out
    if not len(net.blocks):
        raise NotReplaced("expected at least one block")
    return {
        "num_blocks": len(net.blocks),
        "in_mv_channels": first.weight.shape[1],
        "out_mv_channels": last.weight.shape[0],
        "hidden_mv_channels": first.weight.shape[0],
        "in_s_channels": _scalars(first, "s2mvs"),
        "out_s_channels": _scalars(last, "mvs2s"),
        "hidden_s_channels": _scalars(first, "mvs2s"),
    }


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


def of_gatr(net: Any) -> nn.Module:
    """The counterpart of ``gatr.GATr``."""
    sizes, block = _sizes(net), net.blocks[0]
    parts = [
        name
        for name, on in (("mlp", block._checkpoint_mlp), ("attention", block._checkpoint_attn))
        if on
    ]
    return gatr.GATr(
        **sizes,
        attention=_copied(block.attention.config, gatr.SelfAttentionConfig, _SET),
        mlp=_copied(block.mlp.config, gatr.MLPConfig, ("mv_channels", "s_channels")),
        dropout_prob=block.attention.config.dropout_prob,
        checkpoint=["block"] if net._checkpoint_blocks else (parts or None),
        **_reinserted(net),
    )


def of_axial(net: Any) -> nn.Module:
    """The counterpart of ``gatr.AxialGATr``."""
    sizes, block = _sizes(net), net.blocks[0]
    # The first block attends along the second axis, the second block along the first.
    along_second, along_first = [b.attention.config.pos_encoding for b in (*net.blocks, block)][:2]
    return gatr.AxialGATr(
        **sizes,
        attention=_copied(block.attention.config, gatr.SelfAttentionConfig, _SET),
        mlp=_copied(block.mlp.config, gatr.MLPConfig, ("mv_channels", "s_channels")),
        checkpoint_blocks=net._checkpoint_blocks,
        pos_encodings=(along_first, along_second),
        collapse_dims=(net._collapse_dims_for_even_blocks, net._collapse_dims_for_odd_blocks),
    )


def of_lgatr(net: Any) -> nn.Module:
    """The counterpart of ``lgatr.LGATr`` of 2.0 or 1.4."""
    sizes, block = _sizes(net), net.blocks[0]
    dropout = block.attention.dropout
    shared = {
        "dropout_prob": None if dropout is None else dropout._dropout_prob,
        "checkpoint_blocks": net._checkpoint_blocks,
        **_reinserted(net),
    }
    if hasattr(block.attention, "config"):
        attention = _copied(block.attention.config, v1.SelfAttentionConfig, _SET)
        mlp = _copied(block.mlp.config, v1.MLPConfig, ("mv_channels", "s_channels"))
        return v1.LGATr(**sizes, attention=attention, mlp=mlp, **shared)
    sizes = {name: 0 if size is None else size for name, size in sizes.items()}
    return lgatr.LGATr(
        **sizes,
        attention=_copied(_attention_config(block), lgatr.SelfAttentionConfig, _SET),
        mlp=_mlp_config(block.mlp, sizes["hidden_mv_channels"]),
        primitives=_copied(net.primitives, lgatr.PrimitivesConfig),
        norm_elementwise_affine=block.norm1.elementwise_affine,
        naive_amp=net._naive_amp,
        **shared,
    )


def of_conditional(net: Any) -> nn.Module:
    """The counterpart of ``lgatr.ConditionalLGATr`` of 2.0."""
    _check_version(net)
    sizes, block = _sizes(net), net.blocks[0]
    sizes = {name: 0 if size is None else size for name, size in sizes.items()}
    cross, dropout = block.crossattention.config, block.attention.dropout
    return lgatr.ConditionalLGATr(
        **sizes,
        mv_channels_cond=cross.kv_mv_channels,
        s_channels_cond=cross.kv_s_channels,
        attention=_copied(_attention_config(block), lgatr.SelfAttentionConfig, _SET),
        crossattention=_copied(cross, lgatr.CrossAttentionConfig),
        mlp=_mlp_config(block.mlp, sizes["hidden_mv_channels"]),
        primitives=_copied(net.primitives, lgatr.PrimitivesConfig),
        dropout_prob=None if dropout is None else dropout._dropout_prob,
        norm_elementwise_affine=block.norm1.elementwise_affine,
        checkpoint_blocks=net._checkpoint_blocks,
        naive_amp=net._naive_amp,
    )


def of_slim(net: Any) -> nn.Module:
    """The counterpart of ``lgatr.LGATrSlim`` of 2.0."""
    return lgatr.LGATrSlim(**_slim_arguments(net, "attention"))


def of_conditional_slim(net: Any) -> nn.Module:
    """The counterpart of ``lgatr.ConditionalLGATrSlim`` of 2.0."""
    arguments = _slim_arguments(net, "selfattention")
    condition = net.blocks[0].crossattention.linear_in_kv
    return lgatr.ConditionalLGATrSlim(
        **arguments,
        v_channels_cond=condition._in_v_channels,
        s_channels_cond=condition._in_s_channels,
    )


def _slim_arguments(net: Any, attention: str) -> dict[str, Any]:
    """The arguments that both slim networks have. ``attention`` is the name of self-attention in a block."""
    _check_version(net)
    if not len(net.blocks):
        raise NotReplaced("expected at least one block")
    first, last, block = net.linear_in, net.linear_out, net.blocks[0]
    attending, dropout = getattr(block, attention), getattr(block, attention).dropout
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
        "dropout_prob": None if dropout is None else dropout._dropout_prob,
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
