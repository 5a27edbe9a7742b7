"""The largest values of segments: the rows that have them, which targets keep, and what follows these rows.

Which row a target keeps has no derivative. To pick the values of rows that are kept is linear, and so is its adjoint, which places
gradients there. Tensors are ``[outer, rows, inner]`` and ``[outer, targets, inner]``; a relation is that of :mod:`.segments`. The rows
that are kept are ``[outer, targets, inner]`` of int32, -1 for a target without rows.

``torch.ops.flashcliff.segment_largest``, ``segment_pick`` and ``segment_place`` are the same for traces and for ``torch.compile``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from . import batches, doors, segments, transforms
from .run import launch
from .tensor_types import NAMES

__all__ = ["LARGEST", "PICK", "PLACE", "call"]

LARGEST, PICK, PLACE = "segment_largest", "segment_pick", "segment_place"

_OPPOSITE = {PICK: PLACE, PLACE: PICK}
_NAMES = ("x", "kept", "relation[0]", "relation[1]", "relation[2]")


def call(x: Tensor, relation: Sequence[Tensor]) -> Tensor:
    """The largest values of targets, which can be differentiated again.

    Args:
        x: ``[outer, rows, inner]``.
        relation: the tensors of a relation.
    """
    return _follow(PICK, x, _rows(x.detach(), relation), relation)


def _rows(x: Tensor, relation: Sequence[Tensor]) -> Tensor:
    """The rows that targets keep."""
    if not torch.compiler.is_compiling() and doors.opens(x, *relation):
        return _run(LARGEST, x, None, relation)
    return _OVERLOADS[LARGEST](x, list(relation))  # type: ignore[no-any-return]


def _follow(name: str, x: Tensor, kept: Tensor, relation: Sequence[Tensor]) -> Tensor:
    """The elements that are picked or placed."""
    if torch.compiler.is_compiling():
        return _OVERLOADS[name](x, kept, list(relation))  # type: ignore[no-any-return]
    if not doors.opens(x, kept, *relation) or (torch.is_grad_enabled() and x.requires_grad):
        return _Followed.apply(name, x, kept, *relation)  # type: ignore[no-any-return]
    return _run(name, x, kept, relation)


class _Rows(torch.autograd.Function):
    """The rows that targets keep, for transforms. They have no derivative."""

    @staticmethod
    def forward(x, *relation):
        return _OVERLOADS[LARGEST](x, list(relation))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx, *_):
        return None, None, None, None

    @staticmethod
    def jvp(ctx, *_):
        return None

    @staticmethod
    def vmap(info, in_dims, x, *relation):
        if all(dim is None for dim in in_dims[1:]):
            flat = x.movedim(in_dims[0], 0)
            found = _rows(flat.flatten(0, 1), relation)
            return found.unflatten(0, flat.shape[:2]), 0
        tensors = x, *relation
        return batches.each(info.batch_size, in_dims, tensors, lambda x, *own: _rows(x, own))


class _Followed(torch.autograd.Function):
    """A linear function, so it is its own derivative, and its adjoint is the other one."""

    @staticmethod
    def forward(name, x, kept, *relation):
        if doors.opens(x, kept, *relation):
            return _run(name, x, kept, relation)
        return _OVERLOADS[name](x, kept, list(relation))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name, _, *kept = inputs
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)

    @staticmethod
    def backward(ctx, grad):
        kept, *relation = ctx.saved_tensors
        return None, _mapped(_OPPOSITE[ctx.name], grad, kept, relation), *(None,) * 4

    @staticmethod
    def jvp(ctx, _, tangent, *__):
        kept, *relation = ctx.saved_tensors
        return _mapped(ctx.name, tangent, kept, relation)

    @staticmethod
    def vmap(info, in_dims, name, x, kept, *relation):
        _, of_x, of_kept, *others = in_dims
        if any(dim is not None for dim in others):
            size, tensors = info.batch_size, (x, kept, *relation)
            return batches.each(
                size, in_dims[1:], tensors, lambda x, k, *own: _follow(name, x, k, own)
            )
        both = []
        for tensor, dim in ((x, of_x), (kept, of_kept)):
            if dim is None:
                tensor, dim = tensor.expand(info.batch_size, *tensor.shape), 0
            both.append(tensor.movedim(dim, 0).flatten(0, 1))
        found = _follow(name, *both, relation)
        return found.unflatten(0, (info.batch_size, -1)), 0


def _mapped(name, x, kept, relation):
    """The result for a gradient or a tangent, which may be a batch of them."""
    return batches.over(lambda given: [_follow(name, *given, kept, relation)], [x])[0]


def _shape(name: str, x: Tensor, relation: Sequence[Tensor]) -> tuple[int, int, int]:
    """The shape of a result."""
    rows = relation[0].shape[0] if name == PLACE else relation[1].shape[0] - 1
    return x.shape[0], rows, x.shape[2]


def _check(name: str, x: Tensor, kept: Tensor | None, relation: Sequence[Tensor]) -> None:
    """Checks sizes, types and devices."""
    if len(relation) != segments.LISTS:
        raise ValueError(f"{name}: expected 3 tensors of a relation, got {len(relation)}")
    segments.check_related(name, x, relation, of_targets=name == PLACE)
    if kept is None:
        return
    shape = x.shape[0], relation[1].shape[0] - 1, x.shape[2]
    if kept.dtype != torch.int32 or kept.shape != shape:
        got = f"{list(kept.shape)} of {kept.dtype}"
        raise ValueError(f"{name}: `kept` must be {list(shape)} of torch.int32, got {got}")
    if kept.device != x.device:
        raise RuntimeError(
            f"{name}: expected all tensors on the same device, got x on {x.device}, kept on {kept.device}"
        )


def _made(name: str, x: Tensor, relation: Sequence[Tensor]) -> Tensor:
    dtype = torch.int32 if name == LARGEST else x.dtype
    return x.new_empty(_shape(name, x, relation), dtype=dtype)


def _run(name: str, x: Tensor, kept: Tensor | None, relation: Sequence[Tensor]) -> Tensor:
    """The result, by kernels."""
    _check(name, x, kept, relation)
    doors.check(name, (x, kept, *relation), _NAMES)
    wide = x.float() if x.is_cpu and x.dtype.itemsize == 2 else x
    o = _made(name, wide, relation)
    given = [tensor.contiguous().resolve_neg() for tensor in (wide, *relation)]
    read, *lists = (tensor.data_ptr() for tensor in given)
    known = None if kept is None else kept.contiguous()
    places = (read, 0, o.data_ptr()) if known is None else (read, o.data_ptr(), known.data_ptr())
    sizes = x.shape[0], relation[0].shape[0], relation[1].shape[0] - 1, x.shape[2]
    what, own = name.removeprefix("segment_"), tuple(lists)
    if x.is_cpu:
        _core.run_kept(what, places, own, sizes, wide.dtype == torch.float64)
        return o if kept is None else o.to(x.dtype)
    segments.check_device(name, x)
    kernels, dtype = segments.kernels(), NAMES[x.dtype]
    launch(x, lambda target: kernels.run_kept(what, places, own, sizes, dtype, target))
    return o


# For traces


def _register(name: str) -> Any:
    given = "Tensor x" if name == LARGEST else "Tensor x, Tensor kept"

    def split(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor | None, Sequence[Tensor]]:
        x, *kept, relation = arguments
        return x, kept[0] if kept else None, relation

    def run(*arguments: Any) -> Tensor:
        return _run(name, *split(arguments))

    def fake(*arguments: Any) -> Tensor:
        x, kept, relation = split(arguments)
        _check(name, x, kept, relation)
        return _made(name, x, relation)

    definition = torch.library.custom_op(
        f"flashcliff::{name}",
        run,
        mutates_args=(),
        schema=f"({given}, Tensor[] relation) -> Tensor",
    )
    definition.register_fake(fake)
    overload = getattr(torch.ops.flashcliff, name).default
    if name == LARGEST:
        transforms.follow(overload, lambda x, own: _Rows.apply(x, *own))
        return overload

    def keep(ctx, inputs, output):
        _, kept, relation = inputs
        ctx.save_for_backward(kept, *relation)

    def gradient(ctx, grad):
        kept, *relation = ctx.saved_tensors
        found = _mapped(_OPPOSITE[name], grad, kept, relation)
        return found, None, [None] * len(relation)

    definition.register_autograd(gradient, setup_context=keep)
    followed = functools.partial(_Followed.apply, name)
    transforms.follow(overload, lambda x, kept, own: followed(x, kept, *own))
    return overload


_OVERLOADS = {name: _register(name) for name in (LARGEST, PICK, PLACE)}
