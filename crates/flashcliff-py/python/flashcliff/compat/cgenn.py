"""CGENN's layers with its names, arguments and layout, and its state dicts.

CGENN's tensors are ``[batch, channels, ..., blades]``, flashcliff's ``[blades, batch, ...,
channels]``. The layers here take and give CGENN's layout; between two of them nothing is copied,
since what they give is a view. Parameters are those of :mod:`flashcliff.nn`.

    layer = cgenn.SteerableGeometricProductLayer(cgenn.CliffordAlgebra((1, 1, 1)), 16)
    cgenn.load_state_dict(layer, torch.load("theirs.pt"))

:func:`load_state_dict` fills the layers and models of :mod:`flashcliff.nn` as well.

Source: github.com/DavidRuhe/clifford-group-equivariant-neural-networks (arXiv 2305.11141).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import nn
from ..algebra import Algebra

__all__ = [
    "CliffordAlgebra",
    "FullyConnectedSteerableGeometricProductLayer",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "NormalizationLayer",
    "SteerableGeometricProductLayer",
    "from_cgenn",
    "load_state_dict",
    "to_cgenn",
]

Device = torch.device | str | None


def CliffordAlgebra(metric: Sequence[float]) -> Algebra:  # noqa: N802, the original's name
    """The algebra of a metric, in flashcliff's order: zeros, then ones, then minus ones."""
    signs = [float(sign) for sign in metric]
    p, q, r = (signs.count(sign) for sign in (1.0, -1.0, 0.0))
    if signs != _metric_of(p, q, r):
        raise ValueError(
            "metric: expected zeros, then ones, then minus ones, the order of flashcliff's basis, "
            f"got {tuple(metric)}"
        )
    return Algebra(p, q, r)


def from_cgenn(x: Tensor) -> Tensor:
    """``[batch, channels, ..., blades]`` to ``[blades, batch, ..., channels]``, contiguous."""
    if x.dim() < 3:
        raise ValueError(f"x: expected [batch, channels, ..., blades], got {list(x.shape)}")
    return x.movedim(-1, 0).movedim(2, -1).contiguous()


def to_cgenn(x: Tensor) -> Tensor:
    """``[blades, batch, ..., channels]`` to ``[batch, channels, ..., blades]``, a view."""
    if x.dim() < 3:
        raise ValueError(f"x: expected [blades, batch, ..., channels], got {list(x.shape)}")
    return x.movedim(-1, 2).movedim(0, -1)


def load_state_dict(
    module: torch.nn.Module, state_dict: Mapping[str, Any], strict: bool = True
) -> Any:
    """Loads the state dict of a CGENN layer or model into its counterpart here.

    CGENN stores the tables of its algebra with the parameters (``algebra.cayley``,
    ``net.0.algebra.metric``, ...), and models may store metrics (``train_metrics.``,
    ``test_metrics.``). Those are left out, but a metric that is not the module's is an error.

    Args:
        module: a module of :mod:`flashcliff.nn` or of this one.
        state_dict: CGENN's.
        strict: as for :meth:`torch.nn.Module.load_state_dict`.

    Returns:
        What :meth:`torch.nn.Module.load_state_dict` returns.

    Raises:
        ValueError: the state dict is of another metric.
        RuntimeError: names or shapes do not match, with ``strict``.
    """
    algebras = {m.algebra for m in module.modules() if isinstance(m, nn.CliffordModule)}
    expected = [_metric_of(*algebra.signature) for algebra in algebras]
    parameters = {}
    for name, value in state_dict.items():
        parts = name.split(".")
        if "algebra" in parts[:-1]:
            if parts[-1] == "metric" and value.tolist() not in expected:
                raise ValueError(
                    f"{name}: expected the metric {' or '.join(map(str, expected))}, "
                    f"got {value.tolist()}"
                )
        elif parts[0] not in ("train_metrics", "test_metrics"):
            parameters[name] = value
    return module.load_state_dict(parameters, strict=strict)


def _metric_of(p: int, q: int, r: int) -> list[float]:
    """The squares of the basis vectors, in order."""
    return [0.0] * r + [1.0] * p + [-1.0] * q


class _Layout(torch.nn.Module):
    """CGENN's layout around the ``forward`` of the class behind it."""

    def forward(self, input: Tensor) -> Tensor:
        return to_cgenn(super().forward(from_cgenn(input)))


class MVLinear(_Layout, nn.MVLinear):
    """CGENN's ``MVLinear``: ``[batch, in_features, ..., blades]`` to ``[.., out_features, ..]``.

    ``subspaces`` is :class:`flashcliff.nn.MVLinear`'s ``per_grade``.
    """

    def __init__(
        self,
        algebra: Algebra,
        in_features: int,
        out_features: int,
        subspaces: bool = True,
        bias: bool = True,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            algebra,
            in_features,
            out_features,
            bias,
            per_grade=subspaces,
            device=device,
            dtype=dtype,
        )


class NormalizationLayer(_Layout, nn.GradeNorm):
    """CGENN's ``NormalizationLayer(algebra, features, init=0)``: ``[batch, features, blades]``."""


class MVLayerNorm(_Layout, nn.MVLayerNorm):
    """CGENN's ``MVLayerNorm``: ``[batch, channels, blades]``."""

    def __init__(
        self,
        algebra: Algebra,
        channels: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra, channels, device=device, dtype=dtype)


class MVSiLU(_Layout, nn.MVSiLU):
    """CGENN's ``MVSiLU``: ``[batch, channels, blades]``. ``exclude_dual`` has no effect there."""

    def __init__(
        self,
        algebra: Algebra,
        channels: int,
        invariant: str = "mag2",
        exclude_dual: bool = False,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra, channels, invariant, device=device, dtype=dtype)


class SteerableGeometricProductLayer(_Layout, nn.SteerableGeometricProduct):
    """CGENN's layer of that name: ``[batch, features, blades]``.

    ``(algebra, features, include_first_order=True, normalization_init=0)``
    """


class FullyConnectedSteerableGeometricProductLayer(
    _Layout, nn.FullyConnectedSteerableGeometricProduct
):
    """CGENN's layer of that name: ``[batch, in_features, blades]`` to ``[.., out_features, ..]``.

    ``(algebra, in_features, out_features, include_first_order=True, normalization_init=0)``
    """
