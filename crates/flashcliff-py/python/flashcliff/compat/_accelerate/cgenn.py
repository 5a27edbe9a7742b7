"""Counterparts of CGENN's layers, by their shape: each has an algebra with a metric."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import cgenn
from .counterpart import Call, Counterpart, Draw, Form, NotReplaced
from .structure import children, parameters

__all__ = ["FORMS"]


def _has_metric(m: Any) -> bool:
    found = getattr(getattr(m, "algebra", None), "metric", None)
    return isinstance(found, Tensor) and found.dim() == 1


def _of(names: set[str], inner: set[str]) -> Callable[[Any], bool]:
    """Whether a module with an algebra has just these parameters, and all these modules besides the algebra."""

    def matches(m: Any) -> bool:
        shapes = parameters(m).keys() - {"bias"}
        return _has_metric(m) and shapes == names and children(m) - {"algebra"} >= inner

    return matches


def _counterpart(
    m: Any, features: int, kind: Callable[..., nn.Module], *arguments: Any, **named: Any
) -> Counterpart:
    metric = m.algebra.metric.tolist()

    def calls(draw: Draw) -> list[Call]:
        return [([draw(6, features, 2 ** len(metric))], {})]

    return Counterpart(lambda: kind(cgenn.CliffordAlgebra(metric), *arguments, **named), calls)


def _is_linear(m: Any) -> bool:
    return _of({"weight"}, set())(m) and children(m) <= {"algebra"}


def _linear(m: Any) -> list[Counterpart]:
    outputs, inputs = m.weight.shape[:2]
    for name, size in (("in_features", inputs), ("out_features", outputs)):
        if getattr(m, name, size) != size:
            raise NotReplaced(f"its `{name}` is {getattr(m, name)}, and its weight has {size}")
    options = {"subspaces": m.weight.dim() == 3, "bias": m._parameters.get("bias") is not None}
    return [_counterpart(m, inputs, cgenn.MVLinear, inputs, outputs, **options)]


def _product(m: Any) -> list[Counterpart]:
    normed = parameters(m.normalization) if hasattr(m, "normalization") else {}
    options = {
        "include_first_order": "linear_left" in children(m),
        "normalization_init": 0.0 if normed else None,
    }
    if m.weight.dim() == 2:
        features = m.weight.shape[0]
        return [
            _counterpart(m, features, cgenn.SteerableGeometricProductLayer, features, **options)
        ]
    outputs, inputs = m.weight.shape[:2]
    kind = cgenn.FullyConnectedSteerableGeometricProductLayer
    return [_counterpart(m, inputs, kind, inputs, outputs, **options)]


def _silu(m: Any) -> list[Counterpart]:
    channels = m.a.shape[1]
    dual = getattr(m, "exclude_dual", False)
    # Its default first, which is the more frequent one.
    names = sorted(("mag2", "norm"), key=lambda name: name != getattr(m, "invariant", "mag2"))
    return [_counterpart(m, channels, cgenn.MVSiLU, channels, name, dual) for name in names]


def _norm(m: Any) -> list[Counterpart]:
    rows, columns = m.a.shape
    found = []
    if columns == len(m.algebra.metric) + 1:
        found.append(_counterpart(m, rows, cgenn.NormalizationLayer, rows))
    if rows == 1:
        found.append(_counterpart(m, columns, cgenn.MVLayerNorm, columns))
    return found


def _is_perceptron(m: Any) -> bool:
    """Whether a module has layers of a linear map, a gate, a product and a norm each."""
    layers = m._modules.get("layers")
    return _has_metric(m) and not parameters(m) and len(layers) > 0 and all(map(_is_block, layers))


def _is_block(m: Any) -> bool:
    forms = _is_linear, _of({"a", "b"}, set()), _of({"weight"}, {"linear_right"}), _of({"a"}, set())
    return len(m) == len(forms) and all(form(part) for form, part in zip(forms, m))


def _sizes(m: Any) -> tuple[int, int, int]:
    """The channels of input, hidden layers and output of a perceptron."""
    outputs = [layer[0].weight.shape[0] for layer in m.layers]
    return m.layers[0][0].weight.shape[1], outputs[0], outputs[-1]


def _perceptron(m: Any) -> list[Counterpart]:
    sizes = _sizes(m)
    return [_counterpart(m, sizes[0], cgenn.CEMLP, *sizes, len(m.layers))]


def _sends_messages(m: Any) -> bool:
    models = [m._modules.get(name) for name in ("edge_model", "node_model")]
    return children(m) == {"edge_model", "node_model"} and all(map(_is_perceptron, models))


def _messages(m: Any) -> list[Counterpart]:
    (of_edges, hidden, out), (of_nodes, *_) = _sizes(m.edge_model), _sizes(m.node_model)
    features, metric = of_nodes - out, m.edge_model.algebra.metric.tolist()
    attributes = of_edges - features
    if features < 1 or attributes < 0:
        raise NotReplaced("its perceptrons have other channels than nodes and messages together")
    blades = 2 ** len(metric)

    def calls(draw: Draw) -> list[Call]:
        h = draw(6, features, blades)
        # Node 1 has many edges, one of them twice; node 3 a self-loop; node 5 none, and node 2 sends only.
        ends = torch.tensor([[1, 0, 4, 1, 1, 0, 3, 1], [0, 1, 2, 2, 4, 1, 3, 0]], device=h.device)
        named = {"edge_attr": draw(8, attributes, blades)} if attributes else {}
        return [([h, ends], named)]

    def make(residual: bool) -> nn.Module:
        sizes = features, hidden, out, attributes
        return cgenn.EGCL(cgenn.CliffordAlgebra(metric), *sizes, residual=residual)

    # Most have one, and say so.
    first = bool(getattr(m, "residual", True))
    return [Counterpart(partial(make, own), calls) for own in (first, not first)]


FORMS = [
    Form("a layer of messages between neighbours", _sends_messages, _messages),
    Form("a perceptron of multivectors", _is_perceptron, _perceptron),
    Form("a layer of geometric products", _of({"weight"}, {"linear_right"}), _product),
    Form("a linear layer of multivectors", _is_linear, _linear),
    Form("a gate of multivectors", _of({"a", "b"}, set()), _silu),
    Form("a norm of multivectors", _of({"a"}, set()), _norm),
]
"""CGENN's layers, the largest first."""
