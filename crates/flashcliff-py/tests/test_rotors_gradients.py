"""Derivatives of rotors: first and second order, compiled, and on a GPU."""

import pytest
import torch
from rotors_common import SIGNATURES, random_bivectors

from flashcliff import rotors

PLANAR = [(2, 0, 0), (1, 1, 0), (1, 0, 1)]
"""A rotation, a boost and a translation."""
RINGS = [(4, 0, 0), (1, 3, 0), (3, 0, 1), (2, 2, 0), (5, 0, 0), (4, 1, 0), (2, 1, 2)]
"""4-vectors that square to positive and negative numbers and to zero."""


def functions(signature):
    """Each function with an argument."""
    b = random_bivectors(signature, 0.5, items=1, seed=4)
    r = rotors.exp(b, signature)
    other = rotors.exp(b.flip(0), signature)
    return {
        "exp": (lambda x: rotors.exp(x, signature), b),
        "exp_at_zero": (lambda x: rotors.exp(x, signature), 0 * b),
        "log": (lambda x: rotors.log(x, signature), 1.5 * r),
        "inverse": (lambda x: rotors.inverse(x, signature), 1.5 * r),
        "normalized": (lambda x: rotors.normalized(x, signature), 1.5 * r),
        "interpolate": (
            lambda x: rotors.interpolate(x, other.to(x.device), 0.3, signature),
            1.5 * r,
        ),
    }


@pytest.mark.parametrize("signature", PLANAR + RINGS)
def test_derivatives_of_first_and_second_order(signature):
    for function, x in functions(signature).values():
        x = x.detach().requires_grad_()
        assert torch.autograd.gradcheck(function, (x,), fast_mode=True)
        assert torch.autograd.gradgradcheck(function, (x,), fast_mode=True)


@pytest.mark.parametrize("signature", [s for s in SIGNATURES if sum(s) > 1])
def test_derivatives_at_special_points_are_finite(signature):
    """At zero, at a simple bivector and, where there are two planes, at one with equal angles."""
    zero = random_bivectors(signature, 0.0, items=1)
    simple, isoclinic = zero.clone(), zero.clone()
    simple[0] = 0.5
    isoclinic[0] = isoclinic[-1] = 0.5
    for b in (zero, simple, isoclinic):
        b.requires_grad_()
        back = rotors.log(rotors.exp(b, signature), signature)
        (gradient,) = torch.autograd.grad(back.sum(), b)
        # The logarithm undoes the exponential.
        assert (gradient - 1).abs().max() < 1e-12


def test_the_action_has_gradients():
    generator = torch.Generator().manual_seed(0)
    x, versors, weight = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((3, 2, 2), (4, 2, 2), (2, 2))
    )

    def run(*tensors):
        return rotors.action(*tensors, (3, 0, 0), grades=(1,))

    assert torch.autograd.gradcheck(run, (x, versors, weight))
    assert torch.autograd.gradgradcheck(run, (x, versors, weight), fast_mode=True)


@pytest.mark.parametrize("signature", [(3, 0, 0), (3, 0, 1)])
def test_whole_graphs_compile(signature):
    """Without breaks of the graph. The backend runs what was traced as it is: a compiler needs longer."""

    def loss(b, x, weight):
        r = rotors.exp(b, signature)
        middle = rotors.interpolate(r, rotors.normalized(2 * r, signature), 0.5, signature)
        back = rotors.log(rotors.inverse(middle, signature), signature)
        return back.square().sum() + rotors.action(x, r, weight, signature).square().sum()

    b = random_bivectors(signature, 0.5).view(-1, 2, 2).requires_grad_()
    x = torch.randn(2 ** sum(signature), 3, 2, dtype=torch.float64)
    weight = torch.randn(2, 2, dtype=torch.float64)
    wanted = loss(b, x, weight)
    got = torch.compile(loss, fullgraph=True, backend="aot_eager")(b, x, weight)
    gradients = [torch.autograd.grad(value, b)[0] for value in (wanted, got)]
    assert (got - wanted).abs() < 1e-12 * wanted.abs()
    assert (gradients[0] - gradients[1]).abs().max() < 1e-12 * gradients[0].abs().max()


def test_compiled_autograd():
    """The gradients of calls that ran outside of any graph, as a graph."""
    for function, x in functions((3, 0, 1)).values():
        leaf = x.detach().requires_grad_()
        (wanted,) = torch.autograd.grad(function(leaf).square().sum(), leaf)
        torch._dynamo.reset()
        loss = function(leaf).square().sum()
        compiler = torch.compile(backend="eager", fullgraph=True)
        with torch._dynamo.compiled_autograd._enable(compiler):
            loss.backward()
        assert torch.equal(leaf.grad, wanted)


def test_the_third_derivative_of_an_interpolation():
    b = random_bivectors((3, 0, 1), 0.4, items=1, seed=5)
    ends = rotors.exp(b, (3, 0, 1)), rotors.exp(b.flip(0), (3, 0, 1))
    weights = torch.linspace(-1, 1, 8, dtype=torch.float64).view(8, 1, 1)

    def curvature(*given):
        x = rotors.interpolate(*given, (3, 0, 1))
        for _ in range(2):
            (x,) = torch.autograd.grad((weights * x).sum(), given[0], create_graph=True)
        return x

    t = torch.tensor(0.3, dtype=torch.float64)
    given = [tensor.requires_grad_() for tensor in (*ends, t)]
    assert torch.autograd.gradcheck(curvature, given, fast_mode=True)


@pytest.mark.cuda
@pytest.mark.parametrize("signature", [(3, 0, 0), (3, 0, 1)])
def test_second_derivatives_on_a_gpu_are_those_of_the_cpu(signature):
    for function, x in functions(signature).values():
        found = []
        for device in ("cpu", "cuda"):
            leaf = x.detach().to(device).requires_grad_()
            value = function(leaf).square().sum()
            (slope,) = torch.autograd.grad(value, leaf, create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), leaf)[0].cpu())
        assert (found[0] - found[1]).abs().max() < 1e-10 * (1 + found[0].abs().max())


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("batch, channels", [(1021, 1), (512, 3), (3, 128)])
def test_a_gpu_takes_every_type_and_any_number_of_items(dtype, batch, channels):
    """Kernels see tensors of few channels in longer rows. Sines of both differ in the last bit, which changes few roundings."""
    b = random_bivectors((3, 0, 1), 0.7, items=batch * channels).view(6, batch, channels).to(dtype)
    found = []
    for device in ("cpu", "cuda"):
        leaf = b.to(device).requires_grad_()
        r = rotors.exp(leaf, (3, 0, 1))
        assert r.dtype == dtype
        middle = rotors.interpolate(r, r.flip(1), 0.3, (3, 0, 1))
        found.append((middle.cpu(), torch.autograd.grad(middle.square().sum(), leaf)[0].cpu()))
    for mine, other in zip(*found):
        error = (mine.double() - other.double()).abs().max()
        assert error < 64 * max(torch.finfo(dtype).eps, 1e-12) * (1 + mine.double().abs().max())


@pytest.mark.cuda
@pytest.mark.parametrize("signature", PLANAR + RINGS)
def test_a_gpu_agrees_with_the_cpu(signature):
    for function, x in functions(signature).values():
        results = []
        for device in ("cpu", "cuda"):
            leaf = x.detach().to(device).requires_grad_()
            value = function(leaf)
            results.append((value.cpu(), torch.autograd.grad(value.square().sum(), leaf)[0].cpu()))
        for mine, other in zip(*results):
            assert (mine - other).abs().max() < 1e-11 * (1 + mine.abs().max())
