"""Rotors of large bivectors, and items without a result beside items with one."""

import math

import pytest
import torch
from rotors_common import SIGNATURES, random_bivectors, versor_blades

from flashcliff import Algebra, rotors

REAL = torch.float64
TYPES = (torch.float32, torch.float64)
LENGTHS = (3.0, 30.0, 80.0, 250.0)


def planes(signature):
    """Each plane of two basis vectors: its place among bivectors, and the square of the bivector."""
    p, q, r = signature
    squares = [0] * r + [1] * p + [-1] * q
    n = p + q + r
    pairs = [(i, k) for i in range(n) for k in range(i + 1, n)]
    return [(place, -squares[i] * squares[k]) for place, (i, k) in enumerate(pairs)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("signature", [s for s in SIGNATURES if sum(s) > 1])
def test_exponentials_of_planes_keep_their_digits(signature, dtype):
    """Rotations by cosine and sine, boosts by their hyperbolic functions, translations exactly."""
    eps = torch.finfo(dtype).eps
    for place, square in planes(signature):
        lengths = torch.tensor([x - 0.3 for x in LENGTHS], dtype=dtype)
        lengths = lengths[lengths < (80 if square > 0 and dtype == torch.float32 else 251)]
        b = torch.zeros(len(planes(signature)), 1, len(lengths), dtype=dtype)
        b[place] = lengths
        b.requires_grad_()
        r = rotors.exp(b, signature)
        x = lengths.to(REAL)
        functions = {-1: (x.cos(), x.sin()), 1: (x.cosh(), x.sinh()), 0: (x**0, x)}[square]
        size = functions[1].abs().maximum(functions[0].abs())
        for got, wanted in zip((r[0, 0], r[1 + place, 0]), functions):
            assert (((got - wanted).abs() / size) <= 2 * eps * x).all()
        others = [i for i in range(len(r)) if i not in (0, 1 + place)]
        assert (r[others] == 0).all()
        if square < 0:
            norm = r.detach().to(REAL).square().sum(0) - 1
            assert norm.abs().max() < (1e-6 if dtype == torch.float32 else 1e-14)
        # The slopes of both functions are each other, up to the sign.
        (slope,) = torch.autograd.grad(r[0].sum() + 2 * r[1 + place].sum(), b)
        wanted = square * functions[1] + 2 * functions[0]
        if square == 0:
            wanted = torch.full_like(x, 2.0)
        assert (((slope[place, 0] - wanted).abs() / size) <= 4 * eps * x.clamp(min=2)).all()


@pytest.mark.parametrize("signature", [s for s in SIGNATURES if sum(s) > 1])
@pytest.mark.parametrize("length", LENGTHS)
def test_exponentials_in_single_precision_are_those_in_double(signature, length):
    """In any direction; values and gradients relative to the largest part."""
    algebra = Algebra(*signature)
    b = random_bivectors(signature, 1.0, items=40, seed=3)
    b = (b / b.norm(dim=0) * length).float()
    narrow, wide = b.clone().requires_grad_(), b.to(REAL).requires_grad_()
    got, wanted = rotors.exp(narrow, algebra), rotors.exp(wide, algebra)
    size = wanted.detach().abs().amax(0)
    kept = size < 1e30
    eps = torch.finfo(torch.float32).eps
    assert ((got - wanted).abs().amax(0) <= 2 * eps * length * size)[kept].all()
    weights = torch.randn(len(got), 1, 1, generator=torch.Generator().manual_seed(1))
    gradients = [
        torch.autograd.grad((value * weights).where(kept, 0).sum(), leaf)[0]
        for value, leaf in ((got, narrow), (wanted, wide))
    ]
    error = (gradients[0].to(REAL) - gradients[1]).abs().amax(0)
    # Where squares nearly cancel, slopes are larger than values.
    size = size.maximum(gradients[1].abs().amax(0))
    assert (error <= 20 * eps * length * size)[kept].all()


@pytest.mark.parametrize("dtype", TYPES)
def test_motors_with_large_translations(dtype):
    """Their interpolation ends where it should."""
    b = random_bivectors((3, 0, 1), 0.6, items=16)
    far = b.clone()
    # Bivectors with e0 come first.
    far[:3] *= 1e6
    first, second = (rotors.exp(x.to(dtype), (3, 0, 1)) for x in (b, far))
    near = torch.where((first * second)[[0, 4, 5, 6]].sum(0) < 0, -1.0, 1.0)
    end = rotors.interpolate(first, second, 1.0, (3, 0, 1))
    size = second.abs().amax(0)
    assert ((end - near * second).abs().amax(0) <= 60 * torch.finfo(dtype).eps * size).all()


def _items(signature, dtype):
    """Functions, items that they take, and items that they do not."""
    algebra = Algebra(*signature)
    even, odd = len(versor_blades(algebra)), len(versor_blades(algebra, True))
    b = random_bivectors(signature, 0.4, items=5)
    r = 1.5 * rotors.exp(b, algebra)
    other = rotors.exp(b.flip(0), algebra)[..., :1].to(dtype)
    mirrors = 0.2 * torch.randn(odd, 1, 5, generator=torch.Generator().manual_seed(1), dtype=REAL)
    mirrors[min(signature[2], odd - 1)] += 2

    def bad(blades):
        columns = torch.zeros(blades, 1, 5, dtype=REAL)
        columns[0, :, 1] = -1
        columns[:, :, 2] = 1e30
        columns[:, :, 3] = math.nan
        columns[:, :, 4] = math.inf
        return columns

    def between(x, y):
        wide = other.expand(-1, -1, x.shape[-1])
        return rotors.interpolate(*((x, wide) if y is None else (wide, x)), 0.3, algebra)

    return {
        "exp": (lambda x: rotors.exp(x, algebra), b, bad(len(b))),
        "log": (lambda x: rotors.log(x, algebra), r, bad(even)),
        "inverse": (lambda x: rotors.inverse(x, algebra), r, bad(even)),
        "inverse of odd": (lambda x: rotors.inverse(x, algebra, odd=True), mirrors, bad(odd)),
        "normalized": (lambda x: rotors.normalized(x, algebra), r, bad(even)),
        "normalized odd": (lambda x: rotors.normalized(x, algebra, odd=True), mirrors, bad(odd)),
        "interpolate from": (lambda x: between(x, None), r, bad(even)),
        "interpolate to": (lambda x: between(x, x), r, bad(even)),
    }


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("signature", [s for s in SIGNATURES if sum(s) > 1])
def test_items_without_a_result_have_no_gradient(signature, dtype):
    """The values and gradients of others are the bits of a batch without them."""
    for name, (function, good, bad) in _items(signature, dtype).items():
        # Some rotors have no logarithm, and odd multivectors of null vectors no inverse.
        exist = function(good.to(dtype)).isfinite().all(0)[0]
        assert exist.any() or signature[:2] == (0, 0)
        good = good[..., exist]
        alone = good.to(dtype).requires_grad_()
        wanted = function(alone)
        assert wanted.isfinite().all()
        weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
        (slopes,) = torch.autograd.grad((wanted * weights).sum(), alone)
        both = torch.cat([good, bad], -1).to(dtype).requires_grad_()
        values = function(both)
        count = good.shape[-1]
        assert torch.equal(values[..., :count], wanted), name
        used = (values[..., :count] * weights).sum()
        (gradient,) = torch.autograd.grad(used, both, retain_graph=True)
        assert torch.equal(gradient[..., :count], slopes), name
        assert (gradient[..., count:] == 0).all(), name
        missing = values[..., count:].isnan().all(0)
        # Not finite or all there: no part alone is NaN.
        assert (values[..., count:].isnan().any(0) == missing).all(), name
        assert missing[0, 3] and missing[0, 4], name
        # A loss that multiplies by a mask passes NaN back.
        mask = torch.cat([weights, torch.zeros_like(values[..., count:])], -1)
        (gradient,) = torch.autograd.grad((values * mask).square().sum(), both)
        assert (gradient[..., count:][:, missing] == 0).all(), name
        assert gradient[..., :count].isfinite().all(), name


def test_one_rotor_without_a_logarithm_leaves_shared_weights_alone():
    weight = torch.eye(4, dtype=REAL).requires_grad_()
    r = rotors.exp(random_bivectors((3, 0, 0), 0.6, items=6), (3, 0, 0))
    r[:, 0, 2] = torch.tensor([-1.0, 0, 0, 0], dtype=REAL)
    good = [0, 1, 3, 4, 5]

    def gradient(items):
        step = rotors.log(torch.einsum("ab,bcd->acd", weight, r[..., items]), (3, 0, 0))
        kept = step[..., [k for k, item in enumerate(items) if item in good]]
        return torch.autograd.grad(kept.square().sum(), weight)[0]

    whole, others = gradient(range(6)), gradient(good)
    assert whole.isfinite().all() and (whole - others).abs().max() < 1e-14
