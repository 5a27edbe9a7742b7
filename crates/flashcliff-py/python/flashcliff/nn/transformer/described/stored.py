"""A network of a file as a function of autograd.

It has no layers that could be called. Its gradient is a network, too, which computes the results that it needs again, and so is
the gradient of that network: a graph of gradients, which ``create_graph=True`` asks for, is a graph of such networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .... import _core
from ...._ops import doors
from .call import Bounds, Maybe, Rows, Types
from .draft import Slot
from .function import Parameters, Run, apply

__all__ = ["Ends", "StoredCall", "StoredNetwork"]


class Ends(NamedTuple):
    """The part of a network that a call reads."""

    inputs: Sequence[str]
    slots: Sequence[Slot]
    """The parameters of the call."""
    idle: tuple[frozenset[int], ...] = ()
    """As of :class:`~.draft.Draft`: there is one result, which depends on all."""
    again: bool = False
    """Nothing is computed again."""


class StoredCall(NamedTuple):
    """A call of a network of a file: what :class:`~.call.Call` is for layers. Tensors are as the file has them."""

    description: Ends
    function: Any
    """What has plans: a `_core.NetworkFunction`, or a `_core.StoredNetwork`."""
    rows: Rows
    relations: tuple[Tensor, ...]
    """The tensors of relations, three for each."""
    tensors: Sequence[Tensor | None]
    """Two for each input, of which the second is ``None``."""
    types: Types
    sequences: tuple[Bounds, Bounds] | None
    algebra: None = None
    draw: None = None

    def together(self, name: str, pair: Sequence[Tensor | None]) -> Tensor:
        """The tensor of an input."""
        found = pair[0]
        assert found is not None
        return found.to(self.types.plan)

    def apart(self, name: str, gradient: Tensor | None, of: Any, _: Tensor | None) -> Maybe:
        """The gradient of the tensor of an input."""
        return None if gradient is None else gradient.to(of.dtype), None

    def parts(self, result: Tensor) -> Maybe:
        """The result as a tensor with its own memory: a caller may write to it, and the backward pass reads the result of the plan."""
        return result.to(self.types.result, copy=True), None

    def seed(self, incoming: Sequence[Tensor | None], like: Tensor) -> Tensor:
        """The gradient of the result."""
        gradient = incoming[0]
        assert gradient is not None
        return like.new_empty(gradient.shape).copy_(gradient)

    def inputs(self) -> list[Tensor]:
        """The tensors of inputs."""
        return [x for x in self.tensors if x is not None]

    def given(self, tensors: Sequence[Tensor | None]) -> Any:
        """The arguments of a call in one pass, from the tensors of a function."""
        return tensors[::2]

    def of_gradients(self) -> StoredCall:
        """The same call in the type of the plan alone."""
        plan = self.types.plan
        types = Types(plan, plan, frozenset((plan,)), self.types.rounds)
        return self._replace(tensors=(), types=types)


class StoredNetwork:
    """A network of a file, or a gradient of one: a function of inputs, then parameters, then gradients of results."""

    def __init__(self, core: _core.StoredNetwork) -> None:
        self.core = core
        self._gradients: dict[Any, tuple[StoredNetwork, list[bool]]] = {}

    def gradient(
        self, there: Sequence[bool], wanted: Sequence[bool]
    ) -> tuple[StoredNetwork, list[bool]]:
        """The gradient of some results by some arguments, and for each of these whether there is one."""
        key = tuple(there), tuple(wanted)
        if key not in self._gradients:
            core, found = self.core.gradient(list(there), list(wanted))
            self._gradients[key] = StoredNetwork(core), found
        return self._gradients[key]

    def call(self, call: StoredCall, parameters: Sequence[Tensor]) -> Tensor:
        """The result of a call."""
        arguments = self._followed([*call.inputs(), *parameters])
        inputs, parameters = arguments[: len(call.tensors) // 2], arguments[len(call.tensors) // 2 :]
        again = call.of_gradients()

        def composed(given: Sequence[Tensor]) -> Maybe:
            values = [parts[name] for parts, name in call.description.slots]
            return _Whole.apply(self, again, *given, *values)[0], None

        call = call._replace(tensors=[own for x in inputs for own in (x, None)])
        found = apply(call, composed, Parameters(parameters))[0]
        assert found is not None
        return found

    def _followed(self, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        """The arguments, detached where the result does not depend on them: of such there is no plan of gradients."""
        wanted = [x.requires_grad for x in arguments]
        if not torch.is_grad_enabled() or not any(wanted):
            return arguments
        there = iter(self.gradient([True], wanted)[1])
        return [x if not want or next(there) else x.detach() for x, want in zip(arguments, wanted)]

    def run(self, call: StoredCall, arguments: Sequence[Tensor]) -> list[Tensor]:
        """All results, in one pass."""
        inputs = len(call.description.inputs)
        behind = inputs + len(call.description.slots)
        rows = [*arguments[:inputs], *arguments[behind:]]
        own = call._replace(function=self.core)
        run = Run(own, rows, arguments[inputs:behind], [False] * len(arguments))
        return run.results()[0]


class _Whole(torch.autograd.Function):
    """A network in one pass, whose backward pass is another one."""

    @staticmethod
    def forward(ctx: Any, network: StoredNetwork, call: StoredCall, *arguments: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.network, ctx.call = network, call
        ctx.save_for_backward(*arguments)
        return tuple(network.run(call, arguments))

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> Any:
        arguments, wanted = ctx.saved_tensors, ctx.needs_input_grad[2:]
        seeds = [g for g in incoming if g is not None]
        found: list[Tensor | None] = [None] * len(wanted)
        if seeds:
            if not doors.opens(*seeds):
                raise _core.UnsupportedError(
                    "a network of a file: expected gradients of plain tensors, got such as a transform or a mode follows"
                )
            gradient, there = ctx.network.gradient([g is not None for g in incoming], wanted)
            made = iter(_Whole.apply(gradient, ctx.call, *arguments, *seeds) if any(there) else ())
            places = (at for at, want in enumerate(wanted) if want)
            for at, own in zip(places, there, strict=True):
                found[at] = next(made) if own else None
        return None, None, *found
