"""A network as a node of the compiled call path.

The node keeps tensors, makes the gradients of parameters, and puts them where they belong. Networks have hundreds of these, and Python and
the engine of autograd spend eight microseconds each on every one. What is left to Python is one call for each pass.

Compiled autograd makes a graph of the node with one operator in it, :func:`_gradients`. It looks up the call by its number.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from ...._ops import native
from .call import Maybe
from .function import (
    AnyCall,
    Composed,
    Context,
    Parameters,
    Run,
    apart,
    by_calls,
    gradients,
    idle_of,
    inputs_of,
    wanted_of,
)

__all__ = ["record"]


def record(
    call: AnyCall,
    composed: Composed,
    parameters: Parameters,
    wants: Sequence[bool],
) -> Maybe:
    """The result of a call, with a node in the graph of autograd.

    Args:
        call, composed: as for :func:`~.function.apply`.
        parameters: parameters that the compiled call path keeps.
        wants: whether each tensor of the call, and then each parameter, has a gradient.
    """
    assert native.loaded is not None, "the compiled call path is not in use"
    recorded = _Recorded(call, composed, wants)
    with torch.no_grad():
        rows = inputs_of(call, call.tensors)
        run = Run(call, rows, (), recorded.wanted, parameters.places)
        kept = run.forward()
        found = run.parts(kept[0])
    if any(recorded.wanted):
        native.loaded.record_network(
            found,
            call.tensors,
            parameters.kept,
            kept,
            (recorded.backward, recorded.idle, recorded.again, recorded.traced),
            recorded.number,
        )
    return found


class _Recorded:
    """What a node asks of Python. A node keeps it alive."""

    def __init__(self, call: AnyCall, composed: Composed, wants: Sequence[bool]) -> None:
        inputs = len(call.tensors)
        self.context = Context(call._replace(tensors=()), composed, inputs, None)
        self.wants, self.wanted = wants, wanted_of(wants, inputs)
        self.number = next(_NUMBERS)
        _ALL[self.number] = self

    def backward(
        self,
        tensors: Sequence[Tensor | None],
        places: Sequence[int],
        places_of_gradients: Sequence[int],
        kept: tuple[Tensor, Tensor],
        incoming: Sequence[Tensor | None],
    ) -> list[Tensor | None]:
        """The gradients of the tensors of the call. The gradients of parameters are written where the node has made room.

        Args:
            tensors: the tensors of the call.
            places: the addresses of all parameters.
            places_of_gradients: the addresses of the gradients of parameters that have one.
            kept: what the forward pass left.
            incoming: the gradients of the results.
        """
        call = self.context.call
        run = Run(call, inputs_of(call, tensors), (), self.wanted, places)
        made = iter(run.backward(*kept, incoming, places_of_gradients))
        of_plan = self.wanted[: len(call.description.inputs)]
        return apart(call, tensors, [next(made) if want else None for want in of_plan])

    def idle(self, incoming: Sequence[Tensor | None]) -> list[int]:
        """The places of the parameters that have no gradient because nothing depends on them of which there is one."""
        return list(idle_of(self.context.call.description.idle, incoming))

    def again(
        self, tensors: Sequence[Tensor | None], incoming: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """The gradients of the tensors and parameters of the call, which can be differentiated again."""
        return by_calls(self.context, tensors, incoming)

    def traced(
        self, number: Tensor, tensors: Sequence[Tensor | None], incoming: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """The gradients in a graph of compiled autograd, which serves other calls with another number."""
        made = iter(_gradients(number, tensors, incoming, self.wants))
        found = [next(made) if want else None for want in self.wants]
        for at in self.idle(incoming):
            found[self.context.inputs + at] = None
        return found


_NUMBERS = itertools.count()
_ALL: weakref.WeakValueDictionary[int, _Recorded] = weakref.WeakValueDictionary()


def _run(
    number: Tensor,
    tensors: Sequence[Tensor | None],
    incoming: Sequence[Tensor | None],
    wants: Sequence[bool],
) -> list[Tensor]:
    # A node that is in use keeps it.
    own = _ALL[int(number)]
    count = len(wants)
    found = gradients(own.context.call, tensors[:count], own.wanted, tensors[count:], incoming)
    pairs = zip(found, tensors[:count], wants, strict=True)
    # A graph reads none of the others.
    return [torch.empty_like(t) if g is None else g for g, t, want in pairs if want]  # type: ignore[arg-type]


def _fake(
    number: Tensor,
    tensors: Sequence[Tensor | None],
    incoming: Sequence[Tensor | None],
    wants: Sequence[bool],
) -> list[Tensor]:
    return [torch.empty_like(t) for t, want in zip(tensors, wants) if want and t is not None]


_gradients = torch.library.custom_op(
    "flashcliff::gradients_of_a_network",
    _run,
    mutates_args=(),
    schema="(Tensor number, Tensor?[] tensors, Tensor?[] incoming, bool[] wants) -> Tensor[]",
)
_gradients.register_fake(_fake)
