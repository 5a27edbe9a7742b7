"""Networks as nodes of compiled graphs: ``flashcliff::network`` and its gradient, ``flashcliff::network_backward``.

A node names its network. Networks are entered by what they compute, so modules of one structure share one, and stay entered:
a graph may run its backward pass after its module is gone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from .... import _core
from ...._ops.run import takes_tf32
from .call import Call, Rows, Types
from .description import Tokens
from .draft import Draft
from .draws import draw_of
from .function import AnyCall, Run, idle_of, inputs_of, plan_of
from .graphs import MessageCall, rows_of
from .messages import Multivectors

__all__ = ["Inputs", "entered", "why_no_plan"]

Tensors = Sequence[Tensor | None]
"""The tensors of a call, two for each input of a network. A node has those that are there, and for each place whether it is."""


class Inputs(NamedTuple):
    """The part of a description that a call reads."""

    inputs: tuple[str, ...]
    """The inputs in the order of the network."""
    relations: tuple[str, ...] | None = None
    """The relations in the order of the network; ``None`` for a network of tokens."""
    again: bool = False
    """Whether blocks are computed again in the backward pass."""


class _Entry(NamedTuple):
    function: _core.NetworkFunction
    description: Inputs
    output: Tokens | Multivectors
    idle: tuple[frozenset[int], ...]
    """For each part of the result the parameters on which it does not depend."""
    features: torch.dtype | None
    """The type of 16 bits in which a GPU keeps tokens between steps; ``None``: the type of the plan."""

    def rows(self, tensors: Tensors, lists: Sequence[Tensor]) -> tuple[Any, ...]:
        """The rows of a call; symbols in a trace."""
        *elements, items = _first(tensors).shape[1:-1]
        if self.description.relations is not None:
            return rows_of(items, self.description.relations, lists)
        others: Any = 0
        if "context" in self.description.inputs:
            context = tensors[2 * self.description.inputs.index("context")]
            assert context is not None
            others = context.shape[-2]
        return math.prod(elements), items, others, 0, 0

    def call(self, tensors: Tensors, draw: Tensor | None, lists: Sequence[Tensor]) -> AnyCall:
        """A call without sequences, in one type: what a node serves."""
        description: Any = self.description
        batch, dtype = tuple(_first(tensors).shape[1:-1]), _first(tensors).dtype
        rows: Any = self.rows(tensors, lists)
        types = self.types(dtype)
        function, output = self.function, self.output
        if isinstance(output, Multivectors):
            of = output.sizes, tuple(lists), None, (), types
            return MessageCall(description, function, rows, *of)
        number = None if draw is None else draw_of(draw)
        geometry, options = output.geometry, dict[str, Any]()
        more: Any = output.channels, None, (options, options), (), types, number
        return Call(description, function, batch, rows, geometry, *more)

    def run(
        self,
        tensors: Tensors,
        parameters: Sequence[Tensor],
        draw: Tensor | None,
        wanted: Sequence[bool],
        lists: Sequence[Tensor],
    ) -> Run:
        call = self.call(tensors, draw, lists)
        return Run(call, inputs_of(call, tensors), parameters, list(wanted))

    def kept(
        self,
        rows: Rows,
        dtype: torch.dtype,
        device: torch.device,
        wanted: list[bool],
    ) -> int:
        """The bytes that a forward pass keeps."""
        gpu = None if device.type == "cpu" else device.index or 0
        types, again = self.types(dtype), self.description.again
        return plan_of(self.function, rows, types, gpu, wanted, again).kept

    def types(self, dtype: torch.dtype) -> Types:
        """The types of a call. Under autocast products round to TF32, as in calls without a compiler."""
        rounds = self.features is not None or takes_tf32()
        return Types(dtype, dtype, frozenset((dtype,)), rounds, self.features)


_SOME = 2, 3, 5, 7, 2
"""The rows of a plan that is asked and never run."""
_ENTRIES: dict[str, _Entry] = {}
_NAMES: dict[Hashable, str] = {}


def entered(
    draft: Draft,
    function: _core.NetworkFunction,
    output: Tokens | Multivectors,
    relations: tuple[str, ...] | None,
    features: torch.dtype | None = None,
) -> str:
    """The name of a network, which is entered if it is new.

    Args:
        draft: the network in the making.
        function: its function.
        output: its result.
        relations: its relations; ``None`` for a network of tokens.
        features: the type of 16 bits in which a GPU keeps tokens between steps, if it does.
    """
    told = draft.network.steps(), output, draft.again, features
    name = _NAMES.get(told)
    if name is None:
        inputs = Inputs(tuple(draft.inputs), relations, draft.again)
        entry = _Entry(function, inputs, output, draft.idle, features)
        name = _name(entry, str(draft.network), len(draft.slots))
        _ENTRIES[name], _NAMES[told] = entry, name
    return name


def why_no_plan(
    network: str, dtype: torch.dtype, device: torch.device, wanted: Sequence[bool]
) -> str | None:
    """The reason why there is no plan of a network with these gradients, such as gradients of what its result does not depend on."""
    found = _kept(_entry(network), dtype, device, list(wanted))
    return found if isinstance(found, str) else None


def _kept(entry: _Entry, dtype: torch.dtype, device: torch.device, wanted: list[bool]) -> int | str:
    """The bytes that a plan of some rows keeps; the reason if there is no plan."""
    try:
        return entry.kept(_SOME, dtype, device, wanted)
    except _core.UnsupportedError as error:
        return str(error)


def _name(entry: _Entry, text: str, parameters: int) -> str:
    """A name that is the same in each process: caches of graphs on disk have it, with the sizes of what nodes keep."""
    of_items = [name == "here" for name in entry.description.inputs]
    wanted = [*of_items, *[False] * parameters]
    kept = _kept(entry, torch.float32, torch.device("cpu"), wanted)
    idle = [sorted(own) for own in entry.idle]
    of = entry.description, repr(entry.output), str(entry.features)
    told = _core.__version__, text, *of, idle, kept
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
    same = sum(name.startswith(digest) for name in _ENTRIES)
    return f"{digest}_{same}" if same else digest


def _entry(name: str) -> _Entry:
    found = _ENTRIES.get(name)
    if found is None:
        raise _core.UnsupportedError(
            f"flashcliff::network: expected the name of a network that this process has described, got {name!r}; compile its "
            "module in this process, or export it, which leaves layers in the place of networks"
        )
    return found


def _first(tensors: Tensors) -> Tensor:
    assert tensors[0] is not None, "the first input of a network is its items"
    return tensors[0]


def _placed(tensors: Sequence[Tensor], given: Sequence[bool]) -> list[Tensor | None]:
    """The tensors of a node, each in its place."""
    found = iter(tensors)
    return [next(found) if here else None for here in given]


# Kernels


def _run(
    network: str,
    tensors: Sequence[Tensor],
    given: Sequence[bool],
    parameters: Sequence[Tensor],
    draw: Tensor | None,
    wanted: Sequence[bool],
    sizes: Sequence[int],
    lists: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Multivectors and scalars; and for the backward pass both in one matrix, and what the plan keeps."""
    run = _entry(network).run(_placed(tensors, given), parameters, draw, wanted, lists)
    result, kept = run.forward()
    mv, s = run.parts(result)
    assert mv is not None
    if s is None:
        s = mv.new_empty(*mv.shape[1:-1], 0)
    # Multivectors of nodes have the elements of a matrix in their own order.
    blades, channels, scalars = sizes
    result = result.view(-1, blades * channels + scalars)
    return mv, s, result if any(wanted) else result.new_empty(0, result.shape[1]), kept


def _fake(
    network: str,
    tensors: Sequence[Tensor],
    given: Sequence[bool],
    parameters: Sequence[Tensor],
    draw: Tensor | None,
    wanted: Sequence[bool],
    sizes: Sequence[int],
    lists: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    like, (blades, channels, scalars) = tensors[0], sizes
    batch = like.shape[1:-1]
    rows = math.prod(batch) if any(wanted) else 0
    kept = _fake_kept(network, _placed(tensors, given), list(wanted), lists)
    return (
        like.new_empty(blades, *batch, channels),
        like.new_empty(*batch, scalars),
        like.new_empty(rows, blades * channels + scalars),
        like.new_empty(kept, dtype=torch.uint8),
    )


def _fake_kept(
    network: str, tensors: Tensors, wanted: list[bool], lists: Sequence[Tensor]
) -> int | torch.SymInt:
    """The bytes that a forward pass keeps: a new symbol where sizes are symbols, since a plan is made for numbers."""
    if not any(wanted):
        return 0
    entry, like = _entry(network), _first(tensors)
    rows: Any = entry.rows(tensors, lists)
    if all(type(n) is int for n in rows):
        return entry.kept(rows, like.dtype, like.device, wanted)
    return torch.library.get_ctx().new_dynamic_size()


def _run_backward(
    network: str,
    gradient: Tensor | None,
    gradient_s: Tensor | None,
    tensors: Sequence[Tensor],
    given: Sequence[bool],
    parameters: Sequence[Tensor],
    draw: Tensor | None,
    wanted: Sequence[bool],
    lists: Sequence[Tensor],
    result: Tensor,
    kept: Tensor,
) -> list[Tensor]:
    """The gradients of inputs that are wanted, of multivectors and of scalars if there are any, then of parameters."""
    placed = _placed(tensors, given)
    run = _entry(network).run(placed, parameters, draw, wanted, lists)
    made = iter(run.backward(result, kept, (gradient, gradient_s)))
    found: list[Tensor] = []
    for at, name in enumerate(run.call.description.inputs):
        mv, s = placed[2 * at : 2 * at + 2]
        if wanted[at] and mv is not None:
            found += [g for g in run.call.apart(name, next(made), mv, s) if g is not None]
    return [*found, *made]


def _fake_backward(
    network: str,
    gradient: Tensor | None,
    gradient_s: Tensor | None,
    tensors: Sequence[Tensor],
    given: Sequence[bool],
    parameters: Sequence[Tensor],
    draw: Tensor | None,
    wanted: Sequence[bool],
    lists: Sequence[Tensor],
    result: Tensor,
    kept: Tensor,
) -> list[Tensor]:
    of_tensors, of_parameters = _asked(given, wanted)
    asked = zip((*tensors, *parameters), (*of_tensors, *of_parameters), strict=True)
    return [t.new_empty(t.shape) for t, want in asked if want]


def _asked(given: Sequence[bool], wanted: Sequence[bool]) -> tuple[list[bool], Sequence[bool]]:
    """Whether a backward pass makes the gradient of each tensor of a node, and of each parameter."""
    inputs = len(given) // 2
    return [wanted[at // 2] for at, here in enumerate(given) if here], wanted[inputs:]


# Gradients


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.network, tensors, ctx.given, parameters, draw, ctx.wanted, _, lists = inputs
    _, _, result, kept = output
    ctx.mark_non_differentiable(result, kept)
    # Else a result that nobody reads would have zeros for a gradient.
    ctx.set_materialize_grads(False)
    ctx.inputs, ctx.parameters = len(tensors), len(parameters)
    ctx.save_for_backward(*tensors, *parameters, *lists, draw, result, kept)


def _gradients(ctx: Any, gradient: Tensor | None, gradient_s: Tensor | None, *_: Any) -> Any:
    *saved, draw, result, kept = ctx.saved_tensors
    own = ctx.inputs + ctx.parameters
    tensors, parameters, lists = saved[: ctx.inputs], saved[ctx.inputs : own], saved[own:]
    found: list[Tensor | None] = [None] * own
    if gradient is not None or gradient_s is not None:
        more = tensors, ctx.given, parameters, draw, ctx.wanted, lists, result, kept
        made = iter(_BACKWARD(ctx.network, gradient, gradient_s, *more))
        of_tensors, of_parameters = _asked(ctx.given, ctx.wanted)
        found = [next(made) if want else None for want in (*of_tensors, *of_parameters)]
        for at in idle_of(_entry(ctx.network).idle, (gradient, gradient_s)):
            found[ctx.inputs + at] = None
    of = found[: ctx.inputs], None, found[ctx.inputs :]
    return None, *of, None, None, None, [None] * len(lists)


def _no_second(ctx: Any, *_: Any) -> NoReturn:
    raise _core.UnsupportedError(
        "flashcliff::network_backward: expected a first derivative, got a derivative of a gradient through a compiled graph; call "
        "the module without torch.compile, where it has derivatives of every order"
    )


_ARGUMENTS = "Tensor[] tensors, bool[] given, Tensor[] parameters, Tensor? draw, bool[] wanted"
_forward = torch.library.custom_op(
    "flashcliff::network",
    _run,
    mutates_args=(),
    schema=f"(str network, {_ARGUMENTS}, int[] sizes, Tensor[] lists) -> (Tensor, Tensor, Tensor, Tensor)",
)
_backward = torch.library.custom_op(
    "flashcliff::network_backward",
    _run_backward,
    mutates_args=(),
    schema=f"(str network, Tensor? gradient, Tensor? gradient_s, {_ARGUMENTS}, Tensor[] lists, Tensor result, Tensor kept) -> Tensor[]",
)
_forward.register_fake(_fake)
_backward.register_fake(_fake_backward)
_forward.register_autograd(_gradients, setup_context=_keep)
_backward.register_autograd(_no_second)
_BACKWARD: Any = torch.ops.flashcliff.network_backward.default
