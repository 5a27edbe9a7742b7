"""Checks of the tensors that functions of rotors take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._ops import checks, doors
from .._ops.marks import constant
from .._ops.run import refuse_sparse_and_nested
from ..algebra import Algebra, AlgebraLike, as_algebra, by_name
from ..errors import UnsupportedError

LARGEST_DIM = 5
"""The most dimensions. From six on the square of a bivector does not generate a ring of two dimensions."""

PARITIES = ((0, 2, 4), (1, 3, 5))
"""The even and the odd grades of up to five dimensions."""


@constant
def grades_by_blade(algebra: str) -> tuple[int, ...]:
    """The grade of each blade."""
    return by_name(algebra).grades


def blades_of(algebra: str, grades: tuple[int, ...]) -> tuple[int, ...]:
    """The blades of some grades, as far as the algebra has them."""
    return tuple(index for index, grade in enumerate(grades_by_blade(algebra)) if grade in grades)


def supported(function: str, algebra: Algebra) -> Algebra:
    """The algebra, if it has few enough dimensions."""
    if algebra.dim > LARGEST_DIM:
        raise UnsupportedError(
            f"{function}: expected an algebra of at most {LARGEST_DIM} dimensions, got {algebra!r}, of {algebra.dim}"
        )
    return algebra


_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_kind(
    function: str, argument: str, x: Any, types: tuple[torch.dtype, ...] = _TYPES
) -> None:
    """Checks that something is a dense tensor with elements of some types."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}: `{argument}` must be a torch.Tensor, got {type(x).__name__}")
    refuse_sparse_and_nested(function, argument, x)
    if x.dtype not in types:
        remedy = "" if x.dtype.is_complex or x.is_quantized else f"; call `{argument}.float()`"
        raise TypeError(
            f"{function}: `{argument}` must have real floating-point elements, got {x.dtype}{remedy}"
        )
    doors.check_open(function, (x,), (argument,))


def check_device(function: str, like: str, first: Tensor, argument: str, x: Tensor) -> None:
    """Checks that a tensor is where the first one is; a tensor of no axes may be elsewhere, as a number is."""
    if x.device != first.device and x.dim():
        raise RuntimeError(
            f"{function}: expected all tensors on the same device, got {like} on {first.device}, "
            f"{argument} on {x.device}; move them with `.to(device)`"
        )


def check_position(function: str, argument: str, x: Tensor, like: str, first: Tensor) -> None:
    """Checks that a tensor has a number for each item of multivectors, or for several."""
    check_kind(function, argument, x, (*_TYPES, *_INTEGERS))
    check_device(function, like, first, argument, x)
    if not _broadcasts(x.shape, first.shape[1:]):
        raise ValueError(
            f"{function}: `{argument}` must broadcast to {list(first.shape[1:])}, got {list(x.shape)}"
        )


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    """Whether a shape broadcasts to another and leaves it as it is."""
    sizes = zip(reversed(shape), reversed(to))
    return len(shape) <= len(to) and all(size in (1, wanted) for size, wanted in sizes)


def check(function: str, argument: str, x: Any, blades: int, what: str) -> None:
    """Checks that something is a tensor of multivectors with so many blades."""
    check_kind(function, argument, x)
    if x.dim() < 2 or x.shape[0] != blades:
        raise ValueError(
            f"{function}: `{argument}` must be [{blades}, *batch, channels], the {what} first, got {list(x.shape)}"
        )


def check_bivectors(function: str, argument: str, x: Any, algebra: AlgebraLike) -> str:
    """Checks that something is a tensor of bivectors. Gives the name of the algebra."""
    name = supported(function, as_algebra(algebra)).name
    check(function, argument, x, len(blades_of(name, (2,))), "blades of bivectors")
    return name


def check_versors(
    function: str, argument: str, x: Any, algebra: AlgebraLike, odd: bool = False
) -> str:
    """Checks that something is a tensor of versors of a parity. Gives the name of the algebra."""
    name = supported(function, as_algebra(algebra)).name
    checks.flag("odd", odd)
    what = f"blades of {'odd' if odd else 'even'} grades"
    check(function, argument, x, len(blades_of(name, PARITIES[int(odd)])), what)
    return name
