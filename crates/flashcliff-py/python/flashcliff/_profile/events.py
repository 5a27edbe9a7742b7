"""The records of calls, and the profiles that keep them."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .._ops.op import Made

Shapes = tuple[tuple[int, ...], ...]


class Cost(NamedTuple):
    """The cost of one call: bytes and floating-point operations, by a model."""

    bytes: int
    flops: int
    saved_bytes: int = 0
    """The sums, or the tensor, that the call makes for a backward pass."""
    held_bytes: int | None = 0
    """The tensors that a graph of autograd keeps for a backward pass; ``None`` if that is not known."""


class Kernel(NamedTuple):
    """A network of layers, the kernel of attention, or messages, that one function launches."""

    name: str
    algebra: Any
    """The algebra; ``None`` where there is none."""
    details: tuple[tuple[str, Any], ...]
    """Properties beside shapes, by name."""
    cost: Cost


class Replay(NamedTuple):
    """A CUDA graph that is replayed."""

    name: str


Subject = Made | Kernel | Replay


class Key(NamedTuple):
    """The properties that calls of one row share."""

    subject: Subject
    phase: str
    """``forward``, ``backward``, or ``replay``."""
    shapes: Shapes
    """The shapes of the inputs."""
    dtype: str
    device: str
    wanted: tuple[bool, ...] = ()
    """Which gradients a backward call computes."""
    saves: bool = False
    """Whether a forward call makes sums, or a tensor, for a backward call."""
    held: bool | None = None
    """Whether a graph of autograd keeps the inputs of a forward call; ``None`` if that is not known."""
    recorded: bool = False
    """Whether the call was recorded into a CUDA graph, and so did not run."""


@dataclass(slots=True)
class Event:
    """A call."""

    key: Key
    start: int
    """When the call began on the host, in nanoseconds of ``time.perf_counter_ns``."""
    end: int
    thread: int
    marks: Any = None
    """The marks of time on a GPU (:mod:`.cuda`); ``None`` on the CPU."""


@dataclass(slots=True, eq=False)
class Log:
    """The calls of a region."""

    anchors: dict[int, Any]
    """The relation of each GPU's clock to that of the host (:mod:`.cuda`)."""
    events: list[Event] = field(default_factory=list)


LOCK = threading.RLock()
"""Guards what is active and the hooks. No call of an operator takes it."""

active: tuple[Log, ...] = ()
"""The logs of all profiles whose regions are entered. A change replaces the tuple."""


def _renew() -> None:
    """A forked child waits for no lock of its parent."""
    global LOCK
    LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
