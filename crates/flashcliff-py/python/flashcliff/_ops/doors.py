"""The one place that says whether tensors may be read and written by their addresses.

An address is only worth asking for where a call runs at once, on memory that is there. It does not while something follows the calls of
operators instead: ``torch.compile``, a trace, a transform, a mode such as that of fake tensors, derivatives in forward mode. And a
tensor may be without memory: fake, functional, batched, of a subclass that wraps others, or with a storage that was resized.

Callers ask :func:`closed` or :func:`opens`, and compute by operations of PyTorch where addresses may not be taken. Where they are
taken, :func:`hold` or :func:`check` looks at the memory itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import checkpoint
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .. import _core
from . import native
from .layouts import PLAIN

__all__ = [
    "PLAIN",
    "addresses",
    "at_once",
    "check",
    "check_open",
    "closed",
    "composes",
    "follows",
    "has_memory",
    "hold",
    "is_known_zero",
    "lies_in_memory",
    "opens",
    "opens_on_cuda",
    "place",
    "refuse",
]

_PASSING = frozenset(
    getattr(checkpoint, name)
    for name in ("_CachingTorchDispatchMode", "_CachedTorchDispatchMode")
    if hasattr(checkpoint, name)
)
"""The modes of checkpoints: they run all operators on real tensors and need to see none of ours."""

_NOTHING = type(None)
_KINDS = tuple(PLAIN)

_compiles = torch.compiler.is_compiling
_transforms = torch._C._are_functorch_transforms_active
_trace = torch._C._get_tracing_state
_modes = torch._C._len_torch_dispatch_stack
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


def follows() -> bool:
    """Whether something follows the calls of operators, and must not miss one: a mode, a transform, a trace."""
    return bool(_modes() or _transforms() or _trace())


def closed() -> bool:
    """Whether no tensor may be read or written by its address now."""
    return _compiles() or _is_watched()


def composes(*tensors: Tensor | None) -> bool:
    """Whether a function of tensors must be composed of operators that all modes, transforms and traces know.

    ``torch.compile`` is none of these: it traces functions of autograd as they are.
    """
    if _compiles():
        return False
    if _is_watched():
        return True
    try:
        if 0 not in [t.data_ptr() for t in tensors if t is not None]:
            return False
    except RuntimeError:
        pass
    return not all(t is None or lies_in_memory(t) for t in tensors)


def _is_watched() -> bool:
    if _transforms() or forward_ad._current_level >= 0 or _trace():
        return True
    return bool(_modes()) and not _PASSING.issuperset(map(type, _get_current_dispatch_mode_stack()))


def opens(*tensors: Tensor | None) -> bool:
    """Whether tensors on the CPU or a GPU may be read by their addresses now; the memory of a storage is looked at by :func:`hold`."""
    if _compiles() or _is_watched():
        return False
    if native.loaded is not None and native.loaded.hold(tensors):
        return True
    for tensor in tensors:
        kind = type(tensor)
        if kind is not _NOTHING and (kind not in PLAIN or not lies_in_memory(tensor)):  # type: ignore[arg-type]
            return False
    return True


def opens_on_cuda(tensor: Tensor) -> bool:
    """Whether a tensor is on CUDA, and may be read by its address."""
    return tensor.is_cuda and opens(tensor)


def lies_in_memory(tensor: Tensor) -> bool:
    """Whether a tensor is an array of numbers. Tensors without data are not, nor are tensors that are batched by a transform,
    functional, sparse, nested or known to be zero."""
    try:
        # A tensor without its own memory has no address, or 0.
        there = tensor.data_ptr() != 0
    except RuntimeError:
        return False
    if there:
        return True
    odd = tensor.is_meta or _is_wrapped(tensor) or torch._is_functional_tensor(tensor)
    return not (odd or torch._is_zerotensor(tensor))


def is_known_zero(*tensors: Tensor) -> bool:
    """Whether PyTorch knows one of the tensors to be zero and gives it no memory."""
    return not _compiles() and any(map(torch._is_zerotensor, tensors))


def hold(tensors: Sequence[Tensor | None]) -> bool:
    """Whether all tensors have their memory."""
    if native.loaded is not None and native.loaded.hold(tensors):
        return True
    for tensor in tensors:
        if tensor is not None and not place(tensor) and not has_memory(tensor):
            return False
    return True


Addresses = tuple[Sequence[Tensor | None], Sequence[int]]
"""Tensors in the order of their memory, which must live until a call returns, and their addresses."""


def addresses(what: str, tensors: Sequence[Tensor | None]) -> Addresses | None:
    """The addresses of tensors of the type and on the device of the first, 0 for ``None``; nothing if one is of a subclass, or
    does not have its own memory.

    Args:
        what: the layer, for errors.
        tensors: the tensors, of which the first is one.
    """
    if native.loaded is not None:
        found = native.loaded.addresses(tensors)
        if found is not None:
            return tensors, found
    found = at_once(tensors)
    if found is not None:
        return tensors, found
    kept: list[Tensor | None] = []
    places: list[int] = []
    first: Tensor = tensors[0]  # type: ignore[assignment]
    dtype, device = first.dtype, first.device
    for tensor in tensors:
        if tensor is None:
            kept.append(None)
            places.append(0)
            continue
        if type(tensor) not in PLAIN or not lies_in_memory(tensor):
            return None
        if tensor.dtype is not dtype or tensor.device != device:
            raise TypeError(
                f"{what}: expected all tensors and parameters of type {dtype} on {device}, got {tensor.dtype} on "
                f"{tensor.device}; convert the module or the inputs with `.to()`"
            )
        if not has_memory(tensor):
            refuse(what, tensors)
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
        if tensor.is_neg():
            tensor = tensor.resolve_neg()
        kept.append(tensor)
        places.append(tensor.data_ptr())
    return kept, places


def at_once(
    tensors: Sequence[Tensor | None], shapes: Sequence[torch.Size] | None = None
) -> list[int] | None:
    """The addresses of real tensors of one type on one device, as most are: contiguous and with all of their memory, of shapes if these are
    given. ``None`` if one is none of these, or has no elements."""
    return _core.addresses(tensors, _KINDS, shapes)


def place(tensor: Tensor) -> int:
    """The address of a contiguous tensor whose storage has all of its elements; 0 for any other, and for one without elements.

    Most tensors are such ones, and this asks the fewest questions.
    """
    if not tensor.is_contiguous():
        return 0
    try:
        size, start = tensor.nbytes, tensor.storage_offset()
        if start:
            size += int(start) * tensor.itemsize
        return tensor.data_ptr() if tensor.untyped_storage().nbytes() >= size else 0
    except RuntimeError:
        return 0


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor lies in memory, and its storage has all of its elements."""
    size = int(tensor.nbytes)
    if size == 0:
        return True
    if tensor.is_contiguous():
        start = tensor.storage_offset()
        if start:
            size += int(start) * tensor.itemsize
    else:
        size = _bytes(tensor)
    return tensor.untyped_storage().nbytes() >= size and tensor.data_ptr() != 0


def _bytes(tensor: Tensor) -> int:
    """The bytes of a storage that has all elements of a tensor."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return int(tensor.storage_offset() + last + 1) * tensor.itemsize


def check(what: str, tensors: Sequence[Tensor | None], names: Sequence[str] = ()) -> None:
    """Raises unless all tensors have their memory.

    Args:
        what: the operator or the layer, for errors.
        tensors: the tensors.
        names: their names.
    """
    if not hold(tensors):
        refuse(what, tensors, names)


def check_open(what: str, tensors: Sequence[Tensor | None], names: Sequence[str] = ()) -> None:
    """:func:`check` of tensors that PyTorch reads, which may be of any kind: its kernels read a storage that was resized, too."""
    if _compiles():
        return
    if native.loaded is not None and native.loaded.hold(tensors):
        return
    if opens(*tensors):
        check(what, tensors, names)


def refuse(what: str, tensors: Sequence[Tensor | None], names: Sequence[str] = ()) -> NoReturn:
    """Raises an error that names the tensor without memory."""
    at, tensor = next(
        (at, tensor)
        for at, tensor in enumerate(tensors)
        if tensor is not None and not has_memory(tensor)
    )
    name = f"`{names[at]}`" if at < len(names) else "a tensor or a parameter"
    needed, there = _bytes(tensor), tensor.untyped_storage().nbytes()
    if there >= needed:
        raise _core.UnsupportedError(
            f"{what}: expected tensors with memory, got {name} {list(tensor.shape)} without an address; a functional tensor, or "
            "one that is known to be zero, must be made an ordinary one first"
        )
    raise _core.UnsupportedError(
        f"{what}: expected tensors with memory, got {name} {list(tensor.shape)}, which needs {needed} bytes of a storage that has "
        f"{there}; storages that were resized, as sharded training does with parameters out of use, must be filled before the "
        "call"
    )
