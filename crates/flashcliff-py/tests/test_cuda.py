"""Compares every operator on an NVIDIA GPU with the float64 reference. Skipped, and counted,
without a GPU."""

from __future__ import annotations

import pytest
import reference
import torch
from cases import CASES, SPACE, dispatch, relative_error

import flashcliff
from flashcliff import arrays
from flashcliff import functional as F

pytestmark = pytest.mark.cuda

R3 = flashcliff.Algebra(3, 0, 0)
ids = lambda case: case.id  # noqa: E731

# Tolerances relative to the largest number. 16-bit results are rounded once or twice, by 2^-8 and
# 2^-11.
TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 3e-5,
    torch.bfloat16: 2**-7,
    torch.float16: 2**-10,
}
HALF = [torch.bfloat16, torch.float16]


def grads(output, tensors, cotangent):
    return torch.autograd.grad(output, tensors.values(), cotangent.to(output))


def check(case, tensors):
    """Compares values and gradients with the reference on the same numbers."""
    output = case.run(**tensors)
    exact = {n: t.detach().cpu().double().requires_grad_() for n, t in tensors.items()}
    # The tensor between a linear map and a product is rounded too, and a norm magnifies its error
    # more than that of the result.
    between = {"between": output.dtype} if case.name == "mv_linear_sgp_norm" else {}
    wanted = case.reference(**exact, **between)
    tolerance = TOLERANCE[output.dtype]
    assert output.is_cuda and output.dtype == tensors[next(iter(tensors))].dtype
    assert output.shape == wanted.shape
    assert relative_error(output, wanted) < tolerance
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(wanted.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    got = grads(output, tensors, cotangent.cuda())
    expected = grads(wanted, exact, cotangent)
    spreads = [0.0] * len(got)
    if output.dtype in HALF:
        spreads = spread(case, exact, cotangent, expected, output.dtype, between)
    for (name, tensor), one, two, moved in zip(tensors.items(), got, expected, spreads, strict=True):
        assert one.dtype == tensor.dtype and one.shape == tensor.shape
        assert relative_error(one, two) < max(tolerance, moved), name


def spread(case, exact, cotangent, expected, dtype, between):
    """The largest change of each gradient if all numbers are off by at most a rounding error of a type.

    A norm that leaves out null blades can be small beside them. It then magnifies the rounding of what is kept in 16 bits.
    """
    generator = torch.Generator().manual_seed(2)
    unit = torch.finfo(dtype).eps / 2

    def moved(x):
        off = torch.rand(x.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return (x.detach() * (1 + unit * off)).requires_grad_(x.requires_grad)

    largest = [0.0] * len(expected)
    for _ in range(4):
        near = {name: moved(x) for name, x in exact.items()}
        found = grads(case.reference(**near, **between), near, moved(cotangent))
        errors = map(relative_error, found, expected)
        largest = [max(a, b) for a, b in zip(largest, errors, strict=True)]
    return largest


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_values_and_gradients(case, dtype):
    check(case, case.tensors(dtype, "cuda", grad=True))


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("case", [c for c in SPACE if set(c.shapes) - set("xyrl")], ids=ids)
def test_parameters_of_float32(case, dtype):
    """16-bit multivectors with parameters of float32, whose gradients are float32 too."""
    check(case, case.tensors(dtype, "cuda", grad=True, params=torch.float32))


def twice(run, tensors):
    """The gradients of the gradients of a loss, along directions of ones."""
    inputs = list(tensors.values())
    first = torch.autograd.grad(run(**tensors).square().sum(), inputs, create_graph=True)
    return torch.autograd.grad(sum(gradient.sum() for gradient in first), inputs)


@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_gradients_of_gradients(case):
    tensors = case.tensors(torch.float64, "cuda", grad=True)
    exact = {n: t.detach().cpu().requires_grad_() for n, t in tensors.items()}
    found, expected = twice(case.run, tensors), twice(case.reference, exact)
    for (name, tensor), one, two in zip(tensors.items(), found, expected, strict=True):
        assert one.is_cuda and one.shape == tensor.shape
        assert relative_error(one, two) < 1e-8, name


@pytest.mark.native
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_gradients_of_gradients_are_those_of_python(case, dtype, python):
    """The compiled call path gives the bits of Python, also where parameters have their own type."""
    params = torch.float32 if dtype in HALF else None
    tensors = case.tensors(dtype, "cuda", grad=True, params=params)
    found = twice(case.run, tensors)
    expected = python(lambda: twice(case.run, tensors))
    for tensor, one, two in zip(tensors.values(), found, expected, strict=True):
        assert one.dtype == tensor.dtype and torch.equal(one.nan_to_num(), two.nan_to_num())


@pytest.mark.parametrize("batch", [1, 37, 1000])
@pytest.mark.parametrize("case", SPACE[:2], ids=ids)
def test_batches(case, batch):
    check(case, case.tensors(torch.float32, "cuda", batch=batch, grad=True))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"], ids=str)
def test_inductor(mode):
    """The operators run between operators of PyTorch, also in the CUDA graphs that inductor
    makes."""
    torch._dynamo.reset()

    def network(x, weight):
        return (F.sgp_norm(torch.relu(x), x * 2, weight, R3) * 2).sin()

    compiled = torch.compile(network, fullgraph=True, mode=mode, dynamic=False)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(8, 16, 32, device="cuda", requires_grad=True)
        weight = torch.randn(32, 20, device="cuda", requires_grad=True)
        got = [g.clone() for g in torch.autograd.grad(compiled(x, weight).sum(), (x, weight))]
        wanted = torch.autograd.grad(network(x, weight).sum(), (x, weight))
        assert all(relative_error(a, b) < 1e-4 for a, b in zip(got, wanted))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_cuda_graphs(case, dtype):
    """Both passes are captured, and replayed on other numbers."""
    tensors = case.tensors(dtype, "cuda", grad=True)
    # A graph of autograd that outlives the capture would tie it to the default stream.
    with torch.no_grad():
        cotangent = torch.randn_like(case.run(**tensors))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            grads(case.run(**tensors), tensors, cotangent)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = case.run(**tensors)
        captured_grads = grads(captured, tensors, cotangent)
    for seed in (1, 2):
        others = case.tensors(dtype, "cuda", seed=seed)
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(others[name])
        graph.replay()
        wanted = case.run(**tensors)
        assert torch.equal(captured, wanted)
        pairs = zip(captured_grads, grads(wanted, tensors, cotangent))
        assert all(torch.equal(one, two) for one, two in pairs)


@pytest.mark.parametrize("way", ["eager", "dispatcher", "compiled"])
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_autocast(case, dtype, way):
    """Products compute on 16-bit multivectors and float32 parameters; gradients have the types of
    their tensors."""
    tensors = case.tensors(torch.float32, "cuda", grad=True)
    case.run(**tensors)
    with torch.autocast("cuda", dtype=dtype):
        if way == "eager":
            output = case.run(**tensors)
        elif way == "dispatcher":
            output = dispatch(case, tensors)
        else:
            torch._dynamo.reset()
            output = torch.compile(case.run, fullgraph=True, backend="aot_eager")(**tensors)
    products = (
        "sgp_norm fcgp_norm mv_linear mv_linear_sgp_norm product sandwich steerable_product".split()
    )
    assert output.dtype == (dtype if case.name in products else torch.float32)
    lanes = {
        n: t.detach().to(output.dtype) if n in "xyrl" else t.detach() for n, t in tensors.items()
    }
    assert torch.equal(output, case.run(**lanes))
    exact = {n: t.detach().cpu().double().requires_grad_() for n, t in tensors.items()}
    wanted = case.reference(**exact)
    # These are not the numbers of x: along x itself a norm has next to no gradient.
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(wanted.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    # Inputs are rounded too, and norms divide by sums of them.
    bound = 16 * TOLERANCE[output.dtype]
    assert relative_error(output, wanted) < bound
    for one, two, tensor in zip(
        grads(output, tensors, cotangent.cuda()), grads(wanted, exact, cotangent), tensors.values()
    ):
        assert one.dtype == tensor.dtype == torch.float32
        assert relative_error(one, two) < bound


def test_autocast_with_mixed_tensors():
    x = torch.randn(8, 4, 6, device="cuda", dtype=torch.float16)
    y = torch.randn(8, 4, 6, device="cuda")
    weight = torch.randn(6, 20, device="cuda", dtype=torch.float16)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert F.sgp_norm(x, y, weight, R3).dtype == torch.bfloat16
        assert F.grade_rms(x, R3).dtype == torch.float16
        a = torch.ones(6, 4, device="cuda", dtype=torch.bfloat16)
        assert F.mv_silu(x, a, a.float(), R3).dtype == torch.float16
        assert F.sgp_norm(y.double(), y.double(), weight.double(), R3).dtype == torch.float64


def test_an_optimiser_learns_under_autocast():
    x, y = torch.randn(2, 8, 256, 6, device="cuda")
    weight = torch.randn(6, 20, device="cuda")
    target = F.sgp_norm(x, y, weight, R3, norm="none")
    found = torch.zeros(6, 20, device="cuda", requires_grad=True)
    optimiser = torch.optim.Adam([found], lr=0.05)
    for _ in range(400):
        optimiser.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = (F.sgp_norm(x, y, found, R3, norm="none").float() - target).pow(2).mean()
        loss.backward()
        optimiser.step()
    assert (found - weight).abs().max() < 0.1


def test_streams():
    """Work goes to the stream that is current, and waits there for what came before it."""
    weight = torch.randn(64, 20, device="cuda")
    source = torch.randn(8, 512, 64, device="cuda")
    wanted = F.sgp_norm(source, source, weight, R3)
    torch.cuda.synchronize()
    for _ in range(5):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.zeros_like(source)
            torch.cuda._sleep(20_000_000)
            x.copy_(source)
            output = F.sgp_norm(x, x, weight, R3)
            assert not stream.query()
        stream.synchronize()
        assert torch.equal(output, wanted)


def test_gradients_on_a_side_stream():
    tensors = SPACE[0].tensors(torch.float32, "cuda", grad=True)
    cotangent = torch.randn(8, 6, 5, device="cuda")
    wanted = grads(SPACE[0].run(**tensors), tensors, cotangent)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        got = grads(SPACE[0].run(**tensors), tensors, cotangent)
    torch.cuda.synchronize()
    assert all(torch.equal(one, two) for one, two in zip(got, wanted))


@pytest.mark.parametrize("case", SPACE, ids=ids)
def test_dlpack(case):
    """Arrays by DLPack: here PyTorch's own tensors on the GPU."""
    tensors = case.tensors(torch.float32, "cuda")
    wanted = case.run(**tensors)
    output = getattr(arrays, case.name)(**tensors, algebra=case.signature, **case.options)
    assert output.is_cuda and torch.equal(output, wanted)


def test_dlpack_of_other_libraries():
    cupy = pytest.importorskip("cupy")
    x = cupy.ones((8, 4, 6), dtype=cupy.float32)
    output = arrays.reverse(x, R3)
    assert isinstance(output, cupy.ndarray) and float(output[7, 0, 0]) == -1


def test_memory():
    """Forward and backward need the output, the gradients, and little else."""
    tensors = {
        "x": torch.randn(8, 4096, 512, device="cuda", requires_grad=True),
        "y": torch.randn(8, 4096, 512, device="cuda", requires_grad=True),
        "weight": torch.randn(512, 20, device="cuda", requires_grad=True),
    }
    cotangent = torch.randn(8, 4096, 512, device="cuda")
    one = tensors["x"].numel() * 4
    grads(F.sgp_norm(**tensors, algebra=R3), tensors, cotangent)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = F.sgp_norm(**tensors, algebra=R3)
    assert torch.cuda.memory_allocated() - before < 1.02 * one
    result = grads(output, tensors, cotangent)
    assert torch.cuda.max_memory_allocated() - before < 3.2 * one
    del result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("recompute", [False, True])
def test_memory_of_what_is_kept(recompute, dtype):
    """The output of the linear map is kept if gradients are needed, unless it is computed again."""
    x = torch.randn(8, 4096, 256, device="cuda", dtype=dtype)
    linear_weight = torch.randn(256, 256, 4, device="cuda", dtype=dtype) / 16
    weight = torch.randn(256, 20, device="cuda", dtype=dtype)
    call = lambda x: F.mv_linear_sgp_norm(  # noqa: E731
        x, linear_weight, None, weight, R3, recompute=recompute
    )
    call(x)
    one = x.numel() * x.element_size()

    def held(x):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        output = call(x)
        return (torch.cuda.memory_allocated() - before) / one, output

    assert held(x)[0] < 1.1
    assert abs(held(x.requires_grad_())[0] - (1 if recompute else 2)) < 0.1


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_blocks(dtype):
    """Smaller blocks take less memory, in both passes; the numbers are the same as with one block but for
    the order of sums."""
    batch, channels = 4096, 64
    shapes = {
        "x": (8, batch, channels),
        "y": (8, batch, channels),
        "weight": (20, channels, channels),
    }
    tensors = {
        n: torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for n, s in shapes.items()
    }
    cotangent = torch.randn(shapes["x"], device="cuda", dtype=dtype)

    def peaks(block_bytes):
        """The peaks of forward without gradients and of both passes, with the results."""
        found = []
        for differentiates in (False, True):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            with torch.set_grad_enabled(differentiates):
                output = F.fcgp_norm(**tensors, algebra=R3, block_bytes=block_bytes)
            results = [output]
            if differentiates:
                results += grads(output, tensors, cotangent)
            found.append(torch.cuda.max_memory_allocated() - before)
        return found, results

    large, wanted = peaks(1 << 30)
    small, got = peaks(1 << 20)
    # The largest part is the path products of all rows: 4, 6, 6 and 4 paths to 1, 3, 3 and 1
    # blades.
    formed = 44 * batch * channels * dtype.itemsize
    assert all(two < one - 0.8 * formed for one, two in zip(large, small)), (large, small)
    # Both results may be off by the tolerance.
    for one, two in zip(got, wanted):
        assert relative_error(one, two) < 2 * TOLERANCE[dtype]


def test_a_block_has_a_row_at_least():
    case = next(case for case in SPACE if case.name == "fcgp_norm")
    tensors = case.tensors(torch.float32, "cuda", grad=True)
    wanted = F.fcgp_norm(**tensors, algebra=R3)
    output = F.fcgp_norm(**tensors, algebra=R3, block_bytes=1)
    cotangent = torch.randn_like(wanted)
    pairs = zip(grads(output, tensors, cotangent), grads(wanted, tensors, cotangent))
    assert relative_error(output, wanted) < TOLERANCE[torch.float32]
    assert all(relative_error(one, two) < TOLERANCE[torch.float32] for one, two in pairs)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_layer_is_its_parts(dtype):
    """The results are the same bit for bit, except the gradient of ``x``, which is the sum of both parts, and that of the bias,
    which the kernel of the product sums in another order."""
    shapes = {"x": (8, 100, 32), "lw": (4, 32, 32), "lb": (32,), "w": (32, 20)}
    tensors = {
        n: torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for n, s in shapes.items()
    }
    x, lw, lb, w = tensors.values()
    y = F.mv_linear(x, lw, lb, algebra=R3, weight_layout="grade_in_out")
    wanted = F.sgp_norm(x, y, w, R3)
    cotangent = torch.randn_like(wanted)
    expected = grads(wanted, tensors, cotangent)
    for recompute in (False, True):
        options = {"weight_layout": "grade_in_out", "recompute": recompute}
        output = F.mv_linear_sgp_norm(x, lw, lb, w, R3, **options)
        assert torch.equal(output, wanted)
        got = grads(output, tensors, cotangent)
        for index, (one, two) in enumerate(zip(got, expected, strict=True)):
            if index in (0, 2):
                assert relative_error(one, two) < TOLERANCE[dtype]
            else:
                assert torch.equal(one, two)


def test_results_repeat():
    tensors = SPACE[0].tensors(torch.float32, "cuda", batch=4099, grad=True)
    cotangent = torch.randn(8, 4099, 5, device="cuda")
    first = grads(SPACE[0].run(**tensors), tensors, cotangent)
    for _ in range(10):
        again = grads(SPACE[0].run(**tensors), tensors, cotangent)
        assert all(torch.equal(one, two) for one, two in zip(first, again))


def test_cuda_graphs_of_some_grades():
    """The operator copies no index from the host."""
    x = torch.randn(4, 6, 5, device="cuda")
    calls = [lambda f=f: f(x, R3, grades=(2, 0)) for f in (F.reverse, F.dual)]
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [call() for call in calls]
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(output, call()) for output, call in zip(outputs, calls))


def test_matmul_precision_by_the_attribute():
    """The older getter raises after this."""
    x, weight = torch.randn(8, 256, 256, device="cuda"), torch.randn(256, 256, 4, device="cuda")
    wanted = F.mv_linear(x.double(), weight.double(), algebra=R3)
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "ieee"
        exact = F.mv_linear(x, weight, algebra=R3)
        matmul.fp32_precision = "tf32"
        rounded = F.mv_linear(x, weight, algebra=R3)
    finally:
        matmul.fp32_precision = before
    assert relative_error(exact, wanted) < 1e-5
    assert 1e-5 < relative_error(rounded, wanted) < 1e-2


def test_matmul_precision():
    x, weight = torch.randn(8, 256, 256, device="cuda"), torch.randn(256, 256, 4, device="cuda")
    exact = F.mv_linear(x, weight, algebra=R3)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        rounded = F.mv_linear(x, weight, algebra=R3)
    finally:
        torch.set_float32_matmul_precision(before)
    wanted = F.mv_linear(x.double(), weight.double(), algebra=R3)
    assert relative_error(exact, wanted) < 1e-5
    assert 1e-5 < relative_error(rounded, wanted) < 1e-2


@pytest.mark.parametrize("spread", [0, 30], ids="rows of one size,rows of all sizes".split(","))
def test_16_bit_operands_are_as_precise_as_tf32(spread):
    """Compares with the same matrix products by PyTorch in TF32, with path products that are
    rounded once."""
    generator = torch.Generator("cuda").manual_seed(5)
    draw = lambda *shape: torch.randn(shape, generator=generator, device="cuda")  # noqa: E731
    sizes = torch.exp2((spread * draw(512, 1)).clamp(-spread, spread).round())
    # Powers of two change no gate.
    x, y, weight = draw(8, 512, 64) * sizes, draw(8, 512, 64) / sizes, draw(20, 64, 96)
    options = {"gate": "none", "norm": "none"}
    tables = reference.weighted_tables(R3.signature, None, None)[0].to(x)

    def by_matmul(x, y, weight):
        formed = torch.einsum("pikj,ibn,kbn->jbpn", tables.double(), x.double(), y.double())
        return formed.flatten(2).to(weight) @ weight.flatten(0, 1)

    def results(function, *inputs):
        inputs = [t.clone().requires_grad_() for t in inputs]
        output = function(*inputs)
        return [output.detach(), *torch.autograd.grad(output, inputs, cotangent.to(output))]

    cotangent = draw(8, 512, 96)
    wanted = results(by_matmul, x.double(), y.double(), weight.double())
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        rounded = results(by_matmul, x, y, weight)
        ours = results(lambda x, y, w: F.fcgp_norm(x, y, w, R3, **options), x, y, weight)
    finally:
        torch.set_float32_matmul_precision(before)
    for name, exact, theirs, own in zip("output x y weight".split(), wanted, rounded, ours):
        # Rows of x and y have very different sizes.
        size = {"x": 1 / sizes, "y": sizes}.get(name, 1)
        error = lambda t: ((t - exact) / size).square().mean().sqrt()  # noqa: B023, E731
        assert 0 < error(own) < 1.5 * error(theirs), name


def test_errors():
    x = torch.randn(8, 3, 4, device="cuda")
    weight = torch.randn(4, 20, device="cuda")
    with pytest.raises(RuntimeError, match="same device, got x on cuda:0, y on cpu"):
        F.sgp_norm(x, x.cpu(), weight, R3)
    with pytest.raises(RuntimeError, match="same device"):
        F.sgp_norm(x, x, weight.cpu(), R3)
    with pytest.raises(RuntimeError, match="same device"):
        arrays.product(x, x.cpu(), R3)
    with pytest.raises(TypeError, match="tensor `y` must be f32, got f64"):
        F.sgp_norm(x, x.double(), weight, R3)
    with pytest.raises(TypeError, match="tensor `weight` must be f32"):
        F.sgp_norm(x, x, weight.half(), R3)
    with pytest.raises(TypeError, match="tensor `weight` must be bf16 or f32"):
        F.sgp_norm(x.bfloat16(), x.bfloat16(), weight.half(), R3)
    with pytest.raises(ValueError, match="tensor `weight` must be"):
        F.sgp_norm(x, x, weight[:, :19], R3)
    with pytest.raises(TypeError, match="got torch.int64"):
        F.reverse(x.long(), R3)
    # An error leaves the GPU usable.
    assert F.sgp_norm(x, x, weight, R3).isfinite().all()


def test_pinned_memory():
    x = torch.randn(8, 3, 4).pin_memory()
    assert torch.equal(F.reverse(x, R3), F.reverse(x.clone(), R3))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_current_device_stays():
    x = torch.randn(8, 3, 4, device="cuda:1", requires_grad=True)
    weight = torch.randn(4, 20, device="cuda:1")
    output = F.sgp_norm(x, x, weight, R3)
    assert torch.cuda.current_device() == 0 and output.device.index == 1
    output.sum().backward()
    assert torch.cuda.current_device() == 0 and x.grad.device.index == 1
    # PyTorch exports tensors of the current device only.
    with torch.cuda.device(1):
        assert arrays.reverse(x.detach(), R3).device.index == 1
    assert torch.cuda.current_device() == 0
    wanted = F.sgp_norm(x.detach().cpu(), x.detach().cpu(), weight.cpu(), R3)
    assert relative_error(output, wanted) < 1e-5
    with pytest.raises(RuntimeError, match="same device, got x on cuda:1, y on cuda:0"):
        F.sgp_norm(x, x.to("cuda:0"), weight, R3)
