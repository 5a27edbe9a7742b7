"""The compiled kernels of PyTorch's operators: that they take the calls that they should, and mean the same by them as Python's.

All other tests of the package that go through the dispatcher run by them too if they were built.
"""

from __future__ import annotations

import threading

import pytest
import torch
from capture_fake import Log
from cases import CASES, SPACE
from releases import needs_kernels

import flashcliff
from flashcliff import functional as F
from flashcliff import nn
from flashcliff._ops import native as switch

R3 = flashcliff.Algebra(3, 0, 0)
pytestmark = pytest.mark.native
ids = lambda case: case.id  # noqa: E731
ops = torch.ops.flashcliff


def forward(case, tensors):
    result = case.overload(*case.arguments(tensors))
    return result if isinstance(result, tuple) else (result,)


def backward(case, tensors, results, wanted=None):
    """The gradients by the operator of gradients."""
    op = case.op
    count = len(op.tensors)
    arguments = case.arguments(tensors)
    given, configuration = arguments[:count], arguments[count:]
    kept = (results[1], results[0]) if op.saves else ()
    if wanted is None:
        wanted = [tensor is not None for tensor in given]
    grad = torch.linspace(-1, 1, results[0].numel()).to(results[0]).view(results[0].shape)
    inputs = () if op.linear else given
    return getattr(ops, f"{case.name}_backward")(grad, *inputs, *kept, wanted, *configuration)


def same(left, right):
    return len(left) == len(right) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(left, right)
    )


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_bits_of_python(case, dtype, python, alone, monkeypatch):
    tensors = case.tensors(dtype)
    results = forward(case, tensors)
    grads = backward(case, tensors, results)
    with pytest.raises(AssertionError, match="went through Python"):
        python(lambda: forward(case, tensors))
    with pytest.raises(AssertionError, match="went through Python"):
        python(lambda: backward(case, tensors, results))
    monkeypatch.undo()
    wanted = python(lambda: forward(case, tensors))
    assert same(results, wanted)
    assert same(grads, python(lambda: backward(case, tensors, wanted)))


@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_any_wanted_gradients(case, python):
    tensors = case.tensors()
    results = forward(case, tensors)
    there = [tensor is not None for tensor in case.arguments(tensors)[: len(case.op.tensors)]]
    every = iter(backward(case, tensors, results))
    whole = [next(every) if given else None for given in there]
    for mask in range(1 << len(there)):
        wanted = [bool(mask >> index & 1) and given for index, given in enumerate(there)]
        got = backward(case, tensors, results, wanted)
        assert same(got, [g for g, want in zip(whole, wanted) if want])


@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_gradients_go_by_python(case):
    """Calls that need a graph of autograd have one, and its backward pass is compiled."""
    tensors = case.tensors(grad=True)
    output = forward(case, tensors)[0]
    assert output.requires_grad and output.grad_fn is not None
    with torch.no_grad():
        assert not forward(case, tensors)[0].requires_grad
    cotangent = torch.randn_like(output)
    got = torch.autograd.grad(output, tensors.values(), cotangent)
    assert same(got, torch.autograd.grad(case.run(**tensors), tensors.values(), cotangent))


def test_options_are_told_apart(python):
    x, y = torch.randn(2, 8, 6, 5)
    weight = torch.randn(5, 20)
    options = [("gelu", "invariant", eps, None, None) for eps in (1e-6, 0.1, 1.0, 0.0, -0.0)]
    options += [(gate, norm, 1e-6, None, None) for gate in ("none", "silu") for norm in ("none", "rms")]
    options += [("gelu", "invariant", 1e-6, grades, None) for grades in ([0, 1, 2, 3], [])]
    options += [("gelu", "invariant", 1e-6, [0, 1, 2, 3], [0, 1, 2, 3])]

    def all_of_them():
        found = []
        for given in options:
            try:
                found.append(ops.sgp_norm(x, y, weight, "cl300", *given)[0])
            except Exception as error:
                found.append((type(error), str(error)))
        return found

    wanted = python(all_of_them)
    for _ in range(2):
        for one, two in zip(all_of_them(), wanted, strict=True):
            assert torch.equal(one, two) if isinstance(two, torch.Tensor) else one == two
    assert sum(isinstance(one, torch.Tensor) for one in wanted) == len(options) - 1
    # More than are kept.
    for index in range(150):
        eps = 1 + index / 100
        assert torch.equal(ops.sgp_norm(x, y, weight, "cl300", eps=eps)[0], F.sgp_norm(x, y, weight, R3, eps=eps))


@needs_kernels
def test_tensors_that_are_missing_are_told_apart(alone):
    x, weight, bias = torch.randn(8, 6, 5), torch.randn(5, 5, 4), torch.randn(5)
    for _ in range(2):
        with_bias = ops.mv_linear(x, weight, bias, "cl300")
        without = ops.mv_linear(x, weight, None, "cl300")
        assert torch.allclose(with_bias[0], without[0] + bias, atol=1e-6)
        assert torch.equal(with_bias[1:], without[1:])


def test_errors_are_those_of_python(python):
    x, weight = torch.randn(8, 6, 5), torch.randn(5, 20)
    good = ops.sgp_norm(x, x, weight, "cl300")
    calls = [
        lambda: ops.sgp_norm(x, x[:7], weight, "cl300"),
        lambda: ops.sgp_norm(x, x.double(), weight, "cl300"),
        lambda: ops.sgp_norm(x, x.to("meta"), weight, "cl300"),
        lambda: ops.sgp_norm(x, x, weight, "cl999"),
        lambda: ops.sgp_norm(x, x, weight, "cl300", gate="no"),
        lambda: ops.sgp_norm(x, x, weight, "cl300", left=[7]),
        lambda: ops.sgp_norm(x.to_sparse(), x, weight, "cl300"),
        lambda: ops.sgp_norm_backward(x, x, x, weight, good[1], None, [True], "cl300"),
        lambda: ops.sgp_norm_backward(x[:7], x, x, weight, good[1], None, [True] * 3, "cl300"),
        lambda: ops.sgp_norm_backward(x, x, x, weight, good[1][:2], None, [True] * 3, "cl300"),
        lambda: ops.sgp_norm_backward(x, x, x, weight, None, None, [True] * 3, "cl300"),
        lambda: ops.mv_linear_backward(x, x, torch.randn(5, 5, 4), None, [True] * 3, "cl300"),
    ]

    def messages():
        found = []
        for call in calls:
            with pytest.raises(Exception) as raised:
                call()
            found.append((raised.type, str(raised.value)))
        return found

    assert messages() == python(messages)


def test_other_tensors_go_by_python():
    x, weight = torch.randn(8, 6, 5), torch.randn(5, 20)
    wanted = ops.sgp_norm(x, x, weight, "cl300")[0]

    class Sub(torch.Tensor):
        pass

    negative = torch._neg_view(x)
    assert torch.equal(ops.sgp_norm(x.as_subclass(Sub), x, weight, "cl300")[0], wanted)
    assert torch.equal(ops.sgp_norm(negative, negative, weight, "cl300", gate="none")[0],
                       ops.sgp_norm(x, x, weight, "cl300", gate="none")[0])
    batched = torch.func.vmap(lambda x: ops.sgp_norm(x, x, weight, "cl300")[0])(torch.stack([x, x]))
    assert torch.equal(batched[1], wanted)
    swapped = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(ops.sgp_norm(swapped, x, weight, "cl300")[0], wanted)
    with torch.inference_mode():
        assert ops.sgp_norm(x, x, weight, "cl300")[0].is_inference()


def test_modes_see_the_operators():
    x = torch.randn(8, 6, 5)
    with Log() as log:
        output, saved = ops.sgp_norm(x, x, torch.ones(5, 20), "cl300")
        ops.sgp_norm_backward(x, x, x, torch.ones(5, 20), saved, None, [True] * 3, "cl300")
    seen = [function.name() for function, *_ in log.entries]
    assert seen.count("flashcliff::sgp_norm") == seen.count("flashcliff::sgp_norm_backward") == 1


@needs_kernels
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_graphs_run_without_python(backend, python, alone, monkeypatch):
    torch._dynamo.reset()
    net = torch.nn.Sequential(*(nn.FlashCliffordLayer(R3, 4) for _ in range(2)))
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    x = torch.randn(8, 6, 4)
    output = compiled(x)
    output.square().sum().backward()
    got = [output, *(p.grad for p in net.parameters())]
    with torch.no_grad():
        assert torch.allclose(compiled(x), output, rtol=1e-5, atol=1e-6)
    monkeypatch.undo()
    net.zero_grad()
    wanted = python(lambda: net(x))
    wanted.square().sum().backward()
    for one, two in zip(got, [wanted, *(p.grad for p in net.parameters())], strict=True):
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-5 * two.abs().max().item())


def test_threads():
    x, weight = torch.randn(8, 6, 5), torch.randn(5, 20)
    wanted = {eps: ops.sgp_norm(x, x, weight, "cl300", eps=eps)[0] for eps in (0.1, 0.2, 0.3, 0.4)}
    wrong = []

    def work(eps):
        for index in range(200):
            # New options, so that what is kept changes all the time.
            ops.sgp_norm(x, x, weight, "cl300", eps=eps + index)
            if not torch.equal(ops.sgp_norm(x, x, weight, "cl300", eps=eps)[0], wanted[eps]):
                wrong.append(eps)

    threads = [threading.Thread(target=work, args=(eps,)) for eps in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_kernels
def test_registrations_end_with_their_objects(alone):
    x = torch.randn(8, 6, 5)
    ops.reverse(x, "cl300")
    kept = list(switch._registered)
    try:
        switch._registered.clear()
        ops.reverse(x, "cl300")
        kept.clear()
        with pytest.raises(AssertionError, match="went through Python"):
            ops.reverse(x, "cl300")
    finally:
        switch.use(switch.loaded)
    ops.reverse(x, "cl300")


@needs_kernels
def test_wrong_registrations_are_refused():
    with pytest.raises(ValueError, match="expected 1 to 8 tensors, got 9"):
        switch.loaded.register("reverse", 9, False, False, print)
    with pytest.raises(RuntimeError, match="flashcliff::nothing"):
        switch.loaded.register("nothing", 1, False, False, print)
