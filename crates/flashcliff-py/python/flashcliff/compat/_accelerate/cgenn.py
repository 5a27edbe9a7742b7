"""Counterparts of CGENN's layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from .. import cgenn


def _algebra(module: Any) -> Any:
    """CGENN's algebra as ours, a module with the same buffers."""
    return cgenn.CliffordAlgebra(module.algebra.metric.tolist())


def _normalization(module: Any) -> float | None:
    return None if isinstance(module.normalization, nn.Identity) else 0.0


def _linear(m: Any) -> nn.Module:
    return cgenn.MVLinear(
        _algebra(m), m.in_features, m.out_features, m.subspaces, m.bias is not None
    )


def _product(m: Any) -> nn.Module:
    return cgenn.SteerableGeometricProductLayer(
        _algebra(m), m.features, m.include_first_order, _normalization(m)
    )


def _connected(m: Any) -> nn.Module:
    return cgenn.FullyConnectedSteerableGeometricProductLayer(
        _algebra(m), m.in_features, m.out_features, m.include_first_order, _normalization(m)
    )


def _silu(m: Any) -> nn.Module:
    return cgenn.MVSiLU(_algebra(m), m.channels, m.invariant, m.exclude_dual)


def _layer_norm(m: Any) -> nn.Module:
    return cgenn.MVLayerNorm(_algebra(m), m.channels)


def _normalization_layer(m: Any) -> nn.Module:
    return cgenn.NormalizationLayer(_algebra(m), m.in_features)


LAYERS = {
    "MVLinear": _linear,
    "SteerableGeometricProductLayer": _product,
    "FullyConnectedSteerableGeometricProductLayer": _connected,
    "MVSiLU": _silu,
    "MVLayerNorm": _layer_norm,
    "NormalizationLayer": _normalization_layer,
}
"""Makers of the counterparts of CGENN's layers, by class name."""
