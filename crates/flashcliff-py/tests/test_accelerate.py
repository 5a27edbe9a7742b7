"""``flashcliff.accelerate``: replaces modules of other libraries in place, and says what it kept.

Modules of the packages gatr and lgatr are in `test_packages`.
"""

import nn_reference as reference
import pytest
import torch
from nn_common import blades_first, channels_first, difference, random
from torch import nn

import flashcliff
from flashcliff.compat import cgenn, flash_clifford


def stand_in(name, module="models.modules.stand_in", **attributes):
    """A class with the name and package of another library's."""
    return type(name, (nn.Module,), {"__module__": module, **attributes})


def linear(metric=(1, 1, 1), features=(3, 2)):
    """A module with the attributes of CGENN's linear layer."""
    layer = stand_in("MVLinear")()
    layer.algebra = nn.Module()
    layer.algebra.register_buffer("metric", torch.tensor(metric))
    layer.in_features, layer.out_features = features
    layer.subspaces = True
    grades = len(metric) + 1
    layer.weight = nn.Parameter(torch.randn(features[1], features[0], grades))
    layer.bias = nn.Parameter(torch.randn(1, features[1], 1))
    return layer


def test_replaces_in_place_and_keeps_parameters():
    shared = linear()
    model = nn.Sequential(
        nn.Identity(), shared, nn.Sequential(shared, linear(features=(2, 4)))
    ).eval()
    weight = shared.weight
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    found = flashcliff.accelerate(model)
    assert found.model is model
    assert isinstance(model[1], cgenn.MVLinear) and model[2][0] is model[1]
    assert model[1].weight is weight and not model[1].training
    assert {id(p) for p in model.parameters()} == {
        id(p) for p in optimiser.param_groups[0]["params"]
    }
    assert sorted(found.replaced) == ["1", "2.1"] and not found.kept
    x = torch.randn(5, 3, 8)
    wanted = torch.einsum("onk,bnk->bok", weight[..., [0, 1, 1, 1, 2, 2, 2, 3]], x)
    wanted[..., 0] += shared.bias[..., 0]
    assert difference(model[1](x).detach(), wanted.detach()) < 1e-6


def test_a_whole_model_is_replaced():
    found = flashcliff.accelerate(linear())
    assert isinstance(found.model, cgenn.MVLinear)
    assert str(found) == "replaced the model: flashcliff.compat.cgenn.layers.MVLinear"


def test_a_metric_in_another_order():
    found = flashcliff.accelerate(linear((-1, 1)))
    assert isinstance(found.model, cgenn.MVLinear) and not found.kept
    assert found.model.algebra.metric.tolist() == [-1, 1]


def test_kept_with_a_reason():
    hooked = linear()
    hooked.register_forward_hook(lambda *_: None)
    missing = stand_in("MVSiLU")()
    other = linear()
    other.weight = nn.Parameter(torch.zeros(2, 3, 7))
    empty = stand_in("GATr", "gatr.nets.gatr")()
    empty.linear_in = empty.linear_out = None
    empty.blocks = nn.ModuleList()
    old = stand_in("LGATrSlim", "lgatr.nets.lgatr_slim")()
    model = nn.ModuleDict(
        {
            "hooked": hooked,
            "squares": linear((1.0, 0.5)),
            "missing": missing,
            "other": other,
            "empty": empty,
            "old": old,
            "unknown": nn.Linear(2, 2),
        }
    )
    before = dict(model.named_children())
    found = flashcliff.accelerate(model)
    assert dict(model.named_children()) == before and not found.replaced
    assert sorted(found.kept) == ["empty", "hooked", "missing", "old", "other", "squares"]
    for name, reason in {
        "hooked": "hooks",
        "squares": "metric: expected 1, -1 or 0",
        "missing": "algebra",
        "other": r"`weight` has the shape (2, 3, 7), where ours has (2, 3, 4)",
        "empty": "at least one block",
        "old": "it is called as a known layer, and has no `linear_in`",
    }.items():
        assert reason in found.kept[name], found.kept[name]
    assert "kept squares: MVLinear: metric" in str(found)


def test_refuses_what_is_no_module():
    with pytest.raises(TypeError, match="model: expected a torch.nn.Module"):
        flashcliff.accelerate("model")


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_flash_clifford(dims, connected):
    """A module with the attributes of flash-clifford's layer, whose own kernels need a GPU."""
    table = reference.Table(dims, 0, 0)
    paths = len(table.paths)
    layer = stand_in("Layer", "modules.layer")()
    layer.normalize = True
    layer.gp_weight = nn.Parameter(random(*((paths, 4, 4) if connected else (4, paths))))
    layer.linear_weight = nn.Parameter(random(dims + 1, 4, 4, seed=1))
    layer.linear_bias = nn.Parameter(random(1, 1, 4, seed=2))
    layer.register_buffer("weight_expansion", table.grades)
    parameters = dict(layer.named_parameters())
    found = flashcliff.accelerate(layer)
    assert type(found.model) is flash_clifford.Layer and not found.kept
    assert dict(found.model.named_parameters()) == parameters
    assert sorted(found.model.state_dict()) == sorted(layer.state_dict())
    x = random(5, 4, 2**dims, seed=3)
    want = reference.flash_layer(table, x, parameters, fully_connected=connected)
    assert difference(channels_first(found.model(blades_first(x))), want) < 1e-12


@pytest.mark.parametrize("metric", [(1, 1, 1), (-1, 1, 0)], ids=str)
def test_cgenn(metric):
    models = pytest.importorskip("models.modules.fcgp")
    algebra = pytest.importorskip("algebra.cliffordalgebra").CliffordAlgebra(metric)
    net = nn.Sequential(
        models.FullyConnectedSteerableGeometricProductLayer(algebra, 2, 3),
        pytest.importorskip("models.modules.mvsilu").MVSiLU(algebra, 3),
        pytest.importorskip("models.modules.gp").SteerableGeometricProductLayer(algebra, 3),
        pytest.importorskip("models.modules.mvlayernorm").MVLayerNorm(algebra, 3),
    )
    keys = sorted(net.state_dict())
    x = torch.randn(4, 2, 8)
    want = net(x).detach()
    found = flashcliff.accelerate(net)
    assert list(found.replaced) == ["0", "1", "2", "3"], str(found)
    assert difference(net(x).detach(), want) < 1e-5
    assert sorted(net.state_dict()) == keys
