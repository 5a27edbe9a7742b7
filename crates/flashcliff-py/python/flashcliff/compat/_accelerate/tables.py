"""Takes the roundings to float32 out of a module, without which a comparison in float64 could not be closer than 1e-7.

GATr and its copies divide each of the nine maps by its norm in float32, so their maps are ours times factors close to 1,
which are measured. Numbers in buffers, and the frequencies of rotary positions, are made exact.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from .structure import channels, is_linear, maps_of, number, scalars

__all__ = ["factors_of", "widen"]

# How many blades each map moves. Each of them gets 1 over the root of that count.
_BLADES = 1, 4, 6, 4, 1, 1, 3, 3, 1
# Roundings to float32 and their products.
_CLOSE = 1e-6


def factors_of(module: nn.Module) -> Tensor | None:
    """The factors of the nine maps in a module's linear layers, ``[9]``; ``None`` where they are exact or are no such
    roundings, which a comparison then finds.

    Args:
        module: a module in float64, which may be run.
    """
    if maps_of(module) != 9:
        return None
    linear: Any = copy.deepcopy(next(m for m in module.modules() if is_linear(m)))
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.zero_()
        # A layer may take other input; the comparison says whether that matters.
        try:
            factors = [_factor(linear, a, n) for a, n in enumerate(_BLADES)]
        except Exception:
            return None
    found = torch.tensor(factors, dtype=torch.float64)
    return found if 0 < float((found - 1).abs().max()) < _CLOSE else None


def _factor(linear: Any, index: int, blades: int) -> float:
    weight = linear.weight
    weight.zero_()
    weight[0, 0, index] = 1
    mv = torch.ones(1, channels(linear)[0], 16, dtype=weight.dtype, device=weight.device)
    s = scalars(linear)[0]
    out, _ = linear(mv, mv.new_zeros(1, s)) if s else linear(mv)
    return float(out[0, 0].sum()) / blades**0.5


def widen(module: nn.Module) -> nn.Module:
    """Makes float64 of a module: of its parameters, its buffers, and of tensors that are neither, in which copies of
    packages keep their tables. What was rounded to float32 in buffers becomes exact.

    Returns:
        The same module.
    """
    for inner in module.double().modules():
        for buffer in inner._buffers.values():
            if buffer is not None and buffer.is_floating_point():
                _make_exact(buffer)
        for name, value in vars(inner).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                vars(inner)[name] = value.double()
    return module


def _make_exact(buffer: Tensor) -> None:
    value = number(buffer) if buffer.dim() == 0 else None
    if value is not None:
        buffer.fill_(value)
    elif buffer.dim() == 1 and len(buffer) > 1 and buffer[0] == 1 and buffer[1] > 0:
        # Frequencies base^(-c / n) for c = 0, 1, ..., n - 1, with an integer base.
        base = round(float(1 / buffer[1]) ** len(buffer))
        exact = float(base) ** (-torch.arange(len(buffer)).to(buffer) / len(buffer))
        if torch.allclose(exact, buffer, rtol=_CLOSE, atol=0):
            buffer.copy_(exact)
