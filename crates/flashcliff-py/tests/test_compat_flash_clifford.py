"""flash-clifford's names, arguments, shapes and numbers."""

import inspect

import nn_reference as reference
import pytest
import torch
from nn_common import assert_same, blades_first, channels_first, difference, disturb, random

from flashcliff.compat import flash_clifford

TABLES = {2: reference.Table(2, 0, 0), 3: reference.Table(3, 0, 0)}

# The paths of weights (left, output, right), in the original's order.
PATHS = {
    2: "000 011 022 101 110 112 121 202 211 220",
    3: "000 011 022 033 101 110 112 121 123 132 202 211 213 220 222 231 303 312 321 330",
}


@pytest.fixture(params=[2, 3])
def dims(request):
    return request.param


def test_order_of_paths(dims):
    found = " ".join("".join(map(str, path)) for path in TABLES[dims].paths)
    assert found == PATHS[dims]


@pytest.mark.parametrize("normalize", [True, False])
# 28 and 5 are not multiples of a block.
@pytest.mark.parametrize("features", [4, 28])
def test_fused_functions(dims, normalize, features):
    table = TABLES[dims]
    paths = len(table.paths)
    x, y = (random(5, features, 2**dims, seed=s) for s in (0, 1))
    gated = reference.gate(x), reference.gate(y)

    def check(function, weight, want):
        got = function(blades_first(x), blades_first(y), weight, normalize)
        want = reference.rms(table, want) if normalize else want
        assert difference(channels_first(got), want) < 1e-12
        if normalize:
            assert torch.equal(function(blades_first(x), blades_first(y), weight), got)

    weight = random(features, paths, seed=2)
    sgp = getattr(flash_clifford, f"fused_gelu_sgp_norm_{dims}d")
    check(sgp, weight, reference.sgp(table, *gated, weight))
    weight = random(paths, features, features, seed=3)
    fcgp = getattr(flash_clifford, f"fused_gelu_fcgp_norm_{dims}d")
    check(fcgp, weight, reference.fcgp(table, *gated, weight.permute(2, 1, 0)))
    for function in (sgp, fcgp):
        assert list(inspect.signature(function).parameters) == ["x", "y", "weight", "normalize"]


@pytest.mark.parametrize("use_fc", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("bias", ["every_blade", "scalar"])
def test_layer(dims, normalize, use_fc, bias):
    layer = flash_clifford.Layer(6, dims, normalize, use_fc, bias=bias, dtype=torch.float64)
    assert_same(
        disturb(layer),
        [random(5, 6, 2**dims)],
        lambda x, p: reference.flash_layer(
            TABLES[dims], x, p, "rms" if normalize else "none", use_fc, bias == "every_blade"
        ),
    )


@pytest.mark.parametrize("use_fc", [True, False])
def test_state_dict(dims, use_fc):
    """The original's names, shapes and buffer, so state dicts go both ways."""
    layer = flash_clifford.Layer(6, dims=dims, use_fc=use_fc)
    paths = len(TABLES[dims].paths)
    found = layer.state_dict()
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "gp_weight": (paths, 6, 6) if use_fc else (6, paths),
        "linear_weight": (dims + 1, 6, 6),
        "linear_bias": (1, 1, 6),
        "weight_expansion": (2**dims,),
    }
    assert torch.equal(found["weight_expansion"], TABLES[dims].grades)
    assert found["weight_expansion"].dtype == torch.int64


def test_arguments():
    parameters = list(inspect.signature(flash_clifford.Layer).parameters.values())
    assert [p.name for p in parameters[:4]] == ["n_features", "dims", "normalize", "use_fc"]
    assert [p.default for p in parameters[2:4]] == [True, False]
    assert flash_clifford.Layer(6, 3).bias_mode == "every_blade"
    with pytest.raises(ValueError, match="dims: expected 2 or 3, got 4"):
        flash_clifford.Layer(6, 4)


def test_start():
    """A seed gives the original's start values: product weights are drawn first."""
    torch.manual_seed(0)
    layer = flash_clifford.Layer(6, 3)
    torch.manual_seed(0)
    gp = torch.nn.init.normal_(torch.empty(6, 20), std=0.5)
    linear = torch.nn.init.normal_(torch.empty(4, 6, 6), std=1 / (6 * 4) ** 0.5)
    assert torch.equal(layer.gp_weight, gp)
    assert torch.equal(layer.linear_weight, linear)
    assert not layer.linear_bias.any()
