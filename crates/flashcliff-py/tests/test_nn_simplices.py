"""Simplicial complexes and CSMPN's network on them: edges by their definition, numbers simplex by simplex, names, symmetries,
derivatives, errors."""

import itertools
from collections import Counter

import nn_reference as reference
import pytest
import torch
from nn_common import difference, disturb, parameters_of, random
from test_described_messages import functions, results, same  # noqa: F401
from test_nn_messages import perceptron, shapes_of_perceptron

import flashcliff
from flashcliff import nn
from flashcliff.compat.cgenn import load_state_dict
from flashcliff.graphs import Complexes
from flashcliff.nn.transformer.described import choice

F64 = {"dtype": torch.float64}
# Two tetrahedra that share a triangle; a triangle beside an edge and a vertex that nothing touches; an edge.
VERTICES = [5, 6, 2]
FACES = [[(0, 1, 2, 3), (4, 2, 1, 3)], [(2, 0, 1), (3, 4)], [(1, 0)]]


def complexes(**options):
    return Complexes(VERTICES, FACES, **options)


def simplices_of(count, faces):
    """The corners of simplices, in the order of their numbers."""
    found = {(v,) for v in range(count)}
    for face in faces:
        for size in (2, 3):
            found |= {tuple(sorted(own)) for own in itertools.combinations(face, size)}
    return sorted(found, key=lambda own: (len(own), own))


def edges_of(simplices, connected):
    """How often there is an edge between two simplices, by the definition."""
    found = Counter()
    for a, b in itertools.product(range(len(simplices)), repeat=2):
        x, y = set(simplices[a]), set(simplices[b])
        if abs(len(x) - len(y)) == 1 and (x < y or y < x):
            found[a, b] = 1
        if len(x) == len(y) < 3 and a != b:
            cofaces = [own for own in simplices if len(own) == len(x) + 1 and x | y <= set(own)]
            found[a, b] += len(cofaces)
            is_listed = (*simplices[a], *simplices[b]) in simplices
            found[a, b] += connected and len(x) == 1 and not is_listed
    return +found


@pytest.mark.parametrize("connected", [True, False])
def test_edges_are_those_of_the_definition(connected):
    own, first, nodes = complexes(connected=connected), 0, []
    graph = own.graph
    ends = list(zip(graph.senders.targets.tolist(), graph.receivers.targets.tolist()))
    wanted = Counter()
    for number, (count, faces) in enumerate(zip(VERTICES, FACES)):
        simplices = simplices_of(count, faces)
        for (a, b), times in edges_of(simplices, connected).items():
            wanted[a + len(nodes), b + len(nodes)] = times
        nodes += [(number, tuple(first + v for v in corners)) for corners in simplices]
        first += count
    assert Counter(ends) == wanted
    assert own.dimensions.tolist() == [len(corners) - 1 for _, corners in nodes]
    assert own.graphs.targets.tolist() == [number for number, _ in nodes]
    assert own.counts == [13, 9 + 4 + 1, 7 + 1]
    for d in range(3):
        of = own.simplices[d].targets.tolist()
        columns = [own.corners[d - 1][at].targets.tolist() for at in range(d + 1)] if d else []
        orders = list(zip(*columns)) if d else [(v,) for v in range(first)]
        wanted = [(at, order) for at, (_, corners) in enumerate(nodes) if len(corners) == d + 1
                  for order in itertools.permutations(corners)]  # fmt: skip
        assert sorted(zip(of, orders)) == wanted


def test_orders_of_corners_do_not_matter_to_complexes():
    other = Complexes(VERTICES, [[own[::-1] for own in each[::-1]] for each in FACES])
    own = complexes()
    assert torch.equal(own.graph.senders.targets, other.graph.senders.targets)
    assert torch.equal(own.graph.receivers.targets, other.graph.receivers.targets)
    array = [torch.tensor(list(itertools.combinations(range(4), 3)))]
    assert Complexes([4], array).counts == [4, 6, 4]


def volumes(table, points, p, layers):
    """The network, one simplex and one edge after another."""
    found, first = [], 0
    for count, faces in zip(VERTICES, FACES):
        own = points[first : first + count]
        own, first = own - own.mean(0), first + count
        simplices = simplices_of(count, faces)
        h, kinds = [], []
        for corners in simplices:
            d = len(corners) - 1
            kinds.append(torch.eye(3, **F64)[d])
            total = 0
            for order in itertools.permutations(corners):
                x = reference.embed_points(table, own[list(order)])[None]
                name = f"cl_feature_embedding.{d}."
                if d:
                    total = total + perceptron(table, x, p, name, d)[0]
                else:
                    total = (
                        total + reference.linear(table, x, p[name + "weight"], p[name + "bias"])[0]
                    )
            h.append(total)
        for layer in range(layers):
            h = updated(table, h, kinds, edges_of(simplices, True), p, f"layers.{layer}.")
        x = torch.stack(h)
        scalars = reference.linear(table, x, p["projection.0.weight"], p["projection.0.bias"])
        found.append(scalars[:, 0, 0].mean())
    return torch.stack(found)


def on_scalars(table, values):
    own = torch.zeros(len(values), len(table.masks), **F64)
    own[:, 0] = values
    return own


def updated(table, h, kinds, edges, p, prefix):
    rows = []
    for i, own in enumerate(h):
        total, count = torch.zeros_like(own), 0
        for (source, target), times in edges.items():
            if target == i:
                scalars = on_scalars(table, torch.cat([kinds[source], kinds[i]]))
                x = torch.cat([own - h[source], scalars])[None]
                total = total + times * perceptron(table, x, p, prefix + "edge_model.", 2)[0]
                count += times
        x = torch.cat([own, total / max(count, 1), on_scalars(table, kinds[i])])[None]
        rows.append(own + perceptron(table, x, p, prefix + "node_model.", 2)[0])
    return rows


def network(dim=3, layers=2, **options):
    return disturb(nn.models.SimplicialHulls(dim, 2, layers, **{**F64, **options}))


def points(dim=3, dtype=torch.float64):
    return random(sum(VERTICES), dim).to(dtype).requires_grad_()


@pytest.mark.share(2)
@pytest.mark.parametrize("hooked", [False, True])
def test_volumes_simplex_by_simplex(hooked):
    table, net, x = reference.Table(3, 0, 0), network(), points()
    if hooked:
        net.projection.register_forward_hook(lambda *_: None)
    named = parameters_of(net)
    wanted = volumes(table, x, named, 2)
    got = net(x, complexes())
    assert difference(got, wanted) < 1e-12
    seed = random(len(VERTICES), seed=1)
    wanted = torch.autograd.grad(wanted, [x, *named.values()], seed)
    found = torch.autograd.grad(got, [x, *net.parameters()], seed)
    for g, w in zip(found, wanted, strict=True):
        assert difference(g, w) < 1e-10
    assert ("hooks" in (choice.known_of(net).last or "")) == hooked


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("dim", "layers"), [(2, 0), (3, 2), (5, 1)])
def test_the_network_is_its_layers(dim, layers, second, functions):  # noqa: F811
    same(network(dim, layers), [points(dim)], complexes(), second=second)
    own = complexes()
    orders = [relation.rows for relation in own.simplices]
    rows = own.graph.num_nodes, 1, 0, own.graph.num_edges, 3, *orders
    assert functions[0] == rows


def test_volumes_do_not_see_motions_of_space():
    net, own, x = network(5, 1), complexes(), points(5).detach()
    wanted = net(x, own)
    for seed in range(3):
        turn, _ = torch.linalg.qr(random(5, 5, seed=seed))
        shift = random(len(VERTICES), 5, seed=9)[own.vertices.targets]
        assert difference(net(x @ turn + shift, own), wanted) < 1e-11


def test_volumes_do_not_see_the_numbers_of_vertices():
    net, x = network(), points().detach()
    order = torch.tensor([3, 1, 4, 0, 2])
    place = order.argsort().tolist()
    faces = [[tuple(place[v] for v in face) for face in FACES[0]], *FACES[1:]]
    # Vertices that are neighbours of all others count edges by their numbers.
    moved = torch.cat([x[order], x[5:]])
    got = net(moved, Complexes(VERTICES, faces, connected=False))
    assert difference(got, net(x, complexes(connected=False))) < 1e-11


def test_complexes_do_not_see_each_other():
    net, x, first = network(), points().detach(), 0
    wanted = net(x, complexes())
    for at, (count, faces) in enumerate(zip(VERTICES, FACES)):
        got = net(x[first : first + count], Complexes([count], [faces]))
        assert difference(got, wanted[at : at + 1]) < 1e-12
        first += count
    # A complex without triangles has no rows for them.
    assert "no elements" in choice.known_of(net).last


@pytest.mark.parametrize("second", [False, True])
def test_scalars_of_nodes_are_read_by_updates(second, functions):  # noqa: F811
    own = complexes()
    layer = disturb(nn.EGCL(flashcliff.Algebra(2, 0, 0), 2, node_scalars=3, **F64))
    h = random(4, own.graph.num_nodes, 2).requires_grad_()
    a = random(own.graph.num_nodes, 3, seed=1).requires_grad_()
    same(layer, [h], own.graph, None, a, second=second)
    assert len(functions) == 1
    with pytest.raises(ValueError, match=r"node_scalars: expected \[35, 3\], got None"):
        layer(h, own.graph)


def test_state_dicts_are_those_of_csmpn():
    def of(prefix, start, layers):
        shapes = {}
        for key, shape in shapes_of_perceptron(start, 28).items():
            if int(key.split(".")[1]) < layers:
                # Six grades and 56 paths in place of four and 20.
                shapes[prefix + key] = tuple({4: 6, 20: 56}.get(n, n) for n in shape)
        return shapes

    shapes = {
        "cl_feature_embedding.0.weight": (28, 1),
        "cl_feature_embedding.0.bias": (1, 28, 1),
        **of("cl_feature_embedding.1.", 2, 1),
        **of("cl_feature_embedding.2.", 3, 2),
        "projection.0.weight": (1, 28, 6),
        "projection.0.bias": (1, 1, 1),
    }
    for layer in range(3):
        shapes |= of(f"layers.{layer}.edge_model.", 28 + 6, 2)
        shapes |= of(f"layers.{layer}.node_model.", 56 + 3, 2)
    model = nn.models.SimplicialHulls()
    assert {key: tuple(x.shape) for key, x in model.state_dict().items()} == shapes
    stored = {key: torch.randn(shape) for key, shape in shapes.items()}
    stored |= {"readout.weight": torch.randn(1, 3), "readout.bias": torch.randn(1)}
    assert sum(x.numel() for x in stored.values()) == 254_329
    # CSMPN stores the tables of its algebra with each layer.
    stored["layers.0.edge_model.algebra.metric"] = torch.ones(5)
    load_state_dict(model, stored)
    assert torch.equal(model.projection[0].weight, stored["projection.0.weight"])
    outer = torch.nn.Sequential(model)
    outer.load_state_dict({f"0.{key}": x for key, x in stored.items() if "algebra" not in key})


def test_complexes_move_and_say_what_they_are():
    own = complexes()
    moved = own.to("cpu")
    pairs = zip(own.relations(), moved.relations(), strict=True)
    assert all(a == b and torch.equal(x.order, y.order) for (a, x), (b, y) in pairs)
    assert repr(moved) == "Complexes(3 of 13 vertices, 14 edges and 8 triangles, on cpu)"


@pytest.mark.parametrize(
    ("kind", "match", "function"),
    [
        (ValueError, "faces: expected a list for each of 2", lambda: Complexes([3, 3], [[]])),
        (ValueError, "different corners from 0 to 2", lambda: Complexes([3], [[(0, 3)]])),
        (ValueError, "different corners from 0 to 2", lambda: Complexes([3], [[(1, 1)]])),
        (TypeError, "a corner: expected an integer", lambda: Complexes([3], [[(0.5, 1)]])),
        (TypeError, "connected: expected", lambda: Complexes([3], [[]], connected=1)),
        (ValueError, "dim: expected at least 2", lambda: nn.models.SimplicialHulls(1)),
        (
            TypeError,
            "complexes: expected a flashcliff.graphs.Complexes",
            lambda: network()(points(), complexes().graph),
        ),
        (
            ValueError,
            r"points: expected \[13, 3\], got \[13, 2\]",
            lambda: network()(points(2), complexes()),
        ),
    ],
)
def test_errors(kind, match, function):
    with pytest.raises(kind, match=match):
        function()
