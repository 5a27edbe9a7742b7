"""The range of norms of products, as the operators' documentation has it, and the grades of sandwiches."""

import pytest
import torch

from flashcliff import Algebra
from flashcliff import functional as F


@pytest.mark.parametrize("signature", [(3, 0, 0), (1, 3, 0)])
@pytest.mark.parametrize("norm", ["rms", "invariant"])
def test_norms_of_products_are_right_within_their_range(signature, norm):
    """Squares of a grade, over its blades and channels, sum to at most 3.4e38 in float32. Beyond it a grade is zero or NaN."""
    algebra = Algebra(*signature)
    torch.manual_seed(0)
    x, y = torch.randn(2, algebra.blade_count, 4, 8)
    weight = torch.randn(8, len(algebra.paths))
    options = {"gate": "none", "norm": norm}
    product = F.sgp_norm(x.double(), y.double(), weight.double(), algebra, gate="none", norm="none")
    grades = [[i for i, g in enumerate(algebra.grades) if g == k] for k in range(algebra.grade_count)]
    sums = [product[blades].square().sum((0, 2)).max() for blades in grades]
    # The factor of each operand at which the largest sum is half of the largest number.
    most = (torch.finfo(torch.float32).max / 2 / max(sums)) ** 0.25
    factor = 2.0 ** most.log2().floor().item()
    wanted = F.sgp_norm(factor * x.double(), factor * y.double(), weight.double(), algebra, **options)
    got = F.sgp_norm(factor * x, factor * y, weight, algebra, **options)
    assert factor > 1e8 and (got - wanted).abs().max() < 1e-4 * wanted.abs().max()
    beyond = F.sgp_norm(64 * factor * x, 64 * factor * y, weight, algebra, **options)
    assert ((beyond == 0) | ~beyond.isfinite()).all()


def test_reachable_are_the_grades_of_sandwiches():
    algebra = Algebra(3, 0, 1)
    grades = algebra.reachable("sandwich", (2, 3), (4,))
    blades = [i for i, g in enumerate(algebra.grades) if g in grades]
    x, y = torch.randn(10, 3, 2), torch.randn(1, 3, 2)
    assert F.sandwich(x, y, algebra, left=(2, 3), right=(4,)).shape[0] == len(blades)
    assert Algebra(3).reachable("sandwich", (0, 2), (1,)) == (1,)
    with pytest.raises(ValueError):
        algebra.reachable("sandwhich")


@pytest.mark.parametrize("signature, left, right", [((0, 0, 1), (1,), (1,)), ((0, 0, 3), (2,), (2,))])
def test_a_sandwich_that_reaches_nothing_is_zero_as_a_product_is(signature, left, right):
    algebra = Algebra(*signature)
    assert algebra.reachable("sandwich", left, right) == ()
    count = sum(grade in left for grade in algebra.grades)
    x = torch.randn(count, 3, 2, requires_grad=True)
    moved = F.sandwich(x, x, algebra, left=left, right=right)
    assert torch.equal(moved, F.geometric_product(x, x, algebra, left=left, right=right))
    assert moved.shape == (algebra.blade_count, 3, 2) and not moved.any()
    (gradient,) = torch.autograd.grad(moved.sum(), x)
    assert gradient.shape == x.shape and not gradient.any()
