"""The shorter way into the extension, for plain tensors outside of any tracing.

The dispatcher's way costs several times as much for each call, which small tensors feel.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._derived.table import OPS
from . import asked, batches, derived, doors, marks, native, releases, run, second
from .autocast import cast
from .library import NAMED, REGISTERED, Registered
from .op import CACHED, Op, operator, present


def call(op: Op, tensors: tuple[Any, ...], algebra: str, options: tuple[Any, ...]) -> Tensor:
    """Runs an operator, by the shorter way if that makes no difference."""
    if torch.compiler.is_compiling():
        return NAMED[op.name].call(tensors, algebra, options)
    for tensor in tensors:
        if tensor is not None and type(tensor) not in doors.PLAIN:
            run.refuse_layouts(op.function(options), op.names, tensors)
            return REGISTERED[op].call(tensors, algebra, options)
    first = tensors[0]
    if not (first.is_cpu or first.is_cuda):
        return REGISTERED[op].call(tensors, algebra, options)
    if derived.is_transformed() and derived.is_followed(tensors):
        return _transformed(op, tensors, algebra, options)
    if doors.follows():
        return REGISTERED[op].call(tensors, algebra, options)
    if torch._C._is_any_autocast_enabled():
        device = first.device.type
        if torch.is_autocast_enabled(device):
            tensors = cast(op, tensors, device)
    given = op.given(tensors)
    if op.native is not None:
        output = compiled(op, algebra, given, options)(*tensors)
        if output is not None:
            return output
    bound = _bind(op, algebra, given, options)
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return bound.function.apply(bound, *tensors)
    return run.forward(bound.core, present(tensors), False)[0]


if not releases.TRACES_WHOLE:
    # The compiler would go on within what takes addresses of tensors.
    call = marks.untraced(call)


def _transformed(op, tensors, algebra, options):
    """The output under a transform of ``torch.func``, or with tangents."""
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        tensors = cast(op, tensors, device)
    return second.transformed(op, algebra, options, tensors)


class _Bound:
    """An operator of an algebra and options."""

    __slots__ = ("backward", "configuration", "core", "function", "linear", "reads_output", "registered")

    backward: type[_Backward]
    core: _core.Operator
    configuration: tuple[Any, ...]
    function: type[_Function]
    linear: bool
    reads_output: bool
    registered: Registered


@lru_cache(maxsize=CACHED)
def _bind(op: Op, algebra: str, given: tuple[bool, ...], options: tuple[Any, ...]) -> _Bound:
    bound = _Bound()
    bound.core = operator(op, algebra, given, options)
    bound.configuration = (algebra, *options)
    bound.function = _FUNCTIONS[op]
    bound.backward = _BACKWARDS[op]
    bound.linear = op.linear
    bound.reads_output = op.reads_output(*options)
    bound.registered = REGISTERED[op]
    return bound


class _Function(torch.autograd.Function):
    """Any operator, with its gradient."""

    @staticmethod
    def forward(ctx, bound, *tensors):
        output, saved = run.forward(bound.core, present(tensors), True)
        ctx.bound = bound
        if not bound.linear:
            ctx.save_for_backward(*tensors, saved, output if bound.reads_output else None)
        return output

    @staticmethod
    def backward(ctx, grad):
        kept = ctx.saved_tensors or (None,) * 3
        *tensors, saved, output = kept
        wanted = asked.of(ctx, ctx.needs_input_grad[1:])
        return (None, *_gradients(ctx.bound, grad, tensors, saved, output, wanted))


class _Backward(torch.autograd.Function):
    """The backward pass of any operator, with its gradient."""

    @staticmethod
    def forward(ctx, bound, wanted, kept, grad, *tensors):
        ctx.bound, ctx.wanted = bound, wanted
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(grad, *tensors)
        return tuple(present(_computed(bound, grad, tensors, *kept, wanted)))

    @staticmethod
    def backward(ctx, *seeds):
        bound = ctx.bound
        grad, *tensors = ctx.saved_tensors
        following = iter(seeds)
        seeds = [next(following) if want else None for want in ctx.wanted]
        needed = asked.of(ctx, ctx.needs_input_grad[3:])
        if bound.linear:
            # Its gradient reads no inputs, and has none by them.
            tensors, needed = [grad], [*needed, False]
        op = bound.registered.op
        found = second.gradients(op, bound.configuration, grad, tensors, seeds, needed)
        return (None, None, None, *(found[:1] if bound.linear else found))


def _gradients(bound, grad, tensors, saved, output, wanted):
    """The gradients that are wanted, from what the forward pass kept; of a linear operator it keeps nothing."""
    if torch.compiler.is_compiling() or derived.is_transformed():
        return _through_dispatcher(bound, grad, tensors, saved, output, wanted)
    if type(grad) not in doors.PLAIN or doors.follows() or batches.is_batch(grad):
        # A gradient that has no memory, a batch of gradients, or a mode around the backward pass.
        return _through_dispatcher(bound, grad, tensors, saved, output, wanted)
    if not torch.is_grad_enabled() or not any(wanted):
        return _computed(bound, grad, tensors, saved, output, wanted)
    read = () if bound.linear else tensors
    made = iter(bound.backward.apply(bound, wanted, (saved, output), grad, *read))
    return [next(made) if want else None for want in wanted]


def _computed(bound, grad, tensors, saved, output, wanted):
    """The gradients of tensors that have memory."""
    if bound.linear:
        return run.backward(bound.core, [grad], None, None, grad, wanted)
    which = [want for want, tensor in zip(wanted, tensors) if tensor is not None]
    grads = run.backward(bound.core, present(tensors), output, saved, grad, which)
    if len(grads) < len(tensors):
        following = iter(grads)
        grads = [None if tensor is None else next(following) for tensor in tensors]
    return grads


def _through_dispatcher(bound, grad, tensors, saved, output, wanted):
    """The gradients as an operator, which can be traced, transformed and differentiated again."""
    op = bound.registered.op
    run.refuse_sparse_and_nested(op.name, "grad", grad)
    kept = [] if op.linear else [*tensors, saved, output] if op.saves else tensors
    return bound.registered.gradients(grad, kept, wanted, bound.configuration)


@lru_cache(maxsize=CACHED)
def compiled(op: Op, algebra: str, given: tuple[bool, ...], options: tuple[Any, ...]) -> Any:
    """An operator of the compiled call path. Called with tensors, it gives ``None`` if the call is not one for it."""
    bound = _bind(op, algebra, given, options)
    function = bound.function.__name__
    assert native.loaded is not None, "the compiled call path is not in use"
    return native.loaded.Operator(
        bound.core,
        partial(_gradients, bound),
        partial(second.gradients, op, bound.configuration),
        partial(second.derivative, op, bound.configuration, given),
        name=function,
        node=f"{function}Backward",
        count=len(op.tensors),
        linear=op.linear,
        reads_output=bound.reads_output,
    )


def _name(op: Op) -> str:
    """The name of an operator in graphs of autograd."""
    return "".join(part.capitalize() for part in op.name.split("_"))


_FUNCTIONS: dict[Op, type[_Function]] = {op: type(_name(op), (_Function,), {}) for op in OPS}
_BACKWARDS: dict[Op, type[_Backward]] = {
    op: type(f"{_name(op)}Backward", (_Backward,), {}) for op in OPS
}
