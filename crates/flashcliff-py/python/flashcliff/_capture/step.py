"""A step that records itself as CUDA graphs and replays them."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import CaptureError, CaptureWarning
from .signature import check_inputs, flatten, place, signature, unflatten
from .training import Footing, Training

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Graph:
    """A recorded step."""

    replay: Callable[[], None]
    inputs: list[Tensor]
    outputs: list[Any]
    spec: Any
    footing: Footing


@dataclass
class _Calls:
    """The calls of one signature."""

    left: int
    """How many calls still run before one is recorded."""
    kept: list[Any]
    """Arguments that are told apart by their identity."""
    graphs: list[_Graph] = field(default_factory=list)


class Captured(Generic[P, T]):
    """A step that is replayed as CUDA graphs; :func:`flashcliff.capture` makes it."""

    def __init__(
        self,
        step: Callable[P, T],
        modules: Sequence[torch.nn.Module],
        warmup: int,
        max_graphs: int,
        copy_outputs: bool,
        fallback: str,
        recorder: Callable[[torch.device], Any],
    ) -> None:
        functools.update_wrapper(self, step, updated=())
        self._step = step
        self._modules = tuple(modules)
        self._warmup = warmup
        self._max_graphs = max_graphs
        self._copy_outputs = copy_outputs
        self._fallback = fallback
        self._make_recorder = recorder
        self._said: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Forgets all graphs and frees their memory; the next call of each signature warms up again."""
        self._training = Training(self._modules)
        self._calls: dict[Hashable, _Calls] = {}
        self._recorders: dict[torch.device, Any] = {}
        self._broken: str | None = None
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the last call ran eagerly, if it did and was no warm-up."""
        return self._reason

    @property
    def graph_count(self) -> int:
        """How many graphs there are."""
        return sum(len(calls.graphs) for calls in self._calls.values())

    def __repr__(self) -> str:
        name = getattr(self._step, "__qualname__", repr(self._step))
        return f"Captured({name}, graphs={self.graph_count}, reason={self._reason!r})"

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """The step as a method of an object, as functions in classes are."""
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the step once: eagerly, or by a graph."""
        leaves, spec = flatten(args, kwargs)
        key = signature(leaves, spec, self._training.modules)
        calls = self._calls.get(key)
        if calls is not None:
            for graph in calls.graphs:
                if graph.footing.stands() and graph.footing.fits():
                    graph.footing.check()
                    return self._replay(graph, leaves)
        return self._run(leaves, spec, key)

    def _run(self, leaves: Sequence[Any], spec: Any, key: Hashable) -> T:
        """A call without a graph."""
        step = self._bind(leaves, spec)
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            # This becomes a part of the graph that someone else records.
            return step()
        device = self._broken or place(leaves)
        if isinstance(device, str):
            return self._eagerly(step, device)
        check_inputs(leaves)
        if torch.is_autocast_enabled("cuda") and torch.is_autocast_cache_enabled():
            raise CaptureError(
                "autocast around a captured step keeps casts of weights from call to call, which a graph would "
                "not renew; use autocast within the step, or pass it `cache_enabled=False`"
            )
        calls = self._calls.get(key)
        if calls is None:
            kept = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
            calls = self._calls[key] = _Calls(self._warmup, kept)
        recorder = self._recorder(device)
        if calls.left > 0:
            calls.left -= 1
            self._reason = None
            with self._training.watched(device.type):
                return recorder.run(step)  # type: ignore[no-any-return]
        calls.graphs = [graph for graph in calls.graphs if graph.footing.stands()]
        if self.graph_count >= self._max_graphs:
            return self._eagerly(
                step,
                f"there are {self._max_graphs} graphs already, for calls of other shapes or arguments; pad the inputs "
                "to few shapes, or raise `max_graphs`",
            )
        try:
            graph = self._record(recorder, device, leaves, spec)
        except CaptureError:
            raise
        except Exception as error:
            self._broken = (
                f"the step cannot be recorded ({type(error).__name__}: {_first_line(error)}); a step that is recorded may "
                "not wait for the GPU (`.item()`, `print(loss)`, `if` on a tensor) or take shapes from its data"
            )
            return self._eagerly(step, self._broken, error)
        calls.graphs.append(graph)
        self._reason = None
        return self._replay(graph, leaves)

    def _record(
        self, recorder: Any, device: torch.device, leaves: Sequence[Any], spec: Any
    ) -> _Graph:
        training = self._training
        inputs = [torch.empty_like(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        following = iter(inputs)
        own = [next(following) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        for to, leaf in zip(inputs, _tensors(leaves)):
            to.copy_(leaf)
        footing = Footing(training)
        gradients = training.gradients()
        try:
            with training.watched(device.type):
                replay, result = recorder.record(self._bind(own, spec))
            footing.finish()
        except BaseException:
            # Nothing of the recording has values.
            training.put(gradients)
            raise
        outputs, result_spec = pytree.tree_flatten(result)
        return _Graph(replay, inputs, outputs, result_spec, footing)

    def _replay(self, graph: _Graph, leaves: Sequence[Any]) -> T:
        self._reason = None
        for to, leaf in zip(graph.inputs, _tensors(leaves)):
            to.copy_(leaf)
        graph.replay()
        self._training.put(graph.footing.after)
        outputs = graph.outputs
        if self._copy_outputs:
            outputs = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in outputs]
        return pytree.tree_unflatten(outputs, graph.spec)  # type: ignore[no-any-return]

    def _eagerly(self, step: Callable[[], T], reason: str, cause: Exception | None = None) -> T:
        """Runs the step without a graph, or raises, as was asked for."""
        if self._fallback == "error":
            raise CaptureError(f"{self._name()} has no graph: {reason}") from cause
        if reason not in self._said:
            self._said.add(reason)
            warnings.warn(
                f"{self._name()} runs without a graph: {reason}", CaptureWarning, stacklevel=4
            )
        self._reason = reason
        return step()

    def _bind(self, leaves: Sequence[Any], spec: Any) -> Callable[[], T]:
        args, kwargs = unflatten(leaves, spec)

        def step() -> T:
            return _without_history(self._step(*args, **kwargs))  # type: ignore[arg-type]

        return step

    def _recorder(self, device: torch.device) -> Any:
        if device not in self._recorders:
            self._recorders[device] = self._make_recorder(device)
        return self._recorders[device]

    def _name(self) -> str:
        return f"flashcliff.capture: `{getattr(self._step, '__name__', type(self._step).__name__)}`"


def _tensors(leaves: Iterable[Any]) -> Iterable[Tensor]:
    return (leaf for leaf in leaves if isinstance(leaf, Tensor))


def _without_history(result: T) -> T:
    """A result apart from its graph of autograd: one that lives on ties a later recording to this stream."""
    return pytree.tree_map(  # type: ignore[no-any-return]
        lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, result
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
