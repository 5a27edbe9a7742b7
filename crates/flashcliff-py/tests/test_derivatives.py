"""Derivatives of every order, in both modes, and transforms of torch.func: beside those that autograd takes of the reference, and
beside differences."""

import itertools

import pytest
import torch
from derivatives_common import (
    OPERATORS,
    SPACE,
    TABLE,
    Ways,
    close,
    gradients,
    joined,
    leaves,
    named,
    second,
    tensors,
)
from torch import func
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import flashcliff
from flashcliff import nn

R3 = flashcliff.Algebra(3)
ways = pytest.mark.parametrize("way", ["eager", "dispatcher"])
pytestmark = [
    pytest.mark.filterwarnings("ignore::flashcliff.EquivarianceWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
]


def every(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


# Differences


@pytest.mark.share(3)
@ways
@every(TABLE)
def test_gradients_of_both_modes_are_differences(case, way):
    given = leaves(tensors(case))
    assert gradcheck(
        Ways(case)(way), given, fast_mode=True, check_forward_ad=True, check_batched_grad=True
    )


@pytest.mark.share(3)
@ways
@every(TABLE)
def test_second_derivatives_are_differences(case, way):
    assert gradgradcheck(
        Ways(case)(way), leaves(tensors(case)), fast_mode=True, check_batched_grad=True
    )


@pytest.mark.share(3)
@ways
@every(TABLE)
def test_forward_over_reverse_is_differences(case, way):
    assert gradgradcheck(
        Ways(case)(way),
        leaves(tensors(case)),
        fast_mode=True,
        check_fwd_over_rev=True,
        check_rev_over_rev=False,
        check_undefined_grad=False,
    )


@every([named("fcgp_norm"), named("mv_silu"), named("sandwich"), named("grade_norms")])
def test_fourth_derivatives_are_those_of_the_reference(case):
    def fourth(function):
        given = leaves(tensors(case))
        return gradients(
            lambda *g: joined(gradients(lambda *h: joined(second(function, h)), g)), given
        )

    close(fourth(Ways(case).eager), fourth(Ways(case).exact), 1e-8)


def test_a_derivative_without_room_says_so():
    """The fourth derivative of a product with its norm is larger than a kernel may be."""
    given = leaves(tensors(named("sgp_norm")))
    third = joined(second(Ways(named("sgp_norm")).eager, given))
    (fourth,) = torch.autograd.grad(third.square().sum(), given[:1], create_graph=True)
    with pytest.raises(flashcliff.UnsupportedError, match="sgp_norm.*no gradient as an operator.*have room for"):
        torch.autograd.grad(fourth.sum(), given[:1])


# Transforms


def _square(function):
    return lambda *given: function(*given).square().sum()


def _few(function):
    return lambda *given: function(*given).flatten()[:3]


def _pairs(given):
    return tuple(torch.stack([tensor, 0.5 - tensor]) for tensor in given)


def _all(given):
    return tuple(range(len(given)))


def _along(given):
    return tuple(torch.cos(3 * tensor) for tensor in given)


def _dual(function, given):
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(*pair) for pair in zip(given, _along(given)))
        return forward_ad.unpack_dual(function(*duals)).tangent


def _vjp(function, given):
    output, pull = func.vjp(function, *given)
    return pull(torch.cos(output))


def _directional(function):
    """The directional derivative, as a function of the tensors."""
    return lambda *given: func.jvp(function, given, _along(given))[1]


def _of_the_first(transform):
    """A transform of a function of the first tensor."""
    return lambda function, given: transform(lambda x: function(x, *given[1:]))(given[0])


TRANSFORMS = {
    "grad": lambda f, given: func.grad(_square(f), _all(given))(*given),
    "grad and value": lambda f, given: func.grad_and_value(_square(f))(*given),
    "vjp": _vjp,
    "jvp": lambda f, given: func.jvp(f, given, _along(given)),
    "dual numbers": _dual,
    "jacrev": lambda f, given: func.jacrev(_few(f), _all(given))(*given),
    "jacfwd": lambda f, given: func.jacfwd(_few(f), _all(given))(*given),
    "hessian": _of_the_first(lambda f: func.hessian(_square(f))),
    "jacrev of grad": _of_the_first(lambda f: func.jacrev(func.grad(_square(f)))),
    "jacfwd of jacrev": _of_the_first(lambda f: func.jacfwd(func.jacrev(_few(f)))),
    "jvp of jvp": lambda f, given: _directional(_directional(f))(*given),
    "grad of jvp": lambda f, given: func.grad(_square(_directional(f)), _all(given))(*given),
    "vmap": lambda f, given: func.vmap(f)(*_pairs(given)),
    "vmap of vmap": lambda f, given: func.vmap(func.vmap(f))(*_pairs(_pairs(given))),
    "vmap of grad": lambda f, given: func.vmap(func.grad(_square(f), _all(given)))(*_pairs(given)),
    "vmap of jvp": lambda f, given: func.vmap(_directional(f))(*_pairs(given)),
    "grad of vmap": lambda f, given: func.grad(_square(func.vmap(f)), _all(given))(*_pairs(given)),
    "jvp of vmap": lambda f, given: _directional(func.vmap(f))(*_pairs(given)),
    "a trace of grad": lambda f, given: make_fx(func.grad(_square(f)))(*given)(*given),
    "a trace of jvp": lambda f, given: make_fx(_directional(f))(*given)(*given),
}


@pytest.mark.share(5)
@ways
@pytest.mark.parametrize("name", TRANSFORMS)
@every(OPERATORS)
def test_transforms_are_those_of_the_reference(case, name, way):
    given = tensors(case)
    found = TRANSFORMS[name](Ways(case)(way), given)
    close(found, TRANSFORMS[name](Ways(case).exact, given), 1e-9)


@pytest.mark.share(3)
@ways
@every(SPACE)
def test_every_option_under_nested_transforms(case, way):
    given = tensors(case)
    for name in ("grad", "hessian", "vmap of grad", "jvp"):
        found = TRANSFORMS[name](Ways(case)(way), given)
        close(found, TRANSFORMS[name](Ways(case).exact, given), 1e-9)


@ways
@every(OPERATORS)
def test_linearize_is_jvp(case, way):
    given = tensors(case)
    output, push = func.linearize(Ways(case)(way), *given)
    close((output, push(*_along(given))), func.jvp(Ways(case).exact, given, _along(given)), 1e-9)


@ways
@every(OPERATORS)
def test_functionalize_changes_nothing(case, way):
    given = tensors(case)
    function = Ways(case)(way)
    assert torch.equal(func.functionalize(function)(*given), function(*given))
    of_x = func.grad(func.functionalize(_square(function)))(*given)
    close(of_x, func.grad(_square(function))(*given))


@ways
@pytest.mark.parametrize("name", ["sgp_norm", "fcgp_norm", "mv_linear", "steerable_product"])
def test_vmap_over_every_axis_of_every_input(name, way):
    """Batches of multivectors, of weights, of both, along each axis."""
    case = named(name)
    given = tensors(case)
    for dims in itertools.product((None, 0, 1, -1), repeat=len(given)):
        if not any(dim is not None for dim in dims):
            continue
        batch = [t if d is None else torch.stack([t, t + 1, 2 * t], d) for t, d in zip(given, dims)]
        found = func.vmap(Ways(case)(way), dims)(*batch)
        for at in range(3):
            one = [t if d is None else t.select(d, at) for t, d in zip(batch, dims)]
            close(found[at], Ways(case).eager(*one))


@ways
@every(OPERATORS)
def test_gradients_of_each_sample_are_those_of_a_loop(case, way):
    given = tensors(case, batch=4)
    loss = _square(Ways(case)(way))
    lanes = case.op.lanes
    there = [name in case.shapes for name in case.op.names]
    lanes = [lane for lane, is_there in zip(case.op.lanes, there) if is_there]
    dims = tuple(1 if lane else None for lane in lanes)

    def of_one(*sample):
        return loss(*(t.unsqueeze(1) if lane else t for t, lane in zip(sample, lanes)))

    found = func.vmap(func.grad(of_one, _all(given)), dims)(*given)
    for at in range(4):
        sample = leaves(tuple(t[:, at : at + 1] if lane else t for t, lane in zip(given, lanes)))
        wanted = torch.autograd.grad(loss(*sample), sample, allow_unused=True)
        for got, want, lane in zip(found, wanted, lanes):
            close(got[at], want.squeeze(1) if lane else want)


@ways
@every(OPERATORS)
def test_batches_of_gradients(case, way):
    """By torch.autograd, and by vmap of a backward pass, also to be differentiated again."""
    given = leaves(tensors(case))
    output = Ways(case)(way)(*given)
    many = torch.randn(3, *output.shape, dtype=output.dtype)

    def grad(seed, **options):
        return torch.autograd.grad(output, given, seed, retain_graph=True, **options)

    wanted = [torch.stack(each) for each in zip(*(grad(seed) for seed in many))]
    for create_graph in (False, True):
        batched = grad(many, is_grads_batched=True, create_graph=create_graph)
        mapped = func.vmap(lambda seed: grad(seed, create_graph=create_graph))(many)  # noqa: B023
        close(batched, wanted)
        close(mapped, wanted)


@every([named("product"), named("fcgp_norm"), named("mv_layer_norm")])
def test_vectorised_jacobians_and_hessians(case):
    given = tensors(case)
    functional = torch.autograd.functional
    few = lambda x: _few(Ways(case).eager)(x, *given[1:])  # noqa: E731
    loss = lambda x: few(x).square().sum()  # noqa: E731
    wanted = functional.jacobian(lambda x: _few(Ways(case).exact)(x, *given[1:]), given[0])
    close(functional.jacobian(few, given[0], vectorize=True), wanted)
    close(functional.jacobian(few, given[0], vectorize=True, strategy="forward-mode"), wanted)
    close(functional.hessian(loss, given[0], vectorize=True), functional.hessian(loss, given[0]))


def test_functional_call_of_a_layer():
    torch.manual_seed(0)
    layer = nn.SGPNorm(R3, 4).double()
    x, y = torch.randn(2, 8, 3, 4, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters, x):
        return func.functional_call(layer, parameters, (x, y)).square().sum()

    found = func.grad(loss)(parameters, x)
    loss(dict(layer.named_parameters()), x).backward()
    for name, parameter in layer.named_parameters():
        close(found[name], parameter.grad)
    # Models of an ensemble, whose parameters are stacked.
    many = {name: torch.stack([p, 2 * p]) for name, p in parameters.items()}
    both = func.vmap(func.grad(loss), (0, None))(many, x)
    twice = func.grad(loss)({name: 2 * p for name, p in parameters.items()}, x)
    for name in parameters:
        close(both[name][0], found[name])
        close(both[name][1], twice[name])


@ways
@every(OPERATORS)
def test_tensors_without_a_tangent_keep_their_bits(case, way):
    function, given = Ways(case)(way), tensors(case, dtype=torch.float32)
    wanted = function(*given)
    with forward_ad.dual_level():
        assert torch.equal(function(*given), wanted)
    inside = []
    func.grad(lambda s: inside.append(function(*given)) or s.sum())(torch.ones(2))
    assert torch.equal(inside[0], wanted)


# Parts of a gradient


@ways
@pytest.mark.parametrize(
    "name", ["sgp_norm", "fcgp_norm", "mv_linear_sgp_norm", "steerable_product"]
)
def test_some_inputs_need_gradients(name, way):
    case = [case for case in SPACE if case.name == name][-1]
    given = tensors(case)
    for chosen in itertools.product((False, True), repeat=len(given)):
        if not any(chosen):
            continue

        def of(function):
            variables = leaves(given)
            mixed = [v if c else t for v, t, c in zip(variables, given, chosen)]  # noqa: B023
            wanted = [v for v, c in zip(variables, chosen) if c]  # noqa: B023
            loss = function(*mixed).square().sum()
            first = torch.autograd.grad(loss, wanted, create_graph=True)
            again = torch.autograd.grad(joined(first).square().sum(), wanted, allow_unused=True)
            return first, tuple(
                torch.zeros_like(w) if g is None else g for w, g in zip(wanted, again)
            )

        close(of(Ways(case)(way)), of(Ways(case).exact), 1e-9)


# Graphs


@ways
@every(OPERATORS)
def test_inputs_that_are_made_from_each_other(case, way):
    given = tensors(case)

    def of(function):
        (x,) = leaves(given[:1])
        rest = [t + 0.1 * x.sin().mean() * (t - 1) for t in given[1:]]
        made = function(x.cos(), *rest)
        (first,) = torch.autograd.grad(made.square().sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), x)[0]

    close(of(Ways(case)(way)), of(Ways(case).exact), 1e-9)


@ways
@pytest.mark.parametrize("name", ["sgp_norm", "fcgp_norm", "mv_linear_sgp_norm"])
def test_an_operand_that_is_both_operands(name, way):
    case = named(name)
    given = tensors(case)
    if name == "mv_linear_sgp_norm":
        shared = lambda f: lambda x, *rest: f(f(x, *rest), *rest)  # noqa: E731
    else:
        shared = lambda f: lambda x, _, weight: f(x, x, weight)  # noqa: E731
    close(
        second(shared(Ways(case)(way)), leaves(given)),
        second(shared(Ways(case).exact), leaves(given)),
        1e-8,
    )


@ways
@every(OPERATORS)
def test_results_repeat_bit_for_bit(case, way):
    given = tensors(case, batch=3, channels=3, dtype=torch.float32)
    first = second(Ways(case)(way), leaves(given))
    again = second(Ways(case)(way), leaves(given))
    assert all(map(torch.equal, first, again))


@ways
@every(OPERATORS)
def test_graphs_that_are_kept_are_used_twice(case, way):
    given = leaves(tensors(case))
    loss = Ways(case)(way)(*given).square().sum()
    one = torch.autograd.grad(loss, given, retain_graph=True, create_graph=True, allow_unused=True)
    two = torch.autograd.grad(loss, given, retain_graph=True, allow_unused=True)
    assert all(a is b or torch.equal(a, b) for a, b in zip(one, two))
    total = sum(each.square().sum() for each in one if each is not None)
    if total.requires_grad:
        three = torch.autograd.grad(total, given, retain_graph=True, allow_unused=True)
        four = torch.autograd.grad(total, given, allow_unused=True)
        assert all(a is b or torch.equal(a, b) for a, b in zip(three, four))


@every(OPERATORS)
def test_checkpoints(case):
    given = tensors(case)
    kept = second(Ways(case).eager, leaves(given))
    again = second(
        lambda *given: checkpoint(Ways(case).eager, *given, use_reentrant=False), leaves(given)
    )
    assert all(map(torch.equal, kept, again))


@ways
@pytest.mark.parametrize("name", ["sgp_norm", "fcgp_norm", "mv_linear", "mv_linear_sgp_norm"])
def test_autocast_takes_float32_on_the_cpu(name, way):
    """Matrix products of composed derivatives must not follow autocast."""
    case = named(name)
    function, given = Ways(case)(way), tensors(case, dtype=torch.float32)
    wanted = second(function, leaves(given)), func.jvp(function, given, _along(given))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = second(function, leaves(given)), func.jvp(function, given, _along(given))
    close(found, wanted, 1e-5)


@pytest.mark.parametrize("empty", ["batch", "in"])
@every(OPERATORS)
def test_no_items_and_no_channels(case, empty):
    sizes = {"batch": 0} if empty == "batch" else {"channels": 0}
    given = tensors(case, **sizes)

    def of(function):
        return second(function, leaves(given)), func.jvp(function, given, _along(given))

    found = of(Ways(case).eager)
    for each, tensor in zip(found[0], given):
        assert each.shape == tensor.shape and not each.any()
    assert found[1][1].shape == found[1][0].shape


@ways
@every(SPACE)
def test_float32_is_near_the_reference(case, way):
    given = tensors(case, batch=3, channels=3)
    rounded = tuple(tensor.float() for tensor in given)
    exact = tuple(tensor.double() for tensor in rounded)

    def of(function, given):
        first = gradients(function, leaves(given))
        return first, second(function, leaves(given)), func.jvp(function, given, _along(given))[1]

    found, wanted = of(Ways(case)(way), rounded), of(Ways(case).exact, exact)
    close(found[0], wanted[0], 1e-4)
    close(found[1], wanted[1], 1e-3)
    close(found[2], wanted[2], 1e-4)


@ways
@every(OPERATORS)
def test_tensors_in_any_order_of_memory(case, way):
    plain = tensors(case)
    strided = tuple(t.transpose(0, -1).contiguous().transpose(0, -1) for t in plain)
    assert not strided[0].is_contiguous()
    function = Ways(case)(way)
    close(second(function, leaves(strided)), second(function, leaves(plain)))
    along = tuple(t.transpose(0, -1).contiguous().transpose(0, -1) for t in _along(plain))
    close(func.jvp(function, strided, along), func.jvp(function, plain, _along(plain)))


# Compilation and export

COMPILED = {
    "grad": lambda f, given: func.grad(_square(f))(*given),
    "hessian": lambda f, given: func.hessian(lambda x: _square(f)(x, *given[1:]))(given[0]),
    "jvp": lambda f, given: _directional(f)(*given),
    "vmap of grad": lambda f, given: func.vmap(func.grad(_square(f)))(*_pairs(given)),
    "forces": lambda f, given: _forces(_square(f), given[0].detach().requires_grad_(), *given[1:]),
}


def _forces(energy, x, *rest):
    return -torch.autograd.grad(energy(x, *rest), x, create_graph=True)[0]


@pytest.mark.share(3)
@pytest.mark.parametrize("what", COMPILED)
@pytest.mark.parametrize("name", ["sgp_norm", "mv_linear"])
def test_compiled_transforms(name, what):
    torch._dynamo.reset()
    case = named(name)
    given = tensors(case, dtype=torch.float32)
    whole = lambda *given: COMPILED[what](Ways(case).eager, given)  # noqa: E731
    close(torch.compile(whole, backend="aot_eager")(*given), whole(*given), 1e-5)


@pytest.mark.fullgraph
@pytest.mark.parametrize("name", ["sgp_norm", "mv_linear_sgp_norm"])
def test_compiled_gradients(name):
    torch._dynamo.reset()
    given = leaves(tensors(named(name), dtype=torch.float32))
    function = Ways(named(name)).eager
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    wanted = gradients(function, given, create_graph=False)
    close(gradients(compiled, given, create_graph=False), wanted, 1e-5)


def test_forces_are_exported():
    """A forward that contains a gradient, which the exported program computes."""

    class Forces(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.MVLinear(R3, 4, 4)
            self.product = nn.SGPNorm(R3, 4)

        def forward(self, x):
            x = x.detach().requires_grad_()
            return _forces(lambda x: self.product(x, self.linear(x)).square().sum(), x)

    model, x = Forces(), torch.randn(8, 3, 4)
    program = torch.export.export(model, (x,), strict=False)
    x = torch.randn(8, 3, 4)
    close(program.module()(x), model(x), 1e-6)
