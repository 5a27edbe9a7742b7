"""A plan of a network as a function of autograd. Gradients of gradients come from calls of the layers."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .... import _core
from ...._ops import doors, native
from ..again import again
from ..geometry import without_autocast
from .call import Call, Maybe, Rows, Types
from .draws import drawing
from .graphs import MessageCall

if TYPE_CHECKING:
    from .stored import StoredCall

__all__ = [
    "ALIGNED",
    "TYPES",
    "AnyCall",
    "Composed",
    "Context",
    "Parameters",
    "Run",
    "apart",
    "apply",
    "by_calls",
    "by_layers",
    "composes",
    "computed_again",
    "gradients",
    "idle_of",
    "inputs_of",
    "wanted_of",
]

Composed = Callable[..., Maybe]
"""The layers by their calls, of a :class:`~.call.Given`."""

AnyCall: TypeAlias = "Call | MessageCall | StoredCall"

TYPES = {torch.float32: "f32", torch.float64: "f64"}
"""The types of plans."""
_FEATURES = {torch.bfloat16: "bf16", torch.float16: "f16"}
"""The types of 16 bits of tokens between steps."""
ALIGNED = 16
"""The bytes that divide the addresses of tensors that plans read where they lie."""
_LARGE = 64 << 20
"""The bytes from which on a call asks for the memory of the system."""


_POOLED = 4 << 20
"""The bytes from which on memory on the CPU comes from a pool."""


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


def computed_again(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call that the backward pass makes again, as now: by functions if they may stand for layers, or by layers.

    Args:
        call: the call.
        arguments: its arguments.
        options: options of PyTorch's ``checkpoint``, and more arguments of the call.
    """
    again = _composed(call) if composes() else call
    return checkpoint(again, *arguments, use_reentrant=False, **options)


def _composed(call: Callable[..., Any]) -> Callable[..., Any]:
    def composed(*arguments: Any, **options: Any) -> Any:
        with by_layers():
            return call(*arguments, **options)

    return composed


class Parameters(NamedTuple):
    """The parameters of a call."""

    tensors: Sequence[Tensor]
    places: Sequence[int] | None = None
    """Their addresses, if plans read them where they lie; all are of one type and on one device then."""
    kept: Any = None
    """Their list that the compiled call path keeps from call to call, if their addresses come from there."""


def apply(call: AnyCall, composed: Composed, parameters: Parameters) -> Maybe:
    """The result of a call."""
    tensors, places, kept = parameters
    if torch.is_grad_enabled():
        if kept is not None and native.loaded is not None and call.types.is_one:
            from .autograd import record

            wants = native.loaded.network_wants(call.tensors, kept)
            if wants is not None:
                return record(call, composed, parameters, wants)
        context = Context(call._replace(tensors=()), composed, len(call.tensors), places)
        # Plain tensors have no dead wrappers of transforms, which `apply` would look for in each argument.
        function: Any = super(torch.autograd.Function, _Network)
        found = function.apply(context, *call.tensors, *tensors)
        return found if isinstance(found, tuple) else (found, None)
    rows = inputs_of(call, call.tensors)
    run = Run(call, rows, tensors, [False] * (len(rows) + len(tensors)), places)
    return run.parts(run.forward()[0])


def apart(
    call: AnyCall, tensors: Sequence[Any], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of the tensors of a call, from the gradients of the inputs of its plan."""
    found: list[Tensor | None] = []
    for at, name in enumerate(call.description.inputs):
        found += call.apart(name, gradients[at], *tensors[2 * at : 2 * at + 2])
    return found


class Context(NamedTuple):
    """The part of a call that is not a tensor."""

    call: AnyCall
    composed: Composed
    inputs: int
    """The number of tensors that are not parameters."""
    places: Sequence[int] | None
    """The addresses of parameters in the forward pass."""


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, context: Context, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        inputs = context.inputs
        ctx.context, ctx.wanted = context, wanted_of(ctx.needs_input_grad[1:], inputs)
        rows = inputs_of(context.call, tensors[:inputs])
        run = Run(context.call, rows, tensors[inputs:], ctx.wanted, context.places)
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
            return None, *by_calls(context, tensors, incoming)
        return None, *gradients(call, tensors, ctx.wanted, (result, kept), incoming)


def wanted_of(wants: Sequence[bool], inputs: int) -> list[bool]:
    """Whether a plan makes the gradient of each of its inputs, which are pairs of tensors, and then of each parameter.

    Args:
        wants: whether each tensor of the call, and then each parameter, has a gradient.
        inputs: the number of tensors.
    """
    return [*(a or b for a, b in zip(wants[:inputs:2], wants[1:inputs:2])), *wants[inputs:]]


def gradients(
    call: AnyCall,
    tensors: Sequence[Any],
    wanted: Sequence[bool],
    kept: Sequence[Any],
    incoming: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of the tensors and parameters of a call, by the backward pass of its plan.

    Args:
        call: the call, which needs no tensors.
        tensors: the tensors of the call, then its parameters.
        wanted: the gradients that the plan makes, as of :func:`wanted_of`.
        kept: the two tensors of :meth:`Run.forward`.
        incoming: the gradients of the parts of the result.
    """
    of_plan = len(call.description.inputs)
    inputs = 2 * of_plan
    result, left = kept
    run = Run(call, inputs_of(call, tensors[:inputs]), tensors[inputs:], wanted)
    made = iter(run.backward(result, left, incoming))
    found = [next(made) if want else None for want in wanted]
    for at in idle_of(call.description.idle, incoming):
        found[of_plan + at] = None
    return [*apart(call, tensors, found), *found[of_plan:]]


def idle_of(idle: Sequence[frozenset[int]], incoming: Sequence[Tensor | None]) -> frozenset[int]:
    """The parameters, by their places, that nothing depends on of which there is a gradient.

    They have none, as by calls of layers: zeros would make optimisers change them.

    Args:
        idle: for each part of the result the parameters on which it does not depend.
        incoming: the gradients of the parts of the result.
    """
    read = [own for own, g in zip(idle, incoming) if g is not None]
    return frozenset.intersection(*read) if read else frozenset()


def inputs_of(call: AnyCall, tensors: Sequence[Tensor | None]) -> list[Tensor]:
    """The inputs of a plan."""
    pairs = zip(call.description.inputs, tensors[::2], tensors[1::2], strict=True)
    return [call.together(name, pair) for name, *pair in pairs]


def plan_of(
    function: _core.NetworkFunction,
    rows: Rows,
    types: Types,
    device: int | None,
    wanted: Sequence[bool],
    again: bool,
) -> _core.NetworkPlan:
    """The plan of a function.

    Args:
        function: the function.
        rows: the rows of a call.
        types: the types of a call.
        device: the number of a GPU; ``None`` for the CPU.
        wanted: the gradients that the plan makes.
        again: whether blocks are computed again in the backward pass.
    """
    gpu = None if device is None else (device, types.rounds)
    more: dict[str, Any] = {}
    # Plans of files, which have no gradients, have no such choices. Without gradients, chains of steps keep tokens within multiprocessors.
    if any(wanted):
        if gpu is not None and types.features is not None:
            more["features"] = _FEATURES[types.features]
        if again:
            more["again"] = True
    return function.plan(rows, TYPES[types.plan], wanted, gpu, **more)


class Run:
    """The passes of a plan on some tensors."""

    def __init__(
        self,
        call: AnyCall,
        rows: Sequence[Tensor],
        parameters: Sequence[Tensor],
        wanted: Sequence[bool],
        places: Sequence[int] | None = None,
    ) -> None:
        self.call, self.rows, self.like = call, rows, rows[0]
        # Most calls have parameters of no other type, of which there are hundreds.
        dtype, given = call.types.plan, parameters
        casts = not call.types.is_one
        if casts:
            given = _in_type(parameters, [dtype] * len(parameters))
        if given and given[0] is not parameters[0]:
            places = None
        found = doors.addresses("a network of layers", (*rows, *given) if places is None else rows)
        assert found is not None, "tensors were plain before"
        # Tensors in the order of their memory live as long as their addresses are read.
        tensors, self.addresses = _aligned(*found)
        if places is not None:
            # A node of the compiled call path keeps the parameters itself.
            tensors, self.addresses = (*tensors, *given), [*self.addresses, *places]
        self.tensors = tensors
        self.wanted = [t for t, want in zip(tensors, wanted) if want]
        self.types: list[torch.dtype] | None = None
        if casts:
            of = [*[dtype] * len(rows), *(p.dtype for p in parameters)]
            self.types = [own for own, want in zip(of, wanted) if want]
        self.device = None if self.like.is_cpu else self.like.get_device()
        types = call.types._replace(plan=self.like.dtype)
        again = call.description.again
        self.plan = plan_of(call.function, call.rows, types, self.device, wanted, again)
        self.sequences = None
        if call.sequences is not None:
            own, context = call.sequences
            self.sequences = (own.host, own.address), (context.host, context.address)
        draw = call.draw
        self.draw = draw.data_ptr() if isinstance(draw, Tensor) else draw
        self.lists, self.relations = _relations(call.relations)
        _check_room(self.like, call.rows, self.plan)

    def forward(self) -> tuple[Tensor, Tensor]:
        """The result in the rows of a matrix, and what the backward pass reads besides."""
        (result,), kept = self.results()
        return result, kept

    def results(self) -> tuple[list[Tensor], Tensor]:
        """All results, and what the backward pass reads besides."""
        plan = self.plan
        results = [self.like.new_empty(shape) for shape in plan.shapes]
        kept = self._bytes(plan.kept)
        with self._on_device() as (stream, (count, _)):
            # It lives until all work is launched: another thread may launch on this stream meanwhile.
            space = self._bytes(count)
            plan.forward(
                self.addresses,
                [result.data_ptr() for result in results],
                kept.data_ptr(),
                space.data_ptr(),
                stream,
                self.sequences,
                self.draw,
                self.relations,
            )
        return results, kept

    def backward(
        self,
        result: Tensor,
        kept: Tensor,
        incoming: Sequence[Tensor | None],
        places: Sequence[int] = (),
    ) -> list[Tensor]:
        """The gradients that are wanted: of inputs in the type of the plan, of parameters in the types of these.

        Args:
            result, kept: what :meth:`forward` gave.
            incoming: the gradients of the parts of the result.
            places: the addresses of gradients that a caller has made, after all others.
        """
        gradient = self.call.seed(incoming, self.like)
        # A third of the time that `new_empty` takes. Tensors are contiguous.
        found = [torch.empty_like(t) for t in self.wanted]
        with self._on_device() as (stream, (_, count)):
            space = self._bytes(count)
            self.plan.backward(
                self.addresses,
                result.data_ptr(),
                gradient.data_ptr(),
                [*(g.data_ptr() for g in found), *places],
                kept.data_ptr(),
                space.data_ptr(),
                stream,
                self.sequences,
                self.draw,
                self.relations,
            )
        return found if self.types is None else _in_type(found, self.types)

    def parts(self, result: Tensor) -> Maybe:
        return self.call.parts(result)

    def _bytes(self, count: int) -> Tensor:
        if self.device is None and count >= _POOLED:
            # The system gives large memory back at once, and its pages anew in each step.
            return torch.from_dlpack(_core.Array.pooled(count))
        return torch.empty(count, dtype=torch.uint8, device=self.like.device)

    @contextlib.contextmanager
    def _on_device(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """The stream of a call, and the bytes of workspace of both passes."""
        if self.device is None:
            yield 0, self.plan.spaces
            return
        with torch.cuda.device(self.device):
            yield torch._C._cuda_getCurrentRawStream(self.device), self.plan.spaces


def _aligned(
    tensors: Sequence[Any], addresses: Sequence[int]
) -> tuple[Sequence[Any], Sequence[int]]:
    """Tensors and their addresses, with copies of tensors that a plan cannot read where they lie."""
    if any(address % ALIGNED for address in addresses):
        tensors = [t.clone() if t.data_ptr() % ALIGNED else t for t in tensors]
        addresses = [t.data_ptr() for t in tensors]
    return tensors, addresses


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


def _relations(lists: Sequence[Tensor]) -> tuple[list[Tensor], list[_core.Relation]]:
    """The tensors of relations, which must live as long as their addresses are read, and these as a plan takes them."""
    kept = [own.contiguous() for own in lists]
    found = []
    for at in range(0, len(kept), 3):
        targets, starts, order = kept[at : at + 3]
        places = targets.data_ptr(), starts.data_ptr(), order.data_ptr()
        found.append((places, len(targets), len(starts) - 1))
    return kept, found


def _check_room(like: Tensor, of: Rows, plan: _core.NetworkPlan) -> None:
    """Raises ``MemoryError`` if the system has no room for the result of a plan, and for what it keeps."""
    taken = sum(map(math.prod, plan.shapes)) * like.element_size() + plan.kept
    if like.is_cpu and taken >= _LARGE:
        rows = of[0] * of[1]
        _core.check_room(f"a network of layers of {rows} rows, {like.dtype}", taken, rows)


def by_calls(
    context: Context, tensors: Sequence[Tensor | None], incoming: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients by the calls of layers, with their own derivatives."""
    call, inputs = context.call, context.inputs
    slots = call.description.slots
    before = [parts[name] for parts, name in slots]

    def function(*own: Tensor | None) -> list[Tensor | None]:
        given = [None if t is None else t.to(call.types.plan) for t in own]
        assert given[0] is not None
        # Other tensors may stand where the parameters of the call stood, as within `torch.func.functional_call`.
        for (parts, name), tensor in zip(slots, given[inputs:], strict=True):
            parts[name] = tensor
        with by_layers(), drawing(call.draw), without_autocast(given[0]):
            found = list(context.composed(call.given(given[:inputs])))[: len(incoming)]
        return [None if t is None else t.to(call.types.result) for t in found]

    try:
        return again(function, tensors, incoming)
    finally:
        for (parts, name), tensor in zip(slots, before, strict=True):
            parts[name] = tensor
