"""What is fixed in a block: its modules, its parameters, and how items lie in the matrices between its kernels."""

from __future__ import annotations

import math
import weakref
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules_of_torch

from ...._ops import attention as kernels
from ...._ops import run
from ...._ops.spots import Layout, side_by_side
from .. import attention, bilinear, gate, heads, linear, mlp, norm, packed, products
from ..attention import padded_counts
from ..items import Heads, Role, Split, serves_features
from ..norm import EPS, SCALAR_EPS
from ..products import Mode

if TYPE_CHECKING:
    from ..block import Block

__all__ = ["Features", "Product", "Structure", "structure_of"]

_LAYERS = (bilinear.GeometricBilinear, gate.ScalarGate, linear.EquiLinear, gate.GradeDropout)
_OWN = (
    attention.GeometricAttention,
    heads.SelfAttention,
    heads._SharedProjection,
    heads._SplitProjection,
    mlp.GeometricMLP,
    norm.EquiLayerNorm,
    nn.Linear,
    nn.ModuleList,
    *_LAYERS,
)
_NOTHING = {type(None)}
# Ragged batches have ever new numbers of rows.
_MOST_MODES = 256


class Product(NamedTuple):
    """A product of a bilinear layer: its kind, and where its factors and its result are."""

    kind: str
    left: Layout
    right: Layout
    to: Layout


class Features(NamedTuple):
    """The features of attention."""

    dtype: torch.dtype
    roles: tuple[Role, ...]
    split: Split
    widths: tuple[int, int, int]
    """The features of queries, keys and values in memory."""
    scale: float
    """The factor of dot products."""


class Structure:
    """What is fixed in a block, until one of its modules is replaced.

    It refers to the dictionaries in which the block's modules have their parts, so it notices every change that goes by
    them, at little cost.
    """

    def __init__(self, block: Block) -> None:
        found = [module for module in block.modules() if module is not block]
        self.has_own_modules = all(type(module) in _OWN for module in found)
        # The block itself is not among them: a structure must not keep it alive.
        self._modules = found
        self._kinds = [type(module) for module in found]
        self._own = [module.__dict__ for module in found]
        # The dictionaries of submodules, their keys and their values.
        links = [
            (module._modules, name, child)
            for module in (block, *found)
            for name, child in module._modules.items()
        ]
        self._holders, self._names, self._held = (list(x) for x in zip(*links, strict=True))
        self._counts = list(map(len, self._holders))
        # Hooks of the block itself follow its call, which this is a part of.
        self._hooks: list[Any] = [
            hooks
            for module in found
            for hooks in (
                module._forward_pre_hooks,
                module._forward_hooks,
                module._backward_pre_hooks,
                module._backward_hooks,
            )
        ]
        self._drops = [x for x in found if isinstance(x, gate.GradeDropout) and x.p > 0]
        self.serves = self.has_own_modules and self._is_served(block)
        if self.serves:
            self._derive(block)

    def _is_served(self, block: Block) -> bool:
        """Whether all choices of a block are among those that the kernels know."""
        geometry, layer = block.geometry, block.attention
        mixed = geometry.head_norm and geometry.distances
        plain = layer.head_scale is None and layer.pos_encoding is None
        return plain and geometry.bivectors and not mixed

    def _derive(self, block: Block) -> None:
        layer, after = block.attention, block.mlp
        self.algebra = block.geometry.algebra
        self.attention = layer.attention
        self.norms: list[Any] = [block.norm1, block.norm2]
        self.normalises = block.geometry.product and block.geometry.product_norm
        if self.normalises:
            self.norms.append(after.layers[0].norm)
        self.groups = (*layer.groups(False), *after.groups())
        self.parts = tuple(linear._parts(group) for group in self.groups)
        self.biased = tuple(products.biased_columns(parts) for parts in self.parts)
        self.slots = [slot for group in self.groups for x in group for slot in _slots(x)]
        self._keepers = [parts for parts, _ in self.slots]
        self._keys = [name for _, name in self.slots]
        self.other_slots = self._others(block)
        self.gates = [x for x in after.layers if isinstance(x, gate.ScalarGate)]
        self.blades = blades = self.algebra.blade_count

        sizes = self.parts[0][0].sizes
        self.hidden = side_by_side(blades, sizes.inputs, sizes.in_scalars)
        self.heads = layer._sizes
        self.projected, self.counts = self._projections()
        out = self.parts[1][0].sizes
        self.merged = side_by_side(blades, out.inputs, out.in_scalars)
        self.products = self._products() if block.geometry.product else ()
        self.levels = self._levels()
        self._features: dict[Any, Features | None] = {}
        self._tables: dict[Any, Any] = {}
        self._modes: dict[Any, tuple[Mode, ...] | None] = {}
        # The lists of calls that `listed` makes, one for each shape.
        self.lists: dict[Any, Any] = {}

    def _others(self, block: Block) -> list[tuple[dict[str, Any] | None, str]]:
        has_scalars = bool(self.parts[0][0].sizes.in_scalars)
        wanted: list[tuple[nn.Module, str]] = [(self.attention, "log_weights")]
        for layer in (block.norm1, block.norm2):
            wanted += [(layer, "weight_mv"), (layer, "weight_s")]
        return [
            (module._parameters if name != "weight_s" or has_scalars else None, name)
            for module, name in wanted
        ]

    def _projections(self) -> tuple[tuple[Layout, ...], tuple[int, ...]]:
        """Where queries, keys and values are in the output of their layers, and their heads."""
        one, one_s, count = self.heads.channels, self.heads.scalars, self.heads.count
        if len(self.parts[0]) == 3:
            return _one_by_one(self.parts[0]), (count, 1, 1)
        whole, channels, scalars = _one_by_one(self.parts[0])[0], one * count, one_s * count
        parts = [
            whole._replace(
                start=at * channels,
                channels=channels,
                scalar_start=whole.scalar_start + at * scalars,
                scalars=scalars,
            )
            for at in range(3)
        ]
        return tuple(parts), (count,) * 3

    def _products(self) -> tuple[Product, ...]:
        factors = _one_by_one(self.parts[2])
        sizes = self.parts[3][0].sizes
        self.multiplied = whole = side_by_side(self.blades, sizes.inputs, sizes.in_scalars)
        made, start = [], 0
        for kind, left, right in zip(("geometric", "regressive"), factors[::2], factors[1::2]):
            to = whole._replace(start=start, channels=left.channels, scalars=0)
            made.append(Product(kind, left, right, to))
            start += left.channels
        return tuple(made)

    def _levels(self) -> tuple[Layout, ...]:
        """The layouts before each gate of the MLP, and of its output."""
        made = self.parts[3:] if self.products else self.parts[2:]
        found = [
            side_by_side(self.blades, part.sizes.outputs, part.sizes.out_scalars)
            for (part,) in made
        ]
        return tuple(found if self.products else [self.hidden, *found])

    def is_whole(self) -> bool:
        """Whether nothing follows or changes the calls of modules within the block."""
        if any(self._hooks) or modules_of_torch._has_any_global_hook():
            return False
        # These loops run in every call of a block, so they are those of built-in functions.
        if list(map(type, self._modules)) != self._kinds or any(map(_has_forward, self._own)):
            return False
        return not any(layer.training for layer in self._drops)

    def is_current(self) -> bool:
        """Whether the block has the modules that it had when this was made."""
        # Modules are equal only to themselves.
        same = list(map(dict.get, self._holders, self._names)) == self._held
        return same and list(map(len, self._holders)) == self._counts

    def parameters(self, dtype: torch.dtype) -> list[Tensor] | None:
        """The parameters of all linear layers, in the order of tables; ``None`` if some are not plain tensors of a type."""
        found: Any = list(map(dict.get, self._keepers, self._keys))
        if not packed.PLAIN.issuperset(map(type, found)) or {dtype} != set(map(_dtype, found)):
            return None
        if len(set(map(_device, found))) != 1:
            return None
        return found  # type: ignore[no-any-return]

    def others(self) -> list[Tensor | None] | None:
        """The logarithms of the weights of distances, and the gains of both norms, of multivectors and of scalars; ``None``
        for what there is not. ``None`` for all if some are not plain tensors."""
        found = [None if parts is None else parts.get(name) for parts, name in self.other_slots]
        return found if packed.PLAIN.issuperset({*map(type, found)} - _NOTHING) else None

    def table(self, x: Tensor) -> packed.Table:
        """The table of the packed matrices of all layers."""
        key = x.device, x.dtype
        if key not in self._tables:
            self._tables[key] = packed.table_of(self.parts, *key)
        return self._tables[key]  # type: ignore[no-any-return]

    def modes(self, x: Tensor) -> tuple[Mode, ...] | None:
        """For each group of layers which of its products are block-sparse; ``None`` if a layer does not run as a product.

        ``x``: multivectors ``[blades, *batch, channels]``.
        """
        rows = x.shape[1:-1].numel()
        key = rows, x.dtype, x.device, run.takes_tf32()
        if key not in self._modes:
            if len(self._modes) >= _MOST_MODES:
                self._modes.clear()
            self._modes[key] = self._modes_of(x, rows)
        return self._modes[key]

    def _modes_of(self, x: Tensor, rows: int) -> tuple[Mode, ...] | None:
        if not all(packed.serves(parts, x) for parts in self.parts):
            return None
        shapes = self.table(x).shapes
        return tuple(
            products.mode_of(parts, shape.blocks, x, rows)
            for parts, shape in zip(self.parts, shapes, strict=True)
        )

    def features(self, x: Tensor) -> Features | None:
        """The features of attention between items like some; ``None`` if there are no kernels for them."""
        layer = self.attention
        key = x.dtype, x.device, layer.dtype, layer.eps
        if key not in self._features:
            self._features[key] = self._features_of(x, layer.dtype or x.dtype)
        return self._features[key]

    def _features_of(self, x: Tensor, dtype: torch.dtype) -> Features | None:
        layer = self.attention
        roles = layer.roles()
        split = layer.split((EPS, SCALAR_EPS) if self.heads.geometry.head_norm else None)
        described = Heads(self.heads.channels, self.heads.scalars, (), roles, dtype, ())
        of_query, _, of_value = (described.features(role, split) for role in roles)
        wide, width = padded_counts(of_query, of_value, dtype, x.is_cuda)
        # What attention would have to pad is left to it.
        if width != of_value or not serves_features(x.dtype, dtype):
            return None
        tried = [
            x.new_empty(count, 1, size, dtype=dtype)
            for count, size in zip(self.counts, (wide, wide, width), strict=True)
        ]
        if not kernels.serves(*tried):
            return None
        return Features(dtype, roles, split, (wide, wide, width), 1 / math.sqrt(of_query))


_dtype = attrgetter("dtype")
_device = attrgetter("device")
_has_forward = methodcaller("__contains__", "forward")
"""Whether a module's own attributes have a function that is called in the place of its class's."""


def _one_by_one(parts: tuple[packed.Layer, ...]) -> tuple[Layout, ...]:
    """Where the outputs of layers are that share their input."""
    found, start = [], 0
    for part in parts:
        blades, sizes = len(part.geometry.norms), part.sizes
        found.append(side_by_side(blades, sizes.outputs, sizes.out_scalars, start))
        start += part.width
    return tuple(found)


def _slots(layer: linear.EquiLinear) -> list[tuple[dict[str, Any], str]]:
    """The dictionaries and the names by which a layer has its parameters, in the order of ``_in_order``."""
    s2mvs, mvs2s, s2s = layer.s2mvs, layer.mvs2s, layer.s2s
    of_bias: nn.Module = layer if s2mvs is None else s2mvs
    wanted = [
        (layer, "weight"),
        (s2mvs, "weight"),
        (mvs2s, "weight"),
        (s2s, "weight"),
        (of_bias, "bias"),
        (mvs2s, "bias"),
    ]
    return [
        (module._parameters, name)
        for module, name in wanted
        if module is not None
        and not isinstance(module, linear.NoChannels)
        and module._parameters.get(name) is not None
    ]


_KNOWN: weakref.WeakKeyDictionary[nn.Module, Structure] = weakref.WeakKeyDictionary()


def structure_of(block: Block) -> Structure:
    """What is fixed in a block, derived once for the modules that it has."""
    found = _KNOWN.get(block)
    if found is None or not found.is_current():
        found = _KNOWN[block] = Structure(block)
    return found
