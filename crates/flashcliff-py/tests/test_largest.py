"""The maximum over the rows of segments: numbers, derivatives, transforms, errors."""

import pytest
import torch
from nn_common import check_every_order, check_transforms, random
from torch.func import grad, vmap

from flashcliff.graphs import Relation, segment_maximum, segment_sum

# A target with many rows, and two with none.
TARGETS = torch.tensor([1, 0, 4, 1, 1, 0, 3, 1])
COUNT, ROWS = 6, 8


def relation():
    return Relation(TARGETS, COUNT)


def row_by_row(x):
    """Maxima of ``[1, rows, channels]``, written out: PyTorch gives the gradient of ``max`` along an axis to the first of equal values."""
    rows = [x[:, TARGETS == target] for target in range(COUNT)]
    found = [own.max(1).values if own.shape[1] else torch.zeros_like(x[:, 0]) for own in rows]
    return torch.stack(found, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_largest_values(dtype):
    # Negative numbers are larger than nothing, and integers have equals.
    for x in (random(1, ROWS, 5), random(1, ROWS, 5) - 9, random(1, ROWS, 5).mul(2).round()):
        x = x.to(dtype)
        ours, theirs = (x.clone().requires_grad_() for _ in range(2))
        got, wanted = segment_maximum(ours, relation()), row_by_row(theirs)
        assert got.dtype == dtype and torch.equal(got, wanted)
        assert (got[:, [2, 5]] == 0).all()
        along = random(*got.shape, seed=1).to(dtype)
        found = torch.autograd.grad(got, ours, along)[0]
        assert torch.equal(found, torch.autograd.grad(wanted, theirs, along)[0])


def test_equal_values_give_their_gradient_to_the_first_row():
    x = torch.zeros(1, ROWS, 1, requires_grad=True)
    (found,) = torch.autograd.grad(segment_maximum(x, relation()).sum(), x)
    assert found.flatten().tolist() == [1, 1, 1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("shape", "dim"), [((8,), 0), ((8, 3), 0), ((1, 8), -1), ((1, 3, 8, 4), 2), ((8, 2, 4), 0)]
)
def test_rows_lie_at_any_axis(shape, dim):
    x = random(*shape)
    got = segment_maximum(x, relation(), dim=dim).movedim(dim, 0)
    moved = x.movedim(dim, 0)
    assert torch.equal(got, row_by_row(moved.reshape(1, ROWS, -1)).reshape(got.shape))


def test_few_rows():
    for rows, count in ((0, 3), (0, 0), (4, 1)):
        own = Relation(torch.zeros(rows, dtype=torch.int64), count)
        x = random(1, rows, 3).requires_grad_()
        got = segment_maximum(x, own)
        assert got.shape == (1, count, 3)
        assert torch.autograd.grad(got.sum(), x)[0].shape == x.shape
        assert segment_maximum(x[:, :, :0], own).shape == (1, count, 0)


def test_derivatives_of_every_order_in_both_modes():
    own = relation()
    functions = [
        lambda x: segment_maximum(x, own),
        # Squares have second derivatives.
        lambda x: segment_sum(segment_maximum(x.square(), own)[:, TARGETS] ** 2, own),
    ]
    # No two values are close, so differences meet no kink.
    order = torch.randperm(2 * ROWS, generator=torch.Generator().manual_seed(3))
    x = (1 + order.double().view(1, ROWS, 2) / 4).requires_grad_()
    for function in functions:
        check_every_order(function, x)


def test_transforms():
    own = relation()

    def energy(x):
        return segment_maximum(x.square(), own).pow(2).sum()

    x = random(1, ROWS, 3)
    check_transforms(energy, x, random(1, ROWS, 3, seed=1), random(5, 1, ROWS, 3, seed=2))
    rows = torch.stack([TARGETS, TARGETS.flip(0)])
    each = torch.stack([segment_maximum(x, Relation(index, COUNT)) for index in rows])
    lists = [Relation(index, COUNT) for index in rows]
    stacked = [torch.stack(own) for own in zip(*((r.targets, r.starts, r.order) for r in lists))]

    def picked(*lists):
        kept = torch.ops.flashcliff.segment_largest(x, lists)
        return torch.ops.flashcliff.segment_pick(x, kept, lists)

    assert torch.equal(vmap(picked)(*stacked), each)


def test_the_registered_operators():
    own = relation()
    lists = [own.targets, own.starts, own.order]
    x = random(1, ROWS, 3)
    kept = torch.ops.flashcliff.segment_largest(x, lists)
    assert kept.dtype == torch.int32 and kept[0, 2].tolist() == [-1, -1, -1]
    of = torch.ops.flashcliff
    torch.library.opcheck(of.segment_largest.default, (x, lists))
    torch.library.opcheck(of.segment_pick.default, (x.clone().requires_grad_(), kept, lists))
    targets = random(1, COUNT, 3).requires_grad_()
    torch.library.opcheck(of.segment_place.default, (targets, kept, lists))
    leaf = x.clone().requires_grad_()
    wanted = torch.autograd.grad(segment_maximum(leaf, own).square().sum(), leaf)[0]
    found = grad(lambda x: of.segment_pick(x, kept, lists).square().sum())(x)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_function(dynamic):
    def function(x, index):
        return segment_maximum(x.square(), Relation(index, COUNT))

    x = random(1, ROWS, 3).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    found = torch.autograd.grad(compiled(x, TARGETS).sum(), x)[0]
    assert torch.equal(found, torch.autograd.grad(function(x, TARGETS).sum(), x)[0])


def test_fake_and_meta_tensors():
    own = Relation(torch.zeros(7, dtype=torch.int64, device="meta"), 4)
    got = segment_maximum(torch.empty(1, 7, 3, device="meta"), own)
    assert got.shape == (1, 4, 3) and got.device.type == "meta"


def test_errors():
    own, x = relation(), random(3, ROWS, 2)
    with pytest.raises(ValueError, match=r"segment_maximum: expected scalars.*got \[3, 8, 2\]"):
        segment_maximum(x, own)
    with pytest.raises(ValueError, match="expected 8 rows at axis 1"):
        segment_maximum(x[:1, :3], own)
    with pytest.raises(TypeError, match="expected a flashcliff.graphs.Relation, got Tensor"):
        segment_maximum(x[:1], TARGETS)
    lists = [own.targets, own.starts, own.order]
    with pytest.raises(ValueError, match=r"`kept` must be \[3, 6, 2\] of torch.int32"):
        torch.ops.flashcliff.segment_pick(x, torch.zeros(3, 6, 2), lists)
    with pytest.raises(ValueError, match="expected 3 tensors of a relation, got 6"):
        torch.ops.flashcliff.segment_largest(x, lists + lists)
