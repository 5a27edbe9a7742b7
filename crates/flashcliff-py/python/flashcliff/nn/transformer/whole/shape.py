"""Whether a block is made as the kernels of whole blocks expect: modules by their places, and channels that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from ...._ops.equivariant import Sizes
from .. import attention, bilinear, gate, heads, linear, mlp, norm

if TYPE_CHECKING:
    from ..block import Block

__all__ = ["why_not"]


def why_not(block: Block) -> str | None:
    """The reason why no function stands for a block; ``None`` if its modules have the places and sizes that it is made
    with. Their classes are known ones."""
    why = _wrong_kind(block)
    if why is not None:
        return why
    geometry, layer = block.geometry, block.attention
    if layer.head_scale is not None:
        return "attention scales its heads"
    if layer.pos_encoding is not None:
        return "attention has rotary positions"
    if not geometry.bivectors:
        return "products leave out bivectors"
    if geometry.head_norm and geometry.distances:
        return "heads have both a norm and distances"
    if not _fits(block):
        return "the channels of its layers do not fit"
    return None


def _wrong_kind(block: Any) -> str | None:
    """The name of a module that has not the class that its place wants."""
    wanted: list[tuple[str, Any, tuple[type, ...]]] = [
        *((name, getattr(block, name), (norm.EquiLayerNorm,)) for name in block.norm_names),
        ("attention", block.attention, (heads.SelfAttention,)),
        ("mlp", block.mlp, (mlp.GeometricMLP,)),
    ]
    why = _wrong(wanted)
    if why is not None:
        return why
    layer, after = block.attention, block.mlp
    projection = layer.qkv_module
    of_projection = (heads._SplitProjection, heads._SharedProjection)
    wanted = [
        ("attention.attention", layer.attention, (attention.GeometricAttention,)),
        ("attention.out_linear", layer.out_linear, (linear.EquiLinear,)),
        ("attention.qkv_module", projection, of_projection),
        ("mlp.layers", after.layers, (nn.ModuleList,)),
        *(
            (f"attention.{name}", module, (gate.GradeDropout,))
            for name, module in (("dropout", layer.dropout),)
            if module is not None
        ),
    ]
    why = _wrong(wanted)
    if why is not None:
        return why
    inner = [(f"attention.qkv_module.{name}", x) for name, x in projection.named_children()]
    layers = [x for x in after.layers if type(x) is not gate.GradeDropout]
    expected: list[type] = [gate.ScalarGate, linear.EquiLinear] * (len(layers) // 2 + 1)
    if block.geometry.product:
        expected = [bilinear.GeometricBilinear, *expected]
    if len(layers) % 2 != block.geometry.product or not layers:
        return "mlp.layers are not pairs of a gate and a linear layer"
    wanted = [(f"mlp.layers, at {at}", x, (expected[at],)) for at, x in enumerate(layers)]
    why = _wrong(wanted)
    if why is None and block.geometry.product:
        of_products = layers[0]
        inner += [
            (f"mlp.layers.0.{name}", x)
            for name, x in of_products.named_children()
            if name != "norm"
        ]
        if block.geometry.product_norm:
            why = _wrong([("mlp.layers.0.norm", of_products.norm, (norm.EquiLayerNorm,))])
    return why or _wrong([(name, x, (linear.EquiLinear,)) for name, x in inner])


def _wrong(wanted: list[tuple[str, Any, tuple[type, ...]]]) -> str | None:
    for name, module, kinds in wanted:
        if type(module) not in kinds:
            names = " or ".join(kind.__name__ for kind in kinds)
            return f"{name} is of the class {type(module).__name__}, not {names}"
    return None


def _fits(block: Any) -> bool:
    """Whether each layer takes what the one before it gives."""
    layer, after = block.attention, block.mlp
    of_heads = layer._sizes
    first, last = _sizes(layer.groups(False)[0][0]), _sizes(layer.out_linear)
    hidden = first.inputs, first.in_scalars
    all_heads = of_heads.channels * of_heads.count, of_heads.scalars * of_heads.count
    projected = [_sizes(x) for x in layer.groups(False)[0]]
    counts = [of_heads.count, 1, 1] if len(projected) == 3 else [3 * of_heads.count]
    fits = len(projected) == len(counts)
    for sizes, count in zip(projected, counts):
        made = of_heads.channels * count, of_heads.scalars * count
        fits &= sizes == Sizes(hidden[0], made[0], hidden[1], made[1])
    fits &= last == Sizes(all_heads[0], hidden[0], all_heads[1], hidden[1])
    groups = after.groups()
    here = hidden
    if block.geometry.product:
        factors = [_sizes(x) for x in groups[0]]
        one, multiplied = factors[0].outputs, _sizes(groups[1][0])
        fits &= all(x == Sizes(hidden[0], one, hidden[1], 0) for x in factors)
        fits &= (multiplied.inputs, multiplied.in_scalars) == (one * (len(factors) // 2), hidden[1])
        here, groups = (multiplied.outputs, multiplied.out_scalars), groups[2:]
    for (x,) in groups:
        sizes = _sizes(x)
        fits &= (sizes.inputs, sizes.in_scalars) == here
        here = sizes.outputs, sizes.out_scalars
    return bool(fits and here == hidden)


def _sizes(layer: linear.EquiLinear) -> Sizes:
    return layer._layer.sizes
