"""Rows by their relations: copies of what rows belong to, and sums over what belongs to rows.

Both are linear, and each is the gradient of the other. Tensors are ``[outer, targets, inner]`` and ``[outer, rows, inner]``. A relation is
three tensors of int32: the target of each row, where the rows of each target begin in the order, and the order. A second relation of the
same rows and targets subtracts.

``torch.ops.flashcliff.segment_gather`` and ``segment_sum`` are the same for traces and for ``torch.compile``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from . import batches, doors, transforms
from .run import launch, refuse_sparse_and_nested
from .tensor_types import NAMES

__all__ = ["GATHER", "LISTS", "REDUCTIONS", "SUM", "call", "check_device", "check_related", "kernels"]

GATHER, SUM = "segment_gather", "segment_sum"
REDUCTIONS = ("sum", "mean", "root_count")
"""What a sum is divided by: 1, the number of rows, or its square root."""

_OPPOSITE = {GATHER: SUM, SUM: GATHER}
_NAMES = ("x", *(f"relations[{at}]" for at in range(6)))
LISTS = 3
"""The tensors of a relation."""


def call(name: str, x: Tensor, relations: Sequence[Tensor], reduction: str) -> Tensor:
    """The rows of targets, or sums over rows, which can be differentiated again.

    Args:
        name: :data:`GATHER` or :data:`SUM`.
        x: ``[outer, targets, inner]``, or ``[outer, rows, inner]`` for sums.
        relations: the tensors of a relation, and then of one that subtracts.
        reduction: one of :data:`REDUCTIONS`, of the first relation.
    """
    if torch.compiler.is_compiling():
        return _OVERLOADS[name](x, list(relations), reduction)  # type: ignore[no-any-return]
    if not doors.opens(x, *relations):
        return _Related.apply(name, reduction, x, *relations)  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and x.requires_grad:
        return _Plain.apply(name, reduction, x, *relations)  # type: ignore[no-any-return]
    return _run(name, x, relations, reduction)


class _Related(torch.autograd.Function):
    """A linear function, so it is its own derivative, and its adjoint is the other one."""

    @staticmethod
    def forward(name, reduction, x, *relations):
        if doors.opens(x, *relations):
            return _run(name, x, relations, reduction)
        return _OVERLOADS[name](x, list(relations), reduction)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _keep(ctx, inputs)

    @staticmethod
    def backward(ctx, grad):
        return _adjoint(ctx, grad)

    @staticmethod
    def jvp(ctx, _, __, tangent, *___):
        return _mapped(ctx.name, tangent, ctx.saved_tensors, ctx.reduction)

    @staticmethod
    def vmap(info, in_dims, name, reduction, x, *relations):
        return _batched(info.batch_size, in_dims[2:], (name, reduction), (x, *relations))


class _Plain(torch.autograd.Function):
    """:class:`_Related` of tensors with memory, outside of transforms, which takes the host less time."""

    @staticmethod
    def forward(ctx, name, reduction, x, *relations):
        _keep(ctx, (name, reduction, x, *relations))
        return _run(name, x, relations, reduction)

    @staticmethod
    def backward(ctx, grad):
        return _adjoint(ctx, grad)


def _keep(ctx, inputs):
    ctx.name, ctx.reduction, _, *relations = inputs
    ctx.save_for_backward(*relations)
    ctx.save_for_forward(*relations)


def _adjoint(ctx, grad):
    relations = ctx.saved_tensors
    found = _mapped(_OPPOSITE[ctx.name], grad, relations, ctx.reduction)
    return None, None, found, *(None for _ in relations)


def _mapped(name, x, relations, reduction):
    """The result for a gradient or a tangent, which may be a batch of them."""
    return batches.over(lambda given: [call(name, *given, relations, reduction)], [x])[0]


def _batched(size, dims, of, tensors):
    """The results of a batch of calls. A batch of tensors is one tensor; one of relations is a loop."""
    name, reduction = of
    if all(dim is None for dim in dims[1:]):
        x, *relations = tensors
        # Both batches lie in front of the rows.
        flat = x.movedim(dims[0], 0).flatten(0, 1)
        return call(name, flat, relations, reduction).unflatten(0, (size, -1)), 0
    return batches.each(size, dims, tensors, lambda x, *own: call(name, x, own, reduction))


def _made(name: str, x: Tensor, relations: Sequence[Tensor]) -> Tensor:
    """An empty result."""
    rows = relations[0].shape[0] if name == GATHER else relations[1].shape[0] - 1
    return x.new_empty(x.shape[0], rows, x.shape[2])


def _fake(name: str, x: Tensor, relations: Sequence[Tensor], reduction: str) -> Tensor:
    _check(name, x, relations, reduction)
    return _made(name, x, relations)


def _check(name: str, x: Tensor, relations: Sequence[Tensor], reduction: str) -> None:
    """Checks sizes, types and devices."""
    if reduction not in REDUCTIONS:
        more = "; the maximum is segment_maximum" if reduction in ("max", "maximum") else ""
        raise ValueError(
            f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduction!r}{more}"
        )
    if len(relations) not in (LISTS, 2 * LISTS):
        raise ValueError(f"{name}: expected 3 or 6 tensors of relations, got {len(relations)}")
    check_related(name, x, relations, of_targets=name == GATHER)


def check_related(name: str, x: Tensor, relations: Sequence[Tensor], *, of_targets: bool) -> None:
    """Checks a tensor of rows, or of targets, and one or two relations."""
    refuse_sparse_and_nested(name, "x", x)
    if x.dtype not in NAMES:
        raise TypeError(
            f"{name}: `x` must have real floating-point elements, got {x.dtype}; call `x.float()`"
        )
    first = relations[:LISTS]
    shapes = [tensor.shape for tensor in first]
    same = all(t.shape == s for t, s in zip(relations, [*shapes, *shapes]))
    if not same or len(shapes[0]) != 1 or shapes[0] != shapes[2] or len(shapes[1]) != 1:
        got = [list(tensor.shape) for tensor in relations]
        raise ValueError(f"{name}: expected relations [rows], [targets + 1], [rows], got {got}")
    if any(tensor.dtype != torch.int32 for tensor in relations):
        raise TypeError(f"{name}: expected relations of int32, got {[t.dtype for t in relations]}")
    rows = shapes[1][0] - 1 if of_targets else shapes[0][0]
    if x.dim() != 3 or x.shape[1] != rows:
        raise ValueError(f"{name}: `x` must be [outer, {rows}, inner], got {list(x.shape)}")
    if any(tensor.device != x.device for tensor in relations):
        raise RuntimeError(
            f"{name}: expected all tensors on the same device, got x on {x.device}, relations on "
            f"{[str(t.device) for t in relations]}; move them with `.to(device)`"
        )


def _run(name: str, x: Tensor, relations: Sequence[Tensor], reduction: str) -> Tensor:
    """The result, by kernels. The CPU computes 16 bits in float32, as a GPU does."""
    _check(name, x, relations, reduction)
    doors.check(name, (x, *relations), _NAMES)
    wide = x.float() if x.is_cpu and x.dtype.itemsize == 2 else x
    o = _made(name, wide, relations)
    given = [tensor.contiguous().resolve_neg() for tensor in (wide, *relations)]
    addresses = [tensor.data_ptr() for tensor in given[1:]]
    lists = [tuple(addresses[at : at + LISTS]) for at in range(0, len(addresses), LISTS)]
    both = lists[0], lists[1] if len(lists) > 1 else None
    sizes = x.shape[0], relations[0].shape[0], relations[1].shape[0] - 1, x.shape[2]
    places = given[0].data_ptr(), o.data_ptr()
    if x.is_cpu:
        is_f64 = o.dtype == torch.float64
        _core.run_segments(name == SUM, places, both, sizes, reduction, is_f64)
        return o.to(x.dtype)
    check_device(name, x)
    kind = reduction, NAMES[x.dtype]
    launch(x, lambda target: kernels().run(name == SUM, places, both, sizes, kind, target))
    return o


def check_device(name: str, x: Tensor) -> None:
    """Raises unless a tensor, which is not on the CPU, is on a GPU that there are kernels for."""
    if not x.is_cuda or not _core.CUDA:
        raise _core.UnsupportedError(
            f"{name}: expected tensors on cpu, or on cuda with a build that has CUDA kernels, got {x.device}; move them "
            "with `.to(device)`"
        )


@functools.cache
def kernels() -> _core.Segments:
    return _core.Segments()


# For traces


def _register(name: str) -> Any:
    definition = torch.library.custom_op(
        f"flashcliff::{name}",
        functools.partial(_run, name),
        mutates_args=(),
        schema="(Tensor x, Tensor[] relations, str reduction) -> Tensor",
    )
    definition.register_fake(functools.partial(_fake, name))

    def keep(ctx, inputs, output):
        _, relations, ctx.reduction = inputs
        ctx.save_for_backward(*relations)

    def gradient(ctx, grad):
        relations = ctx.saved_tensors
        found = _mapped(_OPPOSITE[name], grad, relations, ctx.reduction)
        return found, [None] * len(relations), None

    definition.register_autograd(gradient, setup_context=keep)
    overload = getattr(torch.ops.flashcliff, name).default
    transforms.follow(overload, lambda x, own, by: _Related.apply(name, by, x, *own))
    return overload


_OVERLOADS = {name: _register(name) for name in (GATHER, SUM)}
