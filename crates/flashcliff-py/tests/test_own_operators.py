"""Operators that users write: the library's own, built anew, have its bits; others have derivatives of every order, and a symmetry."""

import copy
import pickle

import pytest
import torch
from releases import WHOLE
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

import flashcliff
from flashcliff import functional as F
from flashcliff._ops import derived
from flashcliff.operators import Multivector, PerChannel, PerItem, operator

SPACE = flashcliff.Algebra(3, 0, 0)
PLANE = flashcliff.Algebra(2, 0, 0)
PROJECTIVE = flashcliff.Algebra(3, 0, 1)


def two(algebra, dtype=torch.float32, batch=(5,), channels=4):
    torch.manual_seed(1)
    shape = (algebra.blade_count, *batch, channels)
    return torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)


BINARY = {
    "geometric_product": lambda x, y: x * y,
    "exterior_product": lambda x, y: x ^ y,
    "regressive_product": lambda x, y: x & y,
    "left_contraction": lambda x, y: x.left_contraction(y),
    "right_contraction": lambda x, y: x.right_contraction(y),
    "commutator_product": lambda x, y: x.commutator(y),
}
UNARY = {
    "reverse": lambda x: ~x,
    "grade_involution": lambda x: x.involute(),
    "clifford_conjugate": lambda x: x.conjugate(),
    "dual": lambda x: x.dual(),
    "undual": lambda x: x.undual(),
}


def of_two(function):
    def product(x: Multivector, y: Multivector):
        return function(x, y)

    return product


def of_one(function):
    def map_of_one(x: Multivector):
        return function(x)

    return map_of_one


@pytest.mark.parametrize("algebra", [PLANE, SPACE, PROJECTIVE], ids=lambda algebra: algebra.name)
@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_the_librarys_own_operators_built_anew_have_its_bits(name, algebra):
    x, y = two(algebra)
    if name in BINARY:
        own, given = operator(algebra)(of_two(BINARY[name])), (x, y)
    else:
        own, given = operator(algebra)(of_one(UNARY[name])), (x,)
    theirs = getattr(F, name)(*given, algebra)
    mine = own(*given)
    # A product that cannot reach a grade has no blades of it.
    if mine.shape == theirs.shape:
        assert torch.equal(mine, theirs)
    else:
        assert torch.equal(mine, theirs[list(algebra.blades_of(own.grades))])


@pytest.mark.parametrize("gate", ["none", "gelu", "silu"])
def test_the_weighted_product_is_the_librarys(gate):
    @operator(SPACE, gate=gate)
    def weighted(x: Multivector, y: Multivector, weight: PerChannel("paths")):
        if gate == "none":
            return x.weighted(y, weight)
        return x.gated().weighted(y.gated(), weight)

    x, y = two(SPACE, torch.float64)
    weight = torch.randn(4, 20, dtype=torch.float64)
    theirs = F.sgp_norm(x, y, weight, SPACE, gate=gate, norm="none")
    assert torch.allclose(weighted(x, y, weight), theirs, rtol=1e-12, atol=1e-12)


def test_a_sandwich_is_the_librarys():
    @operator(PROJECTIVE)
    def turned(x: Multivector, y: Multivector):
        return x >> y

    x, y = two(PROJECTIVE, torch.float64)
    theirs = F.sandwich(x, y, PROJECTIVE)
    assert torch.allclose(turned(x, y), theirs, rtol=1e-12, atol=1e-12)


@operator(SPACE)
def inner(x: Multivector, y: Multivector):
    return x | y


def test_the_inner_product_has_the_grades_of_differences():
    x, y = two(SPACE, torch.float64)
    expected = torch.zeros_like(x)
    grades = SPACE.grades
    for a, b, o, sign in SPACE.terms():
        if grades[o] == abs(grades[a] - grades[b]):
            expected[o] += sign * x[a] * y[b]
    assert torch.allclose(inner(x, y), expected, rtol=1e-12, atol=1e-12)


def test_inner_products_of_null_vectors_reach_fewer_grades():
    @operator((0, 0, 2))
    def own(x: Multivector, y: Multivector.of(2)):
        return (x.grade(2) | y) + (x | y)

    x, y = torch.rand(4, 2, 3), torch.rand(1, 2, 3)
    assert torch.equal(own(x, y), x[:1] * y)


def test_items_have_the_bits_that_they_have_alone():
    """Kernels see tensors of few channels in longer rows, unless an expression is about a row or a channel."""
    x, y = two(SPACE, batch=(400,), channels=2)
    whole = inner(x, y)
    for row, channel in ((0, 0), (133, 1), (399, 1)):
        alone = [z[:, row : row + 1, channel : channel + 1].contiguous() for z in (x, y)]
        assert torch.equal(inner(*alone)[:, 0, 0], whole[:, row, channel])


@operator(SPACE)
def interaction(u: Multivector, v: Multivector, w: PerChannel):
    """CAN's ``u v + u ^ v``, with a weight."""
    return w * (u * v + (u ^ v))


@operator(PLANE, eps=1e-2)
def normed_commutator(x: Multivector, y: Multivector, w: PerChannel):
    return w * (x * y - y * x).normed()


@operator(SPACE, gate="silu")
def gated_vector(x: Multivector.of(1), y: Multivector.of(0, 2), a: PerChannel(2)):
    scale = (a[0] * y.scalar + a[1]).sigmoid()
    return (x * y).grade(1, 3).kept() * scale / (1.0 + x.squares().mean()).sqrt()


@operator(PLANE)
def part_of_a_norm(x: Multivector, y: Multivector.of(0)):
    """A part of what kernels may store."""
    return x.normed().grade(1) * y.scalar


@operator(PLANE)
def clipped(x: Multivector, y: Multivector, w: PerChannel):
    """The product, scaled by a scalar between bounds, and turned where another is negative."""
    scale = (x.scalar * y.scalar).maximum(-0.5).minimum(w)
    return x * y * scale * y.scalar.where_positive(1.0, -2.0 * x.scalar)


def test_choices_are_those_of_torch():
    x, y = two(PLANE, torch.float64)
    w = torch.rand(4, 1, dtype=torch.float64)
    scale = torch.minimum((x[0] * y[0]).clamp(min=-0.5), w[:, 0])
    expected = F.geometric_product(x, y, PLANE) * scale * torch.where(y[0] > 0, 1.0, -2 * x[0])
    torch.testing.assert_close(clipped(x, y, w), expected)
    assert (x[0] * y[0] < -0.5).any() and (scale == w[:, 0]).any() and (y[0] > 0).any()


def test_a_choice_among_anything_else_is_an_error():
    def of_a_text(x: Multivector):
        return x * x.scalar.maximum("1")

    with pytest.raises(TypeError, match="maximum: expected a scalar or a number, got str"):
        operator(PLANE)(of_a_text)


OWN = interaction, normed_commutator, gated_vector, part_of_a_norm, clipped


@pytest.mark.parametrize("own", OWN, ids=lambda own: own.__name__)
def test_operators_of_ones_own_have_derivatives_of_every_order(own):
    torch.manual_seed(2)
    sizes = {"batch": 2, "in": 3}
    given = [
        torch.randn([sizes.get(axis, axis) for axis in axes], dtype=torch.float64, requires_grad=True)
        for _, axes in own.inputs
    ]
    assert gradcheck(own, given, check_forward_ad=True)
    assert gradgradcheck(own, given)
    first = torch.func.jacrev(lambda x: own(x, *given[1:]).sum())(given[0].detach())
    (theirs,) = torch.autograd.grad(own(*given).sum(), given[:1])
    assert torch.allclose(first, theirs)


def test_a_program_that_the_build_knows_runs_on_its_kernels():
    product = operator(SPACE)(of_two(lambda x, y: x * y))
    again = operator(SPACE)(of_two(lambda u, v: u * v))
    assert product.digest == again.digest
    assert product.digest != inner.digest


def with_a_vector(x: Multivector):
    return x + x.quadratic_form() * x.grade(1)


def scaled_by_coefficients(x: Multivector):
    return x * x.squares()


def plus_dual(x: Multivector):
    return x + x.dual()


def with_one_blade_alone(x: Multivector):
    # The bare parts: a blade is singled out, which no function of multivectors does.
    values = list(x._values)
    values[1] = x._program.apply("mul", [values[1], values[1]])
    return x._like(values)


@pytest.mark.parametrize(
    ("function", "in_space", "in_spacetime"),
    [
        (with_a_vector, "all versors", "all versors"),
        (scaled_by_coefficients, "all versors", "orthogonal of the Euclidean coordinates"),
        (plus_dual, "even versors", "rotations only"),
        (with_one_blade_alone, "none", "none"),
    ],
)
def test_the_symmetry_of_an_operator_is_found(function, in_space, in_spacetime):
    assert operator(SPACE)(function).symmetry() == in_space
    assert operator((1, 3, 0))(function).symmetry() == in_spacetime


@operator(SPACE)
def weighted_items(x: Multivector, w: PerItem("paths"), weight: PerChannel(2)):
    return weight[1] * x.weighted(x, w)


def test_parameters_and_means_break_no_symmetry():
    functions = interaction, normed_commutator, gated_vector, clipped, weighted_items
    assert [own.symmetry() for own in functions] == ["all versors"] * 5


def test_symmetries_that_cannot_be_measured_say_why():
    null = operator((0, 0, 2))(with_a_vector)
    with pytest.raises(flashcliff.UnsupportedError, match="with_a_vector: .* a vector that is not null"):
        null.symmetry()
    root = operator(SPACE)(of_one(lambda x: x * (-x.squares()).sqrt()))
    with pytest.raises(flashcliff.UnsupportedError, match="expected finite results .* got NaN"):
        root.symmetry()


def test_operators_of_ones_own_compile_and_batch():
    x, y = two(SPACE)
    w = torch.randn(4, 1)
    compiled = torch.compile(lambda x, y: interaction(x, y, w).sin(), fullgraph=True)
    assert torch.allclose(compiled(x, y), interaction(x, y, w).sin(), rtol=1e-6, atol=1e-6)
    many = torch.stack([x, y, x + y])
    batched = torch.func.vmap(lambda x: interaction(x, y, w))(many)
    assert torch.equal(batched, torch.stack([interaction(each, y, w) for each in many]))
    wide = x.reshape(8, 1, 5, 4).expand(8, 2, 5, 4)
    assert interaction(wide, wide, w).shape == (8, 2, 5, 4)
    none = torch.zeros(8, 0, 4)
    assert interaction(none, none, w).shape == (8, 0, 4)


def without_annotation(x, y: Multivector):
    return y


def with_a_tensor(x: torch.Tensor):
    return x


def without_multivectors(w: PerChannel):
    return w


def of_another_kind(x: Multivector):
    return 3


def of_odd_grades(x: Multivector.of(7)):
    return x


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (without_annotation, TypeError, "without_annotation: expected `x` to be annotated as Multivector"),
        (with_a_tensor, TypeError, "with_a_tensor: expected `x` to be annotated"),
        (without_multivectors, TypeError, "at least one argument annotated as Multivector"),
        (of_another_kind, TypeError, "expected a Multivector or a Scalar of its arguments as the result, or a tuple of them, got int"),
        (of_odd_grades, ValueError, "7"),
        (PLANE, TypeError, "operator: expected a function, such as a `def` in the line below, got Algebra"),
    ],
)
def test_what_is_no_operator_is_an_error_that_says_why(function, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        operator(PLANE)(function)


@pytest.mark.parametrize("how", ["called", "registered"])
def test_checkpoints_compute_operators_again(how):
    x, y = (t.requires_grad_() for t in two(SPACE, torch.float64))

    def function(x, y):
        if how == "called":
            return inner(x, y)
        return torch.ops.flashcliff.derived([x, y], inner._key)[0]

    want = torch.autograd.grad(function(x, y).sin().sum(), (x, y))
    found = checkpoint(function, x, y, use_reentrant=False)
    assert all(map(torch.equal, torch.autograd.grad(found.sin().sum(), (x, y)), want))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_brings_tensors_of_other_layers(dtype):
    """Under autocast some tensors have 16 bits and others do not: they are computed in float32, and gradients have their types."""

    @operator(SPACE)
    def scaled(x: Multivector, y: Multivector, w: PerChannel):
        return w * (x * y)

    x, y = two(SPACE)
    given = [t.requires_grad_() for t in (x, y.to(dtype), torch.randn(4, 1))]
    want = scaled(*(t.float() for t in given))
    with torch.autocast("cpu", dtype):
        assert torch.equal(scaled(*given), want)
        compiled = torch.compile(scaled, backend="aot_eager", fullgraph=WHOLE)
        assert torch.equal(compiled(*given), want)
        assert scaled(*(t.double() for t in given)).dtype == torch.float64
        grads = torch.autograd.grad(scaled(*given).sum(), given)
    assert [g.dtype for g in grads] == [t.dtype for t in given]
    with pytest.raises(TypeError, match="`y` must be f32"):
        scaled(*given)


class Formula:
    def product(self, x: Multivector, y: Multivector):
        return x.gated() * y


def test_modules_with_operators_are_copied_and_stored(monkeypatch):
    module = torch.nn.Module()
    module.product = operator(SPACE, gate="gelu")(Formula().product)
    x, y = two(SPACE)
    assert copy.deepcopy(module).product is copy.copy(module.product) is module.product
    stored, expected = pickle.dumps(module), module.product(x, y)
    monkeypatch.setattr(derived, "_OWN", {})  # as in another process
    derived.operator_of.cache_clear()
    found = pickle.loads(stored).product
    assert torch.equal(found(x, y), expected)
    assert repr(found) == repr(module.product)


def test_wrong_calls_say_what_was_expected():
    x, y = two(SPACE)
    with pytest.raises(TypeError, match=r"inner: expected 2 tensors \(x, y\), got 1"):
        inner(x)
    with pytest.raises(TypeError, match="inner: `y` must be a torch.Tensor, got int"):
        inner(x, 3)
    with pytest.raises(ValueError, match="`y` must be"):
        inner(x, y[:4])
    assert [name for name, _ in weighted_items.inputs] == ["x", "w", "weight"]
    with pytest.raises(ValueError, match=r"weighted_items: tensor `w` must be \[20, "):
        weighted_items(x, x, torch.ones(4, 2))
    with pytest.raises(ValueError, match="expected one of the grades"):
        operator(PLANE)(of_one(lambda x: x.grade(5)))
    with pytest.raises(ValueError, match="expected 20 weights"):
        operator(SPACE)(of_two(lambda x, y: x.weighted(y, [])))
    with pytest.raises(ValueError, match="a count from 1 on, or `paths`"):
        PerChannel(0)
    assert repr(inner).startswith("<operator inner of")
