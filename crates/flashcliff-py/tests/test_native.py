"""The compiled call path: that it takes the calls that it should, and means the same by them as Python.

All other tests of the package run by this path too if it was built, and by Python with ``FLASHCLIFF_NATIVE=0``.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest
import torch
import torch.utils.checkpoint
from cases import CASES, SPACE

import flashcliff
from flashcliff import functional as F
from flashcliff import nn
from flashcliff._derived import table
from flashcliff._ops import native as switch
from flashcliff._ops import run

R3 = flashcliff.Algebra(3, 0, 0)
compiled = pytest.mark.native
built = pytest.mark.built
ids = lambda case: case.id  # noqa: E731


def operands(**options):
    x, y = torch.randn(2, 8, 6, 5, **options).unbind()
    tensors = (x, y, torch.randn(5, 20, **options))
    return tuple(tensor.detach().requires_grad_() for tensor in tensors)


def product(x, y, weight, **options):
    return F.sgp_norm(x, y, weight, R3, **options)


def gradients(output, tensors, seed=1):
    generator = torch.Generator().manual_seed(seed)
    cotangent = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return torch.autograd.grad(output, tensors, cotangent.to(output.dtype), allow_unused=True)


def same(left, right):
    pairs = list(zip(left, right, strict=True))
    return all(a is b is None or (a is not None and torch.equal(a, b)) for a, b in pairs)


# What it takes


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_bits_of_python(case, dtype, python, alone, monkeypatch):
    tensors = case.tensors(dtype, grad=True)
    inputs = list(tensors.values())

    def both():
        output = case.run(**tensors)
        return output, *gradients(output, inputs)

    mine = both()
    assert mine[0].grad_fn.name().endswith("Backward")
    assert same([case.run(**case.tensors(dtype))], [mine[0]])
    with pytest.raises(AssertionError, match="went through Python"):
        python(both)
    monkeypatch.undo()
    assert same(mine, python(both))


@compiled
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_any_wanted_gradients(case, python, alone):
    """Gradients of any of the inputs are the same as when all gradients are wanted."""
    count = len(case.tensors())
    every = case.tensors(grad=True)
    whole = gradients(case.run(**every), list(every.values()))
    for wanted in range(1, 1 << count):
        tensors = case.tensors()
        for index, tensor in enumerate(tensors.values()):
            tensor.requires_grad_(bool(wanted >> index & 1))
        asked = [tensor for tensor in tensors.values() if tensor.requires_grad]
        got = gradients(case.run(**tensors), asked)
        assert same(got, [g for index, g in enumerate(whole) if wanted >> index & 1])


@compiled
def test_layers_and_other_ways_in(alone):
    """Modules, other batch axes, casts of autocast, and ways of writing an algebra."""
    x, y, weight = operands()
    layer = nn.SGPNorm(R3, 5)
    layer(x, y).sum().backward()
    flat = product(x, y, weight)
    assert torch.equal(product(x.view(8, 2, 3, 5), y.view(8, 2, 3, 5), weight).view(8, 6, 5), flat)
    assert torch.equal(F.sgp_norm(x, y, weight, (3, 0, 0)), flat)
    with torch.autocast("cpu", torch.bfloat16):
        cast = product(x.bfloat16(), y, weight)
    assert cast.dtype == torch.float32 and cast.grad_fn is not None
    with torch.no_grad():
        assert not product(x, y, weight).requires_grad
    with torch.inference_mode():
        assert product(x, y, weight).is_inference()


@compiled
def test_any_strides(alone):
    x, y, weight = operands()
    wanted = product(x, y, weight)
    swapped = [tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in (x, y, weight)]
    output = product(*swapped)
    assert not swapped[0].is_contiguous() and torch.equal(output, wanted)
    # The gradient of a sum is a number with strides of zero.
    got = torch.autograd.grad(output.sum(), (x, y, weight))
    assert same(got, torch.autograd.grad(wanted, (x, y, weight), torch.ones(8, 6, 5)))


@compiled
def test_options_are_told_apart(python):
    x, y, weight = operands()
    calls = [{"eps": eps} for eps in (1e-6, 0.1, 1.0, 0.0, -0.0)]
    calls += [{"gate": gate} for gate in ("none", "silu", "gelu")]
    calls += [{"norm": norm} for norm in ("none", "rms", "invariant")]
    calls += [{"left": grades} for grades in (None, (0, 1, 2, 3))]
    wanted = [python(lambda: product(x, y, weight, **options)) for options in calls]  # noqa: B023
    for _ in range(2):
        for options, want in zip(calls, wanted):
            assert torch.equal(product(x, y, weight, **options), want), options
    assert len({tuple(want.flatten().tolist()) for want in wanted}) >= 6
    # Equal to a number that was given before, and of another type.
    for eps in (True, "1.0", None):
        with pytest.raises(TypeError):
            product(x, y, weight, eps=eps)
    with pytest.raises(TypeError):
        F.sgp_norm(x, y, weight, R3, left=(0, True, 2, 3))


@compiled
def test_many_operators():
    """More than are kept."""
    x, y, weight = operands()
    limits = [1 + index / 100 for index in range(200)]
    wanted = [product(x, y, weight, eps=eps) for eps in limits]
    assert all(torch.equal(product(x, y, weight, eps=e), w) for e, w in zip(limits, wanted))
    switch.loaded.Lookup(count=1, resolve=print).forget()
    table.SGP_NORM.native.forget()
    assert torch.equal(product(x, y, weight, eps=limits[0]), wanted[0])


@compiled
def test_shapes_are_told_apart(python):
    """Sizes are kept from call to call."""
    for batch, channels in ((1, 1), (6, 5), (1, 5), (6, 1), (600, 5), (6, 5), (0, 5), (40, 200)):
        x, y = torch.randn(2, 8, batch, channels).requires_grad_()
        weight = torch.randn(channels, 20, requires_grad=True)

        def both(tensors=(x, y, weight)):
            output = product(*tensors)
            return output, *gradients(output, tensors)

        assert same(both(), python(both))


# The graph


@compiled
def test_nothing_is_read_after_it_changed():
    x, y, weight = operands()
    for change in (0, 1, 2):
        tensors = [tensor.clone() for tensor in (x, y, weight)]
        output = product(*tensors)
        tensors[change].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.sum().backward()
    connected = torch.randn(20, 5, 3, requires_grad=True)
    output = F.fcgp_norm(x, y, connected, R3)
    output.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@compiled
def test_twice():
    tensors = operands()
    output = product(*tensors).sum()
    first = torch.autograd.grad(output, tensors, retain_graph=True)
    assert same(first, torch.autograd.grad(output, tensors))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.backward()
    turned = F.reverse(tensors[0], R3).sum()
    turned.backward()
    turned.backward()


@compiled
def test_second_derivatives(python):
    x, y, weight = operands()
    (grad,) = torch.autograd.grad(product(x, y, weight).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), weight)
    exact = python(lambda: torch.autograd.grad(product(x, y, weight).square().sum(), x, create_graph=True))
    assert torch.equal(grad, exact[0])
    # Gradients that nobody asked for are left out here, which changes the last bits.
    assert torch.allclose(second, torch.autograd.grad(exact[0].sum(), weight)[0], atol=1e-6)
    (grad,) = torch.autograd.grad(F.reverse(x, R3).pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert torch.equal(second, 6 * F.reverse(x, R3))


def refuse_derivatives(monkeypatch):
    """Makes passes and derivatives that Python takes fail."""

    def refuse(*_):
        raise AssertionError("this derivative went through Python")

    for name in ("forward", "backward", "results"):
        monkeypatch.setattr(run, name, refuse)


def twice(case, made, needed):
    """The gradients by some inputs, which are positions, and their gradients by some inputs, along random directions."""
    inputs = list(case.tensors(grad=True).values())
    output = case.run(**dict(zip(case.tensors(), inputs))).square().sum()
    first = torch.autograd.grad(output, [inputs[at] for at in made], create_graph=True)
    generator = torch.Generator().manual_seed(2)
    along = [torch.randn(g.shape, generator=generator, dtype=g.dtype) for g in first]
    loss = sum((g * direction).sum() for g, direction in zip(first, along))
    return *first, *torch.autograd.grad(loss, [inputs[at] for at in needed])


@compiled
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_gradients_of_gradients_have_the_bits_of_python(case, python):
    every = range(len(case.tensors()))
    assert same(twice(case, every, every), python(lambda: twice(case, every, every)))


@pytest.mark.share(3)
@compiled
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_gradients_of_any_gradients(case, python, monkeypatch):
    """Of the gradients by any inputs those by any inputs, without Python, and with its bits."""
    count = len(case.tensors())
    some = [
        [at for at in range(count) if mask >> at & 1] for mask in range(1, 1 << count)
    ]
    # More would take long for four inputs.
    pairs = [(made, needed) for made in some for needed in some][:: max(1, 4 ** (count - 3))]
    with monkeypatch.context() as alone:
        refuse_derivatives(alone)
        mine = [twice(case, *pair) for pair in pairs]
    with pytest.raises(AssertionError, match="went through Python"), monkeypatch.context() as alone:
        refuse_derivatives(alone)
        python(lambda: twice(case, *pairs[0]))
    theirs = python(lambda: [twice(case, *pair) for pair in pairs])
    assert all(map(same, mine, theirs))


@compiled
def test_gradients_of_gradients_in_graphs(monkeypatch):
    refuse_derivatives(monkeypatch)
    x, y, weight = operands()
    (grad,) = torch.autograd.grad(product(x, y, weight).sum(), x, create_graph=True)
    assert grad.grad_fn.name() == "SgpNormBackwardBackward"
    first = torch.autograd.grad(grad.sum(), (y, weight), retain_graph=True)
    assert same(first, torch.autograd.grad(grad.sum(), (y, weight)))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        grad.sum().backward()
    # Nothing that this pass read is followed.
    (grad,) = torch.autograd.grad(F.reverse(x, R3), x, torch.ones_like(x), create_graph=True)
    assert not grad.requires_grad


@compiled
def test_hooks_of_tensors_of_backward_passes():
    tensors = operands()

    def second(pack=lambda t: t, unpack=lambda t: t):
        output = product(*tensors).sum()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            grads = torch.autograd.grad(output, tensors, create_graph=True)
        return torch.autograd.grad(sum(grad.sum() for grad in grads), tensors)

    wanted = second()
    packed = []
    assert same(second(lambda t: packed.append(t.shape) or t.clone()), wanted)
    # The gradient of the output and the inputs.
    assert len(packed) == 4
    # A hook may bring back what does not fit.
    with pytest.raises(ValueError, match="sgp_norm"):
        second(unpack=lambda t: t[:1])


@compiled
def test_hooks_of_saved_tensors():
    tensors = operands()
    wanted = gradients(product(*tensors), tensors)
    packed, unpacked = [], []
    pack = lambda tensor: packed.append(tensor.shape) or tensor.to(torch.float64)  # noqa: E731
    unpack = lambda tensor: unpacked.append(tensor.shape) or tensor.to(torch.float32)  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        output = product(*tensors)
    assert same(gradients(output, tensors), wanted)
    assert len(packed) == len(unpacked) == 4  # with the saved sums
    # A hook may bring back what does not fit.
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:1]):
        output = product(*tensors)
    with pytest.raises(ValueError, match="sgp_norm"):
        output.sum().backward()


@compiled
def test_checkpoint():
    tensors = operands()
    wanted = gradients(product(*tensors), tensors)
    for reentrant in (False, True):
        output = torch.utils.checkpoint.checkpoint(product, *tensors, use_reentrant=reentrant)
        output.backward(
            torch.randn(
                8, 6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64
            ).float()
        )
        assert same([tensor.grad for tensor in tensors], wanted)
        for tensor in tensors:
            tensor.grad = None


@compiled
def test_an_output_whose_gradient_is_missing():
    class Lost(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return None

    x, y, weight = operands()
    (grad,) = torch.autograd.grad(Lost.apply(product(x, y, weight)).sum(), x)
    assert torch.equal(grad, torch.zeros_like(x))


@compiled
def test_anomalies_name_the_operator():
    x, y, weight = operands()
    with pytest.warns(UserWarning, match="SgpNormBackward"), torch.autograd.detect_anomaly():
        output = product(x * float("nan"), y, weight)
        with pytest.raises(RuntimeError, match="nan"):
            output.sum().backward()


@compiled
def test_profiles_name_the_operator():
    tensors = operands()
    with torch.profiler.profile() as profile:
        product(*tensors).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert "SgpNorm" in names and any("SgpNormBackward" in name for name in names)


@compiled
def test_graphs_are_freed():
    x, y, weight = operands()
    kept = product(x * 1, y * 1, weight)
    middle = kept.grad_fn.next_functions[0][0]
    assert middle.name() == "MulBackward0"
    inner = x * 2
    gone = weakref.ref(inner)
    output = product(inner, y, weight)
    del inner
    assert gone() is not None or not gc.collect()
    del output
    gc.collect()
    assert gone() is None


@compiled
def test_deep_graphs():
    """Nodes are deleted one by one, not each within the next."""
    x = torch.randn(8, 1, 1, requires_grad=True)
    output = x
    for _ in range(50_000):
        output = F.reverse(output, R3)
    output.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    del output


@compiled
def test_threads():
    tensors = operands()
    wanted = gradients(product(*tensors), tensors)
    wrong = []

    def work(eps):
        for _ in range(200):
            product(*tensors, eps=eps)
            if not same(gradients(product(*tensors), tensors), wanted):
                wrong.append(eps)

    threads = [threading.Thread(target=work, args=(0.1 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# What it leaves


@compiled
def test_calls_for_python():
    """These are `None` to the compiled path, and Python takes or refuses them."""
    native = table.SGP_NORM.native
    x, y, weight = (tensor.detach() for tensor in operands())
    rest = (R3, "gelu", "invariant", 1e-6, None, None)

    class Sub(torch.Tensor):
        pass

    assert native(x, y, weight, *rest) is not None
    left = {
        "a subclass": (x.as_subclass(Sub), y, weight),
        "a number": (1.0, y, weight),
        "nothing": (None, y, weight),
        "no weight": (x, y, None),
        "another type": (x.double(), y, weight),
        "a type of no kernel": (x.int(), y, weight),
        "16 bits": (x.half(), y.half(), weight.half()),
        "a shape": (x[:7], y, weight),
        "no axes": (x[0, 0, 0], y, weight),
        "a device": (x, y.to("meta"), weight),
        "a sparse tensor": (x.to_sparse(), y, weight),
        "a negative view": (torch._neg_view(x), y, weight),
        "memory that is gone": (emptied(x), y, weight),
    }
    for name, tensors in left.items():
        assert native(*tensors, *rest) is None, name
    for options in (
        (object(), *rest[1:]),
        (R3, "gelu-tanh", *rest[2:]),
        (R3, "gelu", "no", *rest[3:]),
        (R3, "gelu", "rms", 1, None, None),
        (*rest[:4], [0, 1, 2, 3], None),
        (*rest[:4], (1, 0, 2, 3), None),
        (*rest[:4], (1,), None),
        (*rest[:3], float("nan"), None, None),
    ):
        assert native(x, y, weight, *options) is None, options
    with torch.autocast("cpu"):
        assert native(x, y, weight, *rest) is None
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert native(x, y, weight, *rest) is None
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        assert native(dual, y, weight, *rest) is None
    batched = []
    torch.func.vmap(lambda x: batched.append(native(x, y, weight, *rest)) or x)(x[None])
    assert batched == [None]
    with pytest.raises(TypeError):
        native(x, y)
    with pytest.raises(TypeError):
        native(x, y, weight, *rest, name=1)


def emptied(tensor):
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


@compiled
def test_wrong_bindings_are_errors():
    core = table.SGP_NORM.make(R3._core, (True,) * 3, ("gelu", "invariant", 1e-6, None, None))
    options = {"name": "A", "node": "B", "linear": False, "reads_output": False}
    for count in (0, 9, -1):
        with pytest.raises(ValueError, match="tensors, got"):
            switch.loaded.Operator(core, print, print, print, count=count, **options)
        with pytest.raises(ValueError, match="tensors, got"):
            switch.loaded.Lookup(count=count, resolve=print)
    with pytest.raises(AttributeError):
        switch.loaded.Operator(object(), print, print, print, count=3, **options)
    operator = switch.loaded.Operator(core, print, print, print, count=3, **options)
    with pytest.raises(TypeError, match="expected 3 tensors"):
        operator(torch.ones(1))
    with pytest.raises(ValueError):
        switch.loaded.set_table(0)


# The build


def python_run(code, folder, **environment):
    kept = {**os.environ, "FLASHCLIFF_CACHE_DIR": str(folder), **environment}
    return subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True)


CALL = """
import pathlib, torch, flashcliff, flashcliff.native
flashcliff.native._SHIPPED = pathlib.Path("nothing")
from flashcliff import functional as F
F.reverse(torch.ones(8, 1, 1), (3, 0, 0))
print(flashcliff.native.is_active())
"""
WHERE = "from flashcliff import native; print(native._built())"


def test_nothing_is_built_unasked(tmp_path):
    done = python_run(CALL, tmp_path, FLASHCLIFF_NATIVE="")
    assert done.stdout.split() == ["False"] and not done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_the_variable(tmp_path):
    done = python_run(CALL, tmp_path, FLASHCLIFF_NATIVE="yes")
    assert "ValueError: FLASHCLIFF_NATIVE: expected 0, 1 or nothing, got `yes`" in done.stderr
    done = python_run(CALL, tmp_path, FLASHCLIFF_NATIVE="1")
    assert "ImportError: FLASHCLIFF_NATIVE=1, and the compiled call path cannot be used: " in done.stderr
    assert f"; there is no {tmp_path}" in done.stderr
    assert "python -m flashcliff.native" in done.stderr


def test_a_compiler_that_fails(tmp_path):
    build = "from flashcliff import native; native.build()"
    done = python_run(build, tmp_path, CXX="false", FLASHCLIFF_NATIVE="")
    assert "RuntimeError: the C++ compiler failed, with the status 1: false" in done.stderr
    done = python_run(build, tmp_path, CXX="/no/such", FLASHCLIFF_NATIVE="")
    assert "RuntimeError: the C++ compiler /no/such cannot be run" in done.stderr
    done = python_run(build, tmp_path, CXX="", PATH="", FLASHCLIFF_NATIVE="")
    assert "RuntimeError: there is no C++ compiler: expected CXX, or one of" in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.long
def test_a_file_that_cannot_be_loaded(tmp_path):
    from pathlib import Path

    path = Path(python_run(WHERE, tmp_path).stdout.strip())
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no library")
    done = python_run(CALL, tmp_path, FLASHCLIFF_NATIVE="")
    assert done.stdout.split() == ["False"]
    assert "RuntimeWarning: the compiled call path of flashcliff cannot be used" in done.stderr
    done = python_run(CALL, tmp_path, FLASHCLIFF_NATIVE="1")
    assert "ImportError" in done.stderr and done.returncode != 0
    done = python_run(CALL, tmp_path, FLASHCLIFF_NATIVE="0")
    assert done.stdout.split() == ["False"] and not done.stderr


@built
def test_what_was_built_is_not_built_again():
    code = "from flashcliff import native; native.build(); print(native.is_active())"
    folder = os.environ.get("FLASHCLIFF_CACHE_DIR", "")
    done = python_run(code, folder, CXX="false", FLASHCLIFF_NATIVE="0")
    assert done.stdout.split() == ["True"], done.stderr
