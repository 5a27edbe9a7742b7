"""``flashcliff.accelerate``: replaces modules of other libraries in place, and says what it kept."""

import nn_reference as reference
import pytest
import torch
from nn_common import blades_first, channels_first, difference, disturb, random
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


def same(net, inputs, tolerance):
    """Compares a network with its replacement, outputs and gradients."""

    def run(module):
        for parameter in module.parameters():
            parameter.grad = None
        outputs = [o for o in module(*inputs) if o is not None]
        sum(o.square().sum() for o in outputs).backward()
        return [o.detach() for o in outputs], [p.grad for p in module.parameters()]

    keys = sorted(net.state_dict())
    parameters = {name: p for name, p in net.named_parameters()}
    outputs, _ = run(net)
    gradients = {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
    found = flashcliff.accelerate(net)
    assert list(found.replaced) == [""], str(found)
    assert type(found.model).__module__.startswith("flashcliff.")
    assert sorted(found.model.state_dict()) == keys
    ours, _ = run(found.model)
    for got, want in zip(ours, outputs, strict=True):
        assert difference(got, want) < tolerance
    largest = max(g.abs().max() for g in gradients.values())
    for name, want in gradients.items():
        assert (parameters[name].grad - want).abs().max() < 10 * tolerance * largest


def test_gatr():
    gatr = pytest.importorskip("gatr")
    attention = gatr.SelfAttentionConfig(num_heads=2, pos_encoding=True)
    net = gatr.GATr(
        2,
        1,
        4,
        3,
        2,
        8,
        attention,
        gatr.MLPConfig(activation="relu"),
        num_blocks=2,
        reinsert_mv_channels=(1,),
        reinsert_s_channels=(0, 2),
        checkpoint=["mlp"],
    )
    # The other's normalised maps are rounded to float32.
    same(disturb(net.double()), (random(2, 5, 2, 16), random(2, 5, 3)), 1e-6)


@pytest.mark.parametrize("rotary", [(True, False), (False, True)], ids=str)
def test_axial_gatr(rotary):
    gatr = pytest.importorskip("gatr")
    net = gatr.AxialGATr(
        2,
        1,
        4,
        3,
        2,
        8,
        gatr.SelfAttentionConfig(num_heads=2),
        gatr.MLPConfig(activation="relu"),
        num_blocks=3,
        checkpoint_blocks=True,
        pos_encodings=rotary,
    )
    same(disturb(net.double()), (random(2, 5, 4, 2, 16), random(2, 5, 4, 3)), 1e-6)


@pytest.mark.parametrize("options", [{}, {"multi_query": True, "head_scale": True}], ids=str)
def test_conditional_lgatr(options):
    lgatr = pytest.importorskip("lgatr", minversion="2.0")
    net = lgatr.ConditionalLGATr(
        num_blocks=2,
        in_mv_channels=2,
        mv_channels_cond=3,
        out_mv_channels=1,
        hidden_mv_channels=4,
        in_s_channels=3,
        s_channels_cond=2,
        out_s_channels=2,
        hidden_s_channels=8,
        attention=lgatr.SelfAttentionConfig(num_heads=2, attn_ratio=2),
        crossattention=lgatr.CrossAttentionConfig(num_heads=4, **options),
        mlp=lgatr.MLPConfig(nonlinearity="silu", mlp_ratio=2, num_layers_mlp=3),
        primitives=lgatr.PrimitivesConfig(subgroup=not options),
        dropout_prob=0.5,
        norm_elementwise_affine=not options,
        checkpoint_blocks=bool(options),
    ).eval()
    inputs = random(2, 5, 2, 16), random(2, 4, 3, 16), random(2, 5, 3), random(2, 4, 2)
    same(disturb(net.double()), inputs, 1e-7)


SLIM = [
    {"attn_ratio": 2, "mlp_ratio": 3},
    {"num_layers_mlp": 3, "nonlinearity": "silu", "norm_elementwise_affine": False},
    {
        "nonlinearity": "tanh",
        "nonlinearity_v": None,
        "dropout_prob": 0.5,
        "checkpoint_blocks": True,
    },
]


@pytest.mark.parametrize("options", SLIM, ids=str)
@pytest.mark.parametrize("condition", [False, True])
def test_lgatr_slim(condition, options):
    lgatr = pytest.importorskip("lgatr", minversion="2.0")
    sizes = dict(in_v_channels=2, out_v_channels=1, hidden_v_channels=4, num_blocks=2, num_heads=2)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=12)
    inputs = random(2, 5, 2, 4), random(2, 5, 3)
    if condition:
        sizes |= dict(v_channels_cond=3, s_channels_cond=2)
        inputs = inputs[0], random(2, 4, 3, 4), inputs[1], random(2, 4, 2)
    kind = lgatr.ConditionalLGATrSlim if condition else lgatr.LGATrSlim
    same(disturb(kind(**sizes, **options).double().eval()), inputs, 1e-9)


def test_frozen_parameters_stay_frozen():
    lgatr = pytest.importorskip("lgatr", minversion="2.0")
    net = lgatr.LGATrSlim(1, 2, 0, 4, 3, 2, 8, 2)
    frozen = {name for name, p in net.named_parameters() if not p.requires_grad}
    found = flashcliff.accelerate(net).model
    assert frozen and frozen == {n for n, p in found.named_parameters() if not p.requires_grad}


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


@pytest.mark.parametrize("options", [{}, {"multi_query": True, "head_scale": True}], ids=str)
def test_lgatr(options):
    lgatr = pytest.importorskip("lgatr")
    sizes = dict(in_mv_channels=2, out_mv_channels=1, hidden_mv_channels=4)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=8, num_blocks=2)
    attention = lgatr.SelfAttentionConfig(num_heads=2, **options)
    if lgatr.__version__.startswith("1"):
        mlp = lgatr.MLPConfig(activation="silu", increase_hidden_channels=2, num_hidden_layers=2)
        net = lgatr.LGATr(**sizes, attention=attention, mlp=mlp, reinsert_mv_channels=(1,))
    else:
        mlp = lgatr.MLPConfig(nonlinearity="silu", mlp_ratio=2, num_layers_mlp=3)
        group = lgatr.PrimitivesConfig(subgroup=not options)
        net = lgatr.LGATr(
            **sizes, attention=attention, mlp=mlp, primitives=group, dropout_prob=0.5
        ).eval()
    same(disturb(net.double()), (random(2, 5, 2, 16), random(2, 5, 3)), 1e-7)


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
