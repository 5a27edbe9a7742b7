"""Tells the form of a module from its structure."""

from __future__ import annotations

from torch import nn

from . import blocks, cgenn, flash_clifford, layers, networks, slim
from .counterpart import Form

__all__ = ["form_of", "why_not"]

# The largest first: a network before what it contains.
_FORMS = [
    *slim.FORMS,
    *networks.FORMS,
    *reversed(blocks.FORMS),
    *cgenn.FORMS,
    *flash_clifford.FORMS,
    *layers.FORMS,
]

# What classes of these names have in every known version. Names are used for nothing but these reports.
_NAMED = {
    "GATr": "linear_in",
    "AxialGATr": "linear_in",
    "LGATr": "linear_in",
    "ConditionalLGATr": "linear_in",
    "LGATrSlim": "linear_in",
    "ConditionalLGATrSlim": "linear_in",
    "GATrBlock": "attention",
    "EquiLinear": "weight",
    "GeometricBilinear": "linear_left",
    "CEMLP": "algebra",
    "EGCL": "edge_model",
    "MVLinear": "algebra",
    "MVSiLU": "algebra",
    "MVLayerNorm": "algebra",
    "NormalizationLayer": "algebra",
    "SteerableGeometricProductLayer": "algebra",
    "FullyConnectedSteerableGeometricProductLayer": "algebra",
}


def form_of(module: nn.Module) -> Form | None:
    """The form of a module, or ``None``."""
    return next((form for form in _FORMS if _matches(form, module)), None)


def _matches(form: Form, module: nn.Module) -> bool:
    # Modules may raise anything when they are looked at.
    try:
        return bool(form.matches(module))
    except Exception:
        return False


def why_not(module: nn.Module) -> str | None:
    """Why a module whose class is called as one of a known package has no known form; ``None`` for all others."""
    name = type(module).__name__
    expected = _NAMED.get(name.removeprefix("Parametrized"))
    if expected is None:
        return None
    if "parametrizations" in module._modules:
        return "it has parametrizations, which would be lost"
    if not hasattr(module, expected):
        return f"it is called as a known layer, and has no `{expected}` as that has"
    return "it is called as a known layer, and its parameters and modules are not those of one"
