"""Counterpart of flash-clifford's layer, by its shape."""

from __future__ import annotations

from functools import partial
from typing import Any

from .. import flash_clifford
from .counterpart import Call, Counterpart, Draw, Form
from .structure import parameters

__all__ = ["FORMS"]


def _is_layer(m: Any) -> bool:
    return parameters(m).keys() == {"gp_weight", "linear_weight", "linear_bias"}


def _layer(m: Any) -> list[Counterpart]:
    grades, _, features = m.linear_weight.shape
    connected = m.gp_weight.dim() == 3

    def calls(draw: Draw) -> list[Call]:
        return [([draw(2 ** (grades - 1), 6, features)], {})]

    # It says whether it normalises; a copy may call that otherwise.
    first = bool(getattr(m, "normalize", True))
    kind = partial(flash_clifford.Layer, features, grades - 1)
    return [Counterpart(partial(kind, norm, connected), calls) for norm in (first, not first)]


FORMS = [Form("a layer of linear map, product, gate and norm", _is_layer, _layer)]
"""flash-clifford's layer."""
