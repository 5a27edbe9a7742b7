"""Relations, gatherings and sums of segments on CUDA: as on the CPU, with bits that repeat, and within CUDA graphs."""

import pytest
import torch
from nn_common import difference as off
from nn_common import random

from flashcliff import nn
from flashcliff.graphs import (
    Graph,
    Relation,
    difference,
    gather,
    segment_maximum,
    segment_sum,
)

pytestmark = pytest.mark.cuda

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ROWS, COUNT = 4000, 300
MOST = ROWS // 2


def indices():
    generator = torch.Generator().manual_seed(1)
    # Half of the rows belong to one target, and the last targets have none.
    a, b = torch.randint(COUNT - 9, (2, ROWS), generator=generator)
    a[:MOST] = 5
    return a, b


def relations(device):
    return [Relation(index.to(device), COUNT) for index in indices()]


def test_relations_are_those_on_the_cpu():
    for own, wanted in zip(relations("cuda"), relations("cpu")):
        for name in ("targets", "starts", "order"):
            assert torch.equal(getattr(own, name).cpu(), getattr(wanted, name))
        moved = wanted.to("cuda")
        assert torch.equal(moved.order, own.order)


def limit(dtype):
    """The CPU adds one row after another, so a sum of equal rows may be off by a rounding of each. 16 bits are also rounded at the end."""
    arithmetic = torch.promote_types(dtype, torch.float32)
    roundings = MOST * torch.finfo(arithmetic).eps / 2
    return roundings if dtype == arithmetic else roundings + 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize("reduce", ["sum", "mean", "root_count"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 3, 8, 28])
def test_numbers_and_gradients_are_those_on_the_cpu(dtype, reduce, channels):
    x = random(8, COUNT, channels).to(dtype)
    seed = random(8, COUNT, channels, seed=2).to(dtype)

    def run(device):
        receivers, senders = relations(device)
        leaf = x.to(device).requires_grad_()
        rows = difference(leaf, receivers, senders)
        out = segment_sum(rows, receivers, reduce=reduce)
        return [own.cpu() for own in (rows, out, *torch.autograd.grad(out, leaf, seed.to(device)))]

    for got, again, wanted in zip(run("cuda"), run("cuda"), run("cpu")):
        assert got.dtype == dtype
        assert torch.equal(got, again)
        assert off(got.double(), wanted.double()) < limit(dtype)


def test_derivatives():
    receivers, senders = relations("cuda")
    few = Relation(receivers.targets[-20:] % 6, 6), Relation(senders.targets[-20:] % 6, 6)
    x = random(2, 6, 2).cuda().requires_grad_()

    def function(x):
        return segment_sum(difference(x, *few).square(), few[0], reduce="mean")

    assert torch.autograd.gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, x, check_fwd_over_rev=True)
    batch = random(3, 2, 6, 2, seed=1).cuda()
    each = torch.stack([function(own) for own in batch])
    assert off(torch.func.vmap(function)(batch), each) < 1e-14


def test_nothing_waits_but_the_check():
    index = indices()[0].cuda()
    x = random(8, ROWS, 7, dtype=torch.float32).cuda().requires_grad_()
    segment_sum(x, Relation(index, COUNT)).sum().backward()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        relation = Relation(index, COUNT, check=False)
        gather(segment_sum(x, relation, reduce="mean"), relation).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_a_cuda_graph_reads_the_index_of_its_replay():
    first, second = (index.cuda() for index in indices())
    x, index = random(8, ROWS, 7).cuda(), first.clone()

    def run(index):
        return segment_sum(x, Relation(index, COUNT))

    run(index)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(index)
    for own in (first, second):
        index.copy_(own)
        graph.replay()
        assert torch.equal(out, run(own))


def test_streams():
    receivers = relations("cuda")[0]
    x = random(8, ROWS, 7).cuda()
    wanted = segment_sum(x, receivers)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        own = x * 2
        got = segment_sum(own, receivers)
    stream.synchronize()
    assert torch.equal(got, wanted * 2)


def test_errors():
    with pytest.raises(ValueError, match="got 300 at row 1"):
        Relation(torch.tensor([0, 300]).cuda(), COUNT)
    with pytest.raises(RuntimeError, match="same device"):
        segment_sum(random(8, ROWS, 7), relations("cuda")[0])


def test_messages_are_those_on_the_cpu():
    def run(device):
        torch.manual_seed(0)
        model = nn.models.NBody(4, 2, dtype=torch.float64).to(device)
        index = torch.stack([index[:40] % 10 for index in indices()]).to(device)
        bodies = [random(10, *shape, seed=len(shape)).to(device) for shape in ((), (3,), (3,))]
        out = model(*bodies, Graph(index, 10))
        found = torch.autograd.grad(out.square().sum(), model.parameters())
        return [own.cpu() for own in (out, *found)]

    for got, again, wanted in zip(run("cuda"), run("cuda"), run("cpu")):
        assert torch.equal(got, again)
        assert off(got, wanted) < 1e-10


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("rows", [ROWS, 100 * COUNT])
@pytest.mark.parametrize("channels", [1, 3, 28])
def test_largest_values_and_their_gradients_have_the_bits_of_the_cpu(dtype, rows, channels):
    # With more rows for each target the threads of a block share them. Few different values, so many are equal.
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(COUNT - 9, (rows,), generator=generator)
    x = random(1, rows, channels).mul(4).round().to(dtype)
    seed = random(1, COUNT, channels, seed=2).to(dtype)

    def run(device):
        leaf = x.to(device).requires_grad_()
        out = segment_maximum(leaf, Relation(index.to(device), COUNT))
        return [own.cpu() for own in (out, *torch.autograd.grad(out, leaf, seed.to(device)))]

    for got, wanted in zip(run("cuda"), run("cpu")):
        assert torch.equal(got, wanted)


def test_derivatives_of_the_largest_values():
    few = Relation(torch.arange(20, device="cuda") % 7, 9)
    x = (1 + torch.randperm(40).double().view(1, 20, 2) / 4).cuda().requires_grad_()

    def function(x):
        return segment_maximum(x.square(), few)

    assert torch.autograd.gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, x, check_fwd_over_rev=True)
    leaf = x.detach()[..., :1].index_fill(1, torch.tensor([3, 10], device="cuda"), float("nan"))
    got = segment_maximum(leaf, few).flatten()
    assert got.isnan().tolist() == [False, False, False, True, *(False for _ in range(5))]
