"""Perceptrons and messages of CGENN: numbers edge by edge, names, symmetries, derivatives, errors."""

import nn_reference as reference
import pytest
import torch
from nn_common import (
    EDGES,
    GRAPHS,
    NODES,
    RECEIVERS,
    SENDERS,
    algebra_and_table,
    assert_same,
    check_motions,
    difference,
    disturb,
    parameters_of,
    random,
)
from releases import WHOLE

from flashcliff import Algebra, nn
from flashcliff.compat.cgenn import load_state_dict
from flashcliff.graphs import Graph, Relation

F64 = {"dtype": torch.float64}


def graph():
    return Graph(torch.stack([SENDERS, RECEIVERS]), NODES)


def perceptron(table, x, p, prefix, layers):
    for layer in range(layers):
        own = f"{prefix}layers.{layer}."
        x = reference.linear(table, x, p[own + "0.weight"], p[own + "0.bias"])
        x = reference.silu(table, x, p[own + "1.a"], p[own + "1.b"])
        x = reference.steerable(table, x, p, own + "2.")
        x = reference.layer_norm(table, x, p[own + "3.a"])
    return x


def divisor(aggregation, count):
    return {"sum": 1.0, "mean": count, "root_count": count**0.5}[aggregation]


def messages(table, h, p, prefix, scalars, layers=2, aggregation="mean", residual=True):
    """Nodes ``[nodes, channels, blades]`` after messages, one edge after another."""
    received = [[] for _ in range(NODES)]
    for edge, (i, j) in enumerate(zip(RECEIVERS.tolist(), SENDERS.tolist())):
        x = h[i] - h[j]
        if scalars is not None:
            own = torch.zeros(scalars.shape[1], x.shape[1], **F64)
            own[:, 0] = scalars[edge]
            x = torch.cat([x, own])
        received[i].append(perceptron(table, x[None], p, prefix + "edge_model.", layers)[0])
    hidden = received[1][0]
    rows = []
    for i, own in enumerate(received):
        total = sum(own, torch.zeros_like(hidden)) / divisor(aggregation, max(len(own), 1))
        update = perceptron(
            table, torch.cat([h[i], total])[None], p, prefix + "node_model.", layers
        )
        rows.append(update[0] + h[i] if residual else update[0])
    return torch.stack(rows)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("signature", [(3, 0, 0), (2, 0, 0), (1, 3, 0)])
def test_perceptrons(signature, layers):
    algebra, table = algebra_and_table(signature)
    module = disturb(nn.CEMLP(algebra, 3, 4, 2, layers, **F64))
    inputs = [random(5, 3, len(table.masks))]
    assert_same(module, inputs, lambda x, p: perceptron(table, x, p, "", layers))


@pytest.mark.parametrize(
    ("scalars", "options"),
    [
        (0, {}),
        (2, {}),
        (1, {"hidden": 3, "aggregation": "sum", "residual": False}),
        (0, {"layers": 1, "aggregation": "root_count"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["on nodes", "called", "in parts"])
def test_messages_edge_by_edge(scalars, options, way):
    algebra, table = algebra_and_table((3, 0, 0))
    at_once = 3 if way == "in parts" else None
    layer = disturb(
        nn.EGCL(algebra, 2, edge_scalars=scalars, edges_at_once=at_once, **options, **F64)
    )
    if way == "called":
        # A hook makes the perceptron take edges.
        layer.edge_model.register_forward_hook(lambda *_: None)
    h = random(NODES, 2, 8).requires_grad_()
    a = random(EDGES, scalars, seed=1).requires_grad_() if scalars else None
    named = parameters_of(layer)
    options = {name: value for name, value in options.items() if name != "hidden"}
    wanted = messages(table, h, named, "", a, **options)
    ours = h.detach().permute(2, 0, 1).contiguous().requires_grad_()
    own = None if a is None else a.detach().requires_grad_()
    got = layer(ours, graph(), own)
    assert difference(got.permute(1, 2, 0), wanted) < 1e-11
    seed = random(*wanted.shape, seed=2)
    given = [] if a is None else [a]
    wanted = torch.autograd.grad(wanted, [h, *given, *named.values()], seed)
    given = [] if own is None else [own]
    leaves = [ours, *given, *layer.parameters()]
    found = list(torch.autograd.grad(got, leaves, seed.permute(2, 0, 1)))
    found[0] = found[0].permute(1, 2, 0)
    for g, w in zip(found, wanted, strict=True):
        assert difference(g, w) < 1e-10


def bytes_for_backward(layer, *given):
    """The bytes of the tensors that a call keeps for the backward pass."""
    kept = {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        layer(*given)
    return sum(kept.values())


def test_memory_of_parts_does_not_grow_with_edges():
    layer = nn.EGCL(Algebra(2, 0, 0), 2, edges_at_once=64, **F64)
    h = random(4, NODES, 2).requires_grad_()
    few, many = (
        Graph(torch.randint(NODES, (2, edges)), NODES) for edges in (128, 64 * 128)
    )
    sums = h.numel() * h.element_size()
    of_few, of_many = (bytes_for_backward(layer, h, own) for own in (few, many))
    assert of_many - of_few <= 128 * sums
    layer.edges_at_once = None
    assert bytes_for_backward(layer, h, many) > 20 * of_many


def test_parts_of_relations():
    index = torch.tensor([2, 0, 2, 1, 0])
    own = Relation(index, 3)
    parts = own.parts(2)
    assert [part.targets.tolist() for part in parts] == [[2, 0], [2, 1], [0]]
    assert own.parts(2) is parts
    with pytest.raises(ValueError, match="rows: expected at least 1, got 0"):
        own.parts(0)
    with pytest.raises(ValueError, match="edges_at_once"):
        nn.EGCL(Algebra(2, 0, 0), 2, edges_at_once=0)


def test_batches_share_edges():
    layer = disturb(nn.EGCL(Algebra(2, 0, 0), 2, edge_scalars=1, **F64))
    h, a = random(4, 3, NODES, 2), random(EDGES, 1, seed=1)
    got = layer(h, graph(), a)
    for at in range(3):
        assert difference(got[:, at], layer(h[:, at], graph(), a)) < 1e-13


def test_edges_may_be_two_relations():
    layer = disturb(nn.EGCL(Algebra(2, 0, 0), 2, **F64))
    h = random(4, NODES, 2)
    ends = Relation(RECEIVERS, NODES), Relation(SENDERS, NODES)
    assert torch.equal(layer(h, ends), layer(h, graph()))


def test_a_hook_of_the_first_linear_map_runs():
    layer, seen = disturb(nn.EGCL(Algebra(2, 0, 0), 2, **F64)), []
    h = random(4, NODES, 2)
    wanted = layer(h, graph())
    layer.edge_model.first.register_forward_hook(lambda _, x, __: seen.append(x[0].shape))
    assert difference(layer(h, graph()), wanted) < 1e-13
    assert seen == [(4, EDGES, 2)]


def test_second_derivatives_of_messages():
    layer = disturb(nn.EGCL(Algebra(2, 0, 0), 1, edge_scalars=1, **F64))
    own = graph()
    given = random(4, NODES, 1).requires_grad_(), random(EDGES, 1, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda h, a: layer(h, own, a), given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda h, a: layer(h, own, a), given)


@pytest.mark.parametrize("signature", [(3, 0, 0), (1, 3, 0)])
def test_messages_commute_with_versors(signature):
    algebra, table = algebra_and_table(signature)
    layer = disturb(nn.EGCL(algebra, 2, edge_scalars=1, **F64))
    h, a = random(len(table.masks), NODES, 2), random(EDGES, 1, seed=1)
    for count in (1, 2, 3):
        action = reference.versor_action(table, count, count)
        turn = lambda x: torch.einsum("ab,bnc->anc", action, x)  # noqa: B023, E731
        assert difference(layer(turn(h), graph(), a), turn(layer(h, graph(), a))) < 1e-9


def test_messages_commute_with_permutations_of_nodes_and_edges():
    layer = disturb(nn.EGCL(Algebra(3, 0, 0), 2, edge_scalars=1, **F64))
    h, a = random(8, NODES, 2), random(EDGES, 1, seed=1)
    wanted = layer(h, graph(), a)
    nodes, edges = torch.randperm(NODES), torch.randperm(EDGES)
    # Node n is at places[n].
    places = nodes.argsort()
    index = places[torch.stack([SENDERS, RECEIVERS])][:, edges]
    assert difference(layer(h[:, nodes], Graph(index, NODES), a[edges]), wanted[:, nodes]) < 1e-12


@pytest.mark.parametrize("hooked", [False, True])
def test_messages_are_compiled_as_one_graph(hooked):
    layer = disturb(nn.EGCL(Algebra(3, 0, 0), 2, edge_scalars=1))
    if hooked:
        layer.edge_model.register_forward_hook(lambda *_: None)
    h, a = random(8, NODES, 2, dtype=torch.float32), random(EDGES, 1, dtype=torch.float32)
    h.requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=WHOLE)
    wanted, got = layer(h, graph(), a), compiled(h, graph(), a)
    assert difference(got, wanted) < 1e-6
    wanted = torch.autograd.grad(wanted.square().sum(), [h, *layer.parameters()])
    found = torch.autograd.grad(got.square().sum(), [h, *layer.parameters()])
    for g, w in zip(found, wanted, strict=True):
        assert difference(g, w) < 1e-5


# The model of bodies


def bodies(table, charges, positions, velocities, p, layers, graphs):
    x = torch.zeros(NODES, 3, 8, **F64)
    for node in range(NODES):
        own = [n for n in range(NODES) if graphs[n] == graphs[node]]
        centre = sum(positions[n] for n in own) / len(own)
        x[node, 0, 0] = charges[node]
        x[node, 1, 1:4] = positions[node] - centre
        x[node, 2, 1:4] = velocities[node]
    h = reference.linear(table, x, p["embedding.weight"], p["embedding.bias"])
    products = (charges[RECEIVERS] * charges[SENDERS])[:, None]
    for layer in range(layers):
        h = messages(table, h, p, f"layers.{layer}.", products)
    way = reference.linear(table, h, p["projection.0.weight"], p["projection.0.bias"])
    return positions + way[:, 0, 1:4]


def given(seed=0):
    return (
        random(NODES, seed=seed),
        random(NODES, 3, seed=seed + 1),
        random(NODES, 3, seed=seed + 2),
    )


@pytest.mark.parametrize("several", [True, False])
def test_bodies(several):
    table = reference.Table(3, 0, 0)
    model = disturb(nn.models.NBody(3, 2, **F64))
    inputs = [x.requires_grad_() for x in given()]
    named, index = parameters_of(model), GRAPHS if several else torch.zeros_like(GRAPHS)
    wanted = bodies(table, *inputs, named, 2, index.tolist())
    got = model(*inputs, graph(), Relation(index, 2) if several else None)
    assert difference(got, wanted) < 1e-11
    wanted = torch.autograd.grad(wanted.square().sum(), [*inputs, *named.values()])
    found = torch.autograd.grad(got.square().sum(), [*inputs, *model.parameters()])
    for g, w in zip(found, wanted, strict=True):
        assert difference(g, w) < 1e-10


def test_bodies_commute_with_motions_of_space():
    model = disturb(nn.models.NBody(4, 2, **F64))
    check_motions(model, *given(), graph(), Relation(GRAPHS, 2))


def shapes_of_perceptron(start, end):
    """The parameters of CGENN's CEMLP of two layers with as many hidden channels as it has outputs."""
    shapes = {}
    for layer, size in enumerate((start, end)):
        own = f"layers.{layer}."
        shapes |= {
            own + "0.weight": (end, size, 4),
            own + "0.bias": (1, end, 1),
            own + "1.a": (1, end, 4),
            own + "1.b": (1, end, 4),
            own + "2.weight": (end, 20),
            own + "2.normalization.a": (end, 4),
            own + "2.linear_right.weight": (end, end, 4),
            own + "2.linear_left.weight": (end, end, 4),
            own + "2.linear_left.bias": (1, end, 1),
            own + "3.a": (1, end),
        }
    return shapes


def test_state_dicts_are_those_of_cgenn():
    shapes = {
        "embedding.weight": (28, 3),
        "embedding.bias": (1, 28, 1),
        "projection.0.weight": (1, 28, 4),
        "projection.0.bias": (1, 1, 1),
    }
    for layer in range(3):
        for name, start in (("edge_model", 29), ("node_model", 56)):
            own = shapes_of_perceptron(start, 28)
            shapes |= {f"layers.{layer}.{name}.{key}": shape for key, shape in own.items()}
    model = nn.models.NBody()
    assert {key: tuple(x.shape) for key, x in model.state_dict().items()} == shapes
    assert sum(p.numel() for p in model.parameters()) == 134_625
    stored = {key: torch.randn(shape) for key, shape in shapes.items()}
    # CGENN stores the tables of its algebra with each layer.
    stored["layers.0.edge_model.algebra.metric"] = torch.ones(3)
    load_state_dict(model, stored)
    assert torch.equal(model.projection[0].weight, stored["projection.0.weight"])


@pytest.mark.parametrize(
    ("kind", "match", "function"),
    [
        (ValueError, "layers: expected at least 1, got 0", lambda: nn.CEMLP((2, 0, 0), 1, 1, 1, 0)),
        (ValueError, "in_channels: expected at least 1", lambda: nn.CEMLP((2, 0, 0), 0, 1, 1)),
        (ValueError, "channels: expected at least 1", lambda: nn.EGCL((2, 0, 0), 0)),
        (
            ValueError,
            "aggregation: expected one of",
            lambda: nn.EGCL((2, 0, 0), 1, aggregation="max"),
        ),
        (
            ValueError,
            "edge_scalars: expected at least 0",
            lambda: nn.EGCL((2, 0, 0), 1, edge_scalars=-1),
        ),
        (TypeError, "residual: expected True or False", lambda: nn.EGCL((2, 0, 0), 1, residual=1)),
        (ValueError, "layers: expected at least 0", lambda: nn.models.NBody(layers=-1)),
    ],
)
def test_errors_of_options(kind, match, function):
    with pytest.raises(kind, match=match):
        function()


@pytest.mark.parametrize(
    ("kind", "match", "scalars", "call"),
    [
        (
            TypeError,
            "edges: expected a flashcliff.graphs.Graph",
            0,
            lambda own: own(random(4, NODES, 2), [RECEIVERS]),
        ),
        (ValueError, "expected 6 targets at axis 1", 0, lambda own: own(random(4, 5, 2), graph())),
        (
            ValueError,
            r"edge_scalars: expected \[8, 1\], got None",
            1,
            lambda own: own(random(4, NODES, 2), graph()),
        ),
        (
            ValueError,
            r"edge_scalars: expected None, got \[8, 1\]",
            0,
            lambda own: own(random(4, NODES, 2), graph(), random(8, 1)),
        ),
    ],
)
def test_errors_of_calls(kind, match, scalars, call):
    with pytest.raises(kind, match=match):
        call(nn.EGCL(Algebra(2, 0, 0), 2, edge_scalars=scalars, **F64))


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("shape", [(4, NODES, 1), (4, NODES, 3), (2, NODES, 2), (8, NODES, 2)])
def test_nodes_of_other_sizes_are_errors(shape, compiles):
    """A plan would read beyond their memory."""
    space = Algebra(2, 0, 0)
    layer, perceptron = nn.EGCL(space, 2, **F64), nn.CEMLP(space, 2, 3, 2, **F64)
    calls = [lambda x: layer(x, graph()), perceptron]
    for call in calls:
        found = torch.compile(call, backend="eager") if compiles else call
        with pytest.raises((ValueError, RuntimeError), match=r"tensor `(x|weight)` must be"):
            found(random(*shape))


def test_errors_of_bodies():
    model = nn.models.NBody(2, 1, **F64)
    charges, positions, velocities = given()
    with pytest.raises(ValueError, match=r"charges: expected \[6\], got \[6, 1\]"):
        model(charges[:, None], positions, velocities, graph())
    with pytest.raises(ValueError, match=r"velocities: expected \[6, 3\], got \[5, 3\]"):
        model(charges, positions, velocities[:5], graph())
