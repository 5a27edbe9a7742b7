"""Derivatives of all layers and of the networks, by inputs and by parameters, in both modes: beside differences."""

import pytest
import torch
from doors_cases import lgatr_net, slim_net
from network_cases import NETWORKS
from nn_cases import LAYERS
from nn_common import disturb
from torch import func
from torch.autograd import gradcheck, gradgradcheck

import flashcliff
from flashcliff import nn, rotors
from flashcliff.compat import cgenn
from flashcliff.nn import models
from flashcliff.nn import transformer as gt

pytestmark = pytest.mark.filterwarnings(
    "ignore::flashcliff.EquivarianceWarning", "ignore:.*torch.jit.script"
)

SIGNATURES = [(2, 0, 0), (3, 0, 0), (3, 0, 1), (1, 3, 0)]
GEOMETRIES = [(3, 0, 0), (3, 0, 1), (1, 3, 0)]
PGA = flashcliff.Algebra(3, 0, 1)

OPTIONS = [
    "linear True True",
    "grade_norm",
    "silu mag2",
    "silu norm",
    "layer_norm",
    "gate gelu",
    "grade_rms invariant",
    "steerable True 0.0",
    "fully_connected True 0.0",
    "flash_clifford invariant False scalar",
    "flash_clifford none False scalar",
    "flash_clifford rms False scalar",
    "flash_clifford invariant True scalar",
    "product",
    "sandwich",
    "sgp_norm gelu invariant",
    "fcgp_norm invariant",
]
"""Layers of multivectors, each with options that change its derivatives."""

TRANSFORMER = {
    "EquiLinear": lambda a: gt.EquiLinear(a, 2, 2, 2, 2),
    "EquiLayerNorm": lambda a: gt.EquiLayerNorm(a, 2, 2, affine=True),
    "ScalarGate": lambda a: gt.ScalarGate(),
    "GeometricBilinear": lambda a: gt.GeometricBilinear(a, 2, 4, in_scalars=2, out_scalars=2),
    "GeometricMLP": lambda a: gt.GeometricMLP(a, (2, 4, 2), (2, 2, 2)),
    "SelfAttention": lambda a: gt.SelfAttention(a, 2, 2, heads=1),
    "SelfAttention, rotary": lambda a: gt.SelfAttention(a, 2, 2, heads=2, rotary=True),
    "SelfAttention, multi-query": lambda a: gt.SelfAttention(a, 2, 2, heads=2, multi_query=True),
    "Block": lambda a: gt.Block(a, 2, 2, attention={"heads": 1}),
}
"""Layers of multivectors and scalars."""


def multivector(algebra, *shape):
    return torch.randn(algebra.blade_count, *shape, dtype=torch.float64)


def check(module, *inputs, parameters=True, **options):
    """First and second derivatives in all modes, by inputs and parameters."""
    module = disturb(module.double())
    named = dict(module.named_parameters()) if parameters else {}
    count = len(inputs)

    def run(*tensors):
        given = dict(zip(named, tensors[count:], strict=True))
        out = func.functional_call(module, given, tensors[:count], options)
        return out if isinstance(out, torch.Tensor) else tuple(o for o in out if o is not None)

    leaves = tuple(x.detach().clone().requires_grad_() for x in (*inputs, *named.values()))
    fast = {"fast_mode": True}
    assert gradcheck(run, leaves, check_forward_ad=True, **fast)
    assert gradgradcheck(run, leaves, **fast)
    forward_over_reverse = {"check_fwd_over_rev": True, "check_rev_over_rev": False}
    assert gradgradcheck(run, leaves, check_undefined_grad=False, **forward_over_reverse, **fast)


@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_layers(name, signature):
    algebra, case = flashcliff.Algebra(*signature), LAYERS[name]
    check(case.make(algebra), *(multivector(algebra, 2, 3) for _ in range(case.inputs)))


@pytest.mark.parametrize("metric", [(1, 1), (1, 1, 1), (0, 1, 1, 1), (1, -1, -1, -1)], ids=str)
def test_layers_of_cgenn(metric):
    algebra = cgenn.CliffordAlgebra(metric)
    x = torch.randn(2, 2, 2 ** len(metric), dtype=torch.float64)
    check(cgenn.MVLinear(algebra, 2, 3), x)


@pytest.mark.share(4)
@pytest.mark.parametrize("signature", GEOMETRIES, ids=str)
@pytest.mark.parametrize("name", TRANSFORMER)
def test_layers_of_transformers(name, signature):
    algebra = flashcliff.Algebra(*signature)
    options = {}
    if algebra == PGA and name in ("GeometricBilinear", "GeometricMLP", "Block"):
        options["reference"] = multivector(algebra, 3, 1)
    check(
        TRANSFORMER[name](algebra),
        multivector(algebra, 3, 2),
        torch.randn(3, 2, dtype=torch.float64),
        **options,
    )


@pytest.mark.long
def test_cross_attention():
    algebra = flashcliff.Algebra(1, 3)
    scalars = [torch.randn(items, 2, dtype=torch.float64) for items in (3, 4)]
    layer = gt.CrossAttention(algebra, 2, 2, 2, 2, heads=1)
    check(layer, multivector(algebra, 3, 2), multivector(algebra, 4, 2), *scalars)


@pytest.mark.long
def test_a_block_with_a_condition():
    algebra = flashcliff.Algebra(1, 3)
    scalars = [torch.randn(items, 2, dtype=torch.float64) for items in (3, 4)]
    layer = gt.ConditionalBlock(
        algebra, 2, 2, 2, 2, attention={"heads": 1}, cross_attention={"heads": 1}
    )
    check(layer, multivector(algebra, 3, 2), multivector(algebra, 4, 2), *scalars)


def test_rotary_encodings_and_joins():
    check(gt.RotaryEncoding(4), torch.randn(3, 2, 4, dtype=torch.float64))
    tensors = tuple(multivector(PGA, 2, 2).requires_grad_() for _ in range(2))
    tensors += (torch.randn(2, 1, dtype=torch.float64, requires_grad=True),)
    run = lambda x, y, reference: gt.equi_join(x, y, reference, PGA)  # noqa: E731
    assert gradcheck(run, tensors, fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(run, tensors, fast_mode=True)


@pytest.mark.parametrize("signature", GEOMETRIES, ids=str)
def test_a_network_by_its_inputs(signature):
    torch.manual_seed(0)
    algebra = flashcliff.Algebra(*signature)
    net = gt.GATransformer(algebra, 1, 1, 2, 2, 2, 4, blocks=1, attention={"heads": 1})
    check(net, multivector(algebra, 3, 1), torch.randn(3, 2, dtype=torch.float64), parameters=False)


@pytest.mark.parametrize("make", [lgatr_net, slim_net], ids=["LGATr", "LGATrSlim"])
def test_networks_of_lgatr_by_their_inputs(make):
    width = 16 if make is lgatr_net else 4
    given = torch.randn(3, 1, width, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    check(make().eval(), *given, parameters=False)


def test_models():
    check(models.Hulls(points=7, features=2, products=1), torch.randn(2, 7, 5, dtype=torch.float64))
    check(models.Volumes(points=3, features=2, gates=1), torch.randn(2, 3, 3, dtype=torch.float64))


def test_points_and_rotors():
    algebra = flashcliff.Algebra(3)
    check(nn.PointEmbedding(algebra, 2, 3), torch.randn(4, 2, 3, dtype=torch.float64))
    bivectors = torch.randn(6, 2, 2, dtype=torch.float64, requires_grad=True)

    def there_and_back(b):
        return rotors.log(rotors.normalized(rotors.exp(b, PGA), PGA), PGA)

    assert gradcheck(there_and_back, (bivectors,), fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(there_and_back, (bivectors,), fast_mode=True)


@pytest.mark.parametrize("name", ["NBody", "MVNBody", "jets", "simplices", "EGCL 2 1"])
def test_networks_on_graphs_by_their_inputs(name):
    case = NETWORKS[name]()

    def call(*given):
        return case.out(**dict(zip(case.leaves, given)))

    given = list(case.leaves.values())
    assert torch.autograd.gradcheck(call, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, given, fast_mode=True)
