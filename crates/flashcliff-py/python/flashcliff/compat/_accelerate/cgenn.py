"""Counterparts of CGENN's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .. import cgenn
from .counterpart import Call, Counterpart, Draw, NotReplaced


def _normalization(module: Any) -> float | None:
    return None if isinstance(module.normalization, nn.Identity) else 0.0


def _both(m: Any, kind: Callable[..., nn.Module], *names: str, **others: Any) -> Counterpart:
    """A counterpart whose arguments after the algebra are those of CGENN's layer: its attributes of these names, and others.
    The first is the number of input channels."""
    theirs = m.algebra
    arguments = {name: getattr(m, name) for name in names} | others
    features = next(iter(arguments.values()))
    metric = theirs.metric.tolist()

    def fresh() -> nn.Module:
        if type(theirs).__qualname__ != "CliffordAlgebra":
            raise NotReplaced(
                f"`algebra` is a {type(theirs).__qualname__}, whose changes are not known"
            )
        # CGENN's algebra computes in the default type, and keeps the type of its metric.
        return type(m)(type(theirs)(metric), **arguments)

    def calls(draw: Draw) -> list[Call]:
        return [([draw(6, features, 2 ** len(metric))], {})]

    return Counterpart(lambda: kind(cgenn.CliffordAlgebra(metric), **arguments), fresh, calls)


def _linear(m: Any) -> Counterpart:
    names = "in_features", "out_features", "subspaces"
    return _both(m, cgenn.MVLinear, *names, bias=m.bias is not None)


def _product(m: Any) -> Counterpart:
    names = "features", "include_first_order"
    norm = {"normalization_init": _normalization(m)}
    return _both(m, cgenn.SteerableGeometricProductLayer, *names, **norm)


def _connected(m: Any) -> Counterpart:
    names = "in_features", "out_features", "include_first_order"
    norm = {"normalization_init": _normalization(m)}
    return _both(m, cgenn.FullyConnectedSteerableGeometricProductLayer, *names, **norm)


def _silu(m: Any) -> Counterpart:
    return _both(m, cgenn.MVSiLU, "channels", "invariant", "exclude_dual")


def _layer_norm(m: Any) -> Counterpart:
    return _both(m, cgenn.MVLayerNorm, "channels")


def _normalization_layer(m: Any) -> Counterpart:
    return _both(m, cgenn.NormalizationLayer, features=m.in_features)


LAYERS = {
    "MVLinear": _linear,
    "SteerableGeometricProductLayer": _product,
    "FullyConnectedSteerableGeometricProductLayer": _connected,
    "MVSiLU": _silu,
    "MVLayerNorm": _layer_norm,
    "NormalizationLayer": _normalization_layer,
}
"""Makers of the counterparts of CGENN's layers, by class name."""
