"""Algebras and grades that were not compiled."""

import pytest
import torch

import flashcliff
from flashcliff import functional as F
from flashcliff import nn

OTHERS = [(1, 1, 1), (2, 1, 1), (0, 3, 0), (3, 2, 0)]


def test_what_is_compiled():
    assert flashcliff.Algebra(3).is_compiled
    assert all(algebra.is_compiled for algebra in flashcliff.algebras())
    assert not flashcliff.Algebra(2, 1, 1).is_compiled


@pytest.mark.parametrize("signature", OTHERS)
def test_products_are_those_of_the_table(signature):
    algebra = flashcliff.Algebra(*signature)
    torch.manual_seed(0)
    x, y = torch.randn(2, algebra.blade_count, 3, 5, dtype=torch.float64)
    want = torch.zeros_like(x)
    for i, k, j, sign in algebra.terms("geometric"):
        want[j] += sign * x[i] * y[k]
    assert torch.allclose(F.geometric_product(x, y, algebra), want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("signature", OTHERS[:3])
def test_gradients(signature):
    algebra = flashcliff.Algebra(*signature)
    torch.manual_seed(1)
    blades = algebra.blade_count
    options = {"dtype": torch.float64, "requires_grad": True}
    x, y = torch.randn(blades, 2, 3, **options), torch.randn(blades, 2, 3, **options)
    weight = torch.randn(3, len(algebra.paths), **options)

    def function(*tensors):
        return F.sgp_norm(*tensors, algebra, eps=1e-2)

    assert torch.autograd.gradcheck(function, (x, y, weight))


def test_layers_train():
    torch.manual_seed(2)
    layer = nn.SGPNorm((2, 1, 1), 4)
    x = torch.randn(16, 8, 4)
    layer(x, x).square().mean().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())


def test_any_grades():
    x, y = torch.randn(4, 2, 3), torch.randn(8, 2, 3)
    full = torch.zeros(8, 2, 3)
    full[[0, 4, 5, 6]] = x
    algebra = flashcliff.Algebra(3)
    even = F.geometric_product(x, y, algebra, left=(0, 2))
    assert torch.allclose(even, F.geometric_product(full, y, algebra), atol=1e-6)
