"""Records the operators that a step calls, below autograd: names, shapes, bytes, operations, and the memory that is held.

Tensors may be fake: then nothing is computed, and no memory is taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from .._ops import doors
from .._ops.tensor_types import NAMES
from . import ours
from .clock import Clock

Shapes = tuple[tuple[int, ...], ...]

_DTYPES = {name: str(dtype).removeprefix("torch.") for dtype, name in NAMES.items()}

_ONLY_MEMORY = frozenset(
    (
        "empty",
        "new_empty",
        "empty_like",
        "empty_strided",
        "new_empty_strided",
        "set_",
        "detach",
        "lift_fresh",
    )
)
"""Operators that move nothing."""


@dataclass(slots=True)
class Call:
    """A call of an operator."""

    name: str
    shapes: Shapes
    """The shapes of the tensors that it is given."""
    phase: str
    """``forward`` or ``backward``."""
    dtype: str
    bytes: int
    """The bytes that the call moves: each tensor once."""
    flops: int
    result: int
    """The bytes of what it makes."""
    seconds: float = 0.0
    """The time that it took; nothing for fake tensors."""

    @property
    def key(self) -> tuple[str, Shapes]:
        return self.name, self.shapes


class Held:
    """The memory of tensors, from their first use on until nobody has them."""

    def __init__(self) -> None:
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def add(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            reference = StorageWeakRef(storage)
            self._live[reference.cdata] = reference, storage.nbytes()

    def note(self, besides: int) -> None:
        """Notes what is held now, and some bytes that a call takes for itself."""
        for at in [at for at, (reference, _) in self._live.items() if reference.expired()]:
            del self._live[at]
        held = sum(size for _, size in self._live.values())
        self.peak = max(self.peak, held + besides)


class Recorder(TorchDispatchMode):
    """Records calls while it is entered.

    Args:
        clock: the clock of calls; ``None`` if tensors are fake.
    """

    def __init__(self, clock: Clock | None) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.held = Held()
        self.phase = "forward"
        self.clock = clock
        self._kernel: Call | None = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "prim":
            # Questions that fake tensors ask about others.
            return func(*args, **kwargs)
        reading = None if self.clock is None else self.clock.start()
        results = func(*args, **kwargs)
        given = tensors_of((args, kwargs))
        made = tensors_of(results)
        self.held.add(given)
        self.held.add(made)
        call, besides = self._call(func, args, kwargs, results, given, made)
        if self.clock is not None:
            self.clock.stop(reading, call)
        self.calls.append(call)
        self.held.note(besides)
        return results

    def is_here(self) -> bool:
        """Whether it is entered in the thread that asks. What is exchanged for it is so for the whole process, and calls of
        other threads must run as they are."""
        return any(mode is self for mode in _get_current_dispatch_mode_stack())

    def layer(self, key: Any, seconds: float) -> None:
        """Records a call of a compiled layer, which PyTorch's dispatcher does not see."""
        self.calls.append(self._of(key, seconds))
        self.held.note(0)

    @contextlib.contextmanager
    def kernel(self, key: Any) -> Iterator[None]:
        """Records a call of kernels of transformers, within which :meth:`launch` is called. Tensors that the call makes are
        calls of their own."""
        before, self._kernel = self._kernel, self._of(key, 0.0)
        self.calls.append(self._kernel)
        try:
            yield
        finally:
            self._kernel = before
        self.held.note(0)

    def launch(self, run: Callable[[], None]) -> None:
        """Launches kernels of the innermost call, and counts their time."""
        if self.clock is None or self._kernel is None:
            return run()
        reading = self.clock.start()
        run()
        self.clock.stop(reading, self._kernel)

    def _of(self, key: Any, seconds: float) -> Call:
        """A call that PyTorch's dispatcher does not see."""
        found = ours.cost(key)
        subject = key.subject
        name = getattr(subject, "name", None) or subject.op.name
        suffix = "_backward" if key.phase == "backward" else ""
        return Call(
            f"flashcliff.{name}{suffix}",
            key.shapes,
            self.phase,
            _DTYPES[key.dtype],
            found.bytes,
            found.flops,
            0,
            seconds,
        )

    def _call(self, func, args, kwargs, results, given, made) -> tuple[Call, int]:
        name = str(func._schema.name).replace("::", ".").removeprefix("aten.")
        shapes = tuple(tuple(tensor.shape) for tensor in given)
        dtype = str((given or made)[0].dtype).removeprefix("torch.") if given or made else ""
        besides = flops = 0
        found = ours.of(func, args) if name.startswith("flashcliff.") else None
        result = sum(map(_size, made))
        if found is not None:
            moved, flops = found.cost.bytes, found.cost.flops
            copied = sum(_size(tensor) for tensor in given if not tensor.is_contiguous())
            moved += 2 * copied
            besides = found.workspace + copied
        elif func.is_view or name in _ONLY_MEMORY:
            moved = 0
        else:
            moved = sum(map(_size, given)) + result
            count = flop_registry.get(func.overloadpacket)
            if count is not None:
                flops = int(count(*args, **kwargs, out_val=results))
        return Call(name, shapes, self.phase, dtype, moved, flops, result), besides


# Functions that it is told of need no dispatcher.
doors.PASSING.add(Recorder)


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists and dictionaries, in order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _size(tensor: Tensor) -> int:
    """The bytes of the elements, each once: an expanded tensor has fewer than its shape says."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        count *= size if stride or not size else 1
    return count * tensor.element_size()
