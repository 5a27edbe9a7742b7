"""Reads and writes CGENN's state dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ... import nn
from ...algebra import Algebra
from .algebra import CliffordAlgebra, metric_of

_COUNTERPARTS = (
    nn.FullyConnectedSteerableGeometricProduct,
    nn.GradeNorm,
    nn.MVLayerNorm,
    nn.MVLinear,
    nn.MVSiLU,
    nn.PointEmbedding,
    nn.SteerableGeometricProduct,
)


def load_state_dict(
    module: torch.nn.Module, state_dict: Mapping[str, Any], strict: bool = True
) -> Any:
    """Loads the state dict of a CGENN layer or model into its counterpart here.

    CGENN stores the tables of its algebra with the parameters (``algebra.cayley``,
    ``net.0.algebra.metric``, ...), and models may store metrics (``train_metrics.``,
    ``val_metrics.``, ``test_metrics.``). Tables and metrics are left out, but a metric of the algebra that is not the module's is an error.

    Args:
        module: a module of :mod:`flashcliff.nn` or of this one.
        state_dict: CGENN's.
        strict: as for :meth:`torch.nn.Module.load_state_dict`.

    Returns:
        The result of :meth:`torch.nn.Module.load_state_dict`.

    Raises:
        ValueError: the state dict is of another metric.
        RuntimeError: names or shapes do not match, with ``strict``.
        TypeError: the state dict is not a mapping.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict: expected a mapping, got {type(state_dict).__name__}")
    algebras = {_tables_of(m) for m in module.modules() if isinstance(m, nn.CliffordModule)}
    algebras |= {own for m in module.modules() if isinstance(own := vars(m).get("algebra"), Algebra)}
    expected = [metric_of(algebra) for algebra in algebras]
    # A module with its own tables keeps them.
    values = {name: value for name, value in module.state_dict().items() if _of_algebra(name)}
    for name, value in state_dict.items():
        if _of_algebra(name):
            if not name.endswith(".metric"):
                continue
            metric = value.tolist() if isinstance(value, Tensor) else value
            if metric not in expected:
                raise ValueError(
                    f"{name}: expected the metric {' or '.join(map(str, expected))}, got {metric}"
                )
        elif name.split(".")[0] not in ("train_metrics", "val_metrics", "test_metrics"):
            values[name] = value
    return module.load_state_dict(values, strict=strict)


def state_dict(module: torch.nn.Module) -> dict[str, Tensor]:
    """The state dict of a layer or model as CGENN's counterpart of it loads it, strictly.

    The parameters are the same as in ``module.state_dict()``. Where a module has an attribute ``algebra``,
    the six tables of CGENN's algebra are added; modules with a :class:`CliffordAlgebra` have them
    already.

    Raises:
        ValueError: a part of the module has no counterpart in CGENN.
    """
    values = dict(module.state_dict())
    device = next((tensor.device for tensor in values.values()), torch.device("cpu"))
    tables: dict[Algebra, dict[str, Tensor]] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, nn.CliffordModule):
            _check_counterpart(name, part)
        algebra = vars(part).get("algebra")
        if not isinstance(algebra, Algebra):
            continue
        if algebra not in tables:
            tables[algebra] = CliffordAlgebra(metric_of(algebra)).to(device).state_dict()
        prefix = f"{name}.algebra" if name else "algebra"
        values |= {f"{prefix}.{key}": value.clone() for key, value in tables[algebra].items()}
    return values


def _tables_of(module: nn.CliffordModule) -> Algebra | CliffordAlgebra:
    given: Any = module.algebra
    return given if isinstance(given, CliffordAlgebra) else module._algebra


def _of_algebra(name: str) -> bool:
    """Whether a key is a table of an algebra."""
    return "algebra" in name.split(".")[:-1]


def _check_counterpart(name: str, part: nn.CliffordModule) -> None:
    known = isinstance(part, _COUNTERPARTS)
    if isinstance(part, nn.MVLinear):
        known = part.grades is None and part.bias_mode == "scalar"
    if not known:
        raise ValueError(
            f"{name or 'module'}: CGENN has no counterpart of {type(part).__name__}"
            f"({part.extra_repr()})"
        )
