"""Networks of messages as one function on a GPU: what they compute on the CPU, and the same bits each time."""

import pytest
import torch
from described_common import by_layers
from nn_common import disturb
from test_compile_networks import ONCE, Compiled
from test_described_messages import EDGES, GRAPHS, NODES, bodies, graph, network, random, results

from flashcliff import Algebra, nn
from flashcliff.graphs import Complexes, Relation
from flashcliff.nn.transformer.described import choice, compiled

pytestmark = pytest.mark.cuda


def on_gpu(given):
    return [x.detach().cuda().requires_grad_() for x in given]


def close(got, want, limit):
    assert len(got) == len(want)
    least = 1e-3 * max(w.abs().max() for w in want)
    for g, w in zip(got, want, strict=True):
        assert (g.cpu() - w).abs().max() <= limit * torch.maximum(w.abs().max(), least)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("several", [True, False])
def test_networks_of_bodies(several, second):
    net, given = network(), bodies()
    graphs = Relation(GRAPHS, 2) if several else None
    want = results(net, given, graph(), graphs, second=second)
    net.cuda()
    moved = graph().to("cuda"), None if graphs is None else graphs.to("cuda")
    got = results(net, on_gpu(given), *moved, second=second)
    assert choice.known_of(net).last is None
    close(got, want, 1e-11)
    again = results(net, on_gpu(given), *moved, second=second)
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))


@pytest.mark.parametrize("second", [False, True])
def test_networks_on_simplices(second):
    net = disturb(nn.models.SimplicialHulls(3, 2, 2, dtype=torch.float64))
    own = Complexes([5, 4], [[(0, 1, 2, 3)], [(0, 1, 2), (2, 3)]])
    given = [random(9, 3).requires_grad_()]
    want = results(net, given, own, second=second)
    net.cuda()
    moved = own.to("cuda")
    got = results(net, on_gpu(given), moved, second=second)
    assert choice.known_of(net).last is None
    close(got, want, 1e-11)
    again = results(net, on_gpu(given), moved, second=second)
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))


@pytest.mark.parametrize("scalars", [0, 1])
def test_layers(scalars):
    layer = disturb(nn.EGCL(Algebra(3, 0, 0), 4, edge_scalars=scalars, dtype=torch.float64))
    h = random(8, NODES, 4).requires_grad_()
    a = random(EDGES, scalars, seed=1).requires_grad_() if scalars else None
    want = results(layer, [h], graph(), a)
    layer.cuda()
    own = None if a is None else a.detach().cuda().requires_grad_()
    close(results(layer, on_gpu([h]), graph().to("cuda"), own), want, 1e-11)
    assert choice.known_of(layer).last is None


def test_a_step_of_float32_is_that_of_layers():
    net = nn.models.NBody(28, 2).cuda()
    given, own = on_gpu(bodies(torch.float32)), graph().to("cuda")
    got = results(net, given, own)
    want = by_layers(lambda: results(net, given, own))
    close(got, [w.cpu() for w in want], 1e-3)


def test_many_steps_with_other_graphs():
    net, given = network(1).cuda(), on_gpu(bodies())
    for count in (2, EDGES, 5, EDGES):
        own = graph(*range(count)).to("cuda")
        got = results(net, given, own)
        close(got, [w.cpu() for w in by_layers(lambda: results(net, given, own))], 1e-11)  # noqa: B023


@pytest.mark.skipif(not compiled.SERVES, reason="compilers of this PyTorch ask no objects")
def test_a_compiled_network_is_one_node():
    torch._dynamo.reset()
    net, given, own = network().cuda(), on_gpu(bodies()), graph().to("cuda")
    call = Compiled(net)
    got, want = call(*given, own), net(*given, own)
    assert torch.equal(got, want)
    leaves = [*given, *net.parameters()]
    got = torch.autograd.grad(got.square().sum(), leaves)
    want = torch.autograd.grad(want.square().sum(), leaves)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
    assert call.counts() == ONCE


def test_a_step_is_captured():
    net, given, own = network(1).cuda(), on_gpu(bodies()), graph().to("cuda")
    graphs = Relation(GRAPHS, 2).to("cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            want = results(net, given, own, graphs)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        got = results(net, given, own, graphs)
    captured.replay()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
