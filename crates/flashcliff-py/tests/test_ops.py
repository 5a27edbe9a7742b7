"""Every operator: values and gradients on the CPU, and what is alike on all devices."""

from __future__ import annotations

import pytest
import reference
import torch
import torch.utils._python_dispatch
from cases import CASES, SPACE, Case, dispatch, relative_error
from releases import WHOLE, since

import flashcliff
import flashcliff.compat.flash_clifford
from flashcliff import compat, nn
from flashcliff import functional as F
from flashcliff._derived import table
from flashcliff._ops import eager, native, run
from flashcliff._ops import op as op_module

ids = lambda case: case.id  # noqa: E731
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_values_and_gradients(case, dtype):
    tensors = case.tensors(dtype, grad=True)
    output = case.run(**tensors)
    exact = {n: t.detach().double().requires_grad_() for n, t in tensors.items()}
    wanted = case.reference(**exact)
    assert output.dtype == dtype and output.shape == wanted.shape
    assert relative_error(output, wanted) < TOLERANCE[dtype]
    cotangent = torch.randn(
        wanted.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    got = torch.autograd.grad(output, tensors.values(), cotangent.to(dtype))
    expected = torch.autograd.grad(wanted, exact.values(), cotangent.to(dtype).double())
    for name, a, b in zip(tensors, got, expected):
        assert a.dtype == dtype and a.shape == b.shape
        assert relative_error(a, b) < TOLERANCE[dtype], name


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_expressions_of_programs_are_formulas(case):
    """Operators without a formula here are compared with the expressions of their programs."""
    if case.core().expressions() is None:
        assert case.name in ("fcgp_norm", "mv_linear", "mv_linear_sgp_norm")
        return
    tensors = case.tensors(grad=True)
    found, wanted = case.by_program(**tensors), case.reference(**tensors)
    assert relative_error(found, wanted) < 1e-12
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
    pairs = (torch.autograd.grad(each, tensors.values(), cotangent) for each in (found, wanted))
    for one, two in zip(*pairs):
        assert relative_error(one, two) < 1e-12


def test_the_comparator_sees_a_wrong_sign():
    case = SPACE[0]
    tensors = case.tensors()
    wanted = case.reference(**tensors)
    wrong = wanted.clone()
    wrong[3, 0, 0] *= -1
    assert relative_error(wanted, wanted) == 0
    assert relative_error(wrong, wanted) > 1e-3


@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_gradcheck(case):
    tensors = case.tensors(batch=2, grad=True)
    # Norms of whole grades have a kink where they vanish; random numbers keep away from it.
    names = list(tensors)
    call = lambda *values: case.run(**dict(zip(names, values)))  # noqa: E731
    assert torch.autograd.gradcheck(call, tuple(tensors.values()))


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name in ("product", "reverse", "dual", "sandwich")],
    ids=ids,
)
def test_integers_are_exact(case):
    tensors = {
        n: torch.randint(-4, 5, t.shape).to(torch.float32) for n, t in case.tensors().items()
    }
    wanted = case.reference(**{n: t.double() for n, t in tensors.items()})
    assert torch.equal(case.run(**tensors).double(), wanted)


@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_dispatcher_and_eager_agree(case, device):
    """The operator of PyTorch and the shorter way into the extension give the same bits."""
    tensors = case.tensors(torch.float32, device, grad=True)
    eager = case.run(**tensors)
    dispatched = dispatch(case, tensors)
    assert torch.equal(eager, dispatched)
    cotangent = torch.randn_like(eager)
    one = torch.autograd.grad(eager, tensors.values(), cotangent)
    two = torch.autograd.grad(dispatched, tensors.values(), cotangent)
    assert all(torch.equal(a, b) for a, b in zip(one, two))


@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_only_wanted_gradients(case, device):
    """A gradient that is computed alone is the same as with all others."""
    everything = case.tensors(torch.float64, device, grad=True)
    output = case.run(**everything)
    cotangent = torch.randn_like(output)
    grads = dict(zip(everything, torch.autograd.grad(output, everything.values(), cotangent)))
    for name in everything:
        tensors = case.tensors(torch.float64, device)
        tensors[name].requires_grad_()
        output = case.run(**tensors)
        (grad,) = torch.autograd.grad(output, (tensors[name],), cotangent)
        assert relative_error(grad, grads[name]) < {"cpu": 1e-12, "cuda": 1e-11}[device]
        assert all(t.grad is None for t in tensors.values())


@pytest.mark.parametrize("batch", [(), (1,), (2, 3), (2, 1, 3)], ids=str)
def test_batch_axes(batch):
    algebra = flashcliff.Algebra(3, 0, 0)
    x, y = torch.randn(2, 8, *batch, 4, dtype=torch.float64)
    weight = torch.randn(4, 20, dtype=torch.float64)
    output = F.sgp_norm(x, y, weight, algebra)
    flat = [t.reshape(8, -1, 4) for t in (x, y)]
    assert output.shape == (8, *batch, 4)
    assert torch.equal(output.reshape(8, -1, 4), F.sgp_norm(*flat, weight, algebra))


@pytest.mark.parametrize("recompute", [False, True])
def test_a_layer_is_its_parts(recompute):
    """The results are the same bit for bit, except the gradient of ``x``, which is the sum of
    both parts."""
    algebra = flashcliff.Algebra(3, 0, 0)
    x = torch.randn(8, 2, 7, 9, requires_grad=True)
    lw = torch.randn(9, 9, 4, requires_grad=True)
    lb, w = torch.randn(9, requires_grad=True), torch.randn(9, 20, requires_grad=True)
    wanted = F.sgp_norm(x, F.mv_linear(x, lw, lb, algebra=algebra), w, algebra)
    output = F.mv_linear_sgp_norm(x, lw, lb, w, algebra, recompute=recompute)
    assert torch.equal(output, wanted)
    with torch.no_grad():
        assert torch.equal(F.mv_linear_sgp_norm(x, lw, lb, w, algebra), wanted)
    cotangent = torch.randn_like(wanted)
    inputs = (x, lw, lb, w)
    expected = torch.autograd.grad(wanted, inputs, cotangent)
    got = torch.autograd.grad(output, inputs, cotangent)
    assert relative_error(got[0], expected[0]) < 1e-6
    assert all(torch.equal(a, b) for a, b in zip(got[1:], expected[1:]))


@pytest.mark.parametrize("recompute", [False, True])
def test_what_a_layer_keeps(recompute):
    """The operator saves the output of its linear map and the sums, or the sums alone."""
    x, lw, w = torch.randn(8, 6, 5), torch.randn(5, 5, 4), torch.randn(5, 20)
    linear, gated = (True, "scalar", None, "out_in_grade"), ("gelu", "rms", 1e-6)
    call = torch.ops.flashcliff.mv_linear_sgp_norm
    _, saved = call(x, lw, None, w, "cl300", *linear, *gated, recompute)
    y = F.mv_linear(x, lw, algebra=(3, 0, 0))
    assert saved.shape == ((0 if recompute else y.numel()) + 4 * 6,)
    if not recompute:
        assert torch.equal(saved[: y.numel()].view_as(y), y)


@pytest.fixture
def limits(monkeypatch):
    """The limits of the blocks of the fully connected products that run, pass by pass."""
    given, passed = {}, []
    make = table.FCGP_NORM.make

    def remember(*arguments):
        operator = make(*arguments)
        given[operator] = arguments[-1][-1]
        return operator

    def watch(run):
        def watched(operator, *arguments):
            if operator in given:
                passed.append(given[operator])
            return run(operator, *arguments)

        return watched

    for cached in (op_module.operator, eager._bind):
        cached.cache_clear()
    # The compiled call path has its own tests.
    loaded = native.loaded
    native.use(None)
    object.__setattr__(table.FCGP_NORM, "make", remember)
    monkeypatch.setattr(run, "forward", watch(run.forward))
    monkeypatch.setattr(run, "backward", watch(run.backward))
    yield passed
    object.__setattr__(table.FCGP_NORM, "make", make)
    for cached in (op_module.operator, eager._bind):
        cached.cache_clear()
    native.use(loaded)


def connected(**options):
    """The operands of a fully connected product."""
    x, y = torch.randn(2, 8, 6, 5, **options).unbind()
    tensors = {"x": x, "y": y, "weight": torch.randn(20, 5, 3, **options)}
    return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


@pytest.mark.parametrize("way", ["eager", "dispatcher", "compiled"])
def test_blocks_have_no_effect_here(way, limits):
    """Both passes get the limit, and give the same bits without it and with any."""
    torch._dynamo.reset()
    tensors = connected()
    results = []
    for limit in (None, 1, 4096, 1 << 40):
        case = Case("fcgp_norm", (3, 0, 0), {}, {} if limit is None else {"block_bytes": limit})
        limits.clear()
        if way == "dispatcher":
            output = dispatch(case, tensors)
        elif way == "eager":
            output = case.run(**tensors)
        else:
            output = torch.compile(case.run, fullgraph=WHOLE, backend="aot_eager")(**tensors)
        grads = torch.autograd.grad(output, tensors.values(), torch.ones_like(output))
        assert limits == [limit, limit]
        results.append((output, *grads))
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others))


def test_a_limit_may_change_under_compile(limits):
    """Like any option that is not a tensor, the limit is a constant of the graph, never a
    symbol."""
    torch._dynamo.reset()
    tensors = connected()
    compiled = torch.compile(
        lambda limit: F.fcgp_norm(**tensors, algebra=(3, 0, 0), block_bytes=limit),
        fullgraph=WHOLE,
        backend="aot_eager",
    )
    wanted = F.fcgp_norm(**tensors, algebra=(3, 0, 0))
    limits.clear()
    for limit in (1000, 2000, 3000, 2000, None):
        assert torch.equal(compiled(limit), wanted)
    assert limits == [1000, 2000, 3000, 2000, None]


def test_layers_pass_limits_on(limits):
    algebra = flashcliff.Algebra(3, 0, 0)
    x = torch.randn(8, 6, 5)
    layers = {
        1000: nn.FCGPNorm(algebra, 5, 3, block_bytes=1000),
        2000: nn.FullyConnectedSteerableGeometricProduct(algebra, 5, 3, block_bytes=2000),
        3000: nn.FlashCliffordLayer(algebra, 5, fully_connected=True, block_bytes=3000),
        4000: compat.flash_clifford.Layer(5, 3, use_fc=True, block_bytes=4000),
    }
    for limit, layer in layers.items():
        limits.clear()
        layer(*([x, x] if limit == 1000 else [x])).sum().backward()
        assert limits == [limit, limit]
        assert f"block_bytes={limit}" in repr(layer)
        # The limit is not part of the state dict.
        assert not any("block" in name for name in layer.state_dict())


def test_negative_views():
    x = torch.randn(8, 2, 3, dtype=torch.float64)
    y = torch._neg_view(x)
    assert torch.equal(F.reverse(y, (3, 0, 0)), -F.reverse(x, (3, 0, 0)))


@pytest.mark.parametrize(
    "name", ["reverse", "grade_involution", "clifford_conjugate", "dual", "undual"]
)
@pytest.mark.parametrize("grades", [(0,), (1,), (2, 0), (1, 3)], ids=str)
def test_some_grades(name, grades):
    space = reference.basis((3, 0, 1))
    full = torch.zeros(16, 2, 3, dtype=torch.float64)
    carried = space.carried(grades)
    x = torch.randn(len(carried), 2, 3, dtype=torch.float64, requires_grad=True)
    full[carried] = x.detach()
    wanted = getattr(reference, name)((3, 0, 1), full)
    output = getattr(F, name)(x, (3, 0, 1), grades=iter(grades))
    reached = [4 - g for g in grades] if name.endswith("dual") else grades
    assert torch.equal(output, wanted[space.carried(reached)])
    output.sum().backward()
    assert torch.equal(x.grad.abs(), torch.ones_like(x))


@pytest.mark.parametrize("name", ["reverse", "dual"])
def test_some_grades_without_data_of_the_host(name):
    """The operator copies no data from the host, which a CUDA graph cannot capture and a stream
    would wait for."""
    called = []

    class Record(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(func.name())
            return func(*args, **(kwargs or {}))

    x = torch.randn(4, 2, 3, requires_grad=True)
    with Record():
        getattr(F, name)(x, (3, 0, 0), grades=(2, 0)).sum().backward()
    assert f"flashcliff::{name}" in called
    forbidden = ("index", "lift", "_to_copy", "scalar_tensor", "_local_scalar")
    assert not [name for name in called if any(word in name for word in forbidden)]


@pytest.mark.parametrize("cached", [op_module.operator, eager._bind])
def test_few_operators_are_kept(cached):
    tensors = {name: tensor.detach() for name, tensor in connected().items()}
    wanted = F.fcgp_norm(**tensors, algebra=(3, 0, 0))
    cached.cache_clear()
    for limit in range(1, op_module.CACHED + 10):
        output = F.fcgp_norm(**tensors, algebra=(3, 0, 0), block_bytes=limit)
    assert torch.equal(output, wanted)
    info = cached.cache_info()
    assert info.currsize == info.maxsize == op_module.CACHED


@pytest.mark.parametrize(
    "kind",
    "geometric exterior regressive left_contraction right_contraction scalar commutator".split(),
)
def test_named_products(kind):
    x, y = torch.randn(2, 8, 2, 3)
    name = kind if "contraction" in kind else f"{kind}_product"
    assert torch.equal(getattr(F, name)(x, y, (3, 0, 0)), F.product(x, y, (3, 0, 0), kind))


OTHERS = [flashcliff.Algebra(*signature) for signature in ((1, 1, 1), (2, 1, 1), (0, 3, 0), (3, 2, 0))]
"""Algebras that were not compiled: their programs are interpreted, on a GPU compiled when they are first used."""


@pytest.mark.parametrize("algebra", [*flashcliff.algebras(), *OTHERS], ids=repr)
def test_all_algebras(algebra, device):
    assert algebra.is_compiled == (algebra not in OTHERS)
    space = reference.basis(algebra.signature)
    assert algebra.blades == space.names()
    assert algebra.paths == tuple(reference.paths(algebra.signature))
    x, y = torch.randn(2, len(space.blades), 3, 4, dtype=torch.float64)
    weight = torch.randn(4, algebra.path_count, dtype=torch.float64)
    wanted = reference.sgp_norm(algebra.signature, x, y, weight)
    output = F.sgp_norm(x.to(device), y.to(device), weight.to(device), algebra)
    assert relative_error(output, wanted) < {"cpu": 1e-12, "cuda": 1e-11}[device]
    cayley = torch.zeros(3 * (len(space.blades),), dtype=torch.float64)
    for left, right, output, sign in algebra.terms():
        cayley[left, right, output] = sign
    assert torch.equal(cayley, reference.table(algebra.signature))


def test_equivariance():
    """A rotation of the operands rotates the product."""
    rotor = torch.zeros(8, 1, 1, dtype=torch.float64)
    angle = torch.tensor(0.7, dtype=torch.float64)
    rotor[0], rotor[4] = torch.cos(angle / 2), -torch.sin(angle / 2)
    rotate = lambda t: F.sandwich(rotor.expand_as(t), t, (3, 0, 0))  # noqa: E731
    x, y = torch.randn(2, 8, 5, 6, dtype=torch.float64)
    weight = torch.randn(6, 20, dtype=torch.float64)
    one = F.sgp_norm(rotate(x), rotate(y), weight, (3, 0, 0))
    assert relative_error(one, rotate(F.sgp_norm(x, y, weight, (3, 0, 0)))) < 1e-12


def test_threads():
    before = flashcliff.get_num_threads()
    x, y = torch.randn(2, 8, 512, 64)
    weight = torch.randn(64, 20)
    wanted = F.sgp_norm(x, y, weight, (3, 0, 0))
    for threads in (1, 2, 3):
        flashcliff.set_num_threads(threads)
        assert flashcliff.get_num_threads() == threads
        assert torch.equal(F.sgp_norm(x, y, weight, (3, 0, 0)), wanted)
    flashcliff.set_num_threads(before)


@pytest.fixture
def precision():
    """The state of PyTorch that the precision of products of matrices is in, restored."""
    cuda = torch.backends.cuda.matmul
    newer = hasattr(torch.backends, "fp32_precision")
    if newer:
        cuda.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    yield cuda
    if newer:
        cuda.fp32_precision = torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    if newer:
        cuda.fp32_precision = "none"


def test_matmul_precision_by_the_older_functions(precision):
    assert not run.takes_tf32()
    for name in ("high", "medium"):
        torch.set_float32_matmul_precision(name)
        assert run.takes_tf32()
        torch.set_float32_matmul_precision("highest")
        assert not run.takes_tf32()
    precision.allow_tf32 = True
    assert run.takes_tf32()
    precision.allow_tf32 = False
    assert not run.takes_tf32()


@since("2.9", "PyTorch has no attributes of precision")
def test_matmul_precision_by_the_newer_attributes(precision):
    """After this the older getter may raise."""
    for value, wanted in (("tf32", True), ("ieee", False), ("tf32", True), ("none", False)):
        precision.fp32_precision = value
        assert run.takes_tf32() is wanted
    # The setting for all backends counts if the one of CUDA is not set.
    for value, wanted in (("tf32", True), ("ieee", False), ("none", False)):
        torch.backends.fp32_precision = value
        assert run.takes_tf32() is wanted


def test_matmul_precision_without_the_attributes(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "matmul", object())
    for name, wanted in (("high", True), ("highest", False)):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda name=name: name)
        assert run.takes_tf32() is wanted


def backward_of_a_norm(dtype=torch.float64):
    """The operator of a gradient: its arguments before the saved tensor, that tensor, and the
    arguments after it."""
    x, y = torch.randn(2, 8, 6, 5, dtype=dtype)
    weight = torch.randn(5, 20, dtype=dtype)
    output, saved = torch.ops.flashcliff.sgp_norm(x, y, weight, "cl300")
    after = (output, [True] * 3, "cl300")
    return (torch.randn_like(output), x, y, weight), saved, after


def test_saved_sums_of_any_strides():
    before, saved, after = backward_of_a_norm()
    wanted = torch.ops.flashcliff.sgp_norm_backward(*before, saved, *after)
    strided = torch.stack([saved, torch.full_like(saved, 9.0)], dim=-1)[:, 0]
    assert not strided.is_contiguous()
    for same in (strided, torch._neg_view(-saved)):
        got = torch.ops.flashcliff.sgp_norm_backward(*before, same, *after)
        assert all(torch.equal(a, b) for a, b in zip(got, wanted))


def test_wrong_saved_sums():
    before, saved, after = backward_of_a_norm()
    expected = "sgp_norm: expected at least 24 saved numbers, torch.float64 on cpu, got"
    for wrong, got in (
        (saved.float(), "24, torch.float32 on cpu"),
        (saved[:-1], "23, torch.float64 on cpu"),
        (None, "None"),
    ):
        with pytest.raises(ValueError, match=f"{expected} {got}"):
            torch.ops.flashcliff.sgp_norm_backward(*before, wrong, *after)
    grad, *tensors = before
    core = op_module.operator(table.SGP_NORM, "cl300", (True,) * 3, ("gelu", "rms", 1e-6, None, None))
    with pytest.raises(ValueError, match=f"{expected} 24, torch.float64 on meta"):
        run.backward(core, tensors, after[0], saved.to("meta"), grad, [True] * 3)
    before, saved, after = backward_of_a_norm(torch.float32)
    with pytest.raises(ValueError, match="24 saved numbers, torch.float32 on cpu, got 24"):
        torch.ops.flashcliff.sgp_norm_backward(*before, saved.double(), *after)
