"""The bilinear form of an equivariant linear layer, and its three contractions.

With inputs ``(x, s)``, outputs ``(y, t)`` and parameters ``P`` the layer is the derivative of one form, linear in each of
the three, by ``(y, t)``; its gradients are the derivatives by ``(x, s)`` and by ``P``. So each contraction has the two
others as its derivatives, and gradients of every order exist.

A network of layers (:mod:`.described`) does without them; they are what gradients of gradients, transforms, traces and 16 bits need.
On the CPU the contractions are compiled (``flashcliff::equivariant``). Where a mode, a transform or a trace follows calls, the
outputs are :func:`composed`. While ``torch.compile`` traces, and on other devices, they are batched matrix products of PyTorch.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..._ops import asked, doors, equivariant
from ..._ops.equivariant import Sizes
from .again import again
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
    sizes: Sizes
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
        if doors.composes(y, t):
            found = again(lambda *given: composed(ctx.form, *given), (x, s, *parameters), (y, t))
            return None, *found
        of_input: Any = (None, None)
        of_parameters: Any = (None,) * len(parameters)
        # Without a graph of gradients, functions of their own would only cost time.
        differentiated = torch.is_grad_enabled()
        needs = asked.of(ctx, ctx.needs_input_grad)
        if any(needs[1:3]):
            if differentiated:
                of_input = Input.apply(ctx.form, y, t, *parameters)
            else:
                of_input = _run(False, ctx.form, tuple(parameters), y, t)
        if any(needs[3:]):
            weight = Weight.apply if differentiated else _weight
            of_parameters = weight(ctx.form, y, t, x, s)
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
        needs = asked.of(ctx, ctx.needs_input_grad)
        if any(needs[1:3]):
            of_output = Output.apply(ctx.form, x, s, *without)
        if any(needs[3:]):
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
        needs = asked.of(ctx, ctx.needs_input_grad)
        if any(needs[1:3]):
            of_output = Output.apply(ctx.form, x, s, *parameters)
        if any(needs[3:]):
            of_input = Input.apply(ctx.form, y, t, *parameters)
        return (None, *of_output, *of_input)


def _only(tensors: Any, gradients: Any) -> tuple[Tensor | None, ...]:
    """The gradients of tensors that are there."""
    pairs = zip(tensors, gradients, strict=True)
    return tuple(None if tensor is None else gradient for tensor, gradient in pairs)


def mapped(geometry: Geometry, x: Tensor, weight: Tensor) -> Tensor:
    """The maps of multivectors ``[blades, rows, inputs]`` alone, for weights of any type ``[outputs, inputs, maps]``."""
    parameters = Parameters(weight, None, None, None, None, None)
    if type(weight) not in doors.PLAIN:
        # Tensors of other classes know their own operations, and may have no memory.
        return _output(geometry, parameters, x, None, 0)[0]
    sizes = Sizes(weight.shape[1], weight.shape[0], 0, 0)
    return output(Form(geometry, sizes, False, False), x, None, *parameters)[0]


def output(
    form: Form, x: Tensor, s: Tensor | None, *parameters: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The outputs ``(y, t)`` from ``(x, s)``, with derivatives if one is wanted."""
    if doors.composes():
        return composed(form, x, s, *parameters)
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
    if equivariant.is_native(mv):
        call = equivariant.outputs if forward else equivariant.input_gradients
        found = call(form.geometry.maps, form.sizes, parameters, (mv, scalars))
        if found is not None:
            return found
    contract = _output if forward else _input
    of_scalars = form.sizes.out_scalars if forward else form.sizes.in_scalars
    return contract(form.geometry, Parameters(*parameters), mv, scalars, of_scalars)


def _weight(form: Form, y: Tensor, t: Tensor | None, x: Tensor, s: Tensor | None) -> Parameters:
    if equivariant.is_native(x):
        biases = form.has_blade_bias, form.has_scalar_bias
        found = equivariant.weight_gradients(form.geometry.maps, form.sizes, biases, (y, t), (x, s))
        if found is not None:
            return Parameters(*found)
    return _weight_by_torch(form, y, t, x, s)


def composed(
    form: Form, x: Tensor, s: Tensor | None, *parameters: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The outputs by operators that all transforms know and that change nothing in place: the maps are one matrix, zeros
    included."""
    p, mixed = Parameters(*parameters), form.geometry.scalar_blades
    assert p.weight is not None
    basis = constant(_basis(form.geometry.plan, len(form.geometry.norms)), p.weight)
    y = torch.einsum("aobi,bri->aro", torch.einsum("oik,kab->aobi", p.weight, basis), x)
    more = p.blade_bias
    if s is not None and p.to_blades is not None:
        more = F.linear(s, p.to_blades, p.blade_bias)
    if more is not None:
        # The invariant blade is the innermost index.
        added = more.unflatten(-1, (-1, len(mixed)))
        for at, blade in enumerate(mixed):
            one = y[blade : blade + 1] + added[..., at]
            y = torch.cat((y[:blade], one, y[blade + 1 :]))
    if not form.sizes.out_scalars:
        return y, None
    t = x.new_zeros(x.shape[1], form.sizes.out_scalars)
    if p.scalar_bias is not None:
        t = t + p.scalar_bias
    if p.to_scalars is not None:
        read = torch.stack([x[blade] for blade in mixed], -1).flatten(-2)
        t = t + F.linear(read, p.to_scalars)
    if s is not None and p.scalars is not None:
        t = t + F.linear(s, p.scalars)
    return y, t


@functools.cache
def _basis(plan: MapPlan, blades: int) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """The maps as matrices ``[maps, outputs, inputs]``."""
    found = [[[0.0] * blades for _ in range(blades)] for _ in range(plan.count)]
    for run in plan.runs:
        for t in range(run.length):
            at, source = run.start + t, run.input + t
            source = blades - 1 - source if run.reversed else source
            found[plan.map_of[at]][run.output + t][source] = plan.factors[at]
    return tuple(tuple(tuple(row) for row in matrix) for matrix in found)


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
    for maps, entries in plan.turns:
        # No map comes twice in a call, so nothing depends on the order in which threads of a GPU add.
        summed.index_add_(0, indices(maps, x), stacked.index_select(0, indices(entries, x)))
    of_blades = [y[blade] for blade in mixed]
    return Parameters(
        summed.permute(2, 1, 0),
        None if s is None else torch.stack([g.t() @ s for g in of_blades], 1).flatten(0, 1),
        None if t is None else torch.stack([t.t() @ x[blade] for blade in mixed], 2).flatten(1),
        None if s is None or t is None else t.t() @ s,
        torch.stack([g.sum(0) for g in of_blades], 1).flatten() if form.has_blade_bias else None,
        t.sum(0) if t is not None and form.has_scalar_bias else None,
    )
