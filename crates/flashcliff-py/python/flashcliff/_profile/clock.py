"""The compiled halves of operators, with a clock around their calls.

The clock runs while the extension computes, or on a GPU launches. Checks, allocations and autograd are outside.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from .._ops.op import MADE
from . import cuda, events
from .events import Event, Key, Replay

_local = threading.local()


def timed(key: Key, gpu: bool, call: Callable[[], Any]) -> Any:
    """Makes a call, and records it unless it raises or gives ``False``. The call runs on the current device and
    stream."""
    logs = events.active
    begin = marks = None
    device = -1
    if gpu:
        if cuda.is_recording():
            key = key._replace(recorded=True)
        else:
            device = torch.cuda.current_device()
            for log in logs:
                # The GPU was not in use when the region began.
                if device not in log.anchors:
                    log.anchors[device] = cuda.anchor()
            begin = cuda.mark()
    start = time.perf_counter_ns()
    result = call()
    end = time.perf_counter_ns()
    if result is False:
        return result
    if begin is not None:
        marks = cuda.Marks(device, begin, cuda.mark())
    event = Event(key, start, end, threading.get_ident(), marks)
    for log in logs:
        log.events.append(event)
    return result


class TimedOperator:
    """An operator of the extension, called by Python."""

    __slots__ = ("held", "inner", "inputs", "kept", "name", "no_room", "plan", "plan_run", "saves")

    def __init__(self, inner: Any, saves: bool, held: bool | None) -> None:
        self.inner = inner
        self.saves = saves
        self.held = held
        self.name = inner.name
        self.inputs = inner.inputs
        self.kept = inner.kept
        self.plan = inner.plan
        self.plan_run = inner.plan_run
        self.no_room = inner.no_room

    def forward(self, views: Any, output: int, saved: int, space: Any, place: Any) -> None:
        key = self._key("forward", views, place, (), self.saves and saved != 0)
        timed(
            key,
            place is not None,
            lambda: self.inner.forward(views, output, saved, space, place),
        )

    def run(self, views: Any, outputs: Any, space: Any, place: Any) -> None:
        """A forward pass that saves nothing."""
        key = self._key("forward", views, place, (), False)
        timed(key, place is not None, lambda: self.inner.run(views, outputs, space, place))

    def backward(
        self, views: Any, output: int, saved: int, grad: int, grads: Any, space: Any, place: Any
    ) -> None:
        wanted = tuple([address is not None for address in grads])
        key = self._key("backward", views, place, wanted, False)
        timed(
            key,
            place is not None,
            lambda: self.inner.backward(views, output, saved, grad, grads, space, place),
        )

    def _key(
        self, phase: str, views: Any, place: Any, wanted: tuple[bool, ...], saves: bool
    ) -> Key:
        shapes = tuple([tuple(shape) for _, shape, _ in views])
        device = "cpu" if place is None else f"cuda:{place[0]}"
        made = MADE[self.inner.native]
        return Key(made, phase, shapes, views[0][2], device, wanted, saves, self.held)


def timed_replay(inner: Callable[..., Any], name: Callable[[Any], str]) -> Callable[..., Any]:
    """A method that replays a CUDA graph, with a clock. One within another is counted once."""

    def replay(self: Any, *arguments: Any) -> Any:
        if getattr(_local, "replays", False):
            return inner(self, *arguments)
        _local.replays = True
        try:
            gpu = torch.cuda.is_initialized()
            device = f"cuda:{torch.cuda.current_device()}" if gpu else "cpu"
            key = Key(Replay(name(self)), "replay", (), "", device)
            # A step may well return `False`, which says nothing here.
            return timed(key, gpu, lambda: (inner(self, *arguments),))[0]
        finally:
            _local.replays = False

    return replay
