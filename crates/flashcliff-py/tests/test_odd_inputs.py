"""Empty and odd inputs of every operator, layer and network: a table of cases over the table of subjects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from cases import CASES as OPERATORS
from cases import LANES
from odd_subjects import SUBJECTS, Subject, flat
from torch import Tensor

from flashcliff.nn.transformer import Sequences, attend

# Relative to the largest number of all results, or of all gradients.
LIMITS = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 6e-2, torch.float16: 1e-2}
# Networks with products amplify roundings of single numbers of 16 bits by cancellation: some hundred times the type's.
OF_NETWORKS = {**LIMITS, torch.bfloat16: 2e-1, torch.float16: 6e-2}
MANY = 65_537
LENGTHS = [0, 2, 0, 4, 1, 0]

pytestmark = pytest.mark.share(3)

subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
of_ragged = pytest.mark.parametrize(
    "subject", [s for s in SUBJECTS if s.ragged], ids=lambda subject: subject.name
)
types = pytest.mark.parametrize("dtype", LIMITS, ids=lambda dtype: str(dtype)[6:])


def limit_of(subject: Subject, dtype: torch.dtype) -> float:
    """The limit of differences of a subject in a type."""
    is_network = "GATr" in subject.name or "GATransformer" in subject.name
    return (OF_NETWORKS if is_network else LIMITS)[dtype]


class Run:
    """The results of a call and their gradients by everything that they are made of."""

    def __init__(
        self,
        call: Callable[..., Any],
        given: Sequence[Tensor],
        place: Callable[[Tensor], Tensor] = lambda x: x,
        **options: Any,
    ) -> None:
        given = [x.detach().requires_grad_() for x in given]
        named = dict(call.named_parameters()) if isinstance(call, torch.nn.Module) else {}
        self.outputs = flat(_or_skip(lambda: call(*given, **options), given[0]))
        gradients = [place(_weights(out)) for out in self.outputs]
        found = torch.autograd.grad(
            self.outputs, [*given, *named.values()], gradients, allow_unused=True
        )
        self.of_inputs = list(found[: len(given)])
        self.of_parameters = dict(zip(named, found[len(given) :], strict=True))

    @property
    def gradients(self) -> list[Tensor | None]:
        return [*self.of_inputs, *self.of_parameters.values()]


def _or_skip(function: Callable[[], Any], given: Tensor) -> Any:
    try:
        return function()
    except TypeError as error:
        narrow = given.dtype.itemsize == 2 and given.is_cpu
        if narrow and "must be f32 or f64 on the CPU" in str(error):
            pytest.skip("no kernel of 16 bits on the CPU")
        raise


def _weights(out: Tensor) -> Tensor:
    """The gradient of a result, whose first elements do not depend on how many there are."""
    numbers = torch.arange(max(out.shape, default=1), device=out.device, dtype=torch.float64)
    total = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
    for axis, size in enumerate(out.shape):
        shape = [size if at == axis else 1 for at in range(out.dim())]
        total = total + (numbers[:size] * (axis + 1) + 0.3).view(shape)
    return total.cos().to(out.dtype)


def check(got: Sequence[Tensor | None], want: Sequence[Tensor | None], limit: float) -> None:
    """Compares tensors; differences are relative to the largest number of all, of 16 bits by the norms of all."""
    assert [x is None for x in got] == [x is None for x in want]
    pairs = [
        (g.detach().double().cpu(), w.detach().double().cpu())
        for g, w in zip(got, want, strict=True)
        if g is not None and w is not None
    ]
    largest = max([w.abs().max().item() for _, w in pairs if w.numel()], default=0.0)
    for g, w in pairs:
        assert g.shape == w.shape
        assert g.isfinite().all()
    if limit > LIMITS[torch.float32]:
        # Networks with products amplify roundings of single numbers of 16 bits, by cancellation, far beyond the type's.
        off, size = (sum(x.square().sum().item() for x in y) for y in ([g - w for g, w in pairs], [w for _, w in pairs]))
        assert off <= limit**2 * size
        return
    for g, w in pairs:
        assert g.numel() == 0 or (g - w).abs().max() <= limit * largest


def compare(got: Run, want: Run, limit: float) -> None:
    check(got.outputs, want.outputs, limit)
    check(got.gradients, want.gradients, limit)


def on(given: Sequence[Tensor], device: str, dtype: torch.dtype | None = None) -> list[Tensor]:
    return [x.to(device, dtype) for x in given]


def axis_of(subject: Subject, name: str) -> list[int]:
    """The axis of batch elements, or of items, in each result."""
    sizes = [(2, 3), (4, 3)] if name == "b" else [(2, 3), (2, 5)]
    call = subject.module(torch.float64)
    with torch.no_grad():
        first, second = (flat(call(*subject.inputs(*size))) for size in sizes)
    return [
        next(at for at, (a, b) in enumerate(zip(x.shape, y.shape)) if a != b)
        for x, y in zip(first, second, strict=True)
    ]


@pytest.mark.share(3)
@subjects
@types
@pytest.mark.parametrize("sizes", [(2, 3), (1, 1)], ids=["some", "one"])
def test_every_type_is_near_float64(subject, device, dtype, sizes):
    call, given = subject.module(dtype, device), subject.inputs(*sizes, dtype)
    got = Run(call, on(given, device))
    exact = subject.module(dtype)
    if isinstance(exact, torch.nn.Module):
        exact = exact.double()
    want = Run(exact, on(given, "cpu", torch.float64))
    assert all(out.dtype == dtype for out in got.outputs)
    compare(got, want, limit_of(subject, dtype))


def odd_address(x: Tensor) -> Tensor:
    return x.new_zeros(x.numel() + 1)[1:].view(x.shape).copy_(x)


def transposed(x: Tensor) -> Tensor:
    axes = list(range(x.dim()))[::-1]
    return x.permute(axes).contiguous().permute(axes)


def every_second(x: Tensor) -> Tensor:
    return torch.stack((x, x + 1), -1).flatten(-2)[..., ::2] if x.dim() else x


def odd_rows(x: Tensor) -> Tensor:
    """Rows side by side with a number of another tensor."""
    return torch.cat((x, x[..., :1]), -1)[..., : x.shape[-1]] if x.dim() else x


def expanded(x: Tensor) -> Tensor:
    return x.narrow(1, 0, 1).expand(x.shape) if x.dim() > 1 else x


PLACES = [odd_address, transposed, every_second, odd_rows, expanded]


@pytest.mark.share(3)
@subjects
@types
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_places_in_memory(subject, device, dtype, place):
    call = subject.module(dtype, device)
    given = [place(x) for x in on(subject.inputs(2, 3, dtype), device)]
    got = Run(call, given, place)
    plain = [x.clone(memory_format=torch.contiguous_format) for x in given]
    want = Run(call, plain, lambda x: place(x).clone(memory_format=torch.contiguous_format))
    compare(got, want, limit_of(subject, dtype))


@pytest.mark.share(3)
@subjects
@types
@pytest.mark.parametrize("axis", ["b", "n"])
def test_nothing(subject, device, dtype, axis):
    """Results of no batch elements, or of no items, have their shapes, and gradients that are zeros."""
    if not subject.axis(axis):
        pytest.skip("no such axis")
    call = subject.module(dtype, device)
    some = Run(call, on(subject.inputs(2, 3, dtype), device))
    none = Run(call, on(subject.inputs(*((0, 3) if axis == "b" else (2, 0)), dtype), device))
    for out, full, at in zip(none.outputs, some.outputs, axis_of(subject, axis), strict=True):
        shape = list(full.shape)
        shape[at] = 0
        assert list(out.shape) == shape and out.dtype == full.dtype
    assert [x is None for x in none.gradients] == [x is None for x in some.gradients]
    for gradient in none.gradients:
        assert gradient is None or (gradient == 0).all()


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.id)
@pytest.mark.parametrize("channels", [(0, 3), (5, 0), (0, 0)], ids=str)
def test_no_channels(case, device, channels):
    """A sum over no channels is that over one of zeros."""

    def run(inputs):
        sizes = {"batch": 4, "in": inputs, "out": channels[1]}
        shapes = {name: [sizes.get(a, a) for a in axes] for name, axes in case.shapes.items()}
        generator = torch.Generator().manual_seed(0)
        given = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        if inputs == 1:
            given = {k: torch.zeros_like(x) if k in LANES else x for k, x in given.items()}
            given |= {k: none[k] for k in given if k.endswith("bias") and none[k].shape == given[k].shape}
        given = {name: x.to(device).requires_grad_() for name, x in given.items()}
        out = case.run(**given)
        gradients = torch.autograd.grad(out.square().sum(), list(given.values()))
        assert all(g.isfinite().all() for g in gradients)
        return given, out

    none, out = run(channels[0])
    assert out.shape[1] == 4 and out.shape[-1] in channels
    if channels[0] == 0 and out.numel():
        assert torch.equal(out, run(1)[1])


@types
def test_no_features(device, dtype):
    """Without features every key has the same weight."""
    q, v = torch.randn(2, 3, 4, 0), torch.randn(2, 3, 4, 5).to(dtype).double()
    out = attend(*(x.to(device, dtype) for x in (q, q, v)))
    check([out], [v.mean(-2, keepdim=True).expand(v.shape)], LIMITS[dtype])


@subjects
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
def test_batch_elements_alone(subject, device, dtype):
    """A batch element has the results that it has in a batch."""
    call, given = subject.module(dtype, device), on(subject.inputs(5, 4, dtype), device)
    whole = Run(call, given)
    batch = axis_of(subject, "b")
    for at in (0, 4):
        alone = [
            x.narrow(axes.index("b"), at, 1) if "b" in axes else x
            for x, axes in zip(given, subject.shapes, strict=True)
        ]
        wanted = [out.narrow(axis, at, 1) for out, axis in zip(whole.outputs, batch, strict=True)]
        with torch.no_grad():
            check(flat(call(*alone)), wanted, limit_of(subject, dtype))


@pytest.mark.share(5)
@subjects
def test_many_batch_elements(subject, device):
    """More than a grid has along some axes."""
    dtype = torch.float32
    call, given = subject.module(dtype, device), on(subject.inputs(MANY, 1, dtype), device)
    if device == "cuda":
        outputs = Run(call, given).outputs
    else:
        with torch.no_grad():
            outputs = flat(call(*given))
    for at in (0, MANY - 1):
        alone = [
            x.narrow(axes.index("b"), at, 1) if "b" in axes else x
            for x, axes in zip(given, subject.shapes, strict=True)
        ]
        batch = axis_of(subject, "b")
        wanted = [out.narrow(axis, at, 1) for out, axis in zip(outputs, batch, strict=True)]
        with torch.no_grad():
            check(flat(call(*alone)), wanted, limit_of(subject, dtype))


def in_one(subject: Subject, given: Sequence[Tensor], start: int, length: int) -> list[Tensor]:
    """The items of a sequence as a batch of one element."""
    found = []
    for x, axes, ragged in zip(given, subject.shapes, subject.ragged_shapes, strict=True):
        own = x.narrow(ragged.index("n"), start, length)
        found.append(own if len(axes) == len(ragged) else own.unsqueeze(axes.index("b")))
    return found


def in_sequences(
    subject: Subject, call: Callable[..., Any], given: Sequence[Tensor], lengths: Sequence[int]
) -> list[Tensor]:
    """The results of the sequences one by one."""
    parts, start = [], 0
    for length in lengths:
        if length:
            parts.append(flat(call(*in_one(subject, given, start, length))))
        start += length
    return [torch.cat(x, at) for x, at in zip(zip(*parts), axis_of(subject, "n"), strict=True)]


@pytest.mark.share(5)
@of_ragged
@types
@pytest.mark.parametrize("longest", [None, 5])
@pytest.mark.parametrize("of_bounds", [torch.int32, torch.int64], ids=["i32", "i64"])
def test_sequences_without_items_among_others(subject, device, dtype, longest, of_bounds):
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0).to(device, of_bounds)
    given = subject.inputs(1, sum(LENGTHS), dtype, ragged=True)
    call = subject.module(dtype, device)
    assert subject.ragged is not None
    options = subject.ragged(Sequences(bounds, longest))
    got = Run(call, on(given, device), **options)

    exact = subject.module(dtype)
    if isinstance(exact, torch.nn.Module):
        exact = exact.double()
    wide = [x.requires_grad_() for x in on(given, "cpu", torch.float64)]
    wanted = in_sequences(subject, exact, wide, LENGTHS)
    wanted = [w.reshape(g.shape) for w, g in zip(wanted, got.outputs, strict=True)]
    gradients = torch.autograd.grad(wanted, wide, [_weights(out) for out in wanted])
    check(got.outputs, wanted, limit_of(subject, dtype))
    check(got.of_inputs, gradients, limit_of(subject, dtype))


@of_ragged
@types
@pytest.mark.parametrize("bounds", [[0], [0, 0, 0]], ids=["no_sequences", "empty_ones"])
def test_no_sequence_has_items(subject, device, dtype, bounds):
    call = subject.module(dtype, device)
    given = on(subject.inputs(1, 0, dtype, ragged=True), device)
    some = on(subject.inputs(1, 4, dtype, ragged=True), device)
    assert subject.ragged is not None
    of = Sequences(torch.tensor(bounds, device=device))
    none = Run(call, given, **subject.ragged(of))
    full = Run(call, some, **subject.ragged(Sequences(torch.tensor([0, 4], device=device))))
    for out, other in zip(none.outputs, full.outputs, strict=True):
        assert out.numel() == 0 and out.dim() == other.dim() and out.dtype == other.dtype
    assert [x is None for x in none.gradients] == [x is None for x in full.gradients]
    for gradient in none.gradients:
        assert gradient is None or (gradient == 0).all()


@pytest.mark.share(5)
@of_ragged
@pytest.mark.parametrize("longest", [None, 2])
def test_many_sequences(subject, device, longest):
    """As a batch of as many elements."""
    dtype = torch.float32
    call = subject.module(dtype, device)
    given = on(subject.inputs(1, MANY, dtype, ragged=True), device)
    bounds = torch.arange(MANY + 1, device=device)
    assert subject.ragged is not None
    with torch.no_grad():
        outputs = flat(call(*given, **subject.ragged(Sequences(bounds, longest))))
        for at in (0, MANY - 1):
            alone = flat(call(*in_one(subject, given, at, 1)))
            wanted = [out.narrow(out.shape.index(MANY), at, 1) for out in outputs]
            check([x.reshape(y.shape) for x, y in zip(alone, wanted)], wanted, limit_of(subject, dtype))
