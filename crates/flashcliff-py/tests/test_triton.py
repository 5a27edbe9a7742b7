"""Triton kernels, which Triton's interpreter runs on the CPU, against references in float64 and kernels of the extension.

Kernels are interpreted or compiled for a whole process, so where there is a GPU ``test_triton_cuda.py`` runs in place of this file.
"""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

if torch.cuda.is_available():
    pytest.skip("kernels are compiled here", allow_module_level=True)

import triton
from triton_common import LANES, both_passes, by_triton, compare, sgp

import flashcliff
from flashcliff import functional as F
from flashcliff.operators import Multivector, PerChannel, Scalars, operator

pytestmark = pytest.mark.skipif(
    triton.__version__ < "3.7" and np.lib.NumpyVersion(np.__version__) >= "2.4.0",
    reason="the interpreter of this Triton needs NumPy before 2.4",
)
TOLERANCE = 3e-6
SPACE = flashcliff.Algebra(3, 0, 0)


@pytest.fixture
def short_blocks():
    """Rows of several blocks, without thousands of channels."""
    from flashcliff._triton import tiles

    with tiles.using(tiles.Choice(per_thread=184, registers=255, stages=1, row=0, block=4)):
        yield


def seen(case):
    """Tensors in float32, the gradient of the output, and both passes of the reference in float64."""
    tensors = case.tensors(dtype=torch.float32)
    exact = {name: tensor.double().requires_grad_() for name, tensor in tensors.items()}
    output = case.reference(**exact)
    grad = torch.randn(output.shape, generator=torch.Generator().manual_seed(5))
    wanted = torch.autograd.grad(output, list(exact.values()), grad.double())
    return tensors, grad, [output, *wanted]


@pytest.mark.share(4)
@pytest.mark.parametrize("case", LANES, ids=lambda case: case.id)
def test_both_passes_are_those_of_the_reference(case):
    tensors, grad, wanted = seen(case)
    compare(by_triton(both_passes, case, tensors, grad), wanted, TOLERANCE)


OF_ROWS = [
    case
    for case in LANES
    if case.signature == (3, 0, 0)
    and case.name in ("sgp_norm", "grade_rms", "mv_layer_norm", "grade_norm", "reverse")
]
"""Sums over rows, and over the batch, of each kind. The interpreter takes seconds for a large product in many blocks."""


@pytest.mark.share(3)
@pytest.mark.parametrize("case", OF_ROWS, ids=lambda case: case.id)
def test_rows_of_several_blocks(case, short_blocks):
    tensors, grad, wanted = seen(case)
    compare(by_triton(both_passes, case, tensors, grad), wanted, TOLERANCE)


@pytest.mark.share(3)
@pytest.mark.parametrize("signature", [(2, 0, 0), (1, 1, 0), (2, 0, 1), (1, 3, 0)])
@pytest.mark.parametrize(("channels", "batch"), [(1, 1), (3, 130), (7, 9), (8, 16), (65, 3)])
def test_any_number_of_channels_and_rows(signature, channels, batch):
    case, tensors, grad = sgp(channels, batch, signature)
    compare(
        by_triton(both_passes, case, tensors, grad), both_passes(case, tensors, grad), 2 * TOLERANCE
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_storage_alone(dtype):
    case, tensors, grad = sgp(5, 6, dtype=dtype)
    exact = {name: tensor.float() for name, tensor in tensors.items()}
    wanted = [tensor.to(dtype) for tensor in both_passes(case, exact, grad.float())]
    found = by_triton(both_passes, case, tensors, grad)
    assert [tensor.dtype for tensor in found] == [dtype] * 4
    compare(found, wanted, torch.finfo(dtype).eps)


def test_bits_are_the_same_in_every_run():
    case, tensors, grad = sgp(6, 20)
    first, second = (by_triton(both_passes, case, tensors, grad) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_empty_batches():
    case, tensors, grad = sgp(4, 0)
    output, *_, of_weight = by_triton(both_passes, case, tensors, grad)
    assert output.shape == (8, 0, 4)
    assert not of_weight.any()


def test_layouts_that_are_not_contiguous():
    case, tensors, grad = sgp(4, 6)
    turned = {name: tensor.movedim(0, -1).contiguous().movedim(-1, 0) for name, tensor in tensors.items()}
    for one, other in zip(
        by_triton(both_passes, case, turned, grad),
        by_triton(both_passes, case, tensors, grad),
        strict=True,
    ):
        assert torch.equal(one, other)


# Operators of users


@operator(SPACE)
def weighted_commutator(x: Multivector, y: Multivector, w: PerChannel):
    """w (x y - y x)"""
    return (x * y - y * x) * w


@operator(SPACE, gate="silu", eps=1e-3)
def mixed(x: Multivector, s: Scalars, a: PerChannel, b: PerChannel(scalars=True)):
    """Channels and scalar channels that meet in sums over a row, with most functions that there are."""
    squares = x.squares()
    total = squares.sum() + (s * s * b).mean()
    scale = (total.sqrt() + 1.0).maximum(2.0)
    lanes = (x * x).gated() / scale
    other = (s * b).sigmoid().where_positive(s, -s * 2.0) / scale
    return lanes * a, lanes.kept() + x * other.mean()


def arguments_of(made, channels=5, scalars=3, batch=6):
    torch.manual_seed(3)
    sizes = {"batch": batch, "in": channels, "scalars": scalars}
    return [torch.rand([sizes.get(a, a) for a in axes]) + 0.25 for _, axes in made.inputs]


def passes_of(made, given):
    """Results, gradients, and gradients of gradients along the arguments themselves."""
    given = [tensor.detach().clone().requires_grad_() for tensor in given]
    found = made(*given)
    found = found if isinstance(found, tuple) else (found,)
    total = sum((output * output).sum() for output in found)
    first = torch.autograd.grad(total, given, create_graph=True)
    second = torch.autograd.grad(sum((g * t.detach()).sum() for g, t in zip(first, given)), given)
    return [tensor.detach() for tensor in (*found, *first, *second)]


@pytest.mark.share(2)
@pytest.mark.parametrize("blocks", [False, True], ids=["whole", "blocks"])
@pytest.mark.parametrize("made", [weighted_commutator, mixed], ids=lambda made: made.__name__)
def test_operators_of_users_with_second_derivatives(made, blocks, request):
    if blocks:
        request.getfixturevalue("short_blocks")
    given = arguments_of(made)
    wanted = passes_of(made, [tensor.double() for tensor in given])
    compare(by_triton(passes_of, made, given), wanted, 2e-5)


def test_second_derivatives_of_the_table():
    case, tensors, _ = sgp(4, 3)

    def second(tensors):
        given = [tensor.detach().clone().requires_grad_() for tensor in tensors]
        output = F.sgp_norm(*given, algebra=SPACE, norm="rms")
        # The sum of all squares would be a constant.
        along = torch.arange(1.0, 1.0 + output.numel()).cos().view_as(output)
        first = torch.autograd.grad((output * along).sum(), given, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), given)

    given = list(tensors.values())
    compare(by_triton(second, given), second([t.double() for t in given]), 2e-5)


def test_forward_mode_and_batches():
    case, tensors, _ = sgp(4, 3)
    given = tuple(tensors.values())

    def tangent(*given):
        return torch.func.jvp(lambda *t: F.sgp_norm(*t, algebra=SPACE), given, given)[1]

    compare([by_triton(tangent, *given)], [tangent(*(t.double() for t in given))], 2e-5)


# The choice


def test_kernels_of_the_extension_come_back():
    case, tensors, _ = sgp(4, 3)
    before = case.run(**tensors)
    with flashcliff.backend("triton"), flashcliff.backend("native"):
        assert torch.equal(case.run(**tensors), before)
    assert torch.equal(case.run(**tensors), before)


def test_a_mutant_dies(monkeypatch):
    """A kernel that is not what was emitted is found by the comparison."""
    from flashcliff import _core
    from flashcliff._triton import sources

    case, tensors, grad = sgp(4, 6)
    real = sources.kernels.__wrapped__

    class Mutant:
        def __init__(self, of):
            self.of = of
            self.has_matrix_products = of.has_matrix_products

        def triton(self):
            text, *rest = self.of.triton()
            assert text.count(" - ") > 0
            return (text.replace(" - ", " + ", 1), *rest)

    def mutated(of):
        return real(Mutant(of))

    monkeypatch.setattr("flashcliff._triton.launch.kernels", mutated)
    assert isinstance(case.core(), _core.Operator)
    with pytest.raises(AssertionError, match="tensor"):
        compare(
            by_triton(both_passes, case, tensors, grad), both_passes(case, tensors, grad), TOLERANCE
        )


def test_what_is_not_served_is_refused():
    x = torch.randn(8, 3, 4)
    with flashcliff.backend("triton"):
        with pytest.raises(flashcliff.UnsupportedError, match=r"mv_linear: .*torch\.einsum"):
            F.mv_linear(x, torch.randn(4, 4, 4), algebra=SPACE)
        with pytest.raises(flashcliff.UnsupportedError, match="fcgp_norm: there is no Triton kernel"):
            F.fcgp_norm(x, x, torch.randn(20, 4, 4), algebra=SPACE)
        with pytest.raises(flashcliff.UnsupportedError, match=r"`x` must be float32, .*got torch\.float64"):
            F.norm(x.double(), algebra=SPACE)
        with pytest.raises(ValueError, match=r"must be \[8, batch = 3, in = 4\], got \[8, 3, 5\]"):
            F.geometric_product(x, torch.randn(8, 3, 5), algebra=SPACE)
        with pytest.raises(TypeError, match="`y` must be torch.float32, as others of its kind"):
            F.geometric_product(x, x.half(), algebra=SPACE)
