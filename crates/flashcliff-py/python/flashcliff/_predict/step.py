"""Runs a step of a model under a recorder: with fake tensors for shapes and memory, or for real on few samples for times.

The model is left as it is: recorded steps run with parameters that share its memory and collect gradients of their own, and with copies of
its buffers; behind steps whose time is that of the whole, buffers are what they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    disable_fake_tensor_cache,
)
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from .. import _core
from .._ops import doors
from .._profile.region import profile
from . import ours
from .clock import Clock, GpuClock
from .kernels import kernels
from .record import Call, Recorder, tensors_of

_RUNS = (3, 12)
"""How often a step runs for its times, at least and at most."""
_PLAIN = 2
"""How many steps without a recorder follow each one with a recorder."""
_SECONDS = 0.5
"""How long it runs, if that is often enough."""


@dataclass(frozen=True)
class Model:
    """A model with example inputs."""

    module: torch.nn.Module
    inputs: Any
    """One tensor, a tuple of positional arguments, or a dictionary of arguments by name."""
    axes: tuple[int | None, ...]
    """The axis of the batch of each tensor among the inputs; ``None`` if it has none."""
    backward: bool
    """Whether a step has a backward pass."""

    @property
    def size(self) -> int:
        """The batch of the example inputs."""
        pairs = zip(tensors_of(self.inputs), self.axes)
        return next(tensor.shape[axis] for tensor, axis in pairs if axis is not None)

    def _with(self, make: Callable[[Tensor, int | None], Tensor]) -> Any:
        """The inputs with other tensors, each made from one and its axis."""
        axes = iter(self.axes)

        def one(leaf: Any) -> Any:
            return make(leaf, next(axes)) if isinstance(leaf, Tensor) else leaf

        return tree_map(one, self.inputs)

    def _parameters(self, make: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        own = {
            name: make(parameter.detach()).requires_grad_(parameter.requires_grad and self.backward)
            for name, parameter in self.module.named_parameters()
        }
        return {
            **own,
            **{name: make(buffer.clone()) for name, buffer in self.module.named_buffers()},
        }

    def fake(self, size: int) -> Recorder:
        """The calls and the memory of a step with a batch of another size. Nothing is computed, and no memory is taken.

        Raises:
            UnsupportedError: what the model does depends on the values of its inputs.
        """
        mode = _Fakes(allow_non_fake_inputs=True)
        recorder = Recorder(None)

        def resized(leaf: Tensor, axis: int | None) -> Tensor:
            shape = list(leaf.shape)
            if axis is not None:
                shape[axis] = size
            with mode:
                made = torch.empty(shape, dtype=leaf.dtype, device=leaf.device)
            return made.requires_grad_(leaf.requires_grad and self.backward)

        parameters = self._parameters(mode.from_tensor)
        inputs = self._with(resized)
        recorder.held.add(parameters.values())
        recorder.held.add(tensors_of(inputs))
        try:
            with mode, ours.layers(recorder), kernels(recorder), recorder:
                self._step(parameters, inputs, recorder)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise _core.UnsupportedError(
                "flashcliff.predict: expected a model whose work depends on the shapes of its inputs alone, got one that "
                f"reads their values ({error}); predict its parts"
            ) from None
        return recorder

    def warm(self, size: int) -> None:
        """Runs a step with few samples, so that what a first call makes and keeps is no fake tensor."""
        self._probe(size, (0, 0))

    def runs(self) -> bool:
        """Whether a step with the example as it is runs."""
        try:
            self._probe(self.size, (0, 0))
        except Exception:
            return False
        return True

    def probe(self, size: int) -> Probe:
        """The times of a step with samples of the example."""
        return self._probe(size, _RUNS)

    def _probe(self, size: int, often: tuple[int, int]) -> Probe:

        def narrowed(leaf: Tensor, axis: int | None) -> Tensor:
            part = leaf.detach()
            if axis is not None:
                # Samples of a small example are used again.
                part = part.index_select(axis, chosen)
            return part.requires_grad_(leaf.requires_grad and self.backward)

        first = tensors_of(self.inputs)[0]
        chosen = torch.arange(size, device=first.device) % self.size
        on_gpu = first.is_cuda
        runs: list[Probe] = []
        begun = time.perf_counter()
        here = torch.cuda.device(first.device) if on_gpu else nullcontext()
        with here, torch.random.fork_rng(enabled=True), self._buffers_kept():
            # The first round is a warm-up.
            while len(runs) <= often[0] * _PLAIN or (
                len(runs) <= often[1] * _PLAIN and time.perf_counter() - begun < _SECONDS
            ):
                parameters = self._parameters(lambda tensor: tensor)
                inputs = self._with(narrowed)
                with profile() as profiled:
                    clock = (GpuClock if on_gpu else Clock)(profiled.log)
                    recorder = Recorder(clock)
                    clock.begin()
                    with ours.layers(recorder), kernels(recorder), recorder:
                        self._step(parameters, inputs, recorder)
                    clock.finish()
                del parameters
                # The first step behind a recorded one finds caches and the allocator cold.
                for _ in range(_PLAIN):
                    inputs = self._with(narrowed)
                    phases = _Phases(on_gpu)
                    self._step(None, inputs, phases)
                    seconds = phases.forward, phases.backward
                    runs.append(Probe(*seconds, recorder.calls, clock.latency))
        return _least(runs[_PLAIN:] or runs)

    @contextmanager
    def _buffers_kept(self) -> Iterator[None]:
        """Puts back the buffers of the model, and their contents."""
        held = [(module._buffers, dict(module._buffers)) for module in self.module.modules()]
        contents = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        try:
            yield
        finally:
            for buffers, before in held:
                buffers.update(before)
            with torch.no_grad():
                for buffer, content in contents:
                    buffer.copy_(content)

    def _step(self, parameters: dict[str, Tensor] | None, inputs: Any, watch: Any) -> None:
        """A step, with other parameters and buffers if some are given, and else by the model as its user calls it."""
        args = (
            inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
        )
        kwargs = inputs if isinstance(inputs, dict) else {}
        watch.phase = "forward"
        with torch.set_grad_enabled(self.backward):
            if parameters is None:
                outputs = self.module(*args, **kwargs)
            else:
                outputs = functional_call(self.module, parameters, args, kwargs)
            ends = [leaf for leaf in tree_leaves(outputs) if _has_gradient(leaf)]
        if self.backward:
            gradients = [torch.ones_like(end) for end in ends]
            watch.phase = "backward"
            if parameters is None:
                # Nothing is added to the gradients of the model.
                given = (*self.module.parameters(), *tensors_of(inputs))
                leaves = [leaf for leaf in given if leaf.requires_grad]
                if ends and leaves:
                    torch.autograd.grad(ends, leaves, gradients, allow_unused=True)
            else:
                torch.autograd.backward(ends, gradients)
        watch.phase = "end"


class _Fakes(FakeTensorMode):
    """Fake tensors that live as long as those of a real step.

    PyTorch keeps the arguments of calls, to answer equal ones at once. A storage among them, as ``set_`` has one, would never be freed.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        has_storage = any(isinstance(arg, torch.UntypedStorage) for arg in args)
        with disable_fake_tensor_cache(self) if has_storage else nullcontext():
            return super().__torch_dispatch__(func, types, args, kwargs)


# While it is entered, nothing reads memory.
doors.PASSING.add(_Fakes)


@dataclass(frozen=True)
class Probe:
    """The times of a step on few samples."""

    forward: float
    """Seconds of the pass as it runs without a recorder."""
    backward: float
    calls: Sequence[Call]
    latency: float | None = None
    """Seconds of a call with next to no work; ``None`` if that was not measured."""


class _Phases:
    """The time of each phase of a step, which sets its name."""

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._marks: dict[str, float] = {}

    @property
    def phase(self) -> str:
        """The phase that runs."""
        return next(reversed(self._marks))

    @phase.setter
    def phase(self, name: str) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()
        self._marks[name] = time.perf_counter()

    @property
    def forward(self) -> float:
        return self._marks.get("backward", self._marks["end"]) - self._marks["forward"]

    @property
    def backward(self) -> float:
        return self._marks["end"] - self._marks.get("backward", self._marks["end"])


def _least(runs: Sequence[Probe]) -> Probe:
    """The least times of some runs. Other work of the machine makes times longer, never shorter."""
    calls = list(runs[0].calls)
    if all(len(run.calls) == len(calls) for run in runs):
        for at, call in enumerate(calls):
            call.seconds = min(run.calls[at].seconds for run in runs)
    latency = runs[0].latency
    return Probe(
        min(run.forward for run in runs), min(run.backward for run in runs), calls, latency
    )


def _has_gradient(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad
