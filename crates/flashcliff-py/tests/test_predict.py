"""Predictions: memory against PyTorch's own record of allocations, times by planted rates, and what they must leave alone."""

from __future__ import annotations

import json

import pytest
import torch

import flashcliff
from flashcliff import nn
from flashcliff._predict import prediction as predictions
from flashcliff._predict import rates as rates_of_machine
from flashcliff._predict.rates import Rates
from flashcliff._predict.record import Call
from flashcliff._predict.scale import Sample, largest, times
from flashcliff._predict.step import Model, Probe
from flashcliff.nn import transformer
from flashcliff.nn.models import Hulls

R3 = flashcliff.Algebra(3, 0, 0)
MIB = 1 << 20
RATES = Rates(
    {},
    1e-6,
    ((1e3, 1e9), (1e6, 1e9), (1e7, 1e8), (1e9, 1e8)),
    {"float32": ((1e3, 1e9), (1e9, 1e10))},
)


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    """Rates that need no measurement."""
    monkeypatch.setattr(predictions, "rates_of", lambda device: RATES)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = transformer.Block(flashcliff.Algebra(3, 0, 1), 4, 8)

    def forward(self, x, s):
        return self.block(x, s, reference=transformer.join_reference(x))


class _Shared(torch.autograd.Function):
    """Twice a tensor, as a tensor of its own on memory of another, as layers of transformers have parts of a matrix."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        doubled = x * 2
        return x.new_empty(0).set_(doubled.untyped_storage(), 0, x.shape, x.stride())

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        grown = g * 2 + 0 * x
        return g.new_empty(0).set_(grown.untyped_storage(), 0, g.shape, g.stride())


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = _Shared.apply(layer(x))
        return x


MODELS = {
    "shared memory": (Shared, lambda n: (torch.randn(n, 64),), 0),
    "hulls": (lambda: Hulls(features=8, products=2), lambda n: (torch.randn(n, 16, 5),), 0),
    "layers": (
        lambda: torch.nn.Sequential(*(nn.FlashCliffordLayer(R3, 16) for _ in range(3))),
        lambda n: (torch.randn(8, n, 16),),
        1,
    ),
    "perceptron": (
        lambda: torch.nn.Sequential(
            torch.nn.Linear(64, 256),
            torch.nn.GELU(),
            torch.nn.Linear(256, 64),
            torch.nn.LayerNorm(64),
        ),
        lambda n: (torch.randn(n, 64),),
        0,
    ),
    "block": (
        Block,
        lambda n: (torch.randn(16, n, 12, 4), torch.randn(n, 12, 8)),
        (1, 0),
    ),
}


def step(model, inputs):
    outputs = model(*inputs)
    ends = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])


def recorded_peak(model, inputs):
    """The most that PyTorch's allocator has given at once, with parameters and inputs."""
    tensors = (*model.parameters(), *model.buffers(), *inputs)
    own = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    with torch.profiler.profile(profile_memory=True) as profiled:
        step(model, inputs)
    events = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return own + most


@pytest.mark.parametrize("name", MODELS)
def test_the_peak_is_that_of_the_allocator(name):
    make, inputs, axis = MODELS[name]
    model = make()
    # Tables that a first call makes stay.
    step(model, inputs(3))
    model.zero_grad()
    found = flashcliff.predict(model, inputs(8), size=3000, axis=axis, memory=0)
    wanted = recorded_peak(model, inputs(3000))
    assert abs(found.peak_bytes / wanted - 1) < 0.05, (found.peak_bytes, wanted)
    assert found.batch == 3000 and found.probe_batch <= 750
    assert found.parameter_bytes == sum(
        4 * p.numel() for p in (*model.parameters(), *model.buffers())
    )


@pytest.mark.parametrize("name", MODELS)
def test_fake_steps_call_what_real_ones_call(name):
    make, inputs, axis = MODELS[name]
    tensors = inputs(6)
    axes = axis if isinstance(axis, tuple) else (axis,)
    example = Model(make(), tensors, axes, True)
    fake = [(call.phase, *call.key) for call in example.fake(6).calls]
    real = [(call.phase, *call.key) for call in example.probe(6).calls]
    assert fake == real


def test_the_model_is_left_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    x = torch.randn(64, 4, requires_grad=True)
    torch.set_rng_state(state)
    flashcliff.predict(model, x, memory=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert x.grad is None and all(parameter.grad is None for parameter in model.parameters())
    assert model(x).requires_grad


def test_without_a_backward_pass_nothing_is_kept():
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, bias=False) for _ in range(6)))
    x = torch.randn(8, 64)
    both = flashcliff.predict(model, x, size=10_000, memory=0)
    alone = flashcliff.predict(model, x, size=10_000, backward=False, memory=0)
    tensor = 4 * 64 * 10_000
    # The input, and the input and output of a layer.
    assert alone.peak_bytes == alone.parameter_bytes + 3 * tensor
    assert both.peak_bytes > alone.peak_bytes + 4 * tensor
    assert alone.backward_seconds == 0 < both.backward_seconds
    assert {row.phase for row in alone.rows} == {"forward"}


def test_the_largest_batch_fits():
    make, inputs, axis = MODELS["layers"]
    model = make()
    limit = 300 * MIB
    found = flashcliff.predict(model, inputs(8)[0], axis=axis, memory=limit)
    assert found.available_bytes == limit
    batch = found.largest_batch
    held = [
        flashcliff.predict(model, inputs(8)[0], axis=axis, size=size, memory=0).peak_bytes
        for size in (batch, int(1.01 * batch))
    ]
    assert held[0] - found.parameter_bytes <= limit < held[1] - found.parameter_bytes


@pytest.mark.parametrize("available", [0, 5, 999, 12_345_678])
def test_the_search_for_the_largest_batch(available):
    asked = []

    def peak(size):
        asked.append(size)
        return max(100 + 3 * size, 7 * size)

    found = largest(peak, available, {1: peak(1), 64: peak(64)})
    fits = (
        max((n for n in range(2_000_000) if peak(n) <= available), default=0)
        if available < 1000
        else 1_763_668
    )
    assert fits * 0.994 - 1 <= found <= fits
    assert len(set(asked)) >= 2


def calls(bytes_, seconds, name="op", flops=0):
    return Call(name, ((bytes_,),), "forward", "float32", bytes_, flops, bytes_, seconds)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        # At the bandwidth of a cache, then at that of memory, which is a tenth.
        (1e-6, 0.1),
        # Operations that hide the bytes at both sizes, and at the small size alone.
        (100e-6, 1.0),
        (2e-6, 0.1),
        # A kernel that beats the sum that the rates come from does so at both sizes.
        (0.5e-6, 0.05),
    ],
)
def test_a_call_grows_with_its_bytes_at_the_rates_of_the_machine(work, expected):
    view = calls(0, 1e-6, "view")
    small, large = calls(1000, 1e-6 + work), calls(10_000_000, 0.0)
    found = times(RATES, [Sample(Probe(0, 0, [view, small]), [view, small])], [view, large])
    assert found == [1e-6, pytest.approx(1e-6 + expected)]


def test_a_call_that_was_not_measured_is_like_others_of_its_name():
    probe = Probe(0, 0, [calls(0, 0.0, "view"), calls(1000, 5e-6)])
    other = calls(2000, 0.0)
    found = times(RATES, [Sample(probe, [other])], [other])
    assert found == [pytest.approx(1e-5)]


def test_operations_count_where_they_take_longer():
    assert RATES.seconds(1000, 0, "float32", 1000) == pytest.approx(1e-6)
    assert RATES.seconds(1000, 10**6, "float32", 1000) > 1e-4
    # Between two sizes by the logarithm: 1e6 is the middle of 1e3 and 1e9.
    assert RATES.seconds(0, 10**6, "float32", 1) == pytest.approx(10**6 / 10**9.5)
    assert RATES.seconds(0, 10**6, "float16", 1) == RATES.seconds(0, 10**6, "float32", 1)


def test_the_report():
    make, inputs, axis = MODELS["hulls"]
    found = flashcliff.predict(make(), inputs(16), size=500)
    text = str(found)
    assert text.startswith("a batch of 500 on cpu: ") and "flashcliff.steerable_product" in text
    assert "the largest batch in " in text
    data = json.loads(json.dumps(found.as_dict()))
    assert data["seconds"] == data["forward_seconds"] + data["backward_seconds"]
    assert data["rows"][0]["calls"] >= 1
    with pytest.raises(AttributeError):
        found.batch = 1


class Reads(torch.nn.Module):
    def forward(self, x):
        return x * x.sum().item()


def test_a_model_that_reads_values_is_refused():
    with pytest.raises(
        flashcliff.UnsupportedError, match="depends on the shapes of its inputs alone"
    ):
        flashcliff.predict(Reads(), torch.randn(4, 2))


@pytest.mark.parametrize(
    ("size", "few"),
    [
        pytest.param(None, 2, id="few samples"),
        # Two blades: the first run has all of them, and only the fake one has more.
        pytest.param(64, 64, id="more samples"),
    ],
)
def test_an_axis_that_is_not_that_of_the_batch_is_named(size, few):
    algebra = R3 if size is None else flashcliff.Algebra(1, 0, 0)
    blades = 2**algebra.dim
    model = nn.MVLinear(algebra, 4, 4)
    with pytest.raises(ValueError) as found:
        flashcliff.predict(model, torch.randn(blades, 6, 4), size=size)
    said = str(found.value)
    assert said.startswith("flashcliff.predict: `axis`: expected the axis of the batch")
    assert f"got 0: the model takes an input of shape [{blades}, 6, 4], but not with {few}" in said
    assert "`axis=1` for multivectors" in said
    # The reason is in the message, not in a traceback before it.
    assert found.value.__cause__ is None and found.value.__suppress_context__
    right = flashcliff.predict(model, torch.randn(blades, 6, 4), size=size, axis=1)
    assert right.batch == (size or 6)


class Fails(torch.nn.Module):
    def forward(self, x):
        raise KeyError("of the model")


def test_an_error_of_the_model_is_its_own():
    with pytest.raises(KeyError, match="of the model"):
        flashcliff.predict(Fails(), torch.randn(4, 2))
    with pytest.raises(flashcliff.UnsupportedError):
        flashcliff.predict(Reads(), torch.randn(2, 2), size=64)


# Rates


def test_rates_are_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHCLIFF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(rates_of_machine, "_SECONDS", 1e-4)
    monkeypatch.setattr(rates_of_machine, "_LARGEST", {"cpu": 1 << 14})
    monkeypatch.setattr(rates_of_machine, "_WIDTHS", {"cpu": (8, 16)})
    made = flashcliff.calibrate("cpu")
    (file,) = (tmp_path / "rates").iterdir()
    assert (
        file.name.startswith("torch-cpu-")
        and json.loads(file.read_text())["machine"] == made.machine
    )
    assert [size for size, _ in made.levels] == [4096, 8192, 16384]
    assert set(made.products) == {"float32", "float64"} and made.call_seconds > 0
    monkeypatch.setattr(rates_of_machine, "measure", lambda device: pytest.fail("measured again"))
    place = torch.device("cpu")
    assert rates_of_machine.rates_of(place) == made
    # Files of other machines, and damaged ones, are measured anew.
    monkeypatch.setattr(rates_of_machine, "measure", lambda device: made)
    text = file.read_text()
    for spoil in (
        lambda t: t.replace('"threads": ', '"threads": 1'),
        lambda t: t[: len(t) // 2],
        lambda t: t.replace('"call_seconds": ', '"call_seconds": "x", "was": '),
        lambda t: t.replace("4096.0,", "-4096.0,"),
        lambda t: t.replace('"float32"', '"float99"'),
    ):
        file.write_text(spoil(text))
        assert spoil(text) != text
        assert rates_of_machine._load(file, made.machine) is None
    assert rates_of_machine.rates_of(place) == made
    assert rates_of_machine._load(file, made.machine) == made


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="device: expected cpu, cuda or cuda:N, got meta"):
        flashcliff.calibrate("meta")


@pytest.mark.cuda
@pytest.mark.parametrize("name", MODELS)
def test_on_a_gpu(name):
    """The peak is that of the caching allocator, and times come out."""
    make, inputs, axis = MODELS[name]
    model = make().cuda()
    on_gpu = lambda n: tuple(x.cuda() for x in inputs(n))  # noqa: E731
    step(model, on_gpu(3))
    found = flashcliff.predict(model, on_gpu(64), size=3000, axis=axis)
    assert found.device == "cuda:0" and found.forward_seconds > 0 and found.backward_seconds > 0
    assert found.largest_batch > 3000
    if name == "block":
        # Our kernels between matrix products hold less than the operators of PyTorch.
        return
    model.zero_grad()
    tensors = on_gpu(3000)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    own = sum(
        t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers(), *tensors)
    )
    torch.cuda.reset_peak_memory_stats()
    step(model, tensors)
    wanted = own + torch.cuda.max_memory_allocated() - before
    assert abs(found.peak_bytes / wanted - 1) < 0.05, (found.peak_bytes, wanted)
