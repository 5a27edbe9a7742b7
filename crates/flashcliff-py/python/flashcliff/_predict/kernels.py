"""The kernels of transformers on CUDA within a recorded step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from .._ops import calls, items
from .._profile.kernels import places
from ..nn.transformer import geometry, packed

__all__ = ["kernels"]


@contextlib.contextmanager
def kernels(recorder: Any) -> Iterator[None]:
    """Tells a recorder of the kernels of transformers. They run, unless tensors are fake."""
    launch = items.launch

    def launched(x: Tensor, function: Callable[[items.Target], None]) -> None:
        if isinstance(x, FakeTensor):
            return
        if recorder.is_here():
            recorder.launch(lambda: launch(x, function))
        else:
            launch(x, function)

    swaps: list[tuple[Any, str, Any]] = [(items, "launch", launched)]
    for place, name, describe in places():
        swaps.append((place, name, _told(recorder, vars(place)[name], describe)))
    is_fake = recorder.clock is None
    if is_fake:
        # Constants that outlast the step are real.
        for place, name in ((packed, "table_of"), (geometry, "_cached")):
            swaps.append((place, name, _real(recorder, vars(place)[name])))
    with contextlib.ExitStack() as before:
        before.enter_context(calls.paused())
        for place, name, ours in swaps:
            before.callback(setattr, place, name, vars(place)[name])
            setattr(place, name, ours)
        if is_fake:
            before.enter_context(_fake_tensors_serve())
        yield


def _told(
    recorder: Any, inner: Callable[..., Any], describe: Callable[..., tuple[Any, Tensor]]
) -> Callable[..., Any]:
    """A function that launches kernels, whose calls a recorder is told of."""

    def call(*arguments: Any, **named: Any) -> Any:
        if not recorder.is_here():
            return inner(*arguments, **named)
        key, _ = describe(*arguments, **named)
        with recorder.kernel(key):
            return inner(*arguments, **named)

    return call


@contextlib.contextmanager
def _fake_tensors_serve() -> Iterator[None]:
    """Lets fake tensors pass for tensors with an address, which nothing reads."""
    packed.PLAIN.add(FakeTensor)
    FakeTensor.data_ptr = lambda self: 0  # type: ignore[method-assign]
    try:
        yield
    finally:
        del FakeTensor.data_ptr
        packed.PLAIN.discard(FakeTensor)


def _real(recorder: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes real tensors within a step of fake ones."""

    def call(*arguments: Any) -> Any:
        if not recorder.is_here():
            return function(*arguments)
        with _disable_current_modes():
            return function(*arguments)

    return call
