"""What is fixed in a block: its parameters, and how items lie in the matrices between its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._dynamo.guards import TensorGuards

from .... import _core
from ...._ops import attention as kernels
from ...._ops import native
from ...._ops.spots import Layout, side_by_side
from .. import gate, linear, packed, products
from ..attention import padded_counts
from ..items import Heads, Role, Split, serves_features
from ..norm import EPS, SCALAR_EPS
from ..products import Mode

if TYPE_CHECKING:
    from ..block import Block

__all__ = ["Features", "Product", "Slot", "Structure"]

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


Slot = tuple[dict[str, Any], str]


class Structure:
    """What is fixed in a block that runs as one function, until one of its modules is replaced."""

    def __init__(self, block: Block) -> None:
        layer, after = block.attention, block.mlp
        self.geometry, self.algebra = block.geometry, block.geometry.algebra
        self.attention_layer, self.attention = layer, layer.attention
        self.norms = block.norms()
        self.normalises = block.geometry.product and block.geometry.product_norm
        if self.normalises:
            self.norms.append(after.layers[0].norm)
        self.groups = (*layer.groups(False), *after.groups())
        self.parts = tuple(linear._parts(group) for group in self.groups)
        self.biased = tuple(products.biased_columns(parts) for parts in self.parts)
        self.slots, self._shapes, self.without = _slots([x for group in self.groups for x in group])
        self._parameters = _core.Slots(*map(list, zip(*self.slots, strict=True)))
        self._form: _Form | None = None
        self.contiguous = False
        """Whether all parameters were contiguous when they were last asked for."""
        self._others_of, self.other_slots = self._others(block)
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

    def _others(
        self, block: Block
    ) -> tuple[list[nn.Module | None], list[tuple[dict[str, Any] | None, str]]]:
        """The modules of the parameters besides those of linear layers, and where these are."""
        has_scalars = bool(self.parts[0][0].sizes.in_scalars)
        wanted: list[tuple[nn.Module, str]] = [(self.attention, "log_weights")]
        for layer in block.norms():
            wanted += [(layer, "weight_mv"), (layer, "weight_s")]
        modules = [module if name != "weight_s" or has_scalars else None for module, name in wanted]
        slots = [
            (None if module is None else module._parameters, name)
            for module, (_, name) in zip(modules, wanted, strict=True)
        ]
        return modules, slots

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

    def parameters(self, dtype: torch.dtype) -> list[Tensor] | None:
        """The parameters of all linear layers, in the order of tables; ``None`` if some are not plain tensors of a type and
        of the shapes that they were made with."""
        found: Any = self._parameters.values()
        form = self._form
        # Tensors of this form answer all questions below.
        if form is not None and form.dtype is dtype and form.path is native.loaded and form.has(found):
            return found  # type: ignore[no-any-return]
        if not packed.PLAIN.issuperset(map(type, found)) or {dtype} != set(map(_dtype, found)):
            return None
        if len(set(map(_device, found))) != 1 or list(map(_shape, found)) != self._shapes:
            return None
        self.contiguous = all(map(Tensor.is_contiguous, found))
        self._form = _form_of(found)
        return found  # type: ignore[no-any-return]

    def others(self) -> list[Tensor | None] | None:
        """The logarithms of the weights of distances, and the gains of both norms, of multivectors and of scalars; ``None``
        for what there is not. ``None`` for all if some are not plain parameters."""
        found = [None if parts is None else parts.get(name) for parts, name in self.other_slots]
        for at, x in enumerate(found):
            module = self._others_of[at]
            # Attributes of another kind are left to the layers.
            if x is None and module is not None and getattr(module, self.other_slots[at][1]) is not None:
                return None
        return found if packed.PLAIN.issuperset({*map(type, found)} - _NOTHING) else None

    def table(self, x: Tensor) -> packed.Table:
        """The table of the packed matrices of all layers."""
        key = x.device, x.dtype
        if key not in self._tables:
            self._tables[key] = packed.table_of(self.parts, *key)
        return self._tables[key]  # type: ignore[no-any-return]

    def modes(self, x: Tensor, rows: int, tf32: bool) -> tuple[Mode, ...] | None:
        """For each group of layers which of its products are block-sparse; ``None`` if a layer does not run as a product.

        Args:
            x: multivectors ``[blades, *batch, channels]``.
            rows: the items of all batch elements.
            tf32: whether products may round to TF32.
        """
        key = rows, x.dtype, x.device, tf32
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
_shape = attrgetter("shape")
_REAL = {Tensor, nn.Parameter}
_GONE = (0,)


class _Form(NamedTuple):
    """The types, devices, shapes and strides of tensors."""

    dtype: torch.dtype
    path: Any
    """The compiled call path, which looks at the tensors; without it a guard of PyTorch does."""
    has: Callable[[list[Tensor]], bool]
    """Whether tensors have this form, and memory if the compiled call path looks."""


def _form_of(tensors: list[Tensor]) -> _Form | None:
    """The form of tensors, by which others like them are known at once; ``None`` for tensors that are not looked at so."""
    path = native.loaded
    try:
        if path is not None:
            addresses = path.Layout(tensors).addresses
            # Parameters that are gone have the address 0.
            return _Form(tensors[0].dtype, path, lambda found: 0 not in (addresses(found) or _GONE))
        if _REAL.issuperset(map(type, tensors)):
            check = TensorGuards(
                *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
            ).check
            return _Form(tensors[0].dtype, path, lambda found: check(*found))
    except (TypeError, RuntimeError):
        pass
    return None


def _one_by_one(parts: tuple[packed.Layer, ...]) -> tuple[Layout, ...]:
    """Where the outputs of layers are that share their input."""
    found, start = [], 0
    for part in parts:
        blades, sizes = len(part.geometry.norms), part.sizes
        found.append(side_by_side(blades, sizes.outputs, sizes.out_scalars, start))
        start += part.width
    return tuple(found)


def _slots(layers: list[linear.EquiLinear]) -> tuple[list[Slot], list[torch.Size], Any]:
    """The dictionaries and the names by which layers have their parameters, in the order of ``_in_order``; the shapes that these
    have in a layer as it was made; and the dictionaries and names of those that it has not."""
    there: list[Slot] = []
    shapes: list[torch.Size] = []
    without: list[Slot] = []
    for layer in layers:
        s2mvs, mvs2s, s2s = map(linear._with_channels, (layer.s2mvs, layer.mvs2s, layer.s2s))
        wanted = [
            (layer, "weight"),
            (s2mvs, "weight"),
            (mvs2s, "weight"),
            (s2s, "weight"),
            (layer if s2mvs is None else s2mvs, "bias"),
            (mvs2s, "bias"),
            (s2s, "bias"),
            (None if s2mvs is None else layer, "bias"),
        ]
        for (module, name), size in zip(wanted, layer._shapes, strict=True):
            slot = {} if module is None else module._parameters, name
            if size is None:
                without.append(slot)
            else:
                there.append(slot)
                shapes.append(size)
    return there, shapes, ([parts for parts, _ in without], [name for _, name in without])
