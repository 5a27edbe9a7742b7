"""Derivatives of operators, of every order, in reverse and in forward mode.

A derivative of an operator is an operator, which the compiled half makes (:meth:`_core.Operator.gradient`). Here it is one function of
autograd, :class:`_Derived`, whose own derivatives are calls of itself. A *key* says which operator it is: the row of the table, the
algebra, the options, and the steps from there.

``torch.ops.flashcliff.derived`` is the same for traces and for ``torch.compile``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _core
from .._derived.table import OPS
from ..algebra import by_name
from . import asked, batches, doors, run, shapes
from .marks import constant
from .op import CACHED, Op, operator, present
from .steps import GRADIENT, TANGENT, derive, selecting


@lru_cache(maxsize=4 * CACHED)
def key(op: Op, algebra: str, given: tuple[bool, ...], options: tuple[Any, ...], *steps: str) -> str:
    """The key of an operator, or of a derivative of one.

    Args:
        op: the row of the table.
        algebra: the name of the algebra.
        given: which inputs are there.
        options: the options.
        steps: the steps, in order.
    """
    return json.dumps([op.name, algebra, given, options, "".join(steps)])


def call(of: str, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All outputs of the operator of a key, which can be differentiated again."""
    if torch.compiler.is_compiling():
        return tuple(torch.ops.flashcliff.derived(list(tensors), of))
    if not doors.opens(*tensors):
        return _Derived.apply(of, *tensors)  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _Plain.apply(of, *tensors)  # type: ignore[no-any-return]
    return tuple(run.results(operator_of(of), tensors))


is_transforming = torch._C._are_functorch_transforms_active
"""Whether a transform of ``torch.func`` is active."""


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active, or anything can have a tangent."""
    return is_transforming() or forward_ad._current_level >= 0


def is_followed(values: Sequence[Any]) -> bool:
    """Whether one of the values has a tangent, or a transform of ``torch.func`` that takes derivatives or batches follows one."""
    if is_transforming() and any(_is_wrapped(value) for value in values):
        return True
    return has_tangents(values)


def has_tangents(values: Sequence[Any]) -> bool:
    """Whether one of the values has a tangent."""
    if forward_ad._current_level < 0:
        return False
    return any(
        isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None
        for value in values
    )


def _is_wrapped(value):
    if isinstance(value, (list, tuple)):
        return any(_is_wrapped(each) for each in value)
    return isinstance(value, Tensor) and (_tracks(value) or _is_batch(value))


_tracks = torch._C._functorch.is_gradtrackingtensor
_is_batch = torch._C._functorch.is_batchedtensor


@lru_cache(maxsize=4 * CACHED)
def operator_of(of: str) -> _core.Operator:
    """The operator of a key."""
    name, algebra, given, options, steps = json.loads(of)
    made = _OWN.get(name) or _of_rotors(name, algebra, options)
    if made is None:
        options = tuple(tuple(option) if isinstance(option, list) else option for option in options)
        made = operator(_ROWS[name], algebra, tuple(given), options)
    return derive(made, steps)


_ROWS = {op.name: op for op in OPS}

_OWN: dict[str, _core.Operator] = {}
"""Operators that users have written, by name. They live as long as the process, as graphs that name them do."""


def own_key(made: _core.Operator, content: str) -> str:
    """The key of an operator that a user has written.

    Args:
        made: the operator.
        content: what tells it from others: equal contents are one operator.
    """
    name = f"own {content}"
    _OWN.setdefault(name, made)
    return json.dumps([name, "", [], [], ""])


_ROTORS = "rotors"
"""The name in keys of maps of rotors."""


@lru_cache(maxsize=CACHED)
def rotor_key(map: str, algebra: str, odd: bool) -> str | None:
    """The key of a map of rotors (:func:`_core.rotor_operator`); ``None`` if there is no such operator.

    Args:
        map: the name of the map.
        algebra: the name of the algebra.
        odd: whether versors have the odd grades.
    """
    options = [map, odd]
    if _of_rotors(_ROTORS, algebra, options) is None:
        return None
    return json.dumps([_ROTORS, algebra, [], options, ""])


def _of_rotors(name: str, algebra: str, options: Sequence[Any]) -> _core.Operator | None:
    """The operator of a key of a map of rotors."""
    return _core.rotor_operator(by_name(algebra)._core, *options) if name == _ROTORS else None


@constant
def _then(of: str, *steps: str) -> str:
    """The key with further steps."""
    return _made_key(of, steps)


@lru_cache(maxsize=4 * CACHED)
def _made_key(of: str, steps: tuple[str, ...]) -> str:
    *head, so_far = json.loads(of)
    return json.dumps([*head, so_far + "".join(steps)])


def gradient_key(of: str, there: Sequence[bool], needed: Sequence[bool]) -> str:
    """The key of the gradient of an operator.

    Args:
        of: the key of the operator.
        there: which of its outputs have a gradient.
        needed: which of its arguments need one.
    """
    return _then(of, selecting(there), GRADIENT, selecting(needed))


def gradients(
    of: str, tensors: Sequence[Tensor], grads: Sequence[Tensor | None], needed: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of an operator's arguments that are needed, as a call that can be differentiated again.

    Args:
        of: the key of the operator.
        tensors: its arguments.
        grads: the gradients of its outputs; ``None`` stands for zeros.
        needed: which arguments need a gradient.
    """
    there = [grad is not None for grad in grads]
    if not any(needed) or not any(there):
        return [None] * len(tensors)
    wanted = gradient_key(of, there, needed)
    found = iter(batches.over(lambda given: call(wanted, [*tensors, *given]), present(grads)))
    return [next(found) if need else None for need in needed]


def tangents(
    of: str, tensors: Sequence[Tensor], directions: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """The tangents of an operator's outputs, as a call that can be differentiated again.

    Args:
        of: the key of the operator.
        tensors: its arguments.
        directions: a tangent for each; ``None`` stands for zeros.
    """
    along = [
        torch.zeros_like(tensor) if direction is None else direction
        for tensor, direction in zip(tensors, directions)
    ]
    wanted = _then(of, TANGENT)
    found = batches.over(lambda given: call(wanted, [*tensors, *given]), along)
    return tuple(present(found))


class _Derived(torch.autograd.Function):
    """Any operator, or any derivative of one, with its derivatives in both modes."""

    @staticmethod
    def forward(of, *tensors):
        if doors.opens(*tensors):
            return tuple(run.results(operator_of(of), tensors))
        return tuple(torch.ops.flashcliff.derived(list(tensors), of))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.of, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx, *grads):
        return _backward(ctx, grads)

    @staticmethod
    def jvp(ctx, _, *directions):
        return tangents(ctx.of, ctx.saved_tensors, directions)

    @staticmethod
    def vmap(info, in_dims, of, *tensors):
        return _batched(info.batch_size, in_dims[1:], of, tensors)


def _backward(ctx, grads):
    needed = asked.of(ctx, ctx.needs_input_grad[1:])
    return None, *gradients(ctx.of, ctx.saved_tensors, grads, needed)


class _Plain(torch.autograd.Function):
    """:class:`_Derived` of tensors with memory, outside of transforms. PyTorch binds the arguments of a function that transforms know
    anew in each call, which takes the host longer than a small operator."""

    @staticmethod
    def forward(ctx, of, *tensors):
        ctx.of = of
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return tuple(run.results(operator_of(of), tensors))

    @staticmethod
    def backward(ctx, *grads):
        return _backward(ctx, grads)


def _batched(size, dims, of, tensors):
    """The outputs for a batch of calls, and the axis of the batch in each. Batches of multivectors become one batch. A batch of parameters,
    or of sums over the batch, is a loop."""
    of_operator = operator_of(of)
    axes = [axes for _, axes in of_operator.inputs]
    lanes = ["batch" in each for each in axes]
    has_sums = any("batch" not in axes for _, axes in of_operator.outputs)
    if has_sums or any(dim is not None and not lane for dim, lane in zip(dims, lanes)):
        calls = [
            call(of, [t if dim is None else t.select(dim, at) for t, dim in zip(tensors, dims)])
            for at in range(size)
        ]
        outputs = tuple(torch.stack(each) for each in zip(*calls))
        return outputs, (0,) * len(outputs)
    folded = [
        _folded(tensor, dim, size) if lane else tensor
        for tensor, dim, lane in zip(tensors, dims, lanes)
    ]
    outputs = tuple(
        output.unflatten(1, (size, output.shape[1] // size)) for output in call(of, folded)
    )
    return outputs, (1,) * len(outputs)


def _folded(tensor, dim, size):
    """A batch of ``[blades, batch, channels]`` as one tensor of that form."""
    if dim is None:
        batch = tensor.unsqueeze(1).expand(-1, size, *tensor.shape[1:])
    else:
        batch = tensor.movedim(dim, 1)
    return batch.flatten(1, 2)


# For traces


def follow(tensors: Sequence[Tensor], of: str) -> list[Tensor]:
    """All outputs of the operator of a key, where a transform of ``torch.func`` follows a tensor."""
    return list(_Derived.apply(of, *tensors))



def _run(tensors: list[Tensor], of: str) -> list[Tensor]:
    return run.results(operator_of(of), tensors)


def _fake(tensors: list[Tensor], of: str) -> list[Tensor]:
    made = operator_of(of)
    run.refuse_devices(made, tensors)
    return shapes.fake_results(made, tensors)


def _keep(ctx, inputs, output):
    tensors, ctx.of = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx, grads):
    # Within a checkpoint they can be asked for once.
    tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[0]
    if isinstance(needed, bool):
        needed = [needed] * len(tensors)
    needed = asked.of(ctx, needed)
    return gradients(ctx.of, tensors, grads, needed), None


_definition = torch.library.custom_op(
    "flashcliff::derived", _run, mutates_args=(), schema="(Tensor[] tensors, str operator) -> Tensor[]"
)
_definition.register_fake(_fake)
_definition.register_autograd(_gradients, setup_context=_keep)
