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


NETWORKS = {"gatr": {"GATr": of_gatr}, "lgatr": {"LGATr": of_lgatr}}
"""Makers of the counterparts of networks, by package and class name."""
