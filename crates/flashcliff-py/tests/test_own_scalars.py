"""Operators that users write over multivectors and scalars beside them. The scalars have their own channels."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import flashcliff
from flashcliff.operators import Multivector, PerChannel, Scalars, operator

SPACETIME = flashcliff.Algebra(1, 3, 0)
EPS = 0.25


@operator(SPACETIME, eps=EPS)
def slim_norm(x: Multivector.of(1), s: Scalars, a: PerChannel, b: PerChannel(scalars=True)):
    """The norm of L-GATr-slim (arXiv 2512.17011): vectors and scalars over the root of the mean of their squares."""
    square = x.quadratic_form()
    size, own = square.maximum(-square), s * s
    mean = (size.sum() + own.sum()) / (size.count() + own.count())
    factor = 1.0 / (mean + EPS).sqrt()
    return x * (factor * a), s * (factor * b)


def by_formula(x, s, a, b):
    metric = torch.tensor([1.0, -1, -1, -1], dtype=x.dtype, device=x.device)
    size = (x.square() * metric.view(4, *[1] * (x.dim() - 1))).sum(0).abs().sum(-1)
    total = size + s[0].square().sum(-1)
    factor = torch.rsqrt(total / (x.shape[-1] + s.shape[-1]) + EPS).unsqueeze(-1)
    return x * factor * a[:, 0], s * factor * b[:, 0]


def given(batch, channels, scalars, dtype=torch.float64, device="cpu"):
    torch.manual_seed(3)
    shapes = ((4, *batch, channels), (1, *batch, scalars), (channels, 1), (scalars, 1))
    return [torch.randn(shape, dtype=torch.float64).to(device, dtype) for shape in shapes]


SIZES = [((5,), 4, 6), ((2, 3), 3, 5), ((), 2, 7), ((7,), 16, 1), ((4,), 3, 0), ((4,), 0, 3), ((0,), 2, 3), ((300,), 40, 70)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_vectors_and_scalars_share_a_norm(sizes, device):
    for dtype, within in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        tensors = given(*sizes, dtype, device)
        for got, want in zip(slim_norm(*tensors), by_formula(*tensors)):
            assert got.shape == want.shape
            assert torch.allclose(got, want, rtol=within, atol=within)


def test_derivatives_of_every_order(device):
    tensors = [t.requires_grad_() for t in given((3,), 2, 3, device=device)]
    assert gradcheck(slim_norm, tensors, check_forward_ad=True)
    assert gradgradcheck(slim_norm, tensors, check_fwd_over_rev=True)


def test_gradients_are_those_of_the_formula(device):
    tensors = [t.requires_grad_() for t in given((30,), 24, 10, device=device)]
    weights = [torch.randn_like(t) for t in by_formula(*tensors)]

    def gradients(function):
        loss = sum((w * t).sum() for w, t in zip(weights, function(*tensors)))
        return torch.autograd.grad(loss, tensors)

    for got, want in zip(gradients(slim_norm), gradients(by_formula)):
        assert torch.allclose(got, want, rtol=1e-11, atol=1e-12)


def test_tensors_with_their_axes_in_another_order(device):
    """Networks of vectors and scalars have the blades after the batch."""
    x, s, a, b = given((9,), 6, 4, torch.float32, device)
    moved = [t.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for t in (x, s)]
    plain = [t.clone().requires_grad_() for t in (x, s)]
    results = [slim_norm(*given, a, b) for given in (moved, plain)]
    for got, want in zip(*results):
        assert torch.allclose(got, want, rtol=1e-6, atol=1e-6)
    gradients = [
        torch.autograd.grad((o * o).sum() + t.sum(), given)
        for (o, t), given in zip(results, (moved, plain))
    ]
    for got, want in zip(*gradients):
        assert torch.allclose(got, want, rtol=1e-5, atol=1e-5)
    if device == "cuda":
        assert results[0][0].stride() == moved[0].stride()


def test_transforms():
    x, s, a, b = given((5,), 3, 2)

    def total(x, s):
        o, t = slim_norm(x, s, a, b)
        return (o * o).sum() + t.sum()

    def by_torch(x, s):
        o, t = by_formula(x, s, a, b)
        return (o * o).sum() + t.sum()

    for got, want in zip(
        torch.func.hessian(total, argnums=(0, 1))(x, s)[0],
        torch.func.hessian(by_torch, argnums=(0, 1))(x, s)[0],
    ):
        assert torch.allclose(got, want, rtol=1e-10, atol=1e-11)
    batches = [torch.stack([t, 2 * t, -t]) for t in (x, s)]
    got = torch.func.vmap(total)(*batches)
    want = torch.stack([total(*pair) for pair in zip(*batches)])
    assert torch.allclose(got, want, rtol=1e-12)


def test_a_mean_is_over_its_own_channels():
    @operator(SPACETIME)
    def means(x: Multivector.of(0), s: Scalars):
        return x * s.mean(), s * x.scalar.mean()

    x, s = torch.randn(1, 4, 3, dtype=torch.float64), torch.randn(1, 4, 5, dtype=torch.float64)
    o, t = means(x, s)
    assert torch.allclose(o, x * s.mean(-1, keepdim=True), rtol=1e-12)
    assert torch.allclose(t, s * x.mean(-1, keepdim=True), rtol=1e-12)


def test_wrong_sizes_are_named():
    x, s, a, b = given((5,), 3, 2)
    with pytest.raises(ValueError, match=r"tensor `b` must be \[scalars = 2, 1\], got \[3, 1\]"):
        slim_norm(x, s, a, a)
    with pytest.raises(ValueError, match="`s` must be"):
        slim_norm(x, s[:, :4], a, b)


def test_axes_have_names():
    names = {name: axes for name, axes in slim_norm.inputs}
    assert names["x"] == (4, "batch", "in")
    assert names["s"] == (1, "batch", "scalars")
    assert names["b"] == ("scalars", 1)
    assert slim_norm.grades == ((1,), (0,))
