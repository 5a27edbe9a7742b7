"""Relations, gatherings and sums of segments: numbers, derivatives, transforms, errors."""

import subprocess
import sys

import pytest
import torch
from nn_common import EDGES, NODES, RECEIVERS, SENDERS, check_every_order, check_transforms, random
from nn_common import difference as off
from torch.func import grad, jacrev, vmap

from flashcliff import UnsupportedError
from flashcliff.graphs import (
    Graph,
    Relation,
    difference,
    ends_of,
    gather,
    segment_sum,
)

REDUCTIONS = ["sum", "mean", "root_count"]


def relations():
    return Relation(RECEIVERS, NODES), Relation(SENDERS, NODES)


def divisor(reduce, count):
    return {"sum": 1.0, "mean": float(count), "root_count": count**0.5}[reduce]


def sums_edge_by_edge(x, index, count, reduce):
    """Sums of ``[blades, rows, channels]``, written out."""
    rows = [[] for _ in range(count)]
    for row, target in enumerate(index.tolist()):
        rows[target].append(x[:, row])
    zero = torch.zeros_like(x[:, 0])
    sums = [sum(own, zero) / divisor(reduce, max(len(own), 1)) for own in rows]
    return torch.stack(sums, 1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_relation_is_sorted_stably(dtype):
    relation = Relation(RECEIVERS.to(dtype), NODES)
    assert relation.targets.tolist() == RECEIVERS.tolist()
    assert relation.starts.tolist() == [0, 2, 6, 6, 7, 8, 8]
    assert relation.order.tolist() == [1, 5, 0, 3, 4, 7, 6, 2]
    assert relation.counts.tolist() == [2, 4, 0, 1, 1, 0]
    assert (relation.rows, relation.count) == (EDGES, NODES)
    lists = relation.targets, relation.starts, relation.order
    assert all(own.dtype == torch.int32 and own.is_contiguous() for own in lists)


def test_a_relation_is_a_copy():
    index = RECEIVERS.to(torch.int32)
    relation = Relation(index, NODES)
    index.zero_()
    assert relation.targets.tolist() == RECEIVERS.tolist()


def test_an_index_may_have_strides():
    both = torch.stack([RECEIVERS, SENDERS], 1)
    assert Relation(both[:, 1], NODES).targets.tolist() == SENDERS.tolist()


def test_rows_are_gathered():
    x = random(3, NODES, 2)
    (receivers, senders) = relations()
    assert torch.equal(gather(x, receivers), x[:, RECEIVERS])
    assert torch.equal(difference(x, receivers, senders), x[:, RECEIVERS] - x[:, SENDERS])


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_sums(reduce):
    x = random(3, EDGES, 2)
    got = segment_sum(x, relations()[0], reduce=reduce)
    assert off(got, sums_edge_by_edge(x, RECEIVERS, NODES, reduce)) < 1e-15
    assert (got[:, [2, 5]] == 0).all()


@pytest.mark.parametrize(
    ("shape", "dim"), [((8,), 0), ((8, 3), 0), ((2, 3, 8), -1), ((2, 3, 8, 4, 5), 2)]
)
def test_rows_lie_at_any_axis(shape, dim):
    x = random(*shape)
    got = segment_sum(x, relations()[0], dim=dim)
    moved = x.movedim(dim, 0)
    wanted = moved.new_zeros(NODES, *moved.shape[1:]).index_add(0, RECEIVERS, moved)
    assert off(got, wanted.movedim(0, dim)) < 1e-14
    assert torch.equal(gather(got, relations()[1], dim=dim), got.index_select(dim, SENDERS))


def test_tensors_may_have_strides_and_signs():
    x = random(2, 3, EDGES).movedim(2, 1)
    assert torch.equal(segment_sum(x, relations()[0]), segment_sum(x.contiguous(), relations()[0]))
    imaginary = torch.complex(x, x).conj().imag
    assert imaginary.is_neg()
    assert torch.equal(segment_sum(imaginary, relations()[0]), -segment_sum(x, relations()[0]))


@pytest.mark.parametrize("sizes", [(0, 3), (0, 0), (4, 1)])
def test_few_rows(sizes):
    rows, count = sizes
    relation = Relation(torch.zeros(rows, dtype=torch.int64), count)
    x = random(2, rows, 3).requires_grad_()
    got = segment_sum(x, relation, reduce="mean")
    assert got.shape == (2, count, 3)
    assert torch.autograd.grad(got.sum(), x)[0].shape == x.shape
    assert gather(got, relation).shape == x.shape
    assert segment_sum(x[:, :, :0], relation).shape == (2, count, 0)
    assert segment_sum(x[:0], relation).shape == (0, count, 3)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_derivatives_of_every_order_in_both_modes(reduce):
    receivers, senders = relations()
    functions = [
        lambda x: segment_sum(x, receivers, reduce=reduce),
        lambda x: gather(x[:, :NODES], receivers),
        lambda x: difference(x[:, :NODES], receivers, senders),
        # Squares have second derivatives.
        lambda x: segment_sum(
            gather(segment_sum(x.square(), receivers, reduce=reduce), senders) ** 2, receivers
        ),
    ]
    x = random(2, EDGES, 2).requires_grad_()
    for function in functions:
        check_every_order(function, x)


def test_transforms():
    receivers, senders = relations()

    def energy(x):
        return (
            segment_sum(difference(x, receivers, senders).square(), receivers, reduce="mean")
            .pow(2)
            .sum()
        )

    x, along = (random(2, NODES, 3, seed=seed) for seed in (0, 1))
    check_transforms(energy, x, along, random(5, 2, NODES, 3, seed=2))


def test_transforms_of_the_registered_operators():
    receivers = relations()[0]
    lists = [receivers.targets, receivers.starts, receivers.order]
    x = random(2, EDGES, 3)

    def energy(x):
        return torch.ops.flashcliff.segment_sum(x, lists, "mean").square().sum()

    leaf = x.clone().requires_grad_()
    wanted = torch.autograd.grad(segment_sum(leaf, receivers, reduce="mean").square().sum(), leaf)[
        0
    ]
    assert off(torch.autograd.grad(energy(leaf), leaf)[0], wanted) < 1e-15
    assert off(grad(energy)(x), wanted) < 1e-15
    assert off(vmap(energy)(x[None]), energy(x)[None]) < 1e-14
    for name in ("segment_sum", "segment_gather"):
        operator = getattr(torch.ops.flashcliff, name).default
        given = x if name == "segment_sum" else x[:, :NODES]
        torch.library.opcheck(operator, (given.contiguous().requires_grad_(), lists, "mean"))
    torch.library.opcheck(torch.ops.flashcliff.relation.default, (RECEIVERS, NODES, True))


def test_a_relation_is_made_within_a_transform():
    def energy(x):
        return segment_sum(x, Relation(RECEIVERS, NODES)).square().sum()

    x = random(2, EDGES, 3)
    assert off(grad(energy)(x), jacrev(energy)(x)) < 1e-15


def test_a_batch_of_relations_of_the_registered_operator():
    own = [Relation(index, NODES) for index in (RECEIVERS, SENDERS)]
    stacked = [torch.stack(lists) for lists in zip(*((r.targets, r.starts, r.order) for r in own))]
    x = random(2, EDGES, 3)
    got = vmap(lambda lists: torch.ops.flashcliff.segment_sum(x, lists, "sum"))(stacked)
    assert torch.equal(got, torch.stack([segment_sum(x, relation) for relation in own]))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_function_has_one_node_for_each_call(dynamic):
    nodes = []

    def backend(graph, _):
        nodes.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def function(x, index):
        graph = Graph(index, NODES)
        rows = difference(x, graph.receivers, graph.senders)
        return segment_sum(rows.square(), graph.receivers, reduce="mean")

    x, index = random(2, NODES, 3).requires_grad_(), torch.stack([SENDERS, RECEIVERS])
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(x, index), function(x, index))
    own = [node for node in nodes if "flashcliff" in node]
    assert own == [
        "flashcliff.relation.default",
        "flashcliff.relation.default",
        "flashcliff.segment_gather.default",
        "flashcliff.segment_sum.default",
    ]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    found = torch.autograd.grad(compiled(x, index).sum(), x)[0]
    assert torch.equal(found, torch.autograd.grad(function(x, index).sum(), x)[0])
    with pytest.raises(ValueError, match="got 7 at row 2"):
        compiled(x, index.clone().index_fill_(1, torch.tensor([2]), 7))


def test_a_compiled_function_takes_relations():
    receivers = relations()[0]
    x = random(2, EDGES, 3)
    torch._dynamo.reset()
    compiled = torch.compile(segment_sum, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, receivers), segment_sum(x, receivers))


def test_an_exported_program_takes_any_number_of_edges():
    class Sums(torch.nn.Module):
        def forward(self, x, index):
            graph = Graph(index, NODES)
            return segment_sum(difference(x, graph.receivers, graph.senders), graph.receivers)

    x, index = random(2, NODES, 3), torch.stack([SENDERS, RECEIVERS])
    edges = torch.export.Dim("edges", min=2)
    program = torch.export.export(Sums(), (x, index), dynamic_shapes=(None, {1: edges}))
    for own in (index, index[:, :5]):
        assert torch.equal(program.module()(x, own), Sums()(x, own))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_rounded_once(dtype):
    receivers, senders = relations()
    x = random(3, EDGES, 2).to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    for function in (
        lambda x: segment_sum(x, receivers, reduce="mean"),
        lambda x: difference(x[:, :NODES], receivers, senders),
    ):
        with torch.autocast("cpu", torch.bfloat16):
            got, wanted = function(x), function(wide)
        assert got.dtype == dtype
        assert torch.equal(got, wanted.to(dtype))
        seed = random(*got.shape, seed=3).to(dtype)
        found = torch.autograd.grad(got, x, seed)[0]
        assert torch.equal(found, torch.autograd.grad(wanted, wide, seed.float())[0].to(dtype))


def test_fake_and_meta_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        relation = Relation(torch.zeros(7, dtype=torch.int64), 4)
        assert segment_sum(torch.empty(2, 7, 3), relation).shape == (2, 4, 3)
        assert gather(torch.empty(2, 4, 3), relation).shape == (2, 7, 3)
    relation = Relation(torch.zeros(7, dtype=torch.int64, device="meta"), 4)
    assert segment_sum(torch.empty(2, 7, 3, device="meta"), relation).device.type == "meta"


def test_inference_mode():
    with torch.inference_mode():
        relation = Relation(RECEIVERS.clone(), NODES)
    x = random(2, EDGES, 3).requires_grad_()
    assert segment_sum(x, relation).sum().backward() is None


@pytest.mark.long
def test_bits_repeat_with_any_number_of_threads():
    program = """
import hashlib, torch, flashcliff
from flashcliff.graphs import Relation, segment_sum
torch.manual_seed(0)
flashcliff.set_num_threads({threads})
x, index = torch.randn(8, 30_000, 7), torch.randint(500, (30_000,))
got = segment_sum(x, Relation(index, 500), reduce="root_count")
print(hashlib.sha256(got.numpy().tobytes()).hexdigest())
"""
    found = set()
    for threads in (1, 2, 3):
        command = [sys.executable, "-c", program.format(threads=threads)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found.add(run.stdout)
    assert len(found) == 1


def test_graphs_follow_pytorch_geometric():
    graph = Graph(torch.stack([SENDERS, RECEIVERS]), NODES)
    assert graph.senders.targets.tolist() == SENDERS.tolist()
    assert graph.receivers.targets.tolist() == RECEIVERS.tolist()
    assert (graph.num_nodes, graph.num_edges) == (NODES, EDGES)
    assert repr(graph) == "Graph(6 nodes, 8 edges, on cpu)"
    assert ends_of(graph) == (graph.receivers, graph.senders)
    assert graph.to("cpu").receivers.rows == EDGES


def raises(kind, match, function, *args, **kwargs):
    with pytest.raises(kind, match=match):
        function(*args, **kwargs)


def test_errors_of_relations():
    raises(TypeError, "index: expected a torch.Tensor, got list", Relation, [0], 1)
    raises(
        TypeError, "index: expected int32 or int64, got torch.float32", Relation, torch.zeros(2), 1
    )
    raises(
        ValueError, r"index: expected \[rows\], got \[2, 2\]", Relation, RECEIVERS.view(4, 2)[:2], 6
    )
    raises(ValueError, "from 0 to 3, of 4, got 4 at row 2", Relation, RECEIVERS, 4)
    raises(ValueError, "got -1 at row 1", Relation, torch.tensor([0, -1]), 4)
    # The CPU is always checked.
    raises(ValueError, "got -1 at row 1", Relation, torch.tensor([0, -1]), 4, check=False)
    raises(ValueError, "count: expected at least 0, got -1", Relation, RECEIVERS, -1)
    raises(ValueError, "count: expected at most 2147483647", Relation, RECEIVERS, 1 << 31)
    raises(TypeError, "count: expected an integer", Relation, RECEIVERS, 1.0)
    raises(TypeError, "check: expected True or False", Relation, RECEIVERS, 6, check=1)
    raises(TypeError, "edge_index: expected a torch.Tensor, got list", Graph, [[0], [0]], 1)
    raises(ValueError, r"edge_index: expected \[2, edges\], got \[8\]", Graph, RECEIVERS, 6)
    raises(TypeError, "edges: expected a flashcliff.graphs.Graph", ends_of, RECEIVERS)
    both = Relation(RECEIVERS, NODES), Relation(SENDERS[:5], NODES)
    raises(ValueError, "edges: expected relations of the same sizes", ends_of, both)


def test_errors_of_calls():
    receivers, x = relations()[0], random(3, EDGES, 2)
    raises(TypeError, "`x` must be a torch.Tensor, got list", gather, [0], receivers)
    raises(TypeError, "expected a flashcliff.graphs.Relation, got Tensor", gather, x, RECEIVERS)
    raises(TypeError, "floating-point elements, got torch.int64", segment_sum, x.long(), receivers)
    raises(ValueError, r"expected 6 targets at axis 1.*got \[3, 8, 2\]", gather, x, receivers)
    raises(
        ValueError, r"expected 8 rows at axis 0.*got \[3, 8, 2\]", segment_sum, x, receivers, dim=0
    )
    raises(ValueError, "dim: expected an axis", segment_sum, x, receivers, dim=3)
    raises(
        ValueError,
        "reduce: expected one of sum, mean, root_count, got 'max'; the maximum is segment_maximum",
        segment_sum,
        x,
        receivers,
        reduce="max",
    )
    other = Relation(RECEIVERS[:5], NODES)
    raises(ValueError, "relations of the same sizes", difference, x[:, :NODES], receivers, other)
    raises(
        UnsupportedError,
        "dense tensors",
        segment_sum,
        torch.eye(EDGES).to_sparse(),
        receivers,
        dim=0,
    )
    raises(RuntimeError, "same device", segment_sum, x.to("meta"), receivers)
    empty = random(3, EDGES, 2)
    empty.untyped_storage().resize_(0)
    raises(UnsupportedError, "tensors with memory", segment_sum, empty, receivers)
