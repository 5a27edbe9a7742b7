"""Conventions of torch.nn: parameters, starts, state dicts, copies, arguments."""

import copy
import io
import math
import pickle

import pytest
import torch
import torch._dynamo.testing
from nn_common import difference, random

import flashcliff
from flashcliff import functional, nn

CL300 = flashcliff.Algebra(3, 0, 0)

LAYERS = {
    "MVLinear": lambda **o: nn.MVLinear(CL300, 3, 4, **o),
    "PointEmbedding": lambda **o: nn.PointEmbedding(CL300, 3, 4, **o),
    "GradeNorm": lambda **o: nn.GradeNorm(CL300, 3, **o),
    "MVSiLU": lambda **o: nn.MVSiLU(CL300, 3, **o),
    "MVLayerNorm": lambda **o: nn.MVLayerNorm(CL300, 3, **o),
    "SGPNorm": lambda **o: nn.SGPNorm(CL300, 3, **o),
    "FCGPNorm": lambda **o: nn.FCGPNorm(CL300, 3, 4, **o),
    "SteerableGeometricProduct": lambda **o: nn.SteerableGeometricProduct(CL300, 3, **o),
    "FullyConnectedSteerableGeometricProduct": lambda **o: (
        nn.FullyConnectedSteerableGeometricProduct(CL300, 3, 4, **o)
    ),
    "FlashCliffordLayer": lambda **o: nn.FlashCliffordLayer(CL300, 3, **o),
}

SHAPES = {
    "MVLinear": {"weight": (4, 3, 4), "bias": (1, 4, 1)},
    "PointEmbedding": {"weight": (4, 3), "bias": (1, 4, 1)},
    "GradeNorm": {"a": (3, 4)},
    "MVSiLU": {"a": (1, 3, 4), "b": (1, 3, 4)},
    "MVLayerNorm": {"a": (1, 3)},
    "SGPNorm": {"weight": (3, 20)},
    "FCGPNorm": {"weight": (20, 3, 4)},
    "SteerableGeometricProduct": {
        "weight": (3, 20),
        "normalization.a": (3, 4),
        "linear_right.weight": (3, 3, 4),
        "linear_left.weight": (3, 3, 4),
        "linear_left.bias": (1, 3, 1),
    },
    "FullyConnectedSteerableGeometricProduct": {
        "weight": (4, 3, 20),
        "normalization.a": (3, 4),
        "linear_right.weight": (3, 3, 4),
        "linear_left.weight": (4, 3, 4),
        "linear_left.bias": (1, 4, 1),
    },
    "FlashCliffordLayer": {
        "gp_weight": (3, 20),
        "linear_weight": (4, 3, 3),
        "linear_bias": (1, 1, 3),
    },
}


@pytest.fixture(params=LAYERS)
def name(request):
    return request.param


def inputs_of(name, batch=5):
    first = random(batch, 3, 3) if name == "PointEmbedding" else random(8, batch, 3)
    return [first] + [random(8, batch, 3, seed=1)] * (name in ("SGPNorm", "FCGPNorm"))


def test_shapes(name):
    found = {key: tuple(value.shape) for key, value in LAYERS[name]().state_dict().items()}
    assert found == SHAPES[name]


def test_state_dict_round_trip(name):
    torch.manual_seed(0)
    first = LAYERS[name](dtype=torch.float64)
    second = LAYERS[name](dtype=torch.float64)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    inputs = inputs_of(name)
    assert torch.equal(first(*inputs), second(*inputs))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_independent(name, clone):
    layer = LAYERS[name](dtype=torch.float64)
    other = clone(layer)
    inputs = inputs_of(name)
    assert other.algebra is layer.algebra
    assert torch.equal(layer(*inputs), other(*inputs))
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    assert not torch.equal(next(layer.parameters()), next(other.parameters()))


def test_device_and_dtype(name):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert {p.dtype for p in LAYERS[name](dtype=dtype).parameters()} == {dtype}
    layer = LAYERS[name](device="meta")
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    layer = layer.to_empty(device="cpu").double()
    for module in layer.modules():
        if isinstance(module, nn.CliffordModule):
            module.reset_parameters()
    assert layer(*inputs_of(name)).isfinite().all()


def test_reset_is_the_constructor(name):
    """A seed gives the same start values; a module only resets its own parameters."""
    torch.manual_seed(3)
    first = LAYERS[name]()
    torch.manual_seed(3)
    second = LAYERS[name]()
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.fill_(9.0)
    torch.manual_seed(3)
    order = [m for m in second.modules() if isinstance(m, nn.CliffordModule)]
    # Parameters are drawn in the order of constructors: the parameters of inner modules first.
    for module in (*order[1:], order[0]):
        module.reset_parameters()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_extra_repr(name):
    text = repr(LAYERS[name]())
    assert text.startswith(f"{name}(")
    assert "Algebra(3, 0, 0)" in text
    assert "eatures=3" in text


def test_starts():
    """Spread of normal starts, over enough draws that 5 % is five standard errors."""
    torch.manual_seed(0)

    def spread(parameter, std):
        assert parameter.numel() > 5000
        assert abs(parameter.std().item() / std - 1) < 0.05
        assert abs(parameter.mean().item()) < 0.05 * std * 2

    linear = nn.MVLinear(CL300, 64, 48)
    spread(linear.weight, 64**-0.5)
    assert not linear.bias.any()
    spread(nn.SGPNorm(CL300, 512).weight, 4**-0.5)
    spread(nn.FCGPNorm(CL300, 48, 32).weight, (48 * 4) ** -0.5)
    spread(nn.SteerableGeometricProduct(CL300, 512).weight, 4**-0.5)
    product = nn.FullyConnectedSteerableGeometricProduct(CL300, 48, 32)
    spread(product.weight, (48 * 4) ** -0.5)
    layer = nn.FlashCliffordLayer(CL300, 512)
    spread(layer.gp_weight, 4**-0.5)
    spread(layer.linear_weight, (512 * 4) ** -0.5)
    layer = nn.FlashCliffordLayer(CL300, 32, fully_connected=True)
    spread(layer.gp_weight, 4**-0.5)
    assert abs(layer.linear_weight.std().item() * 32**0.5 - 1) < 0.1
    assert (nn.GradeNorm(CL300, 3, 0.25).a == 0.25).all()
    silu = nn.MVSiLU(CL300, 3)
    assert (silu.a == 1).all() and not silu.b.any()
    assert (nn.MVLayerNorm(CL300, 3).a == 1).all()


def test_an_algebra_may_be_a_tuple():
    assert nn.MVLinear((3, 0, 0), 2, 2).algebra is CL300


def test_wrong_tensors(name):
    """Errors come from the operators, as exceptions that say what was expected."""
    layer = LAYERS[name](dtype=torch.float64)
    wrong = [x[..., :2].contiguous() for x in inputs_of(name)]
    with pytest.raises((ValueError, RuntimeError)) as caught:
        layer(*wrong)
    assert str(caught.value)
    if name != "PointEmbedding":
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            layer(*(x.float() for x in inputs_of(name)))


def test_training_reduces_the_loss(name):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    inputs = [x.float() for x in inputs_of(name, batch=64)]
    target = torch.randn_like(layer(*inputs)).detach()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.mse_loss(layer(*inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert math.isfinite(losses[-1])
    assert losses[-1] < losses[0]


def test_frozen_parameters_get_no_gradient():
    layer = nn.SteerableGeometricProduct(CL300, 3, dtype=torch.float64)
    layer.linear_right.requires_grad_(False)
    layer(random(8, 5, 3)).sum().backward()
    assert layer.linear_right.weight.grad is None
    assert layer.weight.grad.abs().sum() > 0


class Wrapped(torch.nn.Module):
    """A wrapper like those for checkpoints and for sharding."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def hooked(module):
    module.register_forward_hook(lambda module, args, output: output.clone())
    return module


def patched(module):
    module.forward = lambda x: type(module).forward(module, x)
    return module


@pytest.mark.parametrize(
    "wrap",
    [Wrapped, hooked, patched, lambda module: torch.compile(module, backend="eager")],
    ids=["wrapped", "hooked", "patched", "compiled"],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: nn.SteerableGeometricProduct(CL300, 3, **o),
        lambda **o: nn.FullyConnectedSteerableGeometricProduct(CL300, 3, 3, **o),
    ],
    ids=["each", "all"],
)
def test_a_wrapped_normalization_is_none_the_less_one(make, wrap):
    torch._dynamo.reset()
    layer = make(normalization_init=0.7, dtype=torch.float64)
    x = random(8, 5, 3)
    wanted = layer(x)
    a = layer.normalization.a
    others = [layer.weight, layer.linear_right.weight, layer.linear_left.weight]
    gradients = torch.autograd.grad(wanted.square().sum(), [a, *others])
    layer.normalization = wrap(layer.normalization)
    output = layer(x)
    assert difference(output, wanted) < 1e-13
    for got, want in zip(torch.autograd.grad(output.square().sum(), [a, *others]), gradients):
        assert want.abs().max() > 1e-3 and difference(got, want) < 1e-12


def test_hooks_of_a_normalization_run():
    layer = nn.SteerableGeometricProduct(CL300, 3)
    called = []
    norm = layer.normalization
    handles = [
        norm.register_forward_pre_hook(lambda *_: called.append("before")),
        norm.register_forward_hook(lambda *_: called.append("after")),
        norm.register_full_backward_pre_hook(lambda *_: called.append("back")),
        norm.register_full_backward_hook(lambda *_: called.append("done")),
    ]
    layer(torch.randn(8, 5, 3)).sum().backward()
    assert called == ["before", "after", "back", "done"]
    for handle in handles:
        handle.remove()
    layer(torch.randn(8, 5, 3)).sum().backward()
    assert len(called) == 4


def test_a_normalization_may_be_replaced():
    """The normalization may be any module, even one that does nothing."""
    layer = nn.SteerableGeometricProduct(CL300, 3, dtype=torch.float64)
    x = random(8, 5, 3)
    layer.normalization = nn.GradeRMSNorm(CL300)
    right = layer.normalization(layer.linear_right(x))
    left = layer.linear_left(x)
    wanted = functional.steerable_product(x, right, layer.weight, None, left, algebra=CL300)
    assert torch.equal(layer(x), wanted)
    layer.normalization = torch.nn.Identity()
    right = layer.linear_right(x)
    wanted = functional.steerable_product(x, right, layer.weight, None, left, algebra=CL300)
    assert torch.equal(layer(x), wanted)


def test_autocast(name):
    """Storage may be narrow; the result is near that of float32."""
    torch.manual_seed(0)
    layer = LAYERS[name]()
    inputs = [x.float() for x in inputs_of(name)]
    want = layer(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(*inputs)
    assert got.dtype in (torch.bfloat16, torch.float32)
    assert (got.float() - want).abs().max() < 0.05 * want.abs().max()


@pytest.mark.fullgraph
def test_compiles_whole_and_for_any_batch(name):
    torch._dynamo.reset()
    layer = LAYERS[name](dtype=torch.float64)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    batch_axis = 0 if name == "PointEmbedding" else 1
    for batch in (5, 7, 12):
        inputs = inputs_of(name, batch)
        for tensor in inputs:
            torch._dynamo.mark_dynamic(tensor, batch_axis)
        got = compiled(*inputs)
        assert torch.equal(got, layer(*inputs))
        got.sum().backward()
    assert counter.frame_count == 1


def test_state_dicts_say_which_norm_their_weights_are_of(tmp_path):
    algebra = flashcliff.Algebra(1, 3, 0)
    layer = nn.FlashCliffordLayer(algebra, 3)
    assert "norm='invariant'" in repr(layer)
    torch.save(torch.nn.Sequential(layer).state_dict(), tmp_path / "layer.pt")
    saved = torch.load(tmp_path / "layer.pt")
    torch.nn.Sequential(nn.FlashCliffordLayer(algebra, 3)).load_state_dict(saved)
    other = torch.nn.Sequential(nn.FlashCliffordLayer(algebra, 3, norm="rms"))
    with pytest.raises(RuntimeError, match="norm='invariant'.*norm='rms'.*make it with"):
        other.load_state_dict(saved)
    # Weights that name no norm are accepted. If both norms are the same, there is nothing to check.
    other.load_state_dict(dict(saved))
    same = nn.FlashCliffordLayer(flashcliff.Algebra(3, 0, 0), 3, norm="rms")
    same.load_state_dict(nn.FlashCliffordLayer(flashcliff.Algebra(3, 0, 0), 3).state_dict())
