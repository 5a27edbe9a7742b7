"""The calls of the kernels of transformers on CUDA as rows: which they are, by the arguments of the functions that launch them.

Each function here has the arguments of the one of the same name in ``_ops/items.py``, ``_ops/attention.py`` or
``_ops/block_sparse.py``, and gives the key of the call. Costs follow from keys, in :mod:`.kernel_costs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._derived.table import OPS
from .._ops import attention, block_sparse, items
from .._ops.op import Made
from .._ops.spots import Spot
from .._ops.tensor_types import NAMES
from .clock import timed
from .events import Kernel, Key

Described = tuple[Key, Tensor]
"""The key of a call, and a tensor on its device."""


def places() -> list[tuple[Any, str, Callable[..., Described]]]:
    """The functions that launch kernels: where each is, and what describes its calls."""
    of_items: list[Callable[..., Described]] = [
        norm,
        norm_gradient,
        gate,
        gate_gradient,
        heads,
        heads_gradient,
        merge,
        column_sums,
        pack,
        pack_tensors,
        combine,
        product,
        product_gradient,
    ]
    return [
        *((items, function.__name__, function) for function in of_items),
        (attention, "forward", attend),
        (attention, "backward", attend_gradient),
        (block_sparse, "product", sparse_product),
        (block_sparse, "weights", sparse_weights),
    ]


def clocked(inner: Callable[..., Any], describe: Callable[..., Described]) -> Callable[..., Any]:
    """A function that launches kernels, with a clock."""

    def call(*arguments: Any, **named: Any) -> Any:
        key, tensor = describe(*arguments, **named)
        if not tensor.is_cuda:
            return timed(key, False, lambda: inner(*arguments, **named))
        # Marks are of the current device.
        with torch.cuda.device(tensor.device):
            return timed(key, True, lambda: inner(*arguments, **named))

    return call


def _device(tensor: Tensor) -> str:
    return f"cuda:{tensor.get_device()}" if tensor.is_cuda else "cpu"


def _key(
    name: str, algebra: Any, phase: str, tensor: Tensor, shapes: Any, *details: tuple[str, Any]
) -> Described:
    subject = Kernel(name, algebra, tuple(pair for pair in details if pair[1]))
    return Key(subject, phase, tuple(shapes), NAMES[tensor.dtype], _device(tensor)), tensor


def _sized(given: items.Items) -> tuple[tuple[int, int, int], Tensor]:
    """Rows, channels and scalars of items."""
    if isinstance(given, Spot):
        matrix, layout = given.matrix, given.layout
        return (matrix.shape[0], layout.channels, layout.scalars), matrix
    mv, s = given
    return (mv.shape[1], mv.shape[2], 0 if s is None else s.shape[1]), mv


def _gains(gains: items.Gains) -> tuple[str, int]:
    return "gains", sum(gain.numel() for gain in gains if gain is not None)


def norm(algebra: Any, eps: Any, gains: Any, x: Any, residual: Any, to: Any) -> Described:
    sizes, tensor = _sized(x)
    more = "residual", residual is not None
    return _key("item_norm", algebra, "forward", tensor, [sizes], _gains(gains), more)


def norm_gradient(
    algebra: Any, eps: Any, gains: Any, x: Any, gradient: Any, through: Any, to: Any
) -> Described:
    sizes, tensor = _sized(x)
    more = "residual", through is not None
    return _key("item_norm", algebra, "backward", tensor, [sizes], _gains(gains), more)


def gate(algebra: Any, activations: Any, x: Any, to: Any) -> Described:
    sizes, tensor = _sized(x)
    return _key("item_gate", algebra, "forward", tensor, [sizes], ("activations", activations))


def gate_gradient(algebra: Any, activations: Any, x: Any, gradient: Any, to: Any) -> Described:
    sizes, tensor = _sized(x)
    return _key("item_gate", algebra, "backward", tensor, [sizes], ("activations", activations))


def heads(algebra: Any, split: Any, parts: Any) -> Described:
    return _heads("forward", algebra, split, parts)


def heads_gradient(algebra: Any, split: Any, parts: Any, to: Any) -> Described:
    return _heads("backward", algebra, split, parts)


def _heads(phase: str, algebra: Any, split: Any, parts: Any) -> Described:
    """Each part has the sizes of its items, and ``[rows, heads, width]`` of its features."""
    shapes = []
    for part in parts:
        shapes += [_sized(part.items)[0], tuple(part.features.shape)]
    roles = tuple(part.distances or "" for part in parts)
    of_distances = ("distances", roles if any(roles) else ()), ("points", split.points[1])
    features = "features", NAMES[parts[0].features.dtype]
    learns = "weights", any(part.of_weights is not None for part in parts)
    details = ("norm", split.eps is not None), *of_distances, features, learns
    return _key("item_heads", algebra, phase, _sized(parts[0].items)[1], shapes, *details)


COMPILED: dict[str, Callable[..., Described]] = {"heads": heads, "heads_gradient": heads_gradient}
"""What describes calls of the functions that ``_ops/equivariant.py`` has of the same names, on the CPU."""


def merge(algebra: Any, features: Tensor, merged: Any, back: bool) -> Described:
    sizes, tensor = _sized(merged)
    phase = "backward" if back else "forward"
    kind = "features", NAMES[features.dtype]
    return _key("item_merge", algebra, phase, tensor, [sizes, tuple(features.shape)], kind)


def column_sums(algebra: Any, x: Tensor, runs: Any, to: Any = None) -> Described:
    taken = "columns", sum(stop - start for start, stop in runs)
    return _key("column_sums", algebra, "backward", x, [tuple(x.shape)], taken)


def pack(algebra: Any, x: Tensor, places: Tensor, factors: Tensor) -> Described:
    return _key("pack", algebra, "forward", x, [tuple(x.shape), tuple(places.shape)])


def pack_tensors(
    algebra: Any, tensors: Sequence[Tensor], places: Tensor, factors: Tensor
) -> Described:
    shapes = [(sum(t.numel() for t in tensors),), tuple(places.shape)]
    return _key("pack", algebra, "forward", tensors[0], shapes)


def combine(algebra: Any, x: Any, factors: Any, y: Any, to: Any) -> Described:
    sizes, tensor = _sized(to)
    details = ("factors", factors is not None), ("terms", (x is not None) + (y is not None))
    return _key("item_combine", algebra, "forward", tensor, [sizes], *details)


_PRODUCT = next(op for op in OPS if op.name == "product")


def _multiplied(algebra: Any, kind: str, phase: str, x: Any, y: Any) -> Described:
    """The operator of the table, whose tensors have strides here."""
    options = tuple(kind if o.name == "kind" else o.default for o in _PRODUCT.options)
    made = Made(_PRODUCT, algebra.name, _PRODUCT.everything, options)
    tensor = items.factor_tensor(x)
    shapes = tuple(
        (f.layout.blades, f.matrix.shape[0], f.layout.channels)
        if isinstance(f, Spot)
        else tuple(f.shape)
        for f in (x, y)
    )
    wanted = (True, True) if phase == "backward" else ()
    return Key(made, phase, shapes, NAMES[tensor.dtype], _device(tensor), wanted), tensor


def product(algebra: Any, kind: str, x: Any, y: Any, to: Any) -> Described:
    return _multiplied(algebra, kind, "forward", x, y)


def product_gradient(algebra: Any, kind: str, x: Any, y: Any, gradient: Any, to: Any) -> Described:
    return _multiplied(algebra, kind, "backward", x, y)


def attend(call: Any, given: Any, out: Any, regular: bool = False) -> Described:
    return _attention("forward", call, given)


def attend_gradient(
    call: Any, given: Any, log_sums: Any, gradient: Any, gradients: Any, regular: bool = False
) -> Described:
    return _attention("backward", call, given)


def _attention(phase: str, call: attention.Call, given: Any) -> Described:
    shapes = [tuple(x.shape) for x in given[:3]]
    rows = ("sequences", call.sequences), ("ragged", call.queries.bounds is not None)
    return _key("attention", None, phase, given[0], shapes, *rows, ("tf32", call.tf32))


def sparse_product(
    x: Tensor, matrix: Tensor, bias: Any, groups: block_sparse.Groups, transposed: bool = False
) -> Described:
    shapes = [tuple(x.shape), tuple(matrix.shape)]
    phase = "backward" if transposed else "forward"
    details = ("entries", groups.entries), ("bias", bias is not None)
    key, tensor = _key("block_sparse_linear", None, phase, x, shapes, *details)
    return (key._replace(wanted=(True, False)) if transposed else key), tensor


def sparse_weights(
    x: Tensor, gradient: Tensor, groups: block_sparse.Groups, to: Any, of_bias: Any = None
) -> Described:
    shapes = [tuple(x.shape), (x.shape[1], gradient.shape[1])]
    details = ("entries", groups.entries), ("bias", of_bias is not None)
    key, tensor = _key("block_sparse_linear", None, "backward", x, shapes, *details)
    return key._replace(wanted=(False, True)), tensor
