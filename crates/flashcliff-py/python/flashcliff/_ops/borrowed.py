"""Calls of operators on arrays that are borrowed by DLPack."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from .. import _core
from ..algebra import AlgebraLike, as_algebra
from .op import Op, operator

Array = Any

# Kinds of memory, by DLPack.
_CPU, _CUDA, _PINNED = 1, 2, 3

_DTYPES = ("f32", "f64", "bf16", "f16")


def call(
    op: Op, arrays: tuple[Array | None, ...], algebra: AlgebraLike, options: tuple[Any, ...]
) -> Array:
    """The output of an operator of the table, an array of the library of the first one."""
    core = operator(
        op, as_algebra(algebra).name, tuple(a is not None for a in arrays), options
    )
    return forward(core.name, core, op.named(arrays))[0]


def forward(
    operator: str, core: _core.Operator, given: Sequence[tuple[str, Array, bool]]
) -> list[Array]:
    """The outputs of a compiled operator, arrays of the library of the first one.

    Args:
        operator: the name of the operator, for messages.
        core: the operator; its outputs have a batch.
        given: its inputs: the name, the array, and whether it has a batch.
    """
    borrowed = [_Borrowed(operator, name, array) for name, array, _ in given]
    device = borrowed[0].device
    for (name, _, _), other in zip(given, borrowed):
        if other.device != device:
            raise RuntimeError(
                f"{operator}: expected all arrays on the same device, got `{given[0][0]}` on "
                f"{device} and `{name}` on {other.device}"
            )
    # Parameters have no batch.
    first = next(array for (_, _, lane), array in zip(given, borrowed) if lane)
    batch = first.shape[1:-1]
    views = []
    for (name, _, lane), array in zip(given, borrowed):
        shape = _flat(operator, name, array.shape, batch) if lane else array.shape
        views.append((array.address, shape, array.dtype))
    # The default stream, without rounding to TF32.
    ordinal = None if device == "cpu" else int(device.removeprefix("cuda:"))
    place = None if ordinal is None else (ordinal, 0, False)
    shapes, workspace_len = core.plan_run(views, place)
    sizes = [([shape[0], *batch, shape[2]], first.dtype) for shape in shapes]
    sizes.append(([-(-workspace_len // 4)], "f32"))
    made: list[_core.Array] = []
    try:
        made.extend(_core.Array(size, dtype, ordinal) for size, dtype in sizes)
    except MemoryError:
        if place is None:
            raise
        made.clear()
        raise MemoryError(core.no_room(views, False, place)) from None
    *outputs, workspace = made
    addresses: list[int | None] = [output.address for output in outputs]
    core.run(views, addresses, (workspace.address, workspace_len), place)
    outputs[0].synchronize()
    library = _library(given[0][1])
    return [library.from_dlpack(output) for output in outputs]


class _Borrowed:
    """The memory of an array, for as long as this lives."""

    def __init__(self, operator: str, name: str, array: Array) -> None:
        if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
            raise TypeError(
                f"{operator}: `{name}` must be an array with `__dlpack__`, got "
                f"{type(array).__name__}{_hint(array)}"
            )
        if hasattr(array, "is_deleted") and array.is_deleted():
            # JAX fails on its own None otherwise.
            raise BufferError(
                f"{operator}: cannot read `{name}` by DLPack: the array was deleted, or donated to another call; "
                "pass one that is still there"
            )
        if hasattr(array, "mask") and hasattr(array, "fill_value"):
            # Masked arrays of NumPy hand out their numbers without the mask.
            raise TypeError(
                f"{operator}: `{name}` must be an array without a mask, got "
                f"{type(array).__name__}; call its `filled()` first"
            )
        try:
            kind, ordinal = (int(number) for number in array.__dlpack_device__())
        except (BufferError, RuntimeError, ValueError) as error:
            raise _unreadable(operator, name, error) from None
        if kind in (_CPU, _PINNED):
            self.device = "cpu"
        elif kind == _CUDA:
            self.device = f"cuda:{ordinal}"
        else:
            raise _core.UnsupportedError(
                f"{operator}: `{name}` must be on the CPU or on CUDA, got device {kind} of DLPack"
            )
        try:
            if hasattr(array, "untyped_storage"):
                _check_storage(operator, name, array)
            self._read(array)
            if not self._contiguous:
                self._read(_contiguous(operator, name, array))
        except _core.UnsupportedError:
            raise
        except (BufferError, RuntimeError, TypeError) as error:
            raise _unreadable(operator, name, error) from None
        if self.dtype not in _DTYPES:
            raise TypeError(
                f"{operator}: tensor `{name}`: expected f32, f64, bf16 or f16, got {self.dtype}"
            )

    def _read(self, array: Array) -> None:
        if hasattr(array, "resolve_neg"):
            # A tensor of PyTorch may be a view of the negative, of which capsules say nothing.
            array = array.resolve_neg()
        # The array too: not every library lets its capsules keep the memory.
        self._array = array
        # 1 is the default stream of CUDA.
        stream = {} if self.device == "cpu" else {"stream": 1}
        try:
            self._capsule = array.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:
            self._capsule = array.__dlpack__(**stream)
        self.address, self.shape, self.dtype, _, self._contiguous = _core.read_dlpack(self._capsule)


def _hint(array: Any) -> str:
    """A remedy for an object of JAX without memory, which its transformations pass."""
    if type(array).__module__.partition(".")[0] not in ("jax", "jaxlib"):
        return ""
    return (
        " of JAX, which has no memory within jax.jit, jax.vmap and jax.grad: call the function of flashcliff.jax, "
        "which works there"
    )


def _check_storage(operator: str, name: str, tensor: Any) -> None:
    """Raises if a tensor of PyTorch lacks some of its memory. Arrays of other libraries need no PyTorch."""
    import torch

    from . import doors

    # PyTorch hands out no other layout.
    if tensor.layout is torch.strided:
        doors.check(operator, (tensor,), (name,))


def _unreadable(operator: str, name: str, error: Exception) -> BufferError:
    """The exception for an array that its library does not hand out; it says why."""
    return BufferError(f"{operator}: cannot read `{name}` by DLPack: {error}")


def _contiguous(operator: str, name: str, array: Array) -> Array:
    """A copy in C order."""
    if hasattr(array, "contiguous"):
        return array.contiguous()
    library = _library(array)
    if hasattr(library, "ascontiguousarray"):
        return library.ascontiguousarray(array)
    raise ValueError(f"{operator}: `{name}` must be contiguous in C order")


def _library(array: Array) -> Any:
    """The module of arrays like this one."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return importlib.import_module(type(array).__module__.partition(".")[0])


def _flat(
    operator: str, name: str, shape: tuple[int, ...], batch: tuple[int, ...]
) -> tuple[int, ...]:
    """The shape with one batch axis."""
    if len(shape) < 2 or shape[1:-1] != batch:
        expected = ", ".join(("blades", *map(str, batch), "channels"))
        raise ValueError(f"{operator}: tensor `{name}` must be [{expected}], got {list(shape)}")
    return shape[0], math.prod(batch), shape[-1]
