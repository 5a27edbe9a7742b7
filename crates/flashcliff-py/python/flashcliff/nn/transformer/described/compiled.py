"""The choice between a network and the calls of layers within a trace of ``torch.compile``.

What describes a network cannot be traced, and need not be: the compiler asks an object of the module, :class:`Networks`, and takes the
answer as a constant. Before each call of its graph it compares the earlier answers with the present answers, so it compiles again after a
change of what they depend on: modules, hooks, attributes, and whether layers drop channels.
"""

from __future__ import annotations

import importlib
import operator
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .... import _core
from ...._ops import doors
from . import choice
from .call import Given, Types, Unready, prepared, types_of, variant_of
from .calls import Calls
from .description import Variant
from .draws import number_on
from .graphs import MessageGiven, types_on_graph
from .messages import MessageDescription, MessageVariant
from .node import Inputs, entered, why_no_plan

try:
    _OPAQUE: Any = importlib.import_module("torch._library.opaque_object")
except ModuleNotFoundError:
    _OPAQUE = None
SERVES = hasattr(_OPAQUE, "register_custom_class")
"""Whether this PyTorch has objects that a compiler asks. Where it has none, all layers are traced."""
_Asked: Any = _OPAQUE.CustomClassBase if SERVES else object

__all__ = ["Networked", "attempt", "attempt_on_graph"]


class Question(NamedTuple):
    """A call of a kind."""

    is_chain: bool
    """Whether parts of the module are called one after another, and not the module itself."""
    start: int
    """The first of these parts."""
    variant: Variant | MessageVariant
    dtype: torch.dtype
    differentiates: bool
    features: torch.dtype | None = None
    """The type of tokens between steps on a GPU, if it is not the type of the call."""


class Answer(NamedTuple):
    """The network that stands for calls."""

    stop: int
    """The number of the part after the last one."""
    network: str
    """Its name."""
    inputs: tuple[str, ...]
    parameters: tuple[tuple[str, ...], ...]
    """The names that lead from the module to each parameter."""
    shapes: tuple[tuple[int, ...], ...]
    """The shapes of the parameters."""
    sizes: tuple[int, int, int]
    """The blades, channels and scalars of its result."""
    draws: bool
    """Whether layers drop channels."""
    relations: tuple[str, ...]
    """The relations between rows, as a call on a graph has them."""


class _State:
    """The answers of a module as it is now. A copy has the answers of the time when it was made."""

    def __init__(self, networks: Networks | None, answers: Mapping[Question, Answer | str]) -> None:
        self._networks, self._answers = networks, answers

    def __deepcopy__(self, memo: object) -> _State:
        return _State(None, dict(self._answers))

    def __eq__(self, other: object) -> bool:
        now, then = (self, other) if self._networks is not None else (other, self)
        if not (isinstance(now, _State) and isinstance(then, _State)):
            return NotImplemented
        of = now._networks
        if of is None:
            return now._answers == then._answers
        return all(of.now(question) == answer for question, answer in then._answers.items())

    __hash__ = None  # type: ignore[assignment]


class Networks(_Asked):  # type: ignore[misc]
    """The object of a module that a compiler asks."""

    def __init__(self, owner: nn.Module) -> None:
        self._owner = weakref.ref(owner)
        self._answers: dict[Question, Answer | str] = {}
        self._last: dict[Question, tuple[Any, Answer]] = {}

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        # A copy of a module makes its own.
        return type(None), ()

    def state(self) -> list[Any]:
        """The value that the answers to all questions are compared by."""
        return [_State(self, self._answers)]

    def answer(self, *question: Any) -> tuple[Any, ...] | None:
        """The network that stands for the calls of a question; ``None`` if layers are called."""
        if (
            torch._C._are_functorch_transforms_active()
            or torch.autograd.forward_ad._current_level >= 0
        ):
            self.refuse("a transform follows the call")
            return None
        is_chain, start, variant, *more = question
        owner: Any = self._owner()
        kind = Variant if owner is None else owner.variants
        asked = Question(is_chain, start, kind(*variant), *more)
        found = self._answers[asked] = self.now(asked)
        if isinstance(found, str):
            self.refuse(found)
            return None
        self.refuse(None)
        return tuple(found)

    def runs(
        self, network: str, dtype: torch.dtype, device: torch.device, wanted: Sequence[bool]
    ) -> bool:
        """Whether there is a plan of a network with these gradients."""
        why = why_no_plan(network, dtype, device, wanted)
        self.refuse(why)
        return why is None

    def now(self, question: Question) -> Answer | str:
        """The answer to a question, or the reason why there is none."""
        owner: Any = self._owner()
        if owner is None:
            return "the module is gone"
        parts = owner._parts() if question.is_chain else (owner,)
        try:
            function = choice.known_of(owner).function(
                owner, parts, question.start, getattr(owner, "geometry", None), question.variant
            )
            function.check(question.dtype, question.differentiates)
        except Unready as error:
            return str(error)
        last = self._last.get(question)
        if last is None or last[0] is not function:
            last = self._last[question] = function, _answer(owner, function, question.features)
        return last[1]

    def refuse(self, why: str | None) -> None:
        """Notes why layers are called, if they are."""
        owner = self._owner()
        if owner is not None:
            choice.known_of(owner).leave(owner, why)


def _answer(owner: nn.Module, function: Any, features: torch.dtype | None) -> Answer:
    description, names = function.description, {}
    for name, module in owner.named_modules():
        names[id(module._parameters)] = tuple(name.split(".")) if name else ()
    shapes, inputs = tuple(map(tuple, description.shapes)), tuple(description.inputs)
    of_graphs = isinstance(description, MessageDescription)
    relations = tuple(description.relations) if of_graphs else None
    of = function.network, function.output, relations, features
    network = entered(description, *of)
    parameters = tuple((*names[id(own)], name) for own, name in description.slots)
    sizes, draws = function.output.sizes, description.drop_count > 0
    answered = inputs, parameters, shapes, sizes, draws, relations or ()
    return Answer(function.stop, network, *answered)


if SERVES:
    _OPAQUE.register_custom_class(
        Networks,
        typ="symbolic",
        guard_fn=Networks.state,
        members=dict.fromkeys(("answer", "refuse", "runs"), _OPAQUE.MemberType.USE_REAL),
    )


class Networked(nn.Module):
    """The base of modules for whose calls a network may stand in compiled graphs, too."""

    variants: Any = Variant
    """The class of what a network of the module depends on."""
    calls_of_layers = Calls
    """The class of the calls that a description is without a network."""

    def __init__(self) -> None:
        super().__init__()
        self._networks = _networks_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._networks = _networks_of(self)

    def _apply(self, *given: Any, **options: Any) -> Any:
        choice.forget_parameters(self)
        return super()._apply(*given, **options)

    def _load_from_state_dict(self, *given: Any, **options: Any) -> None:
        choice.forget_parameters(self)
        super()._load_from_state_dict(*given, **options)


def _networks_of(owner: nn.Module) -> Networks | None:
    return Networks(owner) if SERVES else None


# The part that a compiler traces


def attempt(
    owner: Any, is_chain: bool, start: int, given: Given, blades: int
) -> tuple[int, tuple[Tensor, Tensor | None]] | None:
    """The result of parts of a module as a node of the graph, and the number of the part after them; ``None`` if layers must be
    traced, as they are for an exported program, which other processes run."""
    networks = _asked_of(owner)
    if networks is None:
        return None
    try:
        _check(given, blades)
        types = types_of(given.tokens(), False)
        given = _widened(given, types.plan)
        variant = variant_of(given)
        mv = given.here[0]
        settled = tuple(_settled(own) for own in variant)
        features = None if given.keeps_float32 else types.features
        of_question = is_chain, start, settled, mv.dtype, torch.is_grad_enabled(), features
        found = networks.answer(*of_question)
        if found is None:
            return None
        stop, network, inputs, names, shapes, sizes, draws, _ = found
        parameters = _parameters(owner, names, shapes, mv, types)
        tensors = prepared(given, Inputs(inputs), mv.dtype)[3]  # type: ignore[arg-type]
    except Unready as error:
        networks.refuse(str(error))
        return None
    wanted = [_asks(a) or _asks(b) for a, b in zip(tensors[::2], tensors[1::2])]
    wanted += [_asks(p) for p in parameters]
    if not networks.runs(network, mv.dtype, mv.device, wanted):
        return None
    here = [t for t in tensors if t is not None]
    given_places = [t is not None for t in tensors]
    draw = number_on(mv.device) if draws else None
    of = network, here, given_places, parameters, draw, wanted, sizes
    mv, s, *_ = torch.ops.flashcliff.network(*of, [])
    return stop, (mv.to(types.result), s.to(types.result) if sizes[2] else None)


def attempt_on_graph(owner: Any, given: MessageGiven) -> Tensor | None:
    """The result of a module on a graph as a node of the compiled graph; ``None`` if layers must be traced."""
    networks = _asked_of(owner)
    if networks is None:
        return None
    try:
        here = given.here
        of_owner = owner.variant()
        _check_on_graph(given)
        of_owner.check(here)
        types = types_on_graph(given, False)
        variant = tuple(_settled(own) for own in of_owner)
        found = networks.answer(False, 0, variant, here.dtype, torch.is_grad_enabled())
        if found is None:
            return None
        _, network, inputs, names, shapes, sizes, _, relations = found
        parameters = _parameters(owner, names, shapes, here, types)
    except Unready as error:
        networks.refuse(str(error))
        return None
    tensors = given.of(inputs)
    wanted = [_asks(own) for own in (*tensors[::2], *parameters)]
    if not networks.runs(network, here.dtype, here.device, wanted):
        return None
    places = [t is not None for t in tensors]
    call: Any = network, tensors[::2], places, parameters, None, wanted, sizes
    result: Tensor = torch.ops.flashcliff.network(*call, given.lists(relations))[0]
    return result


def _asked_of(owner: Any) -> Any:
    """The object of a module that a compiler asks; ``None`` if layers must be traced."""
    # PyTorch 2.6 does not know whether it exports.
    if not SERVES or torch.compiler.is_exporting() or not torch.compiler.is_dynamo_compiling():
        return None
    return getattr(owner, "_networks", None)


def _widened(given: Given, dtype: torch.dtype) -> Given:
    """The arguments of a call, in the type of a plan."""

    def wide(x: Tensor | None) -> Any:
        return None if x is None else x.to(dtype)

    pairs = [(wide(mv), wide(s)) for mv, s in (given.here, given.extra, given.context)]
    return given._replace(here=pairs[0], extra=pairs[1], context=pairs[2])


def _settled(part: Any) -> Any:
    """A part of a variant without symbols: the compiler takes channels as constants, and what is known of a mask."""
    if part is None or part is True or part is False or isinstance(part, str):
        return part
    if isinstance(part, tuple):
        return tuple(_settled(own) for own in part)
    if isinstance(part, bool):
        # It may depend on sizes that are symbols. A branch makes it a constant with a guard, which `bool` does not.
        if part:
            return True
        return False
    return operator.index(part)


def _asks(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.requires_grad and torch.is_grad_enabled()


def _check(given: Given, blades: int) -> None:
    """Raises unless a node can take the tensors of a call, whose input must have so many blades."""
    mv = given.here[0]
    tensors = [t for t in (*given.here, *given.extra, *given.context) if t is not None]
    everything = [*tensors, *(t for t in (given.reference, given.frames) if t is not None)]
    _check_plain(everything)
    if mv.shape[0] != blades:
        raise Unready("the input has other blades than the algebra")
    if mv.dim() < 3 or any(0 in t.shape for t in everything):
        raise Unready("the input has no axis of items, or a tensor has no elements")
    if any(o.get("cu_seqlens") is not None for o in (given.options, given.context_options)):
        raise Unready("the host reads the boundaries of sequences, which a graph cannot")


def _check_on_graph(given: MessageGiven) -> None:
    """Raises unless a node can take the tensors of a call on a graph."""
    tensors = [*given.tensors(), *given.all_lists()]
    _check_plain(tensors)
    if given.here.dim() != 3 or any(0 in t.shape for t in tensors):
        raise Unready("nodes have axes besides theirs, or a tensor has no elements")


def _check_plain(tensors: Sequence[Tensor]) -> None:
    device = tensors[0].device
    if any(type(t) not in doors.PLAIN for t in tensors):
        raise Unready("a tensor is of a class of its own")
    if any(t.device != device for t in tensors):
        raise Unready("the tensors are on different devices")
    if device.type != "cpu" and not (device.type == "cuda" and _core.CUDA):
        raise Unready("the tensors are on a device without kernels")


def _parameters(
    owner: Any,
    names: Sequence[Sequence[str]],
    shapes: Sequence[Sequence[int]],
    like: Tensor,
    types: Types,
) -> list[Tensor]:
    """The parameters of a call, which may be other tensors than in the last call."""
    found = []
    for (*path, name), shape in zip(names, shapes, strict=True):
        module = owner
        for part in path:
            module = module._modules[part]
        parameter = module._parameters.get(name)
        if (
            type(parameter) not in doors.PLAIN
            or tuple(parameter.shape) != tuple(shape)
            or parameter.dtype not in types.parameters
            or parameter.device != like.device
        ):
            raise Unready(
                "some parameters are not plain tensors of the type of the input and of the shapes that they were made with"
            )
        found.append(parameter.to(types.plan))
    return found
