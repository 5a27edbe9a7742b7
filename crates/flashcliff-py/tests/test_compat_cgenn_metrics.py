"""CGENN's names with metrics in every order of signs, against tables made from the definition of the
product, and against CGENN itself where it is on the path."""

import copy
import pickle

import pytest
import torch
from cgenn_reference import LARGE, METRICS, SMALL
from cgenn_reference import Algebra as Plain
from nn_cases import LAYERS
from nn_common import difference, disturb, parameters_of, random
from nn_reference import Table
from reference import Basis
from releases import WHOLE

import flashcliff
from flashcliff import functional as F
from flashcliff import nn
from flashcliff.compat import cgenn

pytestmark = pytest.mark.usefixtures("double")

REORDERED = [(-1, 1, 1, 1), (1, -1, 0, 1), (-1, 1), (1, 1, 0)]


def is_ours(metric):
    return list(metric) == sorted(metric, key=(0, 1, -1).index)


def test_a_product_by_hand():
    assert Basis((-1, 1, 0)).multiply((0, 1), (0, 1)) == (1, ())
    assert Basis((-1, 1, 0)).multiply((1,), (0,)) == (-1, (0, 1))
    assert Basis((1, -1, 0)).multiply((0, 1, 2), (1,)) == (1, (0, 2))
    assert Basis((1, -1, 0)).multiply((0, 2), (2,)) == (0, (0,))


def layers_of(algebra):
    """Each layer with its plain form, which takes a table, inputs and named parameters."""
    made = {
        "linear True True": cgenn.MVLinear(algebra, 2, 3),
        "linear False False": cgenn.MVLinear(algebra, 2, 3, subspaces=False, bias=False),
        "grade_norm": cgenn.NormalizationLayer(algebra, 2),
        "layer_norm": cgenn.MVLayerNorm(algebra, 2),
        "silu mag2": cgenn.MVSiLU(algebra, 2),
        "silu norm": cgenn.MVSiLU(algebra, 2, "norm"),
        "steerable True 0.0": cgenn.SteerableGeometricProductLayer(algebra, 2),
        "fully_connected True 0.0": cgenn.FullyConnectedSteerableGeometricProductLayer(algebra, 2, 3),
    }
    return {name: (layer.double(), LAYERS[name].want) for name, layer in made.items()}


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_layers(metric):
    table = Table(squares=metric)
    for name, (layer, plain) in layers_of(cgenn.CliffordAlgebra(metric)).items():
        disturb(layer)
        x = random(4, 2, len(table.masks), seed=50).requires_grad_()
        parameters = parameters_of(layer)
        got, want = layer(x), plain(table, x, parameters)
        assert difference(got, want) < 1e-12, name
        gradient = random(*want.shape, seed=51)
        found = torch.autograd.grad(got, [x, *layer.parameters()], gradient)
        wanted = torch.autograd.grad(want, [x, *parameters.values()], gradient)
        largest = max(w.abs().max() for w in wanted)
        for g, w in zip(found, wanted, strict=True):
            # A gradient that cancels consists of rounding errors alone.
            assert (g - w).abs().max() <= 1e-11 * max(w.abs().max(), 1e-3 * largest), name


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_conversion(metric):
    """Multivectors in flashcliff's order multiply there, and come back bit for bit."""
    algebra = cgenn.CliffordAlgebra(metric)
    a, b = (random(3, 2, 5, algebra.n_blades, seed=seed).mul(4).round() for seed in (0, 1))
    x, y = cgenn.from_cgenn(a, algebra), cgenn.from_cgenn(b, algebra)
    assert x.is_contiguous() and torch.equal(cgenn.to_cgenn(x, algebra), a)
    product = F.geometric_product(x, y, algebra.flashcliff_algebra)
    want = torch.einsum("...i,ijk,...k->...j", a, Table(squares=metric).cayley, b)
    assert torch.equal(cgenn.to_cgenn(product, algebra), want)
    if is_ours(metric):
        assert torch.equal(x, cgenn.from_cgenn(a))
    # A blade is the product of the vectors in its name.
    ours = algebra.flashcliff_algebra
    vectors = {name: index for index, name in enumerate(ours.blades) if len(name) == 2}
    one = cgenn.from_cgenn(torch.eye(algebra.n_blades)[:, None], algebra)
    for index, name in enumerate(algebra.blades):
        blade = torch.zeros(ours.blade_count, 1, 1)
        blade[0] = 1
        for vector in name[1:]:
            factor = torch.zeros_like(blade)
            factor[vectors[f"e{vector}"]] = 1
            blade = F.product(blade, factor, ours, "exterior")
        assert torch.equal(one[:, index], blade[:, 0])


def test_nothing_is_reordered_without_need(monkeypatch):
    def fail(*_):
        raise AssertionError("reordered")

    monkeypatch.setattr(cgenn.CliffordAlgebra, "_enter", fail)
    monkeypatch.setattr(cgenn.CliffordAlgebra, "_leave", fail)
    for metric in ((0, 1, 1, -1), (1, 1, 1)):
        algebra = cgenn.CliffordAlgebra(metric)
        x = random(4, 2, algebra.n_blades)
        algebra.geometric_product(x, x)
        for layer, _ in layers_of(algebra).values():
            layer(x)
    algebra = cgenn.CliffordAlgebra((-1, 1))
    cgenn.MVLinear(algebra, 2, 3)(random(4, 2, 4))
    with pytest.raises(AssertionError, match="reordered"):
        cgenn.MVLayerNorm(algebra, 2)(random(4, 2, 4))


@pytest.mark.parametrize("metric", REORDERED, ids=str)
def test_state_dicts(metric):
    algebra = cgenn.CliffordAlgebra(metric)
    layer = disturb(cgenn.SteerableGeometricProductLayer(algebra, 2))
    assert all(part.algebra is algebra for part in layer.modules() if hasattr(part, "algebra"))
    state = layer.state_dict()
    # The tables come before the parts, as in CGENN.
    assert list(state)[:3] == ["weight", "algebra.metric", "algebra.subspaces"]
    for name, table in Plain(metric).state_dict().items():
        for prefix in ("", "normalization.", "linear_left.", "linear_right."):
            assert torch.equal(state[f"{prefix}algebra.{name}"].double(), table.double())
    x = random(4, 2, algebra.n_blades)
    for load in (torch.nn.Module.load_state_dict, cgenn.load_state_dict):
        other = cgenn.SteerableGeometricProductLayer(cgenn.CliffordAlgebra(metric), 2)
        load(other, state)
        assert torch.equal(other(x), layer(x))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
    sorted_metric = sorted(metric, key=(0, 1, -1).index)
    for other in (cgenn.CliffordAlgebra(sorted_metric), algebra.flashcliff_algebra):
        with pytest.raises(ValueError, match="expected the metric"):
            cgenn.load_state_dict(cgenn.SteerableGeometricProductLayer(other, 2), state)
    other = cgenn.SteerableGeometricProductLayer(cgenn.CliffordAlgebra(sorted_metric), 2)
    with pytest.raises(RuntimeError, match="metric: expected that of CliffordAlgebra"):
        other.load_state_dict(state)


def test_types_follow():
    algebra = cgenn.CliffordAlgebra((-1.0, 1.0, 1.0)).to(torch.float32)
    layer = cgenn.SteerableGeometricProductLayer(algebra, 2, dtype=torch.float32)
    x = random(4, 2, 8)
    want = layer.double()(x)
    got = layer.float()(x.float())
    assert got.dtype == torch.float32 and difference(got.double(), want) < 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        gate = cgenn.MVSiLU(algebra, 2, dtype=torch.float32)(x.bfloat16())
    assert gate.isfinite().all()
    # Values that are not finite stay in their blade.
    x[..., 3] = torch.inf
    there = cgenn.from_cgenn(x, algebra)
    assert there.isinf().sum() == 8 and not there.isnan().any()


@pytest.mark.share(4)
@pytest.mark.parametrize("metric", REORDERED, ids=str)
def test_compiled(metric):
    algebra = cgenn.CliffordAlgebra(metric)
    net = torch.nn.Sequential(*(layer for layer, _ in layers_of(algebra).values()))[3:7]
    x = random(4, 2, algebra.n_blades)
    compiled = torch.compile(net, fullgraph=WHOLE, backend="aot_eager")
    leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    got, want = compiled(leaf), net(other)
    assert difference(got, want) < 1e-14
    got.square().sum().backward()
    want.square().sum().backward()
    assert difference(leaf.grad, other.grad) < 1e-13


def test_the_rest_of_flashcliff_refuses_another_order():
    algebra = cgenn.CliffordAlgebra((-1, 1, 1))
    x = random(8, 3, 2)
    says = (
        r"expected vectors in the order null, positive, negative, got CliffordAlgebra\(\(-1.0, 1.0"
    )
    for call in (
        lambda: F.geometric_product(x, x, algebra),
        lambda: flashcliff.arrays.geometric_product(x.numpy(), x.numpy(), algebra),
        lambda: nn.SGPNorm(algebra, 2),
        lambda: nn.embed_points(x, algebra),
        lambda: nn.transformer.geometry_of(algebra),
    ):
        with pytest.raises(ValueError, match=says):
            call()


def test_modules_of_an_ordered_algebra_load_norms():
    algebra = cgenn.CliffordAlgebra((1, 1, 1))
    state = nn.SGPNorm((3, 0, 0), 2, norm="rms").state_dict()
    layer = nn.SGPNorm(algebra, 2, norm="invariant")
    layer.load_state_dict(state, strict=False)
    assert torch.equal(layer.weight, state["weight"])


@pytest.mark.parametrize("metric", LARGE[:6] + SMALL[3:12], ids=str)
def test_beside_cgenn(metric):
    """CGENN's own classes: tables, functions, layers, gradients, and state dicts both ways."""
    theirs = pytest.importorskip("algebra.cliffordalgebra")
    modules = {
        name: pytest.importorskip(f"models.modules.{name}")
        for name in ("linear", "normalization", "mvlayernorm", "mvsilu", "gp", "fcgp")
    }
    algebra, ours = theirs.CliffordAlgebra(metric), cgenn.CliffordAlgebra(metric)
    state = algebra.state_dict()
    assert list(state) == list(ours.state_dict())
    for name, value in ours.state_dict().items():
        assert torch.equal(value, state[name]) and value.dtype == state[name].dtype
    assert torch.equal(ours.bbo.index_to_bitmap, algebra.bbo.index_to_bitmap)
    assert torch.equal(ours.geometric_product_paths, algebra.geometric_product_paths)
    a, b = random(3, 2, ours.n_blades), random(3, 2, ours.n_blades, seed=1)
    for name in ("geometric_product", "b"):
        assert difference(getattr(ours, name)(a, b), getattr(algebra, name)(a, b)) < 1e-14
    for name in ("alpha", "beta", "gamma", "q", "norm"):
        assert difference(getattr(ours, name)(a), getattr(algebra, name)(a)) < 1e-14
    w = ours.embed_grade(random(len(metric)), 1)
    if ours.q(w).abs() > 1e-6:
        assert difference(ours.rho(w, a), algebra.rho(w, a)) < 1e-12
    made = {
        "linear": lambda kit, a: kit["linear"].MVLinear(a, 2, 3),
        "normalization": lambda kit, a: kit["normalization"].NormalizationLayer(a, 2),
        "layer norm": lambda kit, a: kit["mvlayernorm"].MVLayerNorm(a, 2),
        "gate": lambda kit, a: kit["mvsilu"].MVSiLU(a, 2),
        "product": lambda kit, a: kit["gp"].SteerableGeometricProductLayer(a, 2),
        "connected": lambda kit, a: kit["fcgp"].FullyConnectedSteerableGeometricProductLayer(
            a, 2, 3
        ),
    }
    for name, make in made.items():
        reference, layer = (
            disturb(make(modules, algebra)),
            make(dict.fromkeys(modules, cgenn), ours),
        )
        assert list(layer.state_dict()) == list(reference.state_dict())
        layer.load_state_dict(reference.state_dict())
        reference.load_state_dict(layer.state_dict())
        outputs = []
        for module in (layer, reference):
            x = a.clone().requires_grad_()
            output = module(x)
            gradient = random(*output.shape, seed=9)
            grads = torch.autograd.grad(output, [x, *module.parameters()], gradient)
            outputs.append((output, grads))
        (got, grads), (want, wanted) = outputs
        assert difference(got, want) < 1e-12, name
        largest = max(w.abs().max() for w in wanted)
        for g, w in zip(grads, wanted, strict=True):
            assert (g - w).abs().max() <= 1e-11 * max(w.abs().max(), 1e-3 * largest), name
