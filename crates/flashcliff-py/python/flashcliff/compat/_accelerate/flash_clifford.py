"""Counterpart of flash-clifford's layer."""

from __future__ import annotations

from typing import Any

from .. import flash_clifford
from .counterpart import Call, Counterpart, Draw


def _layer(m: Any) -> Counterpart:
    grades, _, features = m.linear_weight.shape
    arguments = features, grades - 1, m.normalize, m.gp_weight.dim() == 3

    def calls(draw: Draw) -> list[Call]:
        return [([draw(2 ** (grades - 1), 6, features)], {})]

    return Counterpart(lambda: flash_clifford.Layer(*arguments), lambda: type(m)(*arguments), calls)


LAYERS = {"Layer": _layer}
"""Makers of the counterparts of flash-clifford's layers, by class name."""
