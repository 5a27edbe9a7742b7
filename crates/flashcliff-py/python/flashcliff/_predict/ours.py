"""The calls of flashcliff's operators and layers within a recorded step."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .. import _core
from .._ops import equivariant
from .._ops.library import REGISTERED, Registered
from .._ops.tensor_types import NAMES
from .._profile import kernels
from .._profile.costs import Cost, cost
from .._profile.events import Key, Layer
from .._profile.registered import key_of

__all__ = ["Found", "cost", "layers", "of"]

_EXCHANGED = threading.RLock()

_BY_NAME: dict[str, Registered] = {op.name: found for op, found in REGISTERED.items()}


class Found(NamedTuple):
    """The needs of a call."""

    cost: Cost
    workspace: int
    """The bytes of its workspace."""


def of(func: Any, args: tuple[Any, ...]) -> Found | None:
    """The needs of a call of ``torch.ops.flashcliff``; ``None`` of an operator that is not in the table."""
    name = func._schema.name.removeprefix("flashcliff::")
    backward = name.endswith("_backward")
    registered = _BY_NAME.get(name.removesuffix("_backward"))
    if registered is None:
        return None
    tensors, core, _ = registered.bound(args, backward)
    key = key_of(registered, args, backward)
    return Found(cost(key), _workspace(core, tensors, backward))


def _workspace(core: _core.Operator, given: Sequence[Tensor], backward: bool) -> int:
    views = [(0, tuple(tensor.shape), NAMES[tensor.dtype]) for tensor in given]
    device = given[0].device
    place = None if device.type == "cpu" else (device.index or 0, 0, False)
    return core.workspace_bytes(views, backward, place)


@contextlib.contextmanager
def layers(recorder: Any) -> Iterator[None]:
    """Tells a recorder of the compiled layers of transformers. They run, unless tensors are fake.

    Functions are exchanged for the whole process: one recorder at a time, for which others wait, and calls of threads
    that do not record run as they are.
    """
    with _EXCHANGED:
        yield from _exchanged(recorder)


def _exchanged(recorder: Any) -> Iterator[None]:
    before = equivariant._layer, equivariant._norm, equivariant.is_native
    compiled = {name: vars(equivariant)[name] for name in kernels.COMPILED}

    def is_native(x: Tensor) -> bool:
        if recorder.clock is None and isinstance(x, FakeTensor) and recorder.is_here():
            return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        return before[2](x)

    def layer(algebra: Any, group: str, unit: bool) -> Any:
        inner = before[0](algebra, group, unit)
        subject = Layer("equivariant_linear", algebra, group)
        return _Recorded(recorder, inner, subject) if recorder.is_here() else inner

    def norm(algebra: Any) -> Any:
        inner = before[1](algebra)
        if not recorder.is_here():
            return inner
        return _Recorded(recorder, inner, Layer("invariant_norm", algebra, None))

    equivariant._layer, equivariant._norm = layer, norm  # type: ignore[assignment]
    equivariant.is_native = is_native
    for name, describe in kernels.COMPILED.items():
        setattr(equivariant, name, _told(recorder, vars(equivariant)[name], describe))
    try:
        yield
    finally:
        equivariant._layer, equivariant._norm, equivariant.is_native = before
        vars(equivariant).update(compiled)


def _told(
    recorder: Any, inner: Callable[..., None], describe: Callable[..., tuple[Any, Tensor]]
) -> Callable[..., None]:
    """A compiled function whose calls are recorded."""

    def call(*arguments: Any) -> None:
        if not recorder.is_here():
            return inner(*arguments)
        key, _ = describe(*arguments)
        start = time.perf_counter()
        if recorder.clock is not None:
            inner(*arguments)
        recorder.layer(key, time.perf_counter() - start)

    return call


class _Recorded:
    """A compiled layer whose calls are recorded."""

    def __init__(self, recorder: Any, inner: Any, subject: Layer) -> None:
        self._recorder = recorder
        self._inner = inner
        self._subject = subject

    def output(self, *arguments: Any) -> None:
        self._run("output", "forward", (), arguments)

    def input_gradient(self, *arguments: Any) -> None:
        self._run("input_gradient", "backward", (True, False), arguments)

    def weight_gradient(self, *arguments: Any) -> None:
        self._run("weight_gradient", "backward", (False, True), arguments)

    def forward(self, *arguments: Any) -> None:
        self._run("forward", "forward", (), arguments)

    def backward(self, *arguments: Any) -> None:
        self._run("backward", "backward", (True,), arguments)

    def _run(
        self, name: str, phase: str, wanted: tuple[bool, ...], arguments: tuple[Any, ...]
    ) -> None:
        double, sizes = arguments[:2]
        dtype = "f64" if double else "f32"
        key = Key(self._subject, phase, (tuple(sizes),), dtype, "cpu", wanted)
        start = time.perf_counter()
        if self._recorder.clock is not None:
            getattr(self._inner, name)(*arguments)
        self._recorder.layer(key, time.perf_counter() - start)
