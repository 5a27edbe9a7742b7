"""A plan of a network as a function of autograd. Gradients of gradients are those of layers that are called."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .... import _core
from ...._ops import doors
from ..again import again
from ..geometry import without_autocast
from .call import Call, Maybe, given_of, matrix, parts
from .draws import drawing

__all__ = ["TYPES", "Composed", "Run", "apply", "by_layers", "composes"]

Composed = Callable[..., Maybe]
"""The layers by their calls, of a :class:`~.call.Given`."""

TYPES = {torch.float32: "f32", torch.float64: "f64"}
"""The types of plans."""
_ALIGNED = 16
_PLACE = 256
"""The multiples at which parts of memory begin."""
_LARGE = 64 << 20
"""The bytes from which on a call asks for the memory of the system."""


class _State(threading.local):
    composing = False


_STATE = _State()


@contextlib.contextmanager
def by_layers() -> Iterator[None]:
    """A context in which no function stands for the calls of layers."""
    before, _STATE.composing = _STATE.composing, True
    try:
        yield
    finally:
        _STATE.composing = before


def composes() -> bool:
    """Whether no function may stand for the calls of layers."""
    return _STATE.composing


def apply(
    call: Call, composed: Composed, parameters: Sequence[Tensor], places: Sequence[int] | None
) -> Maybe:
    """The result of a call. ``places``: the addresses of parameters, if they are known."""
    if torch.is_grad_enabled():
        context = _Context(call._replace(tensors=()), composed, len(call.tensors), places)
        # Plain tensors have no dead wrappers of transforms, which `apply` would look for in each argument.
        function: Any = super(torch.autograd.Function, _Network)
        found = function.apply(context, *call.tensors, *parameters)
        return found if isinstance(found, tuple) else (found, None)
    nothing = [False] * (len(call.description.inputs) + len(parameters))
    run = Run(call, 0, call.tensors, parameters, nothing, places)
    return run.parts(run.forward()[0])


class _Context(NamedTuple):
    """The part of a call that is no tensor."""

    call: Call
    composed: Composed
    inputs: int
    """The number of tensors that are no parameters."""
    places: Sequence[int] | None
    """The addresses of parameters in the forward pass."""


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, context: _Context, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        inputs, needs = context.inputs, ctx.needs_input_grad[1:]
        of_inputs = [a or b for a, b in zip(needs[:inputs:2], needs[1:inputs:2])]
        ctx.context, ctx.wanted = context, [*of_inputs, *needs[inputs:]]
        more = tensors[inputs:], ctx.wanted, context.places
        run = Run(context.call, 0, tensors[:inputs], *more)
        result, kept = run.forward()
        ctx.save_for_backward(*tensors, result, kept)
        found = run.parts(result)
        return found[0] if found[1] is None else found

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> Any:
        context, saved = ctx.context, ctx.saved_tensors
        call, inputs = context.call, context.inputs
        count = inputs + len(call.description.slots)
        tensors, (result, kept) = saved[:count], saved[count:]
        if all(g is None for g in incoming):
            return (None,) * (1 + count)
        if torch.is_grad_enabled() or doors.composes(*incoming):
            return None, *_composed(context, tensors, incoming)
        run = Run(call, 1, tensors[:inputs], tensors[inputs:], ctx.wanted)
        made = iter(run.backward(result, kept, incoming))
        found = [next(made) if want else None for want in ctx.wanted]
        of_inputs = []
        for at, name in enumerate(call.description.inputs):
            of_inputs += call.apart(name, found[at], *tensors[2 * at : 2 * at + 2])
        return None, *of_inputs, *found[len(call.description.inputs) :]


class Run:
    """A pass of a plan on some tensors.

    The memory of a pass is few allocations: its workspace with what it reads, what it keeps with its result, gradients of parameters. So a loop's
    passes have the same addresses again, and are replayed.

    Args:
        call: the call.
        stage: 0 for the forward pass, 1 for the backward pass.
        tensors: two for each input, as a call has them.
        parameters: the parameters.
        wanted: for each input and parameter whether its gradient is.
        places: the addresses of parameters, if they are known.
        apart: whether the tensors that it returns must not share memory.
    """

    def __init__(
        self,
        call: Call,
        stage: int,
        tensors: Sequence[Tensor | None],
        parameters: Sequence[Tensor],
        wanted: Sequence[bool],
        places: Sequence[int] | None = None,
        apart: bool = False,
    ) -> None:
        first, dtype = tensors[0], call.types.plan
        assert first is not None, "the first input of a network is its items"
        self.call, self.apart, self.on = call, apart, first.device
        self.device = None if first.is_cpu else first.get_device()
        gpu = None if self.device is None else (self.device, call.types.rounds)
        self.plan = call.function.plan(call.rows, TYPES[dtype], wanted, gpu)
        shape = call.row_count, self.plan.width
        pairs = list(zip(tensors[::2], tensors[1::2], strict=True))
        names = call.description.inputs
        sizes = [call.size(name, pair) for name, pair in zip(names, pairs, strict=True)]
        # The workspace lives until all work is launched: another thread may launch on this stream meanwhile.
        places_of = sizes if stage == 0 else [*sizes, shape]
        self.space, views = _memory(self.plan.spaces[stage], places_of, dtype, self.on)
        self.gradient = views[len(sizes)] if stage else None
        self.rows = [call.together(pair, to) for pair, to in zip(pairs, views)]
        given = _in_type(parameters, [dtype] * len(parameters))
        is_known = places is not None and (not given or given[0] is parameters[0])
        found = doors.addresses(
            "a network of layers", self.rows if is_known else (*self.rows, *given)
        )
        assert found is not None, "tensors were plain before"
        # Tensors in the order of their memory live as long as their addresses are read.
        memory: Sequence[Any] = found[0]
        self.addresses = found[1]
        if is_known:
            memory, self.addresses = (*memory, *given), [*self.addresses, *places]  # type: ignore[misc]
        if any(address % _ALIGNED for address in self.addresses):
            memory = [t.clone() if t.data_ptr() % _ALIGNED else t for t in memory]
            self.addresses = [t.data_ptr() for t in memory]
        self.tensors = memory
        self.wanted = [t for t, want in zip(memory, wanted) if want]
        of = (*[dtype] * len(self.rows), *(p.dtype for p in parameters))
        self.types = [own for own, want in zip(of, wanted) if want]
        self.of_inputs = sum(wanted[: len(self.rows)])
        self.sequences = None
        if call.sequences is not None:
            own, context = call.sequences
            self.sequences = (own.host, own.address), (context.host, context.address)
        draw = call.draw
        self.draw = draw.data_ptr() if isinstance(draw, Tensor) else draw
        _check_room(first, call.row_count, self.plan)

    def forward(self) -> tuple[Tensor, Tensor]:
        """The result in the rows of a matrix, and what the backward pass reads besides."""
        plan, dtype = self.plan, self.call.types.plan
        shape = self.call.row_count, plan.width
        if self.apart:
            result = torch.empty(shape, dtype=dtype, device=self.on)
            kept = torch.empty(plan.kept, dtype=torch.uint8, device=self.on)
        else:
            kept, (view,) = _memory(plan.kept, [shape], dtype, self.on)
            assert view is not None
            result = view
        with self._on_device() as stream:
            plan.forward(
                self.addresses,
                result.data_ptr(),
                kept.data_ptr(),
                self.space.data_ptr(),
                stream,
                self.sequences,
                self.draw,
            )
        return result, kept

    def backward(
        self, result: Tensor, kept: Tensor, incoming: Sequence[Tensor | None]
    ) -> list[Tensor]:
        """The gradients that are wanted: those of inputs in the type of the plan, those of parameters in the types of these."""
        gradient = self._incoming(incoming)
        of_inputs, of_parameters = self.wanted[: self.of_inputs], self.wanted[self.of_inputs :]
        # A third of the time that `new_empty` takes. Tensors are contiguous.
        found = [torch.empty_like(t) for t in (self.wanted if self.apart else of_inputs)]
        if not self.apart:
            found += _together(of_parameters)
        with self._on_device() as stream:
            self.plan.backward(
                self.addresses,
                result.data_ptr(),
                gradient.data_ptr(),
                [g.data_ptr() for g in found],
                kept.data_ptr(),
                self.space.data_ptr(),
                stream,
                self.sequences,
                self.draw,
            )
        return _in_type(found, self.types)

    def parts(self, result: Tensor) -> Maybe:
        call, dtype = self.call, self.call.types.result
        return parts(result, call.geometry.blade_count, call.batch, call.channels, (dtype, dtype))

    def _incoming(self, incoming: Sequence[Tensor | None]) -> Tensor:
        """The gradient of the result, with zeros where nothing reads multivectors or scalars."""
        to, (mv, s) = self.gradient, (*incoming, None)[:2]
        assert to is not None, "backward passes have a place for it"
        blades, (channels, scalars) = self.call.geometry.blade_count, self.call.channels
        if mv is None:
            mv = to.new_zeros(blades, *self.call.batch, channels)
        if s is None and scalars:
            s = to.new_zeros(*self.call.batch, scalars)
        return matrix((mv, s), to)

    @contextlib.contextmanager
    def _on_device(self) -> Iterator[int]:
        """The stream of a call."""
        if self.device is None:
            yield 0
            return
        with torch.cuda.device(self.device):
            yield torch._C._cuda_getCurrentRawStream(self.device)


def _memory(
    count: int, shapes: Sequence[tuple[int, int] | None], dtype: torch.dtype, on: torch.device
) -> tuple[Tensor, list[Tensor | None]]:
    """Memory of so many bytes, and matrices behind them. It is one allocation."""
    sizes = [0 if shape is None else math.prod(shape) * dtype.itemsize for shape in shapes]
    starts = list(itertools.accumulate((count, *sizes), lambda at, size: _rounded(at) + size))
    starts = [_rounded(at) for at in starts]
    memory = torch.empty(starts[-1], dtype=torch.uint8, device=on)
    views = [
        None if shape is None else memory[at : at + size].view(dtype).view(shape)
        for shape, size, at in zip(shapes, sizes, starts)
    ]
    return memory, views


def _rounded(count: int) -> int:
    return -(-count // _PLACE) * _PLACE


def _together(like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of the shapes of others, in one allocation."""
    if not like:
        return []
    each = _ALIGNED // like[0].element_size()
    sizes = [t.numel() for t in like]
    wide = [-(-size // each) * each for size in sizes]
    pieces = like[0].new_empty(sum(wide)).split(wide)
    return [
        (piece if size == all_of_it else piece[:size]).view(t.shape)
        for piece, size, all_of_it, t in zip(pieces, sizes, wide, like)
    ]


def _in_type(tensors: Sequence[Tensor], types: Sequence[torch.dtype]) -> list[Tensor]:
    """Tensors in types, in one launch for all that have others."""
    found = list(tensors)
    others = [
        at for at, (t, dtype) in enumerate(zip(tensors, types, strict=True)) if t.dtype != dtype
    ]
    if others:
        for at in others:
            found[at] = torch.empty_like(tensors[at], dtype=types[at])
        torch._foreach_copy_([found[at] for at in others], [tensors[at] for at in others])
    return found


def _check_room(like: Tensor, rows: int, plan: _core.NetworkPlan) -> None:
    """Raises ``MemoryError`` if the system has no room for the result of a plan, and for what it keeps."""
    taken = rows * plan.width * like.element_size() + plan.kept
    if like.is_cpu and taken >= _LARGE:
        _core.check_room(f"a network of layers of {rows} rows, {like.dtype}", taken, rows)


def _composed(
    context: _Context, tensors: Sequence[Tensor | None], incoming: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients by the calls of layers, with derivatives of their own."""
    call, inputs = context.call, context.inputs
    slots = call.description.slots
    before = [parts[name] for parts, name in slots]

    def function(*own: Tensor | None) -> list[Tensor | None]:
        given = [None if t is None else t.to(call.types.plan) for t in own]
        assert given[0] is not None
        # Others may stand where the parameters of the call stood, such as those of `torch.func.functional_call`.
        for (parts, name), tensor in zip(slots, given[inputs:], strict=True):
            parts[name] = tensor
        with by_layers(), drawing(call.draw), without_autocast(given[0]):
            found = list(context.composed(given_of(call, given[:inputs])))[: len(incoming)]
        return [None if t is None else t.to(call.types.result) for t in found]

    try:
        return again(function, tensors, incoming)
    finally:
        for (parts, name), tensor in zip(slots, before, strict=True):
            parts[name] = tensor
