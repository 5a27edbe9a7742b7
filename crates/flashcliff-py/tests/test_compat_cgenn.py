"""CGENN's layers by its names, arguments and layout, and state dicts of its models.

State dicts are made here as CGENN writes them, tables of the algebra included, and numbers are
computed by `nn_reference`, in CGENN's layout.
"""

import inspect

import nn_reference as reference
import pytest
import torch
from nn_common import SIGNATURES, difference, disturb, random

import flashcliff
from flashcliff import nn
from flashcliff.compat import cgenn

F64 = {"dtype": torch.float64}


def as_cgenn_writes_it(parameters, table, prefixes=("",)):
    """Parameters with the buffers of the algebra, once for each module that has one."""
    found = dict(parameters)
    for prefix in prefixes:
        found[f"{prefix}algebra.metric"] = torch.tensor(table.metric)
        found[f"{prefix}algebra.cayley"] = table.cayley.float()
        found[f"{prefix}algebra.subspaces"] = torch.tensor(table.sizes)
        found[f"{prefix}algebra.bbo_grades"] = table.grades.float()
        found[f"{prefix}algebra.even_grades"] = table.grades % 2 == 0
        found[f"{prefix}algebra.odd_grades"] = table.grades % 2 == 1
    return found


def drawn(shapes, seed=0):
    return {name: random(*shape, seed=seed + i) for i, (name, shape) in enumerate(shapes.items())}


def layer_shapes(table, features, out=None, prefix=""):
    grades, paths = table.dim + 1, len(table.paths)
    first = (features, paths) if out is None else (out, features, paths)
    out = features if out is None else out
    return {
        f"{prefix}weight": first,
        f"{prefix}normalization.a": (features, grades),
        f"{prefix}linear_right.weight": (features, features, grades),
        f"{prefix}linear_left.weight": (out, features, grades),
        f"{prefix}linear_left.bias": (1, out, 1),
    }


@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_linear_with_further_axes(signature):
    """CGENN's MVLinear takes [batch, channels, ..., blades]."""
    table = reference.Table(*signature)
    layer = disturb(cgenn.MVLinear(cgenn.CliffordAlgebra(table.metric), 3, 4, **F64))
    x = random(2, 3, 7, 5, len(table.masks))
    got = layer(x)
    assert got.shape == (2, 4, 7, 5, len(table.masks))
    for i in range(7):
        assert difference(got[:, :, i, 2], layer(x[:, :, i, 2])) < 1e-12


def test_layouts_go_back_and_forth_without_copies():
    x = random(2, 3, 4, 5, 8)
    there = cgenn.from_cgenn(x)
    assert there.shape == (8, 2, 4, 5, 3)
    assert there[6, 1, 2, 4, 0] == x[1, 0, 2, 4, 6]
    back = cgenn.to_cgenn(there)
    assert torch.equal(back, x)
    assert cgenn.from_cgenn(back).data_ptr() == there.data_ptr()
    for wrong in (cgenn.from_cgenn, cgenn.to_cgenn):
        with pytest.raises(ValueError, match="x: expected"):
            wrong(x[0, 0, 0])


def test_hulls():
    table = reference.Table(5, 0, 0)
    shapes = {"net.0.weight": (6, 7), "net.0.bias": (1, 6, 1)}
    for i in (1, 2, 3, 4):
        shapes |= layer_shapes(table, 6, prefix=f"net.{i}.")
    shapes |= {"mlp.0.weight": (6, 6), "mlp.0.bias": (6,)}
    shapes |= {"mlp.2.weight": (1, 6), "mlp.2.bias": (1,)}
    parameters = drawn(shapes)
    state = as_cgenn_writes_it(parameters, table, ["", *(f"net.{i}." for i in range(5))])
    state["train_metrics.loss.total"] = torch.zeros(1)
    model = nn.models.Hulls(7, 6, **F64)
    cgenn.load_state_dict(model, state)
    points = random(4, 7, 5, seed=60)
    assert difference(model(points), reference.hulls(table, points, parameters)) < 1e-11


def test_volumes():
    table = reference.Table(3, 0, 0)
    shapes = layer_shapes(table, 3, 5, prefix="net.0.")
    for i in (1, 2, 3):
        shapes |= {f"net.{i}.a": (1, 5, 4), f"net.{i}.b": (1, 5, 4)}
    shapes |= layer_shapes(table, 5, 1, prefix="net.4.")
    parameters = drawn(shapes)
    model = nn.models.Volumes(features=5, **F64)
    cgenn.load_state_dict(model, as_cgenn_writes_it(parameters, table, ["", "net.0."]))
    points = random(4, 3, 3, seed=60)
    assert difference(model(points), reference.volumes(table, points, parameters)) < 1e-11


def test_errors():
    with pytest.raises(ValueError, match="metric: expected 1, -1 or 0"):
        cgenn.CliffordAlgebra((2.0,))
    with pytest.raises(flashcliff.UnsupportedError):
        cgenn.CliffordAlgebra((1.0,) * 9)
    table = reference.Table(3, 0, 0)
    layer = cgenn.SteerableGeometricProductLayer(cgenn.CliffordAlgebra((1, 1, 1)), 3, **F64)
    state = as_cgenn_writes_it(drawn(layer_shapes(table, 3)), table)
    other = state | {"linear_left.algebra.metric": torch.tensor([1.0, 1.0, -1.0])}
    with pytest.raises(ValueError, match="linear_left.algebra.metric: expected the metric"):
        cgenn.load_state_dict(layer, other)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        cgenn.load_state_dict(layer, state | {"extra": torch.zeros(1)})
    missing = {name: value for name, value in state.items() if name != "weight"}
    with pytest.raises(RuntimeError, match="Missing key"):
        cgenn.load_state_dict(layer, missing)
    assert cgenn.load_state_dict(layer, missing, strict=False).missing_keys == ["weight"]


def test_names_of_arguments():
    def arguments(of):
        found = inspect.signature(of).parameters.values()
        return [p.name for p in found if p.kind is not p.KEYWORD_ONLY]

    assert arguments(cgenn.MVLinear) == [
        "algebra",
        "in_features",
        "out_features",
        "subspaces",
        "bias",
    ]
    assert arguments(cgenn.SteerableGeometricProductLayer) == [
        "algebra",
        "features",
        "include_first_order",
        "normalization_init",
    ]
    assert arguments(cgenn.FullyConnectedSteerableGeometricProductLayer) == [
        "algebra",
        "in_features",
        "out_features",
        "include_first_order",
        "normalization_init",
    ]
    assert arguments(cgenn.NormalizationLayer) == ["algebra", "features", "init"]
    assert arguments(cgenn.MVSiLU) == ["algebra", "channels", "invariant", "exclude_dual"]
    assert arguments(cgenn.MVLayerNorm) == ["algebra", "channels"]
