"""Messages along edges: numbers edge by edge, derivatives of every order, transforms, errors."""

import pytest
import torch
from nn_common import difference as off
from nn_common import random
from torch.func import grad, jvp, vmap
from torch.utils.checkpoint import checkpoint

from flashcliff import Algebra
from flashcliff import functional as F
from flashcliff.graphs import Graph, Relation, gather, messages, segment_sum
from flashcliff.operators import Multivector, PerChannel, PerItem, Scalars, operator

SPACE = Algebra(3)
# A node with many edges, one with none, a self-loop, and an edge that is there twice.
RECEIVERS = torch.tensor([1, 0, 4, 1, 1, 0, 3, 1])
SENDERS = torch.tensor([0, 1, 2, 2, 4, 1, 3, 0])
NODES, EDGES, CHANNELS = 6, 8, 3
GRAPH = Graph(torch.stack([SENDERS, RECEIVERS]), NODES)


@operator(SPACE)
def weighted(x: Multivector.of(0, 1), y: Multivector.of(0, 1), w: PerItem(5)):
    a, u, b, v = x.grade(0), x.grade(1), y.grade(0), y.grade(1)
    return w[0] * (a * b) + w[1] * (u | v) + w[2] * (a * v) + w[3] * (u * b) + w[4] * (u ^ v)


@operator(SPACE)
def gated(x: Multivector, y: Multivector, z: Multivector.of(1), p: PerChannel(2)):
    s = (x * y).scalar.sigmoid()
    return s * x * z * p[0] + p[1] * y, s


@operator(SPACE)
def normed(x: Multivector, y: Multivector):
    return (x * y).normed()


def of_edges(end, tensor):
    """A tensor of the items of an end, edge by edge."""
    index = {"edges": torch.arange(EDGES), "senders": SENDERS, "receivers": RECEIVERS}[end]
    return tensor[:, index]


def wanted(own, tensors, ends, to="receivers", reduce="sum"):
    """The results by loops over edges."""
    following = iter(ends)
    given = [
        of_edges(next(following), tensor) if lane else tensor
        for tensor, lane in zip(tensors, own._lanes)
    ]
    channels = max(tensor.shape[-1] for tensor, lane in zip(given, own._lanes) if lane)
    given = [
        tensor.expand(-1, -1, channels) if lane else tensor
        for tensor, lane in zip(given, own._lanes)
    ]
    results = own(*given)
    found = []
    for result in results if isinstance(results, tuple) else (results,):
        if to == "edges":
            found.append(result)
            continue
        index = RECEIVERS if to == "receivers" else SENDERS
        rows = [result[:, index == node] for node in range(NODES)]
        counts = [max(own.shape[1], 1) for own in rows]
        by = {"sum": lambda n: 1.0, "mean": lambda n: n, "root_count": lambda n: n**0.5}[reduce]
        sums = [own.sum(1) / by(count) for own, count in zip(rows, counts)]
        found.append(torch.stack(sums, 1))
    return found if isinstance(results, tuple) else found[0]


def conv_tensors(one=True):
    x, y, w = random(4, NODES, CHANNELS), random(4, EDGES, 1 if one else CHANNELS, seed=1), random(5, EDGES, CHANNELS, seed=2)
    return [t.requires_grad_() for t in (x, y, w)]


CONV = ("senders", "edges", "edges")


def test_checkpoints_compute_messages_again():
    x, y, w = (random(*sizes, seed=at).requires_grad_() for at, sizes in enumerate(((4, NODES, CHANNELS), (4, EDGES, 1), (5, EDGES, CHANNELS))))

    def function(x, y, w):
        found = messages(weighted, GRAPH, x, y, w, ends=("senders", "edges", "edges"))
        return messages(weighted, GRAPH, found[:4], y, w, ends=("senders", "edges", "edges"))

    want = torch.autograd.grad(function(x, y, w).sin().sum(), (x, y, w))
    for reentrant in (False, True):
        again = checkpoint(function, x, y, w, use_reentrant=reentrant)
        again.sin().sum().backward()
        for tensor, wanted_grad in zip((x, y, w), want):
            assert torch.equal(tensor.grad, wanted_grad)
            tensor.grad = None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_brings_tensors_of_other_layers(dtype):
    x, y, w = random(4, NODES, CHANNELS).float(), random(4, EDGES, 1, seed=1).float(), random(5, EDGES, CHANNELS, seed=2).to(dtype)
    ends = "senders", "edges", "edges"
    want = messages(weighted, GRAPH, x, y, w.float(), ends=ends)
    with torch.autocast("cpu", dtype):
        assert torch.equal(messages(weighted, GRAPH, x, y, w, ends=ends), want)
    with pytest.raises(TypeError, match="one element type"):
        messages(weighted, GRAPH, x, y, w, ends=ends)


@pytest.mark.parametrize("reduce", ["sum", "mean", "root_count"])
@pytest.mark.parametrize("one", [True, False])
def test_sums_are_those_edge_by_edge(one, reduce):
    tensors = conv_tensors(one)
    got = messages(weighted, GRAPH, *tensors, ends=CONV, reduce=reduce)
    assert got.shape == (7, NODES, CHANNELS)
    assert off(got, wanted(weighted, tensors, CONV, reduce=reduce)) < 1e-15
    assert (got[:, [2, 5]] == 0).all()


@pytest.mark.parametrize("to", ["receivers", "senders", "edges"])
@pytest.mark.parametrize("ends", [("senders", "receivers", "edges"), ("edges", "senders", "senders")])
def test_several_results_of_any_ends(ends, to):
    count = {"edges": EDGES, "senders": NODES, "receivers": NODES}
    x, y, z = (random(k, count[end], c, seed=k) for k, end, c in zip((8, 8, 3), ends, (3, 3, 1)))
    p = random(CHANNELS, 2)
    got = messages(gated, GRAPH, x, y, z, p, ends=ends, to=to)
    for one, other in zip(got, wanted(gated, (x, y, z, p), ends, to)):
        assert one.shape == other.shape
        assert off(one, other) < 1e-15


@pytest.mark.parametrize("to", ["receivers", "senders", "edges"])
def test_between_two_sets_of_nodes(to):
    """Receivers and senders may be different nodes, of which there are different numbers."""
    counts = {"senders": 9, "receivers": NODES}
    senders = torch.tensor([0, 8, 2, 2, 7, 1, 3, 0])
    ends = Relation(RECEIVERS, NODES), Relation(senders, 9)
    relations = dict(zip(("receivers", "senders"), ends))
    x, y, w = random(4, 9, CHANNELS), random(4, NODES, CHANNELS, seed=1), random(5, EDGES, CHANNELS, seed=2)
    tensors = [tensor.requires_grad_() for tensor in (x, y, w)]

    def call(*given):
        return messages(weighted, ends, *given, ends=("senders", "receivers", "edges"), to=to)

    of_edges = weighted(x[:, senders], y[:, RECEIVERS], w)
    expected = of_edges
    if to != "edges":
        index = relations[to].targets.long()
        expected = of_edges.new_zeros(7, counts[to], CHANNELS).index_add(1, index, of_edges)
    assert off(call(*tensors), expected) < 1e-15
    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)
    fewer = Relation(RECEIVERS[:-1], NODES), Relation(senders, 9)
    with pytest.raises(ValueError, match="edges: expected relations with as many rows"):
        messages(weighted, fewer, *tensors, ends=("senders", "receivers", "edges"), to=to)


@pytest.mark.parametrize("one", [True, False])
def test_operators_with_sums_over_channels(one):
    x, y = random(8, NODES, CHANNELS), random(8, EDGES, 1 if one else CHANNELS, seed=1)
    x, y, ends = x.requires_grad_(), y.requires_grad_(), ("senders", "edges")
    got, expected = messages(normed, GRAPH, x, y, ends=ends), wanted(normed, (x, y), ends)
    assert off(got, expected) < 1e-14
    grads = [torch.autograd.grad(own.pow(3).sum(), (x, y)) for own in (got, expected)]
    assert all(off(one, other) < 1e-13 for one, other in zip(*grads))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_on_the_cpu_are_refused_as_by_operators(dtype):
    x, y, w = (tensor.detach().to(dtype) for tensor in conv_tensors(one=False))
    with pytest.raises(TypeError, match="f32 or f64"):
        messages(weighted, GRAPH, x, y, w, ends=CONV)


def test_derivatives_of_every_order():
    for reduce in ("sum", "mean"):
        checked = lambda *given: messages(weighted, GRAPH, *given, ends=CONV, reduce=reduce)  # noqa: B023, E731
        tensors = conv_tensors()
        assert torch.autograd.gradcheck(checked, tensors, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(checked, tensors, check_fwd_over_rev=True)
    ends = "receivers", "senders", "edges"
    given = [random(8, NODES, 2), random(8, NODES, 2, seed=1), random(3, EDGES, 1, seed=2), random(2, 2, seed=3)]
    given = [tensor.requires_grad_() for tensor in given]
    for to in ("receivers", "edges"):
        function = lambda *own: messages(gated, GRAPH, *own, ends=ends, to=to)  # noqa: B023, E731
        assert torch.autograd.gradcheck(function, given)
        assert torch.autograd.gradgradcheck(function, given)


def test_third_derivatives():
    x, y, w = conv_tensors()

    def chain(own):
        (first,) = torch.autograd.grad(own.pow(3).sum(), y, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), w, create_graph=True)
        return torch.autograd.grad(second.pow(2).sum(), x)[0]

    got = chain(messages(weighted, GRAPH, x, y, w, ends=CONV))
    of_edges = weighted(x[:, SENDERS], y.expand(-1, -1, CHANNELS), w)
    assert off(got, chain(segment_sum(of_edges, GRAPH.receivers))) < 1e-13


def test_nothing_but_arguments_is_kept():
    x, y, w = conv_tensors()
    sizes = []
    pack = lambda tensor: sizes.append(tensor.shape) or tensor  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        messages(weighted, GRAPH, x, y, w, ends=CONV)
    assert set(sizes) == {x.shape, y.shape, w.shape, (EDGES,), (NODES + 1,)}


def test_transforms_and_forward_mode():
    x, y, w = (tensor.detach() for tensor in conv_tensors())
    function = lambda own: messages(weighted, GRAPH, own, y, w, ends=CONV)  # noqa: E731
    _, tangent = jvp(function, (x,), (torch.ones_like(x),))
    assert off(tangent, function(torch.ones_like(x))) < 1e-14
    batch = random(2, 4, NODES, CHANNELS, seed=5)
    assert off(vmap(function)(batch), torch.stack([function(own) for own in batch])) < 1e-15
    needs = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(function(needs).square().sum(), needs)
    assert off(grad(lambda own: function(own).square().sum())(x), expected) < 1e-14


@pytest.mark.fullgraph
def test_compiled_graphs_have_the_same_numbers():
    x, y, w = conv_tensors()
    function = lambda *own: messages(weighted, GRAPH, *own, ends=CONV).square().sum()  # noqa: E731
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    got = torch.autograd.grad(compiled(x, y, w), (x, y, w))
    for one, other in zip(got, torch.autograd.grad(function(x, y, w), (x, y, w))):
        assert off(one, other) < 1e-14


def test_products_of_the_table_are_the_same():
    @operator(SPACE)
    def product(x: Multivector, y: Multivector):
        return x * y

    x, y = random(8, NODES, CHANNELS), random(8, EDGES, CHANNELS, seed=1)
    got = messages(product, GRAPH, x, y, ends=("senders", "edges"))
    of_edges = F.geometric_product(gather(x, GRAPH.senders), y, SPACE)
    assert off(got, segment_sum(of_edges, GRAPH.receivers)) < 1e-15


def test_empty_graphs():
    empty = Graph(torch.zeros(2, 0, dtype=torch.int64), NODES)
    x = random(4, NODES, CHANNELS).requires_grad_()
    got = messages(weighted, empty, x, random(4, 0, 1), random(5, 0, CHANNELS), ends=CONV)
    assert (got == 0).all() and got.shape == (7, NODES, CHANNELS)
    assert (torch.autograd.grad(got.sum(), x)[0] == 0).all()


MANY = 3000
"""More edges than the CPU computes at a time, and than one of its tasks has."""


def large(dtype, channels):
    """A graph with many edges, and what a convolution on it takes."""
    edges = torch.randint(99, (2, MANY), generator=torch.Generator().manual_seed(0))
    tensors = random(4, 100, channels), random(4, MANY, 1, seed=1), random(5, MANY, channels, seed=2)
    return edges, [tensor.to(dtype) for tensor in tensors]


def derived(edges, tensors, nodes=100):
    """The results, and their gradients of first and second order."""
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    out = messages(weighted, Graph(edges, nodes), *tensors, ends=CONV)
    first = torch.autograd.grad(out.square().sum(), tensors, create_graph=True)
    second = torch.autograd.grad(sum(own.square().sum() for own in first), tensors)
    return [own.detach() for own in (out, *first, *second)]


@pytest.mark.parametrize("channels", [1, 5, 16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_many_edges_have_the_numbers_of_compositions(dtype, channels):
    edges, tensors = large(dtype, channels)
    x, y, w = (tensor.double().requires_grad_() for tensor in tensors)
    of_edges = weighted(x[:, edges[0]], y.expand(-1, -1, channels), w)
    out = torch.zeros(7, 100, channels, dtype=torch.float64).index_add(1, edges[1], of_edges)
    first = torch.autograd.grad(out.square().sum(), (x, y, w), create_graph=True)
    second = torch.autograd.grad(sum(own.square().sum() for own in first), (x, y, w))
    bound = 1e-13 if dtype == torch.float64 else 2e-5
    for one, other in zip(derived(edges, tensors), (out, *first, *second)):
        assert one.dtype == dtype and one.shape == other.shape
        assert off(one.double(), other) < bound


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bits_of_a_node_depend_on_its_edges_alone(dtype):
    edges, (x, y, w) = large(dtype, 6)
    out = messages(weighted, Graph(edges, 100), x, y, w, ends=CONV)
    for node in range(0, 100, 9):
        own = edges[1] == node
        alone = messages(weighted, Graph(edges[:, own], 100), x, y[:, own], w[:, own], ends=CONV)
        assert torch.equal(alone[:, node], out[:, node])


def test_tensors_of_any_strides():
    x, y, w = (tensor.detach() for tensor in conv_tensors(one=False))
    wanted_out = wanted(weighted, (x, y, w), CONV)
    wide = torch.randn(6, NODES, 3 * CHANNELS, dtype=torch.float64)
    wide[1:5, :, CHANNELS : 2 * CHANNELS] = x
    views = {
        "a slice": (wide[1:5, :, CHANNELS : 2 * CHANNELS], y, w),
        "another order": (x.transpose(0, 1).contiguous().transpose(0, 1), y, w),
        "channels apart": (x, y, w.movedim(-1, 0).contiguous().movedim(0, -1)),
        "negated": (torch._neg_view(-x), y, w),
    }
    for name, given in views.items():
        got = messages(weighted, GRAPH, *given, ends=CONV)
        assert off(got, wanted_out) < 1e-15, name
    for axis in range(3):
        same = [tensor.narrow(axis, 0, 1).expand_as(tensor) for tensor in (x, y, w)]
        got = messages(weighted, GRAPH, *same, ends=CONV)
        assert off(got, wanted(weighted, [own.clone() for own in same], CONV)) < 1e-15


@pytest.mark.parametrize("ends", [("edges", "edges", "edges"), ("receivers", "senders", "receivers")])
def test_one_channel_of_every_end(ends):
    count = {"edges": EDGES, "senders": NODES, "receivers": NODES}
    for ones in ((1, 1, 3), (3, 1, 1), (1, 1, 1)):
        sizes = zip((8, 8, 3), ends, ones)
        given = [random(k, count[end], c, seed=k).requires_grad_() for k, end, c in sizes]
        p = random(max(ones), 2)
        for to in ("receivers", "edges"):
            got = messages(gated, GRAPH, *given, p, ends=ends, to=to)
            expected = wanted(gated, (*given, p), ends, to)
            assert all(off(one, other) < 1e-15 for one, other in zip(got, expected))
            grads = [torch.autograd.grad(own[0].square().sum(), given) for own in (got, expected)]
            assert all(off(one, other) < 1e-14 for one, other in zip(*grads))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"ends": ("senders", "edges")}, ValueError, "one for each of x, y, w"),
        ({"ends": ("senders", "edges", "nodes")}, ValueError, "'nodes'"),
        ({"to": "nodes"}, ValueError, "to: expected one of"),
        ({"reduce": "max"}, ValueError, "reduce: expected one of"),
        ({"reduce": "mean", "to": "edges"}, ValueError, "of edges"),
        ({"x": random(4, EDGES, CHANNELS)}, ValueError, r"\[4, 6 senders, channels\]"),
        ({"y": random(4, EDGES, 2)}, ValueError, "1 or 3 channels"),
        ({"y": random(8, EDGES, 1)}, ValueError, r"\[4, 8 edges, channels\]"),
        ({"w": random(5, EDGES, CHANNELS).float()}, TypeError, "one element type"),
        ({"w": [1.0]}, TypeError, "must be a torch.Tensor"),
        ({"operator": F.geometric_product}, TypeError, "flashcliff.operators.operator"),
    ],
)
def test_errors_say_what_was_expected(change, error, says):
    x, y, w = (tensor.detach() for tensor in conv_tensors())
    given = {"operator": weighted, "x": x, "y": y, "w": w, "ends": CONV, **change}
    of, *tensors = (given.pop(name) for name in ("operator", "x", "y", "w"))
    with pytest.raises(error, match=says):
        messages(of, GRAPH, *tensors, **given)


def test_scalar_channels_are_refused():
    @operator(SPACE)
    def scaled(x: Multivector, s: Scalars):
        return s.mean() * x

    with pytest.raises(ValueError, match="without Scalars"):
        messages(scaled, GRAPH, random(8, NODES, 2), random(1, EDGES, 3), ends=("senders", "edges"))


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [1, 3, 6, 32, 200])
def test_kernels_have_the_numbers_of_the_cpu(dtype, channels):
    torch.manual_seed(0)
    nodes, edges = 40, 300
    graph = Graph(torch.randint(nodes - 1, (2, edges)), nodes)
    tensors = [random(4, nodes, channels), random(4, edges, 1, seed=1), random(5, edges, channels, seed=2)]
    tensors = [tensor.to(dtype) for tensor in tensors]
    bound = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]

    def results(device, dtype):
        x, y, w = (own.to(device, dtype).detach().requires_grad_() for own in tensors)
        out = messages(weighted, graph.to(device), x, y, w, ends=CONV)
        loss = (out * out.detach().sign()).sum()
        first = torch.autograd.grad(loss, (x, y, w), create_graph=True)
        second = torch.autograd.grad(sum((own * own.detach()).sum() for own in first), (x, y, w))
        return [own.detach().double().cpu() for own in (out, *first, *second)]

    for one, other in zip(results("cuda", dtype), results("cpu", torch.float64)):
        assert one.shape == other.shape
        assert off(one, other) < bound
    again = results("cuda", dtype)
    assert all(torch.equal(one, other) for one, other in zip(again, results("cuda", dtype)))


@needs_cuda
def test_kernels_write_nothing_of_the_size_of_edges():
    nodes, edges, channels = 100, 100_000, 16
    graph = Graph(torch.randint(nodes, (2, edges), device="cuda"), nodes)
    x = torch.randn(4, nodes, channels, device="cuda")
    y, w = torch.randn(4, edges, 1, device="cuda"), torch.randn(5, edges, 1, device="cuda")
    messages(weighted, graph, x, y, w, ends=CONV)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    messages(weighted, graph, x, y, w, ends=CONV)
    assert torch.cuda.max_memory_allocated() - before < 1 << 20
