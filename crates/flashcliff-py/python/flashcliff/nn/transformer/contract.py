"""The bilinear form of an equivariant linear layer, and its three contractions.

With inputs ``(x, s)``, outputs ``(y, t)`` and parameters ``P`` the layer is the derivative of one form, linear in each of
the three, by ``(y, t)``; its gradients are the derivatives by ``(x, s)`` and by ``P``. So each contraction has the two
others as its derivatives, and gradients of every order exist.

On the CPU the contractions are compiled (``flashcliff::equivariant``); on other devices, and while ``torch.compile``
traces, they are batched matrix products of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import native
from .geometry import Geometry, constant, indices
from .maps import MapPlan


class Parameters(NamedTuple):
    """The parameters of a layer, or their gradients."""

    weight: Tensor | None
    """``[outputs, inputs, maps]``"""
    to_blades: Tensor | None
    """``[outputs * mixed, scalars]``, the invariant blade innermost"""
    to_scalars: Tensor | None
    """``[out_scalars, inputs * mixed]``, the invariant blade innermost"""
    scalars: Tensor | None
    """``[out_scalars, scalars]``"""
    blade_bias: Tensor | None
    """``[outputs * mixed]``"""
    scalar_bias: Tensor | None
    """``[out_scalars]``"""


class Form(NamedTuple):
    """The part of a layer that does not change between calls."""

    geometry: Geometry
    sizes: tuple[int, int, int, int]
    """Channels of input and output, scalars of input and output."""
    has_blade_bias: bool
    has_scalar_bias: bool


class Output(torch.autograd.Function):
    """The outputs ``(y, t)`` from the inputs ``(x, s)``. ``t`` is ``None`` without scalar outputs."""

    @staticmethod
    def forward(
        ctx: Any, form: Form, x: Tensor, s: Tensor | None, *parameters: Tensor | None
    ) -> Any:
        ctx.form = form
        ctx.save_for_backward(x, s, *parameters)
        return _run(True, form, parameters, x, s)

    @staticmethod
    def backward(ctx: Any, y: Tensor, t: Tensor | None) -> Any:
        x, s, *parameters = ctx.saved_tensors
        of_input: Any = (None, None)
        of_parameters: Any = (None,) * len(parameters)
        if any(ctx.needs_input_grad[1:3]):
            of_input = Input.apply(ctx.form, y, t, *parameters)
        if any(ctx.needs_input_grad[3:]):
            of_parameters = Weight.apply(ctx.form, y, t, x, s)
        return (None, *of_input, *_only(parameters, of_parameters))


class Input(torch.autograd.Function):
    """The gradients of ``(x, s)`` from those of ``(y, t)``. Biases are not read."""

    @staticmethod
    def forward(
        ctx: Any, form: Form, y: Tensor, t: Tensor | None, *parameters: Tensor | None
    ) -> Any:
        ctx.form = form
        ctx.save_for_backward(y, t, *parameters)
        return _run(False, form, parameters, y, t)

    @staticmethod
    def backward(ctx: Any, x: Tensor, s: Tensor | None) -> Any:
        y, t, *parameters = ctx.saved_tensors
        # The form has no bias here: it belongs to an input that is always 1.
        without = (*parameters[:4], None, None)
        of_output: Any = (None, None)
        of_parameters: Any = (None,) * len(parameters)
        if any(ctx.needs_input_grad[1:3]):
            of_output = Output.apply(ctx.form, x, s, *without)
        if any(ctx.needs_input_grad[3:]):
            of_parameters = (*Weight.apply(ctx.form, y, t, x, s)[:4], None, None)
        return (None, *of_output, *_only(parameters, of_parameters))


class Weight(torch.autograd.Function):
    """The gradients of the parameters from those of ``(y, t)`` and from ``(x, s)``."""

    @staticmethod
    def forward(
        ctx: Any, form: Form, y: Tensor, t: Tensor | None, x: Tensor, s: Tensor | None
    ) -> Any:
        ctx.form = form
        ctx.save_for_backward(y, t, x, s)
        return tuple(_weight(form, y, t, x, s))

    @staticmethod
    def backward(ctx: Any, *parameters: Tensor | None) -> Any:
        y, t, x, s = ctx.saved_tensors
        of_output: Any = (None, None)
        of_input: Any = (None, None)
        if any(ctx.needs_input_grad[1:3]):
            of_output = Output.apply(ctx.form, x, s, *parameters)
        if any(ctx.needs_input_grad[3:]):
            of_input = Input.apply(ctx.form, y, t, *parameters)
        return (None, *of_output, *of_input)


def _only(tensors: Any, gradients: Any) -> tuple[Tensor | None, ...]:
    """The gradients of tensors that are there."""
    pairs = zip(tensors, gradients, strict=True)
    return tuple(None if tensor is None else gradient for tensor, gradient in pairs)


def output(
    form: Form, x: Tensor, s: Tensor | None, *parameters: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The outputs ``(y, t)`` from ``(x, s)``, with derivatives if one is wanted."""
    if torch.is_grad_enabled():
        result: tuple[Tensor, Tensor | None] = Output.apply(form, x, s, *parameters)
        return result
    return _run(True, form, parameters, x, s)


def _run(
    forward: bool,
    form: Form,
    parameters: tuple[Tensor | None, ...],
    mv: Tensor,
    scalars: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """A contraction over one side, by the compiled layer or by PyTorch."""
    inputs, outputs, in_scalars, out_scalars = form.sizes
    channels, of_scalars = (outputs, out_scalars) if forward else (inputs, in_scalars)
    if not native.is_native(mv):
        contract = _output if forward else _input
        return contract(form.geometry, Parameters(*parameters), mv, scalars, of_scalars)
    # The tensors are kept by name until the call returns.
    mv, scalars, *parameters = _plain(mv, scalars, *parameters)  # type: ignore[assignment]
    rows = mv.shape[1]
    to = mv.new_empty((mv.shape[0], rows, channels))
    to_s = mv.new_empty((rows, of_scalars)) if of_scalars else None
    layer = native.linear(form.geometry.algebra, form.geometry.group, form.geometry.unit_maps)
    call = layer.output if forward else layer.input_gradient
    addresses = _addresses(parameters)
    call(
        mv.dtype == torch.float64,
        (rows, inputs, outputs, in_scalars, out_scalars),
        # The one large dense matrix is left to PyTorch's matrix product.
        (*addresses[:3], 0, *addresses[4:]),
        (mv.data_ptr(), 0 if scalars is None else scalars.data_ptr()),
        (to.data_ptr(), 0 if to_s is None else to_s.data_ptr()),
    )
    dense = parameters[3]
    if to_s is not None and scalars is not None and dense is not None:
        to_s.addmm_(scalars, dense.t() if forward else dense)
    return to, to_s


def _weight(form: Form, y: Tensor, t: Tensor | None, x: Tensor, s: Tensor | None) -> Parameters:
    inputs, outputs, in_scalars, out_scalars = form.sizes
    mixed = len(form.geometry.scalar_blades)
    if not native.is_native(x):
        return _weight_by_torch(form, y, t, x, s)
    y, t, x, s = _plain(y, t, x, s)  # type: ignore[assignment]

    def empty(*shape: int) -> Tensor | None:
        return x.new_empty(shape) if all(shape) else None

    to = Parameters(
        x.new_empty(outputs, inputs, form.geometry.plan.count),
        empty(outputs * mixed, in_scalars),
        empty(out_scalars, inputs * mixed),
        t.t() @ s if t is not None and s is not None else None,
        empty(outputs * mixed) if form.has_blade_bias else None,
        empty(out_scalars) if form.has_scalar_bias else None,
    )
    layer = native.linear(form.geometry.algebra, form.geometry.group, form.geometry.unit_maps)
    layer.weight_gradient(
        x.dtype == torch.float64,
        (x.shape[1], *form.sizes),
        (y.data_ptr(), 0 if t is None else t.data_ptr()),
        (x.data_ptr(), 0 if s is None else s.data_ptr()),
        (*_addresses(to[:3]), 0, *_addresses(to[4:])),
    )
    return to


def _plain(*tensors: Tensor | None) -> list[Tensor | None]:
    """Tensors in the order of their memory. All have the type of the first."""
    first = tensors[0]
    assert first is not None
    for tensor in tensors:
        if tensor is not None and (tensor.dtype != first.dtype or not tensor.is_cpu):
            raise TypeError(
                f"expected all tensors and parameters of type {first.dtype} on the CPU, got "
                f"{tensor.dtype} on {tensor.device}"
            )
    plain = [t if t is None or t.is_contiguous() else t.contiguous() for t in tensors]
    return [t.resolve_neg() if t is not None and t.is_neg() else t for t in plain]


def _addresses(parameters: Sequence[Tensor | None]) -> tuple[int, ...]:
    return tuple([0 if p is None else p.data_ptr() for p in parameters])


def _matrices(plan: MapPlan, weight: Tensor) -> Tensor:
    """A matrix for each entry of the maps: ``[entries, inputs, outputs]``."""
    stacked = weight.permute(2, 1, 0).index_select(0, indices(plan.map_of, weight))
    return stacked if plan.is_plain else stacked * constant(plan.factors, weight).view(-1, 1, 1)


def _output(
    geometry: Geometry, p: Parameters, x: Tensor, s: Tensor | None, scalars: int
) -> tuple[Tensor, Tensor | None]:
    assert p.weight is not None
    plan = geometry.plan
    stacked = _matrices(plan, p.weight)
    flipped = x.flip(0) if plan.is_reversed else x
    first, *others = plan.runs
    y = torch.bmm(x, stacked[: first.length])
    for run in others:
        source = flipped if run.reversed else x
        part = stacked[run.start : run.start + run.length]
        y[run.output : run.output + run.length].baddbmm_(
            source[run.input : run.input + run.length], part
        )
    mixed = geometry.scalar_blades
    t = x.new_zeros(x.shape[1], scalars) if scalars else None
    for at, blade in enumerate(mixed):
        if s is not None and p.to_blades is not None:
            y[blade].addmm_(s, p.to_blades[at :: len(mixed)].t())
        if p.blade_bias is not None:
            y[blade] += p.blade_bias[at :: len(mixed)]
        if t is not None and p.to_scalars is not None:
            t.addmm_(x[blade], p.to_scalars[:, at :: len(mixed)].t())
    if t is not None and s is not None and p.scalars is not None:
        t.addmm_(s, p.scalars.t())
    if t is not None and p.scalar_bias is not None:
        t += p.scalar_bias
    return y, t


def _input(
    geometry: Geometry, p: Parameters, y: Tensor, t: Tensor | None, scalars: int
) -> tuple[Tensor, Tensor | None]:
    assert p.weight is not None
    plan = geometry.plan
    stacked = _matrices(plan, p.weight).transpose(1, 2)
    first, *others = plan.runs
    x = torch.bmm(y, stacked[: first.length])
    flipped: Tensor | None = None
    for run in others:
        to = x
        if run.reversed:
            to = flipped = torch.zeros_like(x) if flipped is None else flipped
        part = stacked[run.start : run.start + run.length]
        to[run.input : run.input + run.length].baddbmm_(
            y[run.output : run.output + run.length], part
        )
    if flipped is not None:
        x += flipped.flip(0)
    mixed = geometry.scalar_blades
    s = y.new_zeros(y.shape[1], scalars) if scalars else None
    for at, blade in enumerate(mixed):
        if t is not None and p.to_scalars is not None:
            x[blade].addmm_(t, p.to_scalars[:, at :: len(mixed)])
        if s is not None and p.to_blades is not None:
            s.addmm_(y[blade], p.to_blades[at :: len(mixed)])
    if s is not None and t is not None and p.scalars is not None:
        s.addmm_(t, p.scalars)
    return x, s


def _weight_by_torch(
    form: Form, y: Tensor, t: Tensor | None, x: Tensor, s: Tensor | None
) -> Parameters:
    plan, mixed = form.geometry.plan, form.geometry.scalar_blades
    flipped = x.flip(0) if plan.is_reversed else x
    parts = []
    for run in plan.runs:
        source = flipped if run.reversed else x
        read = source[run.input : run.input + run.length].transpose(1, 2)
        parts.append(torch.bmm(read, y[run.output : run.output + run.length]))
    stacked = torch.cat(parts)
    if not plan.is_plain:
        stacked *= constant(plan.factors, x).view(-1, 1, 1)
    summed = stacked.new_zeros(plan.count, *stacked.shape[1:])
    summed.index_add_(0, indices(plan.map_of, x), stacked)
    of_blades = [y[blade] for blade in mixed]
    return Parameters(
        summed.permute(2, 1, 0),
        None if s is None else torch.stack([g.t() @ s for g in of_blades], 1).flatten(0, 1),
        None if t is None else torch.stack([t.t() @ x[blade] for blade in mixed], 2).flatten(1),
        None if s is None or t is None else t.t() @ s,
        torch.stack([g.sum(0) for g in of_blades], 1).flatten() if form.has_blade_bias else None,
        t.sum(0) if t is not None and form.has_scalar_bias else None,
    )
