"""torch.compile, opcheck, autocast and export."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo.compiled_autograd
import torch._dynamo.testing
from cases import SPACE, dispatch, relative_error
from releases import WHOLE

import flashcliff
from flashcliff import functional as F

R3 = flashcliff.Algebra(3, 0, 0)
ids = lambda case: case.id  # noqa: E731
TYPES = {"cpu": torch.float64, "cuda": torch.float32}


@pytest.mark.share(3)
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_opcheck(case, device):
    tensors = case.tensors(TYPES[device], device, grad=True)
    case.run(**tensors)
    torch.library.opcheck(case.overload, case.arguments(tensors))


@pytest.mark.share(4)
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_opcheck_of_the_gradient(case):
    tensors = case.tensors()
    op = case.op
    *given, algebra = case.arguments(tensors)[: len(op.tensors) + 1]
    options = case.arguments(tensors)[len(op.tensors) + 1 :]
    result = case.overload(*case.arguments(tensors))
    output = result[0] if op.saves else result
    kept = (result[1], output) if op.saves else ()
    wanted = [tensor is not None for tensor in given]
    inputs = () if op.linear else given
    arguments = (torch.randn_like(output), *inputs, *kept, wanted, algebra, *options)
    backward = getattr(torch.ops.flashcliff, f"{case.name}_backward").default
    torch.library.opcheck(backward, arguments)
    assert len(backward(*arguments)) == len(tensors)


@pytest.mark.share(4)
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_compile_with_any_batch(case, device):
    """The whole call is one graph, and one compilation serves all batch sizes."""
    torch._dynamo.reset()
    case.run(**case.tensors(TYPES[device], device))
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(case.run, fullgraph=WHOLE, backend=counter)
    for batch in (6, 9, 2, 33):
        tensors = case.tensors(TYPES[device], device, batch=batch, grad=True)
        for name, tensor in tensors.items():
            if "batch" in case.shapes[name]:
                torch._dynamo.mark_dynamic(tensor, case.shapes[name].index("batch"))
        output = compiled(**tensors)
        wanted = case.run(**tensors)
        assert torch.equal(output, wanted)
        cotangent = torch.randn_like(wanted)
        got = torch.autograd.grad(output, tensors.values(), cotangent)
        expected = torch.autograd.grad(wanted, tensors.values(), cotangent)
        assert all(torch.equal(a, b) for a, b in zip(got, expected))
    assert counter.frame_count == 1 or not WHOLE


def test_inductor():
    """Between operators of PyTorch, with the default backend; batch sizes become dynamic by
    themselves."""
    torch._dynamo.reset()
    layer = torch.nn.Linear(5, 5, dtype=torch.float64)

    def network(x, weight):
        y = layer(x)
        return (F.sgp_norm(torch.relu(x), y, weight, R3, gate="silu") * 2).sin()

    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(network, fullgraph=WHOLE, backend=counter)
    for batch in (4, 7, 11):
        x = torch.randn(8, batch, 5, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(5, 20, dtype=torch.float64, requires_grad=True)
        got = torch.autograd.grad(compiled(x, weight).sum(), (x, weight))
        expected = torch.autograd.grad(network(x, weight).sum(), (x, weight))
        assert all(relative_error(a, b) < 1e-12 for a, b in zip(got, expected))
    # There is one graph for the first size and one for all others.
    assert counter.frame_count <= 2 or not WHOLE


@pytest.mark.parametrize("algebra", [R3, (3, 0, 0)], ids=str)
@pytest.mark.parametrize("left", [None, (1,), [1], range(1, 2)], ids=str)
def test_options_under_compile(algebra, left):
    torch._dynamo.reset()
    call = lambda x, y: F.product(x, y, algebra, "exterior", left=left)  # noqa: E731
    x, y = torch.randn(2, 8, 2, 3)
    x = x if left is None else x[1:4]
    assert torch.equal(torch.compile(call, fullgraph=WHOLE, backend="aot_eager")(x, y), call(x, y))


def test_batch_axes_under_compile():
    torch._dynamo.reset()
    call = torch.compile(lambda x: F.dual(x, R3), fullgraph=WHOLE, backend="aot_eager", dynamic=True)
    for batch in ((2, 3), (4, 5), (7, 2)):
        x = torch.randn(8, *batch, 3)
        assert torch.equal(call(x), F.dual(x, R3))


def test_grades_under_compile():
    torch._dynamo.reset()
    x = torch.randn(3, 2, 3)
    call = lambda x: F.dual(x, R3, grades=(1,))  # noqa: E731
    assert torch.equal(torch.compile(call, fullgraph=WHOLE, backend="aot_eager")(x), call(x))


def test_errors_under_compile():
    torch._dynamo.reset()
    call = torch.compile(lambda x, y: F.product(x, y, R3), fullgraph=WHOLE, backend="aot_eager")
    with pytest.raises(Exception, match="tensor `y` must be"):
        call(torch.randn(8, 2, 3), torch.randn(8, 2, 4))


def test_export():
    class Module(torch.nn.Module):
        def forward(self, x, y):
            return F.product(x, y, R3)

    x, y = torch.randn(2, 8, 4, 3)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        Module(), (x, y), dynamic_shapes=({1: batch}, {1: batch}), strict=False
    )
    x, y = torch.randn(2, 8, 9, 3)
    assert torch.equal(program.module()(x, y), F.product(x, y, R3))


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint

    tensors = SPACE[0].tensors(torch.float32, grad=True)
    call = lambda *t: F.sgp_norm(*t, R3)  # noqa: E731
    got = torch.autograd.grad(
        checkpoint(call, *tensors.values(), use_reentrant=False).sum(), tensors.values()
    )
    wanted = torch.autograd.grad(call(*tensors.values()).sum(), tensors.values())
    assert all(torch.equal(a, b) for a, b in zip(got, wanted))


def half_inputs(case, dtype):
    """The first of the tensors has 16 bits. Returns them with the operator's result for float32."""
    tensors = case.tensors(torch.float32, grad=True)
    first = next(iter(tensors))
    tensors[first] = tensors[first].detach().to(dtype).requires_grad_()
    return tensors, case.run(**{n: t.detach().float() for n, t in tensors.items()})


@pytest.mark.parametrize("way", ["eager", "dispatcher"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_autocast_on_the_cpu(case, dtype, way):
    """16-bit tensors are computed in float32, and the result is float32. Gradients have the
    types of their tensors."""
    tensors, wanted = half_inputs(case, dtype)
    with torch.autocast("cpu", dtype=dtype):
        output = case.run(**tensors) if way == "eager" else dispatch(case, tensors)
    assert output.dtype == torch.float32
    assert torch.equal(output, wanted)
    output.sum().backward()
    assert all(t.grad.dtype == t.dtype for t in tensors.values())


def test_autocast_under_compile():
    torch._dynamo.reset()
    case = SPACE[0]
    tensors, wanted = half_inputs(case, torch.bfloat16)
    compiled = torch.compile(case.run, fullgraph=WHOLE, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = compiled(**tensors)
    assert output.dtype == torch.float32 and torch.equal(output, wanted)
    output.sum().backward()
    assert all(t.grad.dtype == t.dtype for t in tensors.values())


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_what_a_layer_keeps_without_data(dtype, recompute):
    """A tensor with the type of the multivectors, beside sums with the type of the arithmetic."""
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(8, 3, 5, dtype=dtype)
        linear, weight = torch.empty(5, 5, 4, dtype=dtype), torch.empty(5, 20, dtype=dtype)
        output, saved = torch.ops.flashcliff.mv_linear_sgp_norm(
            x, linear, None, weight, "cl300", recompute=recompute
        )
    kept = 0 if recompute else 120 // (2 if dtype == torch.bfloat16 else 1)
    assert output.shape == x.shape and output.dtype == dtype
    assert saved.shape == (kept + 4 * 3,)
    assert saved.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_autocast_leaves_double_alone():
    tensors = SPACE[0].tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(SPACE[0].run(**tensors), F.sgp_norm(**tensors, algebra=R3))
    assert SPACE[0].run(**tensors).dtype == torch.float64


def test_an_optimiser_learns():
    """A sanity check of all parts together: the weights of a product are found from its values."""
    x, y, weight = torch.randn(8, 64, 6), torch.randn(8, 64, 6), torch.randn(6, 20)
    target = F.sgp_norm(x, y, weight, R3, norm="none")
    found = torch.zeros(6, 20, requires_grad=True)
    optimiser = torch.optim.Adam([found], lr=0.1)
    for _ in range(300):
        optimiser.zero_grad()
        loss = (F.sgp_norm(x, y, found, R3, norm="none") - target).pow(2).mean()
        loss.backward()
        optimiser.step()
    assert (found - weight).abs().max() < 1e-2


EACH = list({case.name: case for case in SPACE}.values())
"""A case of each operator."""


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("case", "backend"),
    [(case, "eager") for case in EACH] + [(SPACE[0], "aot_eager")],
    ids=lambda value: getattr(value, "id", value),
)
def test_compiled_autograd(case, backend):
    """The gradient of a call that ran outside of any graph, as a graph."""
    torch._dynamo.reset()
    tensors = case.tensors(grad=True)
    case.run(**tensors).square().sum().backward()
    wanted = [tensor.grad for tensor in tensors.values()]
    for tensor in tensors.values():
        tensor.grad = None
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    loss = case.run(**tensors).square().sum()
    compiler = lambda graph: torch.compile(graph, backend=counter, fullgraph=True)  # noqa: E731
    with torch._dynamo.compiled_autograd._enable(compiler):
        loss.backward()
    assert counter.frame_count >= 1
    assert all(torch.equal(t.grad, want) for t, want in zip(tensors.values(), wanted))
