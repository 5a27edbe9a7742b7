"""Measures the tables of linear maps in a module.

GATr and its copies divide each of the nine maps by its norm in float32, so their maps are ours times factors close to 1.
A comparison in float64 has to know these factors: without them it could not be closer than 1e-7.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from .structure import channels, is_linear, maps_of, scalars

__all__ = ["factors_of"]

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
    out, _ = linear(mv, mv.new_zeros(1, s) if s else None)
    return float(out[0, 0].sum()) / blades**0.5
