"""The choice between a block as one function and the calls of its layers.

:func:`choose` makes it for each call, and says why layers are called. :func:`why_layers` is the part of the reason that does not
depend on the input: changes of modules, which :mod:`..path` finds, and modules and sizes that the function does not know.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .... import _core
from ...._ops import items as kernels
from ...._ops.attention import Call, Rows
from ...._ops.equivariant import Sizes
from ...._ops.items import Pair
from ...._ops.run import takes_tf32
from .. import attention, bilinear, gate, heads, kernel, linear, mlp, norm, packed, path
from ..norm import SCALAR_EPS
from ..ragged import paired
from .call import Given, Others
from .listed import Taken
from .structure import Slot, Structure

if TYPE_CHECKING:
    from ..block import Block

__all__ = ["Extra", "choose", "modules_of", "why_layers"]

Extra = tuple[Tensor | None, Tensor | None]
"""Multivectors and scalars that queries and keys see besides."""

_OPTIONS = {"mask", "is_causal", "cu_seqlens", "cu_seqlens_key"}
"""The options of attention that a call may have."""
_FIXED = ("geometry", "channels", "heads", "_sizes", "_layer", "_inner", "_signs")
"""Attributes of modules that structures are derived from."""
_NOTHING = {type(None)}


def choose(
    block: Block,
    here: Pair,
    pending: Pair | None,
    extra: Extra,
    joins: bilinear.JoinFactors | None,
    options: Mapping[str, Any],
) -> tuple[Given, Taken] | str:
    """The properties of a call and its tensors, for the block as one function; the reason why its layers must be called if
    they must.

    Args:
        block: the block.
        here: multivectors and scalars.
        pending: what is to be added to them, if anything is.
        extra: what queries and keys see besides.
        joins: the factors of joins, if there are any.
        options: those of attention.
    """
    if not packed.is_plain(here[0]):
        return "the input is not a plain tensor on CUDA"
    why = _why_call(block, here, extra, joins)
    if why is None:
        modules, why = _known(block)
    else:
        modules = modules_of(block)
    found = why or _ready(modules.structure, here, pending, joins, options)
    modules.last = found if isinstance(found, str) else None
    return found


def _why_call(
    block: Block, here: Pair, extra: Extra, joins: bilinear.JoinFactors | None
) -> str | None:
    """The reason why layers must be called that needs no look at them."""
    if here[0].dim() < 3 or here[0].numel() == 0:
        return "the input has no axis of items, or no elements"
    if extra != (None, None):
        return "queries and keys see more channels than values"
    if block.checkpoint and torch.is_grad_enabled():
        return "its items are computed again in the backward pass"
    if block.geometry.join and block.geometry.product:
        if joins is None or not joins.serves_rows:
            return "the reference of joins is missing, needs a gradient or differs from channel to channel"
    return None


def why_layers(block: Block) -> str | None:
    """The reason why a block's layers must be called, whatever its input is."""
    return _known(block)[1]


class Modules:
    """The modules of a block as they are, and what is derived of them."""

    structure: Structure
    """It is there unless :attr:`refused`."""

    def __init__(self, block: Block) -> None:
        self.watch = path.Watch(block)
        self.refused = self.watch.foreign or _why_refused(block)
        self.last: str | None = "it was not called with tensors on CUDA"
        """The reason why the layers were called the last time on CUDA, if they were."""
        inner = self.watch.modules
        self._drops = [x.__dict__ for x in inner if isinstance(x, gate.GradeDropout)]
        # Attributes that this is derived from, of the block too, which must not be kept alive.
        fixed = [(x.__dict__, name) for x in inner for name in _FIXED if name in x.__dict__]
        self._fixed = [own for own, _ in fixed], [name for _, name in fixed]
        self._fixed_values = [own[name] for own, name in fixed]
        self._noted: _core.Slots | None = None
        """The modules as they were when functions stood for their calls, if they ever did."""
        if self.refused is None:
            self.structure = Structure(block)

    def is_unchanged(self) -> bool:
        """Whether the modules are as they were the last time when functions stood for their calls: most calls find them so."""
        return self._noted is not None and self._noted.are_same()

    def reason(self, block: Block, unchanged: bool = False) -> str | None:
        """The reason why the block's layers must be called; ``None`` if nothing follows or changes their calls.

        ``unchanged``: the answer of :meth:`is_unchanged`, if it was asked.
        """
        why = self.refused or self.watch.reason(unchanged)
        if why is None and not unchanged:
            why = self._changed()
            entries = map(list, zip(*self._entries(), strict=True))
            self._noted = None if why is not None else self.watch.note(*entries)
        if why is not None:
            return why
        if self._drops and any(own["training"] and own["p"] > 0 for own in self._drops):
            return "dropout draws random numbers"
        if block.geometry is not self.structure.geometry:
            return "an attribute that the block was made with has another value"
        return None

    def _changed(self) -> str | None:
        """The reason why the block's layers must be called that lies in attributes of its modules."""
        if list(map(dict.get, *self._fixed)) != self._fixed_values:
            return "an attribute that the block was made with has another value"
        if not _NOTHING.issuperset(map(type, map(dict.get, *self.structure.without))):
            return "a linear layer has a bias that it was made without"
        if self.structure.attention_layer.head_scale is not None:
            return "attention scales its heads"
        for layer in self.structure.norms[2:]:
            if layer.weight_mv is not None or layer.weight_s is not None:
                return "the norm of products has gains"
        return None

    def _entries(self) -> Iterator[Slot]:
        """The dictionaries and names that :meth:`_changed` reads."""
        for owners, names in (self._fixed, self.structure.without):
            yield from zip(owners, names, strict=True)
        attributes = [(self.structure.attention_layer, "head_scale")]
        for layer in self.structure.norms[2:]:
            attributes += [(layer, "weight_mv"), (layer, "weight_s")]
        for module, name in attributes:
            own = module.__dict__
            yield from ((x, name) for x in (own, own["_parameters"], own["_buffers"], own["_modules"]))


_KNOWN: weakref.WeakKeyDictionary[nn.Module, Modules] = weakref.WeakKeyDictionary()


def _known(block: Block) -> tuple[Modules, str | None]:
    """What is known of a block's modules, and the reason why its layers must be called, if there is one."""
    found = _KNOWN.get(block)
    if found is not None and found.is_unchanged():
        return found, found.reason(block, unchanged=True)
    found = modules_of(block)
    return found, found.reason(block)


def modules_of(block: Block) -> Modules:
    """What is known of a block's modules, derived once for the modules that it has."""
    found = _KNOWN.get(block)
    if found is None or not found.watch.is_current():
        found = _KNOWN[block] = Modules(block)
    return found


def _ready(
    structure: Structure,
    here: Pair,
    pending: Pair | None,
    joins: bilinear.JoinFactors | None,
    options: Mapping[str, Any],
) -> tuple[Given, Taken] | str:
    """The properties of a call and its tensors; the reason why layers must be called if there are no kernels for it."""
    mv, s = here
    given = _given(structure, here, pending, options)
    if isinstance(given, str):
        return given
    parameters, others = structure.parameters(mv.dtype), structure.others()
    if not parameters or others is None:
        return "some parameters are not plain tensors of the type of the input and of the shapes that they were made with"
    if not kernels.serves(structure.algebra, mv, s, *(pending or ()), *others, parameters[0]):
        return "there are no kernels for tensors of this algebra, type or device"
    if others[0] is not None and not others[0].is_contiguous():
        return "the weights of distances are not contiguous"
    reference = None
    if joins is not None and structure.geometry.join and structure.geometry.product:
        reference = joins.of_rows(structure.geometry, mv)
    log_weights, *gains = others
    own = Others(log_weights, ((gains[0], gains[1]), (gains[2], gains[3])))
    return given, Taken(here, pending, reference, own, parameters)


def _given(
    structure: Structure, here: Pair, pending: Pair | None, options: Mapping[str, Any]
) -> Given | str:
    """The properties of a call; the reason why layers must be called if there are no kernels for it."""
    mv, layout = here[0], structure.hidden
    batch = tuple(mv.shape[1:-1])
    shapes = (layout.blades, *batch, layout.channels), (*batch, layout.scalars)
    for one, of_scalars in (here,) if pending is None else (here, pending):
        if one.shape != shapes[0] or (of_scalars is None) != (not layout.scalars):
            return "the input has another shape than the block"
        if of_scalars is not None and of_scalars.shape != shapes[1]:
            return "the scalars have another shape than the block"
    if torch.is_autocast_enabled(mv.device.type):
        return "autocast is on"
    *elements, count = batch
    shape = math.prod(elements), count
    rows, tf32 = shape[0] * count, takes_tf32()
    features, modes = structure.features(mv), structure.modes(mv, rows, tf32)
    if features is None:
        return "there are no kernels for the features of attention"
    if modes is None:
        return "a linear layer is not a dense or block-sparse product"

    sequences, of_queries = shape[0], Rows(rows, count)
    of_keys = of_queries
    if options.get("mask") is not None or options.get("is_causal"):
        return "attention has a mask"
    if not _OPTIONS.issuperset(options):
        return "attention has other options than a mask and boundaries"
    ragged = paired(options.get("cu_seqlens"), options.get("cu_seqlens_key"), count, count)
    if ragged is not None:
        if shape[0] != 1:
            return "a ragged batch has more than one batch element"
        of_queries, of_keys = (Rows(count, of.longest, of.on(mv.device)) for of in ragged)
        sequences = len(ragged[0].bounds) - 1
    if not kernel.takes_longest(features.dtype, max(of_queries.longest, of_keys.longest)):
        return "sequences are too long for the kernel of attention"
    heads, shared = structure.counts[0], structure.counts[1] == 1
    spread = shared and heads > 1 and kernel.spreads(heads, sequences, of_queries, of_keys)
    call = Call(features.scale, sequences, of_queries, of_keys, tf32)
    eps = tuple([(layer.eps, SCALAR_EPS) for layer in structure.norms])
    rest = structure.table(mv), modes, features, call, shape, spread, torch.is_grad_enabled(), eps
    activations = tuple([(x.activation, x.scalar_activation) for x in structure.gates])
    return Given(structure, batch, rows, *rest, activations)


def _why_refused(block: Block) -> str | None:
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
