"""Rotors against matrix exponentials, with their inverses and paths. Tests of the crate have more: `crates/flashcliff/tests/rotor`."""

import math

import pytest
import torch
from rotors_common import (
    SIGNATURES,
    bivectors,
    expanded,
    matrices,
    random_bivectors,
    versor_blades,
)

import flashcliff
from flashcliff import Algebra, rotors
from flashcliff import functional as F

REAL = torch.float64


def product(algebra, x, y):
    """The product of versors of even grades."""
    names = versor_blades(algebra)
    left = matrices(algebra, names, x.flatten(1))
    result = torch.einsum("iab,bi->ai", left, expanded(algebra, names, y.flatten(1)))
    return result[names].view_as(x)


def close(got, wanted, tolerance):
    """The largest difference, relative to the largest part of each item."""
    size = wanted.abs().amax(0, keepdim=True).clamp(min=1e-300)
    error = ((got - wanted).abs() / size).max().item()
    assert error <= tolerance, f"{error} is more than {tolerance}"


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 0.7, 2.5])
def test_exp_is_the_matrix_exponential(signature, scale):
    algebra = Algebra(*signature)
    b = random_bivectors(signature, scale)
    names = bivectors(algebra)
    wanted = torch.linalg.matrix_exp(matrices(algebra, names, b[:, 0]))[:, :, 0].T
    whole = expanded(algebra, versor_blades(algebra), rotors.exp(b, algebra)[:, 0])
    close(whole, wanted, 5e-14)


@pytest.mark.parametrize(
    "signature", [(2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0), (3, 0, 1), (1, 3, 0)]
)
def test_exp_undoes_log_for_large_rotations(signature):
    """Errors, relative to the size of a rotor and its square, which a boost has, grow by one over the distance from the
    nearest rotor without a unique logarithm, and by its square where there are 4-vectors."""
    r = rotors.exp(random_bivectors(signature, 1.0, items=64), signature)
    back = rotors.exp(rotors.log(r, signature), signature)
    distance = _distance(signature, r)
    power = 2 if sum(signature) > 3 else 1
    size = r.square().sum(0) ** 1.5
    assert ((back - r).abs().amax(0) <= 2e-14 * size / distance**power).all()
    # Some of the rotations are large.
    assert signature[1] or distance.min() < 0.7


def _distance(signature, r):
    """How far rotors are from those whose logarithm is not unique: a root of ``(1 + R) reverse(1 + R)`` in the ring."""
    algebra = Algebra(*signature)
    names = versor_blades(algebra)
    m = r[:, 0].clone()
    m[0] += 1
    signs = torch.tensor([-1.0 if algebra.grades[name] == 2 else 1.0 for name in names], dtype=REAL)
    square = matrices(algebra, names, m) @ matrices(algebra, names, signs[:, None] * m)
    values = torch.linalg.eigvals(square)
    return values.abs().amin(-1).sqrt()


def test_log_takes_the_short_way_and_is_no_number_at_minus_one():
    b = torch.full((1, 1, 1), 4.0, dtype=REAL)
    got = rotors.log(rotors.exp(b, (2, 0, 0)), (2, 0, 0)).item()
    assert abs(got - (4.0 - 2 * math.pi)) < 1e-14
    minus_one = torch.tensor([-1.0, 0, 0, 0], dtype=REAL).view(4, 1, 1)
    assert rotors.log(minus_one, (3, 0, 0)).isnan().all()
    # No bivector of Cl(1,1) has this exponential.
    r = -rotors.exp(b, (1, 1, 0))
    assert not rotors.log(r, (1, 1, 0)).isfinite().any()


def test_null_bivectors_are_translations():
    """With e0 e0 = 0 the exponential stops after the linear term, exactly."""
    b = torch.tensor([0.3, -2.0, 1e6, 0, 0, 0], dtype=REAL).view(6, 1, 1)
    r = rotors.exp(b, (3, 0, 1))
    assert r.flatten().tolist() == [1.0, 0.3, -2.0, 1e6, 0, 0, 0, 0]
    close(rotors.log(r, (3, 0, 1)), b, 1e-15)
    # A null vector of Cl(4,1) times a vector at right angles to it: parabolic, in floats.
    algebra = Algebra(4, 1, 0)
    b = torch.zeros(10, 1, 1, dtype=REAL)
    names = [algebra.blades[i] for i in bivectors(algebra)]
    b[names.index("e14")] = b[names.index("e15")] = 1.5
    r = rotors.exp(b, algebra)
    assert r[0].item() == 1.0 and torch.equal(r[1:11], b)
    close(rotors.log(r, algebra), b, 1e-14)


def test_large_arguments_are_right_or_no_numbers():
    angles = (255.0, -200.0, 1e3, -1e8)
    b = torch.tensor([*angles, 2.0**27], dtype=REAL).view(1, 1, -1)
    r = rotors.exp(b, (2, 0, 0))
    for index, angle in enumerate(angles):
        assert abs(r[0, 0, index].item() - math.cos(angle)) < 1e-12
        assert abs(r[1, 0, index].item() - math.sin(angle)) < 1e-12
    assert r[:, 0, -1].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_boosts_beyond_all_numbers_of_a_type_are_no_numbers(dtype):
    """And they have no gradient, whatever that of the result is."""
    rapidity = math.log(torch.finfo(dtype).max)
    b = torch.tensor([0.5, rapidity + 2], dtype=dtype).view(1, 1, 2).requires_grad_()
    r = rotors.exp(b, (1, 1, 0))
    assert r[..., 0].isfinite().all() and r[..., 1].isnan().all()
    (gradient,) = torch.autograd.grad((r * r.new_tensor([1.0, 0.0])).sum(), b)
    assert gradient[0, 0, 0] != 0 and gradient[0, 0, 1] == 0


@pytest.mark.parametrize("batch, channels", [(8191, 1), (512, 3), (6, 128), (2, 257)])
def test_items_have_the_bits_that_they_have_alone(batch, channels):
    """Kernels see tensors of few channels in longer rows."""
    b = random_bivectors((3, 0, 1), 0.7, items=batch * channels).view(6, batch, channels)
    b.requires_grad_()
    r = rotors.exp(b, (3, 0, 1))
    (gradient,) = torch.autograd.grad(r.square().sum(), b)
    for row, channel in ((0, 0), (batch - 1, channels - 1), (batch // 3, channels // 2)):
        alone = b[:, row : row + 1, channel : channel + 1].detach().requires_grad_()
        one = rotors.exp(alone, (3, 0, 1))
        (slope,) = torch.autograd.grad(one.square().sum(), alone)
        assert torch.equal(one[:, 0, 0], r[:, row, channel])
        assert torch.equal(slope[:, 0, 0], gradient[:, row, channel])


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("signature", SIGNATURES)
def test_inverse_and_normalized_of_any_parity(signature, odd):
    """Any multivector near a versor: products with the inverse are 1 from both sides."""
    algebra = Algebra(*signature)
    names = versor_blades(algebra, odd)
    generator = torch.Generator().manual_seed(3)
    x = 0.2 * torch.randn(len(names), 1, 4, generator=generator, dtype=REAL)
    # A scalar, or the first vector that squares to something.
    lead = 0 if not odd else min(signature[2], len(names) - 1)
    x[lead] += 2.0
    if odd and sum(signature[:2]) == 0:
        return
    inverse = rotors.inverse(x, algebra, odd=odd)
    left, right = matrices(algebra, names, x[:, 0]), matrices(algebra, names, inverse[:, 0])
    one = torch.eye(algebra.blade_count, dtype=REAL)
    assert (left @ right - one).abs().max() < 1e-13 and (right @ left - one).abs().max() < 1e-13
    unit = rotors.normalized(x, algebra, odd=odd)
    signs = [-1.0 if algebra.grades[name] % 4 in (2, 3) else 1.0 for name in names]
    reverse = unit * torch.tensor(signs, dtype=REAL).view(-1, 1, 1)
    square = matrices(algebra, names, unit[:, 0]) @ matrices(algebra, names, reverse[:, 0])
    sign = square[:, 0, 0].round()
    assert (sign.abs() == 1).all()
    assert (square - sign[:, None, None] * one).abs().max() < 1e-12


@pytest.mark.parametrize("signature", [(1, 1, 0), (1, 3, 0), (2, 2, 0), (4, 1, 0), (0, 4, 0)])
def test_versors_of_negative_norm_stay_what_they_are(signature):
    """A vector that squares to -1 before a rotor. Rounding adds a 4-vector to the norm, of either sign when squared."""
    algebra = Algebra(*signature)
    rotor = rotors.exp(random_bivectors(signature, 0.4, items=16), algebra)
    odd = versor_blades(algebra, True)
    vector = torch.zeros(len(odd), dtype=REAL)
    vector[algebra.dim - 1] = 1.0
    even = expanded(algebra, versor_blades(algebra), rotor.flatten(1))
    mirror = matrices(algebra, odd, vector[:, None])[0]
    x = (mirror @ even)[odd].view(len(odd), 1, 16)
    unit = rotors.normalized(x, algebra, odd=True)
    assert torch.isfinite(unit).all() and (unit - x).abs().max() < 1e-12 * x.abs().max()


@pytest.mark.parametrize("signature", [(3, 0, 0), (4, 0, 0), (3, 0, 1), (1, 3, 0), (4, 1, 0)])
def test_interpolation_walks_from_one_rotor_to_the_other(signature):
    b = random_bivectors(signature, 0.5)
    first, second = rotors.exp(b, signature), rotors.exp(b.flip(0), signature)
    algebra = Algebra(*signature)
    between = product(algebra, rotors.inverse(first, algebra), second)
    second = torch.where(between[0] < 0, -1.0, 1.0) * second
    for end in (second, -second):
        at = [rotors.interpolate(first, end, t, signature) for t in (0.0, 0.5, 1.0)]
        close(at[0], first, 1e-13)
        close(at[2], second, 1e-12)
    # Two halves make the whole: reverse(a) m = reverse(m) b.
    step = product(algebra, rotors.inverse(first, algebra), at[1])
    close(product(algebra, at[1], step), second, 1e-12)
    half = torch.full((1, 4), 0.5, dtype=REAL)
    assert torch.equal(rotors.interpolate(first, second, half, signature), at[1])


def test_interpolation_of_reflections_turns_the_mirror():
    a = torch.tensor([1.0, 0, 0, 0], dtype=REAL).view(4, 1, 1)
    b = torch.tensor([0.0, 1, 0, 0], dtype=REAL).view(4, 1, 1)
    middle = rotors.interpolate(a, b, 0.5, (3, 0, 0), odd=True).flatten()
    wanted = torch.tensor([0.5**0.5, 0.5**0.5, 0, 0], dtype=REAL)
    assert (middle - wanted).abs().max() < 1e-15


@pytest.mark.parametrize("signature", [(2, 0, 0), (3, 0, 1), (1, 3, 0), (4, 1, 0)])
def test_action_is_the_weighted_sum_of_sandwiches(signature):
    algebra = Algebra(*signature)
    versors = rotors.exp(random_bivectors(signature, 0.5, items=6), algebra).view(-1, 3, 2)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(algebra.blade_count, 5, 2, generator=generator, dtype=REAL)
    weight = torch.randn(3, 2, generator=generator, dtype=REAL)
    wanted = torch.zeros(algebra.blade_count, 5, 3, dtype=REAL)
    even = tuple(range(0, algebra.grade_count, 2))
    for m in range(3):
        for n in range(2):
            v = versors[:, m, n].view(-1, 1, 1).expand(-1, 5, 1).contiguous()
            moved = F.sandwich(v, x[:, :, n : n + 1].contiguous(), algebra, left=even)
            wanted[:, :, m] += weight[m, n] * moved[:, :, 0]
    close(rotors.action(x, versors, weight, algebra), wanted, 1e-13)
    vectors = x[1 : 1 + algebra.dim]
    part = rotors.action(vectors, versors, weight, algebra, grades=(1,))
    close(part, wanted[1 : 1 + algebra.dim], 1e-13)


@pytest.mark.parametrize("signature", [s for s in SIGNATURES if s[2] <= 1])
def test_the_action_of_rotors_keeps_the_quadratic_form(signature):
    algebra = Algebra(*signature)
    p, q, r = signature
    squares = torch.tensor([0.0] * r + [1.0] * p + [-1.0] * q, dtype=REAL).view(-1, 1, 1)
    versor = rotors.exp(random_bivectors(signature, 0.4, items=1), algebra)
    x = torch.randn(algebra.dim, 8, 1, dtype=REAL)
    moved = rotors.action(x, versor, torch.ones(1, 1, dtype=REAL), algebra, grades=(1,))
    before, after = ((squares * v * v).sum(0) for v in (x, moved))
    assert (before - after).abs().max() < 1e-12 * moved.square().sum(0).max()


def test_the_direction_of_a_rotation_is_what_the_documentation_says():
    turn = rotors.exp(torch.tensor([[[0.1]]], dtype=REAL), (2, 0, 0))
    x = torch.tensor([1.0, 0.0], dtype=REAL).view(2, 1, 1)
    moved = rotors.action(x, turn, torch.ones(1, 1, dtype=REAL), (2, 0, 0), grades=(1,)).flatten()
    assert (moved - torch.tensor([math.cos(0.2), -math.sin(0.2)], dtype=REAL)).abs().max() < 1e-15


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_are_rounded_once(dtype):
    b, other = (random_bivectors((3, 0, 1), 1.0, seed=seed).to(dtype) for seed in (0, 1))
    got = rotors.exp(b, (3, 0, 1))
    assert got.dtype == dtype
    assert torch.equal(got, rotors.exp(b.to(REAL), (3, 0, 1)).to(dtype))
    ends = got, rotors.exp(other, (3, 0, 1))
    between = rotors.interpolate(*ends, 0.3, (3, 0, 1))
    wanted = rotors.interpolate(*(end.to(REAL) for end in ends), 0.3, (3, 0, 1))
    assert torch.equal(between, wanted.to(dtype))


@pytest.mark.parametrize("signature", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_versors_without_bivectors(signature):
    """Rotors are numbers, and nothing lies between versors."""
    assert torch.equal(rotors.exp(torch.zeros(0, 2, 3), signature), torch.ones(1, 2, 3))
    r = torch.tensor([2.0, -3.0, 0.0]).view(1, 1, 3)
    assert rotors.log(r, signature).shape == (0, 1, 3)
    unit = torch.tensor([1.0, -1.0, math.nan]).view(1, 1, 3)
    torch.testing.assert_close(rotors.normalized(r, signature), unit, equal_nan=True)
    still = rotors.interpolate(r[..., :1], r[..., 1:2], 0.7, signature)
    assert torch.equal(still, unit[..., :1])
    assert rotors.interpolate(r[..., :1], r[..., 2:], 0.7, signature).isnan().all()


def test_positions_of_all_kinds():
    a, b = (rotors.exp(random_bivectors((3, 0, 0), 0.6, seed=seed), (3, 0, 0)) for seed in (0, 1))
    wanted = rotors.interpolate(a, b, 1.0, (3, 0, 0))
    for t in (1, torch.tensor(1), torch.ones(4), torch.ones(1, 1, dtype=torch.int32)):
        assert torch.equal(rotors.interpolate(a, b, t, (3, 0, 0)), wanted)
    t = torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=REAL, requires_grad=True)

    def run(t):
        return rotors.interpolate(a, b, t, (3, 0, 0))

    assert torch.autograd.gradcheck(run, (t,))
    each = torch.func.vmap(run)(t)
    for k in range(4):
        assert torch.equal(each[k], run(t[k].item()))


def test_errors_say_what_was_expected():
    b = torch.zeros(3, 2, 2)
    with pytest.raises(flashcliff.UnsupportedError, match="at most 5 dimensions.*of 6"):
        rotors.exp(torch.zeros(15, 1, 1), (6, 0, 0))
    with pytest.raises(ValueError, match=r"exp: `b` must be \[6, .*blades of bivectors first, got"):
        rotors.exp(b, (3, 0, 1))
    with pytest.raises(ValueError, match=r"log: `r` must be \[4, .*even grades first"):
        rotors.log(b, (3, 0, 0))
    with pytest.raises(ValueError, match=r"inverse: `x` must be \[4, .*odd grades first"):
        rotors.inverse(b, (3, 0, 0), odd=True)
    with pytest.raises(TypeError, match=r"`b` must be a torch.Tensor, got list"):
        rotors.exp([1.0], (3, 0, 0))
    with pytest.raises(TypeError, match="real floating-point elements, got torch.int64"):
        rotors.exp(b.long(), (3, 0, 0))
    with pytest.raises(TypeError, match="odd: expected True or False"):
        rotors.normalized(b, (3, 0, 0), odd="no")
    r = torch.zeros(4, 2, 2)
    with pytest.raises(ValueError, match=r"`b` must be \[4, 2, 2\] of torch.float32"):
        rotors.interpolate(r, r[:, :1], 0.5, (3, 0, 0))
    with pytest.raises(ValueError, match=r"`t` must broadcast to \[2, 2\], got \[3\]"):
        rotors.interpolate(r, r, torch.zeros(3), (3, 0, 0))
    x = torch.zeros(8, 5, 2)
    with pytest.raises(ValueError, match=r"`versors` must be \[4, out, in = 2\], got \[4, 2, 3\]"):
        rotors.action(x, torch.zeros(4, 2, 3), torch.zeros(2, 3), (3, 0, 0))
    with pytest.raises(ValueError, match=r"`weight` must be \[2, 2\], got \[2\]"):
        rotors.action(x, r, torch.zeros(2), (3, 0, 0))
