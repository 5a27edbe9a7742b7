"""The maps of rotors as operators, which compute in float64."""

from __future__ import annotations

from math import inf, nan

import torch
from torch import Tensor

from .._ops import derived, own
from .._ops.marks import constant


def result_of(map: str, algebra: str, like: Tensor, odd: bool = False) -> Tensor | None:
    """The result of a map of one tensor, in the type of the tensor; ``None`` if the algebra has no blades of a grade that the map reads
    or writes.

    Args:
        map: ``exp``, ``log``, ``inverse`` or ``normalized``.
        algebra: the name of the algebra.
        like: the tensor, ``[blades, *batch, channels]``.
        odd: whether versors have the odd grades.
    """
    found = _applied(map, algebra, odd, x=like)
    return None if found is None else _rounded(found, like.dtype)


def interpolated(algebra: str, a: Tensor, b: Tensor, t: Tensor | float, odd: bool) -> Tensor | None:
    """``a exp(t log(reverse(a) b))``, in the type of ``a``; ``None`` if the algebra has no versors of the parity.

    The gradient of one operator for all of it would hold so many values at once that a GPU keeps them in memory.
    """
    start = _applied("normalized", algebra, odd, x=a)
    end = _applied("normalized", algebra, odd, x=b)
    if start is None or end is None:
        return None
    step = _applied("between", algebra, odd, a=start, b=end)
    if step is None:
        # Nothing lies between versors of a line.
        found: Tensor | None = torch.where(end.isnan(), end, start)
    else:
        places = torch.ones_like(start[:1]) * t
        found = _applied("along", algebra, odd, a=start, t=places, B=step)
    return None if found is None else _rounded(found, a.dtype)


def _applied(map: str, algebra: str, odd: bool, **given: Tensor) -> Tensor | None:
    """The result of a map in float64."""
    key = _key(map, algebra, odd)
    if key is None:
        return None
    arguments = [(name, tensor.to(torch.float64), True) for name, tensor in given.items()]
    return own.call(map, key, arguments)[0]


@constant
def _key(map: str, algebra: str, odd: bool) -> str | None:
    return derived.rotor_key(map, algebra, odd)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A result in a type. Items with a part that is larger than any number of the type are NaN and have no gradient, as all without a
    result."""
    if dtype == torch.float64:
        return x
    x = x.to(dtype)
    return x.masked_fill(~(x.detach().abs().amax(0) < inf), nan)
