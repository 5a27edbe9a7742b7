"""Triton kernels on an NVIDIA GPU, beside the CUDA kernels of the extension."""

import pytest
import torch

pytest.importorskip("triton")

from triton_common import LANES, both_passes, by_triton, compare, sgp

import flashcliff
from flashcliff._triton import tiles

pytestmark = pytest.mark.cuda


def on_gpu(tensors):
    return {name: tensor.cuda() for name, tensor in tensors.items()}


@pytest.mark.parametrize("case", LANES, ids=lambda case: case.id)
def test_both_passes_are_those_of_the_reference(case):
    tensors = case.tensors(dtype=torch.float32, device="cuda")
    exact = {name: tensor.double().requires_grad_() for name, tensor in tensors.items()}
    output = case.reference(**exact)
    grad = torch.randn(output.shape, device="cuda")
    wanted = torch.autograd.grad(output, list(exact.values()), grad.double())
    compare(by_triton(both_passes, case, tensors, grad), [output, *wanted], 5e-6)


@pytest.mark.parametrize("choice", tiles.CHOICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("channels", "batch"), [(512, 300), (96, 1000), (33, 77), (2500, 40)])
def test_results_are_those_of_cuda_kernels(channels, batch, dtype, choice):
    case, tensors, grad = sgp(channels, batch, dtype=dtype)
    tensors, grad = on_gpu(tensors), grad.cuda()
    wanted = both_passes(case, tensors, grad)
    with tiles.using(choice):
        found = by_triton(both_passes, case, tensors, grad)
        again = by_triton(both_passes, case, tensors, grad)
    tolerance = 5e-6 if dtype is torch.float32 else 2 * torch.finfo(dtype).eps
    compare(found, wanted, tolerance)
    for one, other in zip(found, again, strict=True):
        assert torch.equal(one, other)


def test_backward_passes_on_threads_of_autograd_take_the_backend():
    case, tensors, grad = sgp(64, 50)
    tensors, grad = on_gpu(tensors), grad.cuda()
    calls = []
    from flashcliff._triton import launch

    real = launch.backward

    def counted(*arguments):
        calls.append(arguments[0].name)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "backward", counted)
        by_triton(both_passes, case, tensors, grad)
    assert calls == ["sgp_norm"]


def test_a_captured_step_replays_the_bits():
    case, tensors, grad = sgp(64, 50)
    tensors, grad = on_gpu(tensors), grad.cuda()
    with flashcliff.backend("triton"):
        wanted = both_passes(case, tensors, grad)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = both_passes(case, tensors, grad)
        graph.replay()
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
