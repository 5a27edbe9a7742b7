"""Counterpart of flash-clifford's layer."""

from __future__ import annotations

from typing import Any

from torch import nn

from .. import flash_clifford


def _layer(m: Any) -> nn.Module:
    grades, _, features = m.linear_weight.shape
    return flash_clifford.Layer(features, grades - 1, m.normalize, m.gp_weight.dim() == 3)


LAYERS = {"Layer": _layer}
"""Makers of the counterparts of flash-clifford's layers, by class name."""
