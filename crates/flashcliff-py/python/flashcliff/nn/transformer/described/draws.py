"""The random numbers of dropout in a call of a function.

PyTorch draws one number for each call; what is dropped follows from it, from the place of a layer in the call, and from the place
of a grade or scalar, as `flashcliff::dropout` says. So the backward pass drops the same without a mask, and so do layers that
compute gradients of gradients.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

__all__ = ["Draw", "draw_of", "draw_on", "drawn", "drawing", "number_on"]

Draw = Tensor | int
"""The number of a call below 2^31: on a GPU an int32 in its memory."""

_KEY = 0
"""The key of all calls, as the extension has it."""
# Tensors have 64 bits with a sign, and wrap.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64)


class _State(threading.local):
    draw: Draw | None = None
    place = 0


_STATE = _State()


def number_on(device: torch.device) -> Tensor:
    """The number of a call in memory, from the generator of PyTorch for a device."""
    return torch.randint(0, 2**31 - 1, (1,), dtype=torch.int32, device=device)


def draw_of(number: Tensor) -> Draw:
    """The number of a call as its function takes it."""
    return int(number) if number.is_cpu else number


def draw_on(device: torch.device) -> Draw:
    """The number of a call, from the generator of PyTorch for a device."""
    return draw_of(number_on(device))


@contextlib.contextmanager
def drawing(draw: Draw | None) -> Iterator[None]:
    """A context in which layers drop what a function with this number dropped. They are called in the order of its steps."""
    before = _STATE.draw, _STATE.place
    _STATE.draw, _STATE.place = draw, 0
    try:
        yield
    finally:
        _STATE.draw, _STATE.place = before


def drawn(
    p: float, batch: Sequence[int], grades: tuple[int, int], scalars: int, like: Tensor
) -> tuple[Tensor, Tensor] | None:
    """The factors of the next layer that drops, ``[*batch, grades, channels]`` and ``[*batch, scalars]``; ``None`` outside of
    :func:`drawing`.

    Args:
        p: the probability.
        batch: the axes of items.
        grades: grades that are dropped apart, and channels of each.
        scalars: channels of scalars.
        like: a tensor of the type and on the device of the factors.
    """
    if _STATE.draw is None:
        return None

    def number(x: Draw) -> Tensor:
        return torch.as_tensor(x, device=like.device).to(torch.int64)

    own = _number(number(_KEY), number(_STATE.place))
    _STATE.place += 1
    width, rows = grades[0] * grades[1] + scalars, torch.Size(batch).numel()
    at = torch.arange(rows * width, device=like.device)
    numbers = _shifted(_number(_number(own, number(_STATE.draw)), at), 32)
    factors = (numbers >= round(p * 2**32)).to(like.dtype) * (1 / (1 - p))
    of_rows = factors.view(*batch, width)
    of_grades = of_rows[..., : width - scalars].unflatten(-1, grades)
    return of_grades, of_rows[..., width - scalars :]


def _number(seed: Tensor, at: Tensor) -> Tensor:
    """A number of the stream of a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    z = seed + (at + 1) * _GAMMA
    for shift, factor in _FACTORS:
        z = (z ^ _shifted(z, shift)) * factor
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, count: int) -> Tensor:
    """The 64 bits of numbers, shifted to the right, with zeros on the left."""
    return (z >> count) & ((1 << (64 - count)) - 1)
