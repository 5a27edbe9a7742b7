"""L-GATr-slim on a GPU: its norm and its gated linear units are one kernel each, with the results of operations of PyTorch."""

import pytest
import torch

from flashcliff.compat import lgatr
from flashcliff.compat.lgatr.layers import SlimGLU, SlimRMSNorm, slim_kernels

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SIZES = [((5,), 8, 16), ((2, 7), 3, 5), ((), 4, 4), ((300,), 32, 96), ((6,), 0, 4), ((6,), 4, 0), ((0,), 4, 4)]
WITHIN = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2}


@pytest.fixture
def composed(monkeypatch):
    """A function that computes without the kernels."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(slim_kernels, "_serves", lambda *_: False)
            return function()

    return run


def with_gradients(module, tensors):
    """The outputs of a module, and the gradients of its inputs and parameters."""
    outputs = module(*tensors)
    torch.manual_seed(1)
    loss = sum((o * torch.randn(o.shape, dtype=torch.float64).to(o)).sum() for o in outputs)
    leaves = [leaf for leaf in (*tensors, *module.parameters()) if leaf.requires_grad]
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [*outputs, *(g for g in gradients if g is not None)]


def agree(found, expected, within):
    assert len(found) == len(expected)
    for one, two in zip(found, expected):
        assert one.shape == two.shape and one.dtype == two.dtype
        if one.numel():
            assert (one - two).abs().max() <= within * two.abs().max().clamp_min(1e-3)


def given(batch, vectors, scalars, dtype):
    torch.manual_seed(0)
    shapes = (*batch, 4, vectors), (*batch, scalars)
    return [torch.randn(s, dtype=torch.float64).to("cuda", dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", WITHIN, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_norm(sizes, dtype, affine, composed):
    module = SlimRMSNorm(*sizes[1:], elementwise_affine=affine).to("cuda", dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(0.5, 1.5)
    tensors = given(*sizes, dtype)
    assert slim_kernels.norm(*tensors, tuple(module.parameters()), 0.01) is not None
    expected = composed(lambda: with_gradients(module, tensors))
    agree(with_gradients(module, tensors), expected, WITHIN[dtype])


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "gelu", "silu"])
@pytest.mark.parametrize("dtype", WITHIN, ids=str)
def test_gated_linear_units(name, dtype, composed):
    module = SlimGLU(6, 8, 5, 12, nonlinearity=name, nonlinearity_v=None).to("cuda", dtype)
    tensors = given((9,), 6, 5, dtype)
    expected = composed(lambda: with_gradients(module, tensors))
    agree(with_gradients(module, tensors), expected, WITHIN[dtype])


def network():
    torch.manual_seed(4)
    sizes = dict(in_v_channels=2, out_v_channels=1, hidden_v_channels=8, in_s_channels=3, out_s_channels=2, hidden_s_channels=16)
    return lgatr.LGATrSlim(**sizes, num_blocks=2, num_heads=2)


def test_a_network_is_that_of_the_cpu():
    model = network().double()
    v, s = torch.randn(3, 10, 2, 4).double(), torch.randn(3, 10, 3).double()
    expected = with_gradients(model, [v.clone().requires_grad_(), s.clone().requires_grad_()])
    on_gpu = [t.cuda().requires_grad_() for t in (v, s)]
    found = with_gradients(model.cuda(), on_gpu)
    agree([t.cpu() for t in found], expected, 1e-10)


def test_a_network_is_captured(composed):
    model = network().cuda()
    v, s = torch.randn(3, 10, 2, 4, device="cuda"), torch.randn(3, 10, 3, device="cuda")
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(2):
            model(v, s)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            found = model(v, s)
    graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        expected = composed(lambda: model(v, s))
    agree(found, expected, 2e-5)


def test_transforms_and_tensors_of_two_types_are_composed():
    module = SlimRMSNorm(4, 4).cuda()
    v, s = given((5,), 4, 4, torch.float32)
    one, two = torch.func.vmap(module)(v, s)
    assert torch.allclose(one, module(v, s)[0], rtol=1e-5, atol=1e-6)
    assert torch.allclose(two, module(v, s)[1], rtol=1e-5, atol=1e-6)
    assert slim_kernels.norm(v, s.double(), (), 0.01) is None
    assert module(v, s.double())[1].dtype == torch.float64
