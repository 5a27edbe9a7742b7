"""Networks of messages as one function: what the calls of layers give, and where they must be made."""

import copy
import pickle

import described_common
import pytest
import torch
from described_common import by_layers
from nn_common import EDGES, GRAPHS, NODES, RECEIVERS, SENDERS, disturb, random
from test_compile_networks import ONCE, Compiled

import flashcliff
from flashcliff import Algebra, nn
from flashcliff.graphs import Graph, Relation
from flashcliff.nn.transformer import described
from flashcliff.nn.transformer.described import choice, compiled, function

F64 = {"dtype": torch.float64}


@pytest.fixture
def functions(monkeypatch):
    """The rows of each call that a function stood for."""
    rows, apply = [], choice.apply

    def counted(call, *more):
        rows.append(call.rows)
        return apply(call, *more)

    monkeypatch.setattr(choice, "apply", counted)
    return rows


def graph(*edges):
    edges = edges or range(EDGES)
    return Graph(torch.stack([SENDERS, RECEIVERS])[:, list(edges)], NODES)


def bodies(dtype=torch.float64):
    given = random(NODES), random(NODES, 3, seed=1), random(NODES, 3, seed=2)
    return [x.to(dtype).requires_grad_() for x in given]


def network(layers=2, **options):
    return disturb(nn.models.NBody(3, layers, **{**F64, **options}))


def results(module, given, *more, **options):
    return described_common.results(module, *given, *more, **options)


def same(module, given, *more, **options):
    """Compares a module with its layers."""
    got, want = described_common.same(module, *given, *more, **options)
    assert got[0].stride() == want[0].stride()


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("several", [True, False])
def test_networks_of_bodies_are_their_layers(several, layers, second, functions):
    graphs = Relation(GRAPHS, 2) if several else None
    same(network(layers), bodies(), graph(), graphs, second=second)
    assert functions == [(NODES, 1, 0, EDGES, 2 if several else 1)]


LAYERS = [
    {},
    {"edge_scalars": 2},
    {"edge_scalars": 1, "hidden": 3, "aggregation": "sum", "residual": False},
    {"layers": 1, "aggregation": "root_count"},
    {"layers": 3, "edge_scalars": 1, "hidden": 5},
]


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 0), (2, 0, 0), (1, 3, 0)], ids=str)
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_messages_are_their_layers(options, signature, second, functions):
    algebra = Algebra(*signature)
    layer = disturb(nn.EGCL(algebra, 2, **options, **F64))
    h = random(algebra.blade_count, NODES, 2).requires_grad_()
    scalars = options.get("edge_scalars", 0)
    a = random(EDGES, scalars, seed=1).requires_grad_() if scalars else None
    same(layer, [h], graph(), a, second=second)
    assert functions == [(NODES, 1, 0, EDGES, 0)]


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("batch", [(5,), (2, 3)], ids=str)
def test_perceptrons_are_their_layers(batch, second, functions):
    layer = disturb(nn.CEMLP(Algebra(3, 0, 0), 3, 4, 2, 3, **F64))
    x = random(8, *batch, 3).requires_grad_()
    same(layer, [x], second=second)
    same(layer, [x.detach().transpose(0, -1).contiguous().transpose(0, -1).requires_grad_()])
    assert len(functions) == 2 and functions[0][0] in (5, 6)


def test_gradients_of_some(functions):
    net, given = network(), bodies()
    wanted = by_layers(lambda: results(net, given, graph()))
    for keep in range(len(given)):
        own = [x.detach().requires_grad_(at == keep) for at, x in enumerate(given)]
        net.requires_grad_(False)
        found = results(net, own, graph())
        assert len(found) == 2
        assert (found[1] - wanted[1 + keep]).abs().max() < 1e-11
    net.requires_grad_(True)
    with torch.no_grad():
        assert torch.equal(net(*given, graph()), wanted[0].detach()) or functions
    net.embedding.requires_grad_(False)
    assert len(results(net, given, graph())) == 1 + 3 + len(list(net.parameters())) - 2


def test_calls_may_have_any_sizes(functions):
    net, given = network(1), bodies()
    for count in (1, 3, EDGES, 3):
        same(net, given, graph(*range(count)))
    ends = Relation(RECEIVERS, NODES), Relation(SENDERS, NODES)
    same(net, given, ends, Relation(GRAPHS, 5))
    assert [own[3:] for own in functions] == [(1, 1), (3, 1), (8, 1), (3, 1), (8, 5)]
    assert choice.known_of(net).last is None


def test_results_have_memory_of_their_own():
    layer = disturb(nn.EGCL(Algebra(3, 0, 0), 2, residual=False, **F64))
    h = random(8, NODES, 2).requires_grad_()
    out = layer(h, graph())
    wanted = torch.autograd.grad(out.sum(), h, retain_graph=True)[0]
    with torch.no_grad():
        out.zero_()
    assert torch.equal(torch.autograd.grad(out, h, torch.ones_like(out))[0], wanted)


def test_gradients_of_any_layout():
    layer = disturb(nn.EGCL(Algebra(3, 0, 0), 2, **F64))
    h = random(NODES, 8, 2).transpose(0, 1).requires_grad_()
    out = layer(h, graph())
    seed = random(2, NODES, 8, seed=3).transpose(0, 2)
    found = torch.autograd.grad(out, h, seed)[0]
    wanted = by_layers(lambda: torch.autograd.grad(layer(h, graph()), h, seed)[0])
    assert (found - wanted).abs().max() < 1e-12


def test_parameters_may_be_exchanged(functions):
    net, other, given = network(), network(), bodies()
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(0.5)
    own = {name: p.detach() for name, p in other.named_parameters()}
    got = torch.func.functional_call(net, own, (*given, graph()))
    assert len(functions) == 1
    assert torch.equal(got, other(*given, graph()))


def test_copies_and_state_dicts():
    net, given = network(), bodies()
    wanted = net(*given, graph())
    for own in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(own(*given, graph()), wanted)
    other = nn.models.NBody(3, 2, **F64)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(*given, graph()), wanted)


def test_no_relation_of_graphs_is_one_graph():
    own = nn.models.nbody._one_graph(graph().receivers)
    wanted = Relation(torch.zeros(NODES, dtype=torch.int64), 1)
    for name in ("targets", "starts", "order"):
        got, want = getattr(own, name), getattr(wanted, name)
        assert got.dtype == want.dtype and torch.equal(got, want)


# Calls of layers


def why(module, *given):
    """Why a module calls its layers, whose results it then has."""
    got = module(*given)
    assert torch.equal(got, by_layers(lambda: module(*given)))
    return choice.known_of(module).last


def test_hooks_run(functions):
    net, given, seen = network(), bodies(), []
    wanted = net(*given, graph())
    hook = net.layers[0].edge_model.register_forward_hook(lambda *_: seen.append(1))
    assert (net(*given, graph()) - wanted).abs().max() < 1e-12
    assert seen == [1]
    # The other layer of messages is a separate function, and so are the perceptrons of this layer.
    assert [own[3] for own in functions] == [EDGES, 0, 0, EDGES]
    assert "layers.0.edge_model has hooks" in choice.known_of(net).last
    hook.remove()
    assert torch.equal(net(*given, graph()), wanted)
    assert seen == [1]


def test_classes_and_forwards_of_ones_own(functions):
    class Own(nn.EGCL):
        def forward(self, h, edges, edge_scalars=None):
            return 2 * super().forward(h, edges, edge_scalars)

    net, given = network(1), bodies()
    net.layers[0] = disturb(Own(net.algebra, 3, edge_scalars=1, **F64))
    assert "is of the class Own" in why(net, *given, graph())
    net = network(1)
    net(*given, graph())
    net.layers[0].node_model.forward = lambda x: x[..., :3]
    assert "forward as an attribute" in why(net, *given, graph())
    net = network(1)
    net.layers[0].node_model = torch.nn.Sequential(disturb(nn.MVLinear(net.algebra, 6, 3, **F64)))
    net(*given, graph())


def test_modules_may_be_exchanged(functions):
    net, given = network(2), bodies()
    net(*given, graph())
    net.layers[1] = disturb(nn.EGCL(net.algebra, 3, 5, 1, 3, "sum", False, **F64))
    net.layers[0].residual = False
    net.layers[0].aggregation = "root_count"
    same(net, given, graph())
    assert len(functions) == 2


def test_maps_that_a_network_cannot_take(functions):
    net, given = network(1), bodies()
    net.embedding = disturb(nn.MVLinear(net.algebra, 3, 3, **F64))
    assert "per_grade of the embedding" in why(net, *given, graph())
    functions.clear()
    layer = disturb(nn.EGCL(net.algebra, 3, edge_scalars=1, **F64))
    layer.edge_model.layers[0][0] = disturb(nn.MVLinear(net.algebra, 4, 3, per_grade=False, **F64))
    h, a = random(8, NODES, 3), random(EDGES, 1)
    assert "per_grade of the first map of multivectors and scalars" in why(layer, h, graph(), a)
    # Perceptrons are separate functions, without relations.
    assert all(own[3] == 0 for own in functions)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_other_types(dtype, functions):
    net = network(dtype=torch.float32)
    given = bodies(torch.float32)
    with torch.autocast("cpu", dtype):
        assert "autocast" in why(net, *given, graph())
    assert functions == []
    charges, *more = given
    # The layers themselves say what is wrong.
    with pytest.raises(TypeError, match="mv_linear"):
        net(charges.to(dtype), *(x.to(dtype) for x in more), graph())


def test_layers_of_tokens_and_of_messages_do_not_mix():
    net = network(1)
    net.layers[0].node_model.layers[0][1] = flashcliff.nn.transformer.ScalarGate()
    description = described.MessageVariant("x", 8, 3).draft(None)
    with pytest.raises(described.Undescribed, match="ScalarGate"):
        description.call(net.layers[0].node_model.layers[0][1], description.here)
    tokens = described.Variant((3, 0)).draft(flashcliff.nn.transformer.Geometry(net.algebra))
    with pytest.raises(described.Undescribed, match="MVSiLU"):
        tokens.call(net.layers[0].edge_model.layers[0][1], tokens.here)


def test_batches_of_nodes_and_nothing_at_all(functions):
    layer = disturb(nn.EGCL(Algebra(2, 0, 0), 2, **F64))
    assert "axes besides theirs" in why(layer, random(4, 3, NODES, 2), graph())
    none = Graph(torch.zeros(2, 0, dtype=torch.int64), NODES)
    assert "no elements" in why(layer, random(4, NODES, 2), none)
    # Perceptrons are separate functions, without relations.
    assert all(own[3] == 0 for own in functions)


def test_transforms(functions):
    net, (charges, positions, velocities) = network(1), [x.detach() for x in bodies()]
    found = torch.func.grad(lambda x: net(charges, x, velocities, graph()).sum())(positions)
    leaf = positions.clone().requires_grad_()
    wanted = torch.autograd.grad(net(charges, leaf, velocities, graph()).sum(), leaf)[0]
    assert (found - wanted).abs().max() < 1e-12
    assert len(functions) == 1


def test_targets_that_were_written_over():
    net, own = network(1), graph()
    own.senders.targets[2] = NODES
    with pytest.raises(ValueError, match="row 2"):
        net(*bodies(), own)
    own.senders.targets[2] = -1
    with pytest.raises(ValueError, match="-1 for row 2"):
        net(*bodies(), own)


def test_large_memory_is_used_again(monkeypatch):
    monkeypatch.setattr(function, "_POOLED", 1)
    net, given = network(1, dtype=torch.float32), bodies(torch.float32)
    places, made = [], torch.from_dlpack

    def noted(array):
        places.append(array.address)
        return made(array)

    monkeypatch.setattr(torch, "from_dlpack", noted)
    first = results(net, given, graph())
    again = results(net, given, graph())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len(places) >= 2 and len(set(places)) < len(places)


def test_pooled_bytes():
    own = torch.from_dlpack(flashcliff._core.Array.pooled(1003))
    assert own.dtype == torch.uint8 and own.shape == (1003,) and own.data_ptr() % 64 == 0
    assert own.fill_(7).sum() == 7 * 1003


def test_explanations():
    net = network(1)
    explain = flashcliff.nn.transformer.explain
    names = "", "layers.0", "layers.0.edge_model", "layers.0.node_model"
    assert explain(net).blocks == dict.fromkeys(names, "runs as one function")
    net.layers[0].node_model.layers[1][0].register_forward_hook(lambda *_: None)
    found = explain(net).blocks
    why = "layers.0.node_model.layers.1.0 has hooks (forward_hooks)"
    assert found[""] == f"calls its layers: {why}"
    assert found["layers.0.edge_model"] == "runs as one function"


def test_profiles_have_rows_of_networks():
    net, given = network(1), bodies()
    net(*given, graph())
    with flashcliff.profile() as found:
        net(*given, graph()).sum().backward()
    assert "calls=2" in str(found)


# Compiled graphs

compiles = pytest.mark.skipif(not compiled.SERVES, reason="compilers of this PyTorch ask no objects")


@pytest.mark.share(4)
@compiles
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("several", [True, False])
def test_a_compiled_network_is_one_node(several, dynamic):
    torch._dynamo.reset()
    net, given = network(), bodies()
    graphs = Relation(GRAPHS, 2) if several else None
    call = Compiled(net, dynamic=dynamic)
    for own in (graph(), graph(*range(5))):
        leaves = [*given, *net.parameters()]
        got, want = call(*given, own, graphs), net(*given, own, graphs)
        assert torch.equal(got, want)
        got = torch.autograd.grad(got.square().sum(), leaves)
        want = torch.autograd.grad(want.square().sum(), leaves)
        assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
    assert call.counts()[0][0] == ONCE[0][0] and call.counts()[1][0] == ONCE[1][0]


@compiles
def test_a_compiled_layer_is_one_node_until_it_has_a_hook():
    torch._dynamo.reset()
    layer, seen = disturb(nn.EGCL(Algebra(3, 0, 0), 2, edge_scalars=1, **F64)), []
    h, a = random(8, NODES, 2).requires_grad_(), random(EDGES, 1, seed=1).requires_grad_()
    call = Compiled(layer)
    assert torch.equal(call(h, graph(), a), layer(h, graph(), a))
    assert call.counts()[0] == [1]
    layer.node_model.register_forward_hook(lambda *_: seen.append(1))
    assert (call(h, graph(), a) - layer(h, graph(), a)).abs().max() < 1e-12
    # The perceptron of nodes, whose hook follows its call.
    assert call.counts()[0] == [1, 1] and seen


@compiles
def test_a_compiled_perceptron_is_one_node():
    torch._dynamo.reset()
    layer = disturb(nn.CEMLP(Algebra(2, 0, 0), 3, 4, 2, **F64))
    call = Compiled(layer)
    x = random(4, 2, 3, 3).requires_grad_()
    assert torch.equal(call(x), layer(x))
    assert call.counts()[0] == [1]


@compiles
def test_an_exported_program_has_layers():
    net, given = network(1), [x.detach() for x in bodies()]

    class Moved(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, charges, positions, velocities, index):
            return self.net(charges, positions, velocities, Graph(index, NODES))

    index = torch.stack([SENDERS, RECEIVERS])
    program = torch.export.export(Moved(), (*given, index))
    text = str(program.graph)
    assert "flashcliff.network" not in text and "segment_sum" in text
    assert (program.module()(*given, index) - net(*given, graph())).abs().max() < 1e-12


# Files


def test_by_layers_is_a_context():
    net, given = network(1), bodies()
    with described.by_layers():
        wanted = net(*given, graph())
    assert (net(*given, graph()) - wanted).abs().max() < 1e-12
