"""``flashcliff.accelerate`` on networks of bodies with the structure of CGENN's: perceptrons and messages are replaced as a whole."""

import copy

import cgenn_reference as reference
import pytest
import torch
from nn_common import difference, disturb, random
from torch import nn

import flashcliff
from flashcliff.compat import cgenn

# Node 1 has many edges, one of them twice; node 3 a self-loop; node 5 none at all, and node 2 sends only.
EDGES = torch.tensor([[1, 0, 4, 1, 1, 0, 3, 1], [0, 1, 2, 2, 4, 1, 3, 0]])
NODES = 6
pytestmark = pytest.mark.usefixtures("double")


class Perceptron(nn.Module):
    def __init__(self, algebra, start, hidden, end, layers=2):
        super().__init__()
        self.algebra = algebra
        sizes = [start, *[hidden] * (layers - 1), end]

        def layer(start, end):
            gate, norm = reference.Gate(algebra, end), reference.LayerNorm(algebra, end)
            first, product = reference.Linear(algebra, start, end), reference.Product(algebra, end)
            return nn.Sequential(first, gate, product, norm)

        self.layers = nn.Sequential(*map(layer, sizes[:-1], sizes[1:]))

    def forward(self, x):
        return self.layers(x)


class Messages(nn.Module):
    """Sums at the first row of edges."""

    def __init__(self, algebra, features, attributes=0, residual=True, factor=1.0):
        super().__init__()
        self.residual, self.factor = residual, factor
        self.edge_model = Perceptron(algebra, features + attributes, features, features)
        self.node_model = Perceptron(algebra, 2 * features, features, features)

    def message(self, h_i, h_j, edge_attr=None):
        parts = [h_i - h_j] if edge_attr is None else [h_i - h_j, edge_attr]
        return self.edge_model(torch.cat(parts, dim=1))

    def aggregate(self, h_msg, segment_ids, num_segments):
        rows = [h_msg[segment_ids == node] for node in range(num_segments)]
        return torch.stack([self.factor * own.sum(0) / max(len(own), 1) for own in rows])

    def update(self, h_agg, h, node_attr=None):
        found = self.node_model(torch.cat([h, h_agg], dim=1))
        return h + found if self.residual else found

    def forward(self, h, edge_index, edge_attr=None, node_attr=None):
        rows, cols = edge_index
        messages = self.message(h[rows], h[cols], edge_attr)
        sums = self.aggregate(messages.flatten(1), rows, len(h)).view(len(h), *messages.shape[1:])
        return self.update(sums, h, node_attr)


class Bodies(nn.Module):
    def __init__(self, layers=2, metric=(1, 1, 1), **options):
        super().__init__()
        self.algebra = algebra = reference.Algebra(metric)
        self.embedding = reference.Linear(algebra, 3, 4, subspaces=False)
        self.projection = nn.Sequential(reference.Linear(algebra, 4, 1))
        self.layers = nn.Sequential(*(Messages(algebra, 4, 1, **options) for _ in range(layers)))

    def forward(self, x, edges, edge_attr):
        h = self.embedding(x)
        for layer in self.layers:
            h = layer(h, edges, edge_attr=edge_attr)
        return self.projection(h)


def results(net, x, attributes):
    leaves = [x.requires_grad_(), attributes.requires_grad_(), *net.parameters()]
    out = net(x, EDGES, attributes)
    return [out, *torch.autograd.grad((out * out.detach().cos()).sum(), leaves)]


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("metric", [(1, 1, 1), (-1, 1)], ids=str)
def test_networks_of_bodies(metric, residual):
    net = disturb(Bodies(metric=metric, residual=residual))
    old, keys = copy.deepcopy(net), list(net.state_dict())
    given = random(NODES, 3, 2 ** len(metric)), random(8, 1, 2 ** len(metric), seed=1)
    found = flashcliff.accelerate(net)
    assert found.model is net and not found.kept, str(found)
    messages = f"{cgenn.EGCL.__module__}.EGCL"
    replaced = {name: kind for name, kind in found.replaced.items() if name.startswith("layers")}
    assert replaced == {"layers.0": messages, "layers.1": messages}
    assert {"embedding", "projection.0"} < found.replaced.keys()
    assert max(found.differences.values()) < 1e-12
    assert sorted(net.state_dict()) == sorted(keys)
    assert [n for n, _ in net.named_parameters()] == [n for n, _ in old.named_parameters()]
    pairs = zip(results(net, *given), results(old, *given), strict=True)
    assert all(difference(got, want) < 1e-11 for got, want in pairs)
    # Each perceptron is one function.
    ways = flashcliff.nn.transformer.explain(net).blocks
    models = [f"layers.{at}.{own}_model" for at in range(2) for own in ("edge", "node")]
    assert ways == dict.fromkeys(models, "runs as one function")


def test_perceptrons_and_their_methods():
    algebra = reference.Algebra((1, 1, 1))
    net = disturb(Messages(algebra, 4, 1))
    own = disturb(Perceptron(algebra, 3, 5, 2, layers=3))
    old = copy.deepcopy(nn.ModuleList([net, own]))
    found = flashcliff.accelerate(nn.ModuleList([net, own]))
    messages, perceptron = found.model
    assert isinstance(messages, cgenn.EGCL) and isinstance(perceptron, cgenn.CEMLP)
    x = random(7, 3, 8)
    assert difference(perceptron(x), old[1](x)) < 1e-12
    h, a = random(NODES, 4, 8), random(8, 1, 8, seed=1)
    i, j = EDGES
    sent = old[0].message(h[i], h[j], a)
    assert difference(messages.message(h[i], h[j], a), sent) < 1e-12
    sums = old[0].aggregate(sent.flatten(1), i, NODES)
    assert difference(messages.aggregate(sent.flatten(1), i, NODES), sums) < 1e-12
    sums = sums.view(NODES, 4, 8)
    assert difference(messages.update(sums, h), old[0].update(sums, h)) < 1e-12


def test_another_sum_of_messages_is_found():
    net = Bodies(layers=1, factor=2.0)
    found = flashcliff.accelerate(net)
    assert "differ" in found.kept["layers.0"]
    # The perceptrons within are tried by themselves.
    assert isinstance(net.layers[0], Messages)
    assert isinstance(net.layers[0].edge_model, cgenn.CEMLP)


def test_hooked_perceptrons_are_kept():
    net = Bodies(layers=1)
    net.layers[0].node_model.register_forward_hook(lambda *_: None)
    found = flashcliff.accelerate(net)
    assert "hooks" in found.kept["layers.0"] and isinstance(net.layers[0].edge_model, Perceptron)


def test_edges_that_are_written_over():
    net = disturb(Bodies(layers=1))
    flashcliff.accelerate(net)
    # Layers are given the same two tensors, whose relations are sorted once.
    edges = tuple(EDGES.clone())
    given = random(NODES, 3, 8), random(8, 1, 8, seed=1)
    before = net(given[0], edges, given[1])
    assert torch.equal(before, net(given[0], edges, given[1]))
    edges[0][2] = 5
    got = net(given[0], edges, given[1])
    assert torch.equal(got, net(given[0], [own.clone() for own in edges], given[1]))
    assert not torch.equal(got, before)
