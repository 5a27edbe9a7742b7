"""The choice between one function and the calls of layers, and the reason for it.

A module is described once for each kind of call, and again after a change of what its description depends on: modules and
attributes, which :class:`~..path.Watch` watches. Parameters may be exchanged between calls, as `torch.func.functional_call` does.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .... import _core
from ...._ops import doors, native, remedies
from ...._ops.run import takes_tf32
from .. import path
from ..geometry import Geometry
from . import compiled
from .call import Call, Given, Maybe, Types, Unready, prepared, types_of, variant_of
from .calls import called
from .description import Description, Tokens, Variant
from .draft import Draft, Slot, Undescribed
from .draws import draw_on
from .function import ALIGNED, Parameters, apply, composes
from .graphs import MessageCall, MessageGiven, rows_of, types_on_graph
from .messages import MessageVariant, Multivectors

__all__ = ["attempt_on_graph", "known_of", "run", "run_chain"]

AnyVariant = Variant | MessageVariant
_LOG = logging.getLogger("flashcliff")


def run(
    owner: nn.Module,
    geometry: Geometry,
    given: Given,
    composed: Callable[[Given], Maybe] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The result of a module by one function, or by the calls of its layers.

    Args:
        owner: the module.
        geometry: the geometry of its input.
        given: the arguments of the call.
        composed: the module by operations of PyTorch; without them it calls the layers that it describes.
    """
    by_layers = composed or functools.partial(called, owner)
    found = _attempt(owner, (owner,), 0, geometry, given, lambda _: by_layers)
    return by_layers(given) if found is None else found[1]  # type: ignore[return-value]


def attempt_on_graph(
    owner: Any, given: MessageGiven, composed: Callable[[MessageGiven], Tensor]
) -> Tensor | None:
    """The result of a module on a graph by one function; ``None`` if its layers must be called.

    Args:
        owner: the module, whose ``variant`` is that of all of its calls.
        given: the arguments of the call.
        composed: the call of its layers.
    """
    if torch.compiler.is_compiling():
        return compiled.attempt_on_graph(owner, given)
    if composes():
        return None
    known = known_of(owner)
    try:
        variant = owner.variant()
        _check_graph(given, variant)
        types = types_on_graph(given, takes_tf32())
        function = known.function(owner, (owner,), 0, None, variant)
        parameters = function.parameters(given.here, types)
        of: Any = function.description
        lists = given.lists(of.relations)
        nodes: Any = given.here.shape[1]
        rows: Any = rows_of(nodes, of.relations, lists)
        empty: Any = {name: None for name in of.inputs}
        call = MessageCall(
            of,
            function.network,
            rows,
            function.output.sizes,
            lists,
            given._replace(**empty),
            given.of(of.inputs),
            types,
            owner.algebra,
            of_graphs=function.output.of_graphs,  # type: ignore[union-attr]
        )
        found = apply(call, lambda own: (composed(own), None), parameters)[0]
    except (Unready, _core.UnsupportedError) as error:
        known.leave(owner, str(error))
        return None
    known.last = None
    return found


def run_chain(
    owner: nn.Module,
    parts: Sequence[nn.Module],
    geometry: Geometry,
    given: Given,
    call: Callable[[nn.Module, Given], tuple[Tensor, Tensor | None]],
) -> tuple[Tensor, Tensor | None]:
    """The result of parts that a module calls one after another. A function stands for as many of them as it can, two at least.

    Args:
        owner: the module that calls the parts.
        parts: modules within it.
        geometry, given: as for :func:`run`, of the first part.
        call: the call of a part.
    """

    def calls(start: int, stop: int) -> Callable[[Given], Maybe]:
        def called(given: Given) -> Maybe:
            for part in parts[start:stop]:
                given = given._replace(here=call(part, given))
            return given.here

        return called

    at = 0
    while at < len(parts):
        found = None
        if len(parts) - at > 1:
            composed = functools.partial(calls, at)
            found = _attempt(owner, parts, at, geometry, given, composed)
        if found is None:
            found = at + 1, call(parts[at], given)
        at, here = found
        given = given._replace(here=here)
    return given.here


def _attempt(
    owner: nn.Module,
    parts: Sequence[nn.Module],
    start: int,
    geometry: Geometry,
    given: Given,
    composed: Callable[[int], Callable[[Given], Maybe]],
) -> tuple[int, tuple[Tensor, Tensor | None]] | None:
    if torch.compiler.is_compiling():
        return compiled.attempt(owner, len(parts) > 1, start, given, geometry.blade_count)
    if composes():
        return None
    known = known_of(owner)
    try:
        _check_tensors(geometry, given)
        types = types_of(given.tokens(), takes_tf32())
        if given.keeps_float32:
            types = types._replace(features=None)
        function = known.function(owner, parts, start, geometry, variant_of(given))
        parameters = function.parameters(given.here[0], types)
        if parameters.places and parameters.tensors[0].dtype == types.plan:
            types = types._replace(parameters=frozenset((types.plan,)))
        description: Any = function.description
        batch, rows, sequences, tensors = prepared(given, description, types.plan)
        options = given.options, given.context_options
        call = Call(
            description,
            function.network,
            batch,
            rows,
            geometry,
            function.output.sizes[1:],
            sequences,
            options,
            tensors,
            types,
            draw_on(given.here[0].device) if description.drop_count else None,
        )
        found = apply(call, composed(function.stop), parameters)
    except (Unready, _core.UnsupportedError) as error:
        # There may be no plan: for an algebra on a GPU, or of a gradient of what the result does not depend on.
        known.leave(owner, str(error))
        return None
    known.last = None
    assert found[0] is not None
    return function.stop, (found[0], found[1])


def _check_tensors(geometry: Geometry, given: Given) -> None:
    """Raises unless a plan can read the tensors of a call."""
    mv = given.here[0]
    remedies.check_tensor("multivectors", mv)
    tensors = [t for t in given.tensors() if t is not None]
    _check_memory(tensors, given.masks())
    if mv.dim() < 3:
        raise Unready("the input has no axis of items")
    if mv.shape[0] != geometry.blade_count or not all(t.numel() for t in tensors):
        raise Unready("a tensor has other blades than the algebra, or no elements")
    doors.check("a network of layers", tensors)


def _check_graph(given: MessageGiven, variant: MessageVariant) -> None:
    """Raises unless a plan can read the tensors of a call on a graph."""
    tensors = [*given.tensors(), *given.all_lists()]
    _check_memory(tensors)
    if given.here.dim() != 3 or not all(t.numel() for t in tensors):
        raise Unready("nodes have axes besides theirs, or a tensor has no elements")
    variant.check(given.here)
    doors.check("a network of layers", tensors)


def _check_memory(tensors: Sequence[Tensor], masks: Sequence[Tensor | None] = ()) -> None:
    """Raises unless the memory of tensors may be read, and is on one device that has kernels."""
    if not doors.opens(*tensors, *masks):
        raise Unready(
            "something follows the calls of operators, or a tensor has no memory of its own"
        )
    first = tensors[0]
    has_kernels = first.is_cpu or first.is_cuda and _core.CUDA
    if not has_kernels or {t.device for t in tensors} != {first.device}:
        raise Unready("the tensors are on different devices, or on one without kernels")


class _Function(NamedTuple):
    """The function that stands for the calls of some parts."""

    description: Draft
    network: _core.NetworkFunction
    output: Tokens | Multivectors
    stop: int
    """The number of the part after the last one."""
    slots: _core.Slots
    """The places of its parameters."""
    kept: _Kept
    idle: frozenset[int]
    """The parameters on which some part of the result does not depend."""

    def check(self, dtype: torch.dtype, differentiates: bool) -> None:
        """Raises unless it serves calls by a plan of a type, with gradients or without."""
        of = self.description
        if of.dtype not in (None, dtype):
            raise Unready(f"attention has features of {of.dtype}")
        if of.without_gradients and differentiates:
            raise Unready("its items are computed again in the backward pass")

    def parameters(self, like: Tensor, types: Types) -> Parameters:
        """The parameters of a call, which may be other tensors than in the last call."""
        differentiates = torch.is_grad_enabled()
        self.check(types.plan, differentiates)
        found = self.slots.values()
        # Other attributes may stand in the place of parameters.
        idle = (getattr(found[at], "_backward_hooks", None) for at in self.idle)
        if differentiates and any(idle):
            # A node of autograd calls the hooks of all of its parameters, with `None` where there is no gradient.
            raise Unready("a parameter that some result does not depend on has hooks")
        parameters = self.kept.of(found, self.description.shapes)
        if parameters.places:
            first = found[0]
            if first.dtype in types.parameters and first.device == like.device:
                return parameters
        if not (
            doors.PLAIN.issuperset(map(type, found))
            and [p.shape for p in found] == self.description.shapes
            and types.parameters.issuperset([p.dtype for p in found])
            and {like.device}.issuperset([p.device for p in found])
            and doors.opens(*found)
        ):
            raise Unready(
                "some parameters are not plain tensors of the type of the input, or of autocast, and of the shapes that they were made with"
            )
        return Parameters(found)


class _Kept:
    """The list of parameters that the compiled call path keeps from call to call."""

    _list: Any = None

    def of(self, found: list[Tensor], shapes: list[torch.Size]) -> Parameters:
        """Parameters, with their addresses if plans read them where they lie."""
        if self._list is not None and native.loaded is not None:
            places = self._list.places(found)
            if places is not None:
                return Parameters(found, places, self._list)
        self._list = None
        places = doors.at_once(found, shapes)
        if not places or any(place % ALIGNED for place in places):
            return Parameters(found)
        if native.loaded is not None:
            # Tensors that were made in inference mode are refused.
            with contextlib.suppress(ValueError):
                self._list = native.loaded.Parameters(found)
        return Parameters(found, places, self._list)

    def forget(self) -> None:
        """Lets go of the parameters until the next call."""
        self._list = None


class Known:
    """The functions of a module as it is."""

    last: str | None = None
    """The reason why layers were called the last time, if they were."""

    def __init__(self, owner: nn.Module) -> None:
        self._facts: dict[tuple[int, str], Slot] = {}
        self._functions: dict[Any, _Function | str] = {}
        self._watch = path.Watch(owner, ())
        self._drops = _drops_of(owner)

    def function(
        self,
        owner: nn.Module,
        parts: Sequence[nn.Module],
        start: int,
        geometry: Geometry | None,
        variant: AnyVariant,
    ) -> _Function:
        """The function that stands for parts in calls of a kind."""
        if not self._watch.is_same() or any(
            x._version != version
            for found in self._functions.values()
            if isinstance(found, _Function)
            for x, version in found.description.tensors
        ):
            self._facts, self._functions = {}, {}
            self._watch = path.Watch(owner, ())
            self._drops = _drops_of(owner)
        why = self._watch.why_called()
        if why is not None:
            raise Unready(why)
        if self._drops and isinstance(variant, Variant):
            variant = variant._replace(drops=self._drop())
        key = start, geometry, variant
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = self._described(owner, parts, start, geometry, variant)
            self._watch = path.Watch(owner, self._facts.values())
        if isinstance(found, str):
            raise Unready(found)
        return found

    def forget_parameters(self) -> None:
        """Lets go of the parameters until the next call."""
        for found in self._functions.values():
            if isinstance(found, _Function):
                found.kept.forget()

    def leave(self, owner: nn.Module, why: str | None) -> None:
        """Notes why a call leaves the fast way, and logs it once for each class and reason; ``None`` if it does not."""
        self.last = why
        if why is not None:
            _log_slow_call(type(owner).__name__, why)

    def _drop(self) -> bool:
        """Whether layers drop channels in a call now: all that have a probability, or none."""
        found = {own["training"] for own, name in self._drops if own[name] > 0}
        if len(found) > 1:
            raise Unready("some layers drop channels and others do not")
        return True in found

    def why(
        self, owner: nn.Module, geometry: Geometry | None, variant: Callable[[], AnyVariant]
    ) -> str | None:
        """The reason why a module calls its layers: that of its last call, or of calls of some kind if there was none."""
        why = path.why_called(owner, False)
        if why is None and self.last is not None:
            return f"in its last call, {self.last}"
        try:
            if why is None:
                self.function(owner, (owner,), 0, geometry, variant())
        except Unready as error:
            return str(error)
        return why

    def _described(
        self,
        owner: nn.Module,
        parts: Sequence[nn.Module],
        start: int,
        geometry: Geometry | None,
        variant: AnyVariant,
    ) -> _Function | str:
        """The function of as many parts as have one; a reason if these are fewer than two of a chain."""
        description: Draft = variant.draft(geometry)  # type: ignore[arg-type]
        x = description.here
        for at, part in enumerate(parts[start:], start):
            try:
                why = path.why_called(part, part is not owner)
                if why is not None:
                    raise Undescribed(why)
                if description.again:
                    description.block()
                x = description.call(part, x)
            except Undescribed as error:
                self._note(description)
                if at - start < 2:
                    return str(error)
                return self._described(owner, parts[:at], start, geometry, variant)
        self._note(description)
        if x.value == description.here.value:
            return "it leaves items as they are"
        slots = (
            _core.Slots(*map(list, zip(*description.slots)))
            if description.slots
            else _core.Slots([], [])
        )
        if isinstance(description, Description):
            description.ends(x)
        network = description.network.function(x.value)
        idle = frozenset().union(*description.idle)
        return _Function(description, network, x, len(parts), slots, _Kept(), idle)

    def _note(self, description: Draft) -> None:
        self._facts |= {(id(owner), name): (owner, name) for owner, name in description.facts}


@functools.lru_cache(maxsize=256)
def _log_slow_call(kind: str, why: str) -> None:
    _LOG.warning(
        "%s calls its layers one by one, which takes longer than one function: %s", kind, why
    )


def _drops_of(owner: nn.Module) -> list[Slot]:
    """The attributes of layers that drop channels in training, with the names of the probabilities."""
    kinds = path.known()
    modules = ((x, getattr(type(x), "drops", None)) for x in owner.modules() if type(x) in kinds)
    return [(x.__dict__, name) for x, name in modules if name is not None]


_KNOWN: weakref.WeakKeyDictionary[nn.Module, Known] = weakref.WeakKeyDictionary()


def known_of(owner: nn.Module) -> Known:
    """The functions of a module."""
    found = _KNOWN.get(owner)
    if found is None:
        found = _KNOWN[owner] = Known(owner)
    return found


def forget_parameters(owner: nn.Module) -> None:
    """Lets go of the parameters of a module and of all modules within it. PyTorch can exchange tensors only if nobody else holds them
    (``torch.__future__.set_swap_module_params_on_conversion``)."""
    for module in owner.modules():
        found = _KNOWN.get(module)
        if found is not None:
            found.forget_parameters()
