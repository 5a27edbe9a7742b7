"""CGENN's layer of scalars and multivectors, and its network of jets: numbers edge by edge, names, symmetries, derivatives, errors."""

import math

import nn_reference as reference
import pytest
import torch
from nn_common import (
    EDGES,
    GRAPHS,
    NODES,
    RECEIVERS,
    SENDERS,
    difference,
    disturb,
    parameters_of,
    random,
)
from test_nn_messages import graph

import flashcliff
from flashcliff import nn
from flashcliff.compat.cgenn import load_state_dict
from flashcliff.graphs import Graph, Relation

F64 = {"dtype": torch.float64}
SPACE = reference.Table(1, 3, 0)


def invariants(table, x):
    """Channel by channel the scalar and the squared norms by grade."""
    squares = [table.q(own) for own in table.by_grade(x)[1:]]
    return torch.cat([x[..., :1], *squares], dim=-1).flatten(1)


def products(table, x, p, prefix, kind):
    if kind == "fc":
        x = reference.steerable(table, x, p, prefix + "0.", fully_connected=True)
        return reference.layer_norm(table, x, p[prefix + "1.a"])
    x = reference.linear(table, x, p[prefix + "0.weight"], p[prefix + "0.bias"])
    x = reference.silu(table, x, p[prefix + "1.a"], p[prefix + "1.b"])
    x = reference.steerable(table, x, p, prefix + "2.")
    return reference.layer_norm(table, x, p[prefix + "3.a"])


def linear(x, p, name):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def batch_norm(x, p, name, statistics):
    """Of the batch, or of what a module has seen."""
    mean, variance = x.mean(0), x.var(0, unbiased=False)
    if statistics is not None:
        mean, variance = (statistics[f"{name}.{own}"] for own in ("running_mean", "running_var"))
    return (x - mean) / (variance + 1e-5).sqrt() * p[name + ".weight"] + p[name + ".bias"]


def gated(table, x, h, p, name):
    hidden = linear(h, p, name + ".0").clamp(min=0)
    gates = torch.sigmoid(linear(hidden, p, name + ".2")).view(len(x), x.shape[1], -1)
    return x * gates[..., table.grades]


def layer(table, x, h, edge_x, node_x, node_h, p, prefix="", statistics=None, **options):
    """CGENN's layer: all edges, then all nodes."""
    kind, mean = options.get("layer_type", "fc"), options.get("aggregation", "mean") == "mean"
    i, j = RECEIVERS, SENDERS
    m_x = torch.cat([x[i], x[j], x[i] - x[j], edge_x], dim=1)
    m_x = products(table, m_x, p, prefix + "phi_x.", kind)
    m_h = torch.cat([invariants(table, m_x), h[i], h[j], h[i] - h[j]], dim=1)
    m_h = batch_norm(linear(m_h, p, prefix + "phi_h.0"), p, prefix + "phi_h.1", statistics)
    m_h = linear(m_h.clamp(min=0), p, prefix + "phi_h.3").clamp(min=0)
    if options.get("gates", True):
        m_x = gated(table, m_x, m_h, p, prefix + "psi_x")
    sums_x, sums_h = [], []
    for node in range(NODES):
        own = [edge for edge in range(EDGES) if RECEIVERS[edge] == node]
        count = max(len(own), 1) if mean else 1
        sums_x.append(m_x[own].sum(0) / count)
        sums_h.append(m_h[own].sum(0) / count)
    u_h = torch.cat([h, torch.stack(sums_h), invariants(table, x), node_h], dim=1)
    u_h = batch_norm(linear(u_h, p, prefix + "theta_h.0"), p, prefix + "theta_h.1", statistics)
    u_h = linear(u_h.clamp(min=0), p, prefix + "theta_h.3")
    u_x = torch.cat([x, torch.stack(sums_x), node_x], dim=1)
    u_x = products(table, u_x, p, prefix + "theta_x.", kind)
    if options.get("gates", True):
        u_x = gated(table, u_x, u_h, p, prefix + "chi_x")
    return (u_x + x, u_h + h) if options.get("residual") else (u_x, u_h)


OPTIONS = [
    {},
    {"aggregation": "sum", "residual": True, "normalization_init": 0.0},
    {"layer_type": "gpmlp"},
    {"gates": False},
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("signature", [(1, 3, 0), (2, 0, 0)], ids=str)
def test_the_layer_edge_by_edge(signature, options, training):
    table, algebra = reference.Table(*signature), flashcliff.Algebra(*signature)
    module = disturb(nn.models.CGLayer(algebra, 2, 3, 2, 1, 2, **options, **F64))
    module.train(training)
    for own in module.buffers():
        if own.is_floating_point():
            own.copy_(1 + 0.1 * random(*own.shape, seed=5))
    statistics = None if training else dict(module.named_buffers())
    blades, named = len(table.masks), parameters_of(module)
    x, edge_x = random(NODES, 2, blades), random(EDGES, 2, blades, seed=1)
    node_x = random(NODES, 1, blades, seed=2)
    h, node_h = random(NODES, 3, seed=3), random(NODES, 2, seed=4)
    given = [own.requires_grad_() for own in (x, h, edge_x, node_x, node_h)]
    wanted = layer(table, *given, named, statistics=statistics, **options)
    ours = [own.movedim(-1, 0) if own.dim() == 3 else own for own in given]
    got = module(ours[0], ours[1], graph(), *ours[2:])
    got = got[0].movedim(0, -1), got[1]
    for g, w in zip(got, wanted, strict=True):
        assert difference(g, w) < 1e-12
    total = [sum((own * own.detach().cos()).sum() for own in pair) for pair in (got, wanted)]
    leaves = list(named.values())
    found = torch.autograd.grad(total[0], [*given, *module.parameters()], allow_unused=True)
    wanted = torch.autograd.grad(total[1], [*given, *leaves], allow_unused=True)
    least = 1e-3 * max(w.abs().max() for w in wanted if w is not None)
    for g, w in zip(found, wanted, strict=True):
        assert (g is None) == (w is None)
        if w is not None:
            assert (g - w).abs().max() <= 1e-10 * torch.maximum(w.abs().max(), least)


def tagger(**options):
    sizes = {"scalars": 3, "channels": 2, "decoder": 4, "classes": 3, "layers": 2}
    return disturb(nn.models.JetTagger(**sizes, **options, **F64)).eval()


def particles():
    return random(NODES, 4).requires_grad_(), random(NODES, 2, seed=1).requires_grad_()


@pytest.mark.parametrize("masked", [False, True])
def test_logits_particle_by_particle(masked):
    model, (momenta, scalars) = tagger(), particles()
    mask = torch.tensor([1, 1, 0, 1, 1, 1]).bool() if masked else None
    p, statistics = parameters_of(model), dict(model.named_buffers())
    vectors = reference.embed_points(SPACE, momenta[:, None])
    i, j = RECEIVERS, SENDERS
    edge_x = torch.cat([vectors[i] - vectors[j], vectors[i], vectors[j]], dim=1)
    node_h = torch.sign(scalars) * torch.log(scalars.abs() + 1)
    x = reference.linear(SPACE, vectors, p["embedding_x.weight"], p["embedding_x.bias"])
    h = linear(node_h, p, "embedding_h")
    for at in range(2):
        x, h = layer(SPACE, x, h, edge_x, vectors, node_h, p, f"CGLs.{at}.", statistics)
    found = torch.cat([h, invariants(SPACE, x)], dim=1)
    if masked:
        found = found * mask[:, None]
    means = torch.stack([found[GRAPHS == jet].mean(0) for jet in range(2)])
    wanted = linear(linear(means, p, "graph_dec.0").clamp(min=0), p, "graph_dec.3")
    got = model(momenta, scalars, graph(), Relation(GRAPHS, 2), mask)
    assert difference(got, wanted) < 1e-12
    seed = random(2, 3, seed=2)
    wanted = torch.autograd.grad(wanted, [momenta, scalars, *p.values()], seed)
    found = torch.autograd.grad(got, [momenta, scalars, *model.parameters()], seed)
    for g, w in zip(found, wanted, strict=True):
        assert difference(g, w) < 1e-9


def boost(seed):
    """A Lorentz transformation: turns around a boost, with a reflection now and then."""
    rapidity, (a, b) = 0.3 * (seed + 1), (torch.eye(4, **F64), torch.eye(4, **F64))
    a[1:, 1:], b[1:, 1:] = (torch.linalg.qr(random(3, 3, seed=seed + n))[0] for n in (0, 9))
    own = torch.eye(4, **F64)
    own[:2, :2] = torch.tensor(
        [[math.cosh(rapidity), math.sinh(rapidity)], [math.sinh(rapidity), math.cosh(rapidity)]],
        **F64,
    )
    return a @ own @ b


@pytest.mark.parametrize("kind", ["fc", "gpmlp"])
def test_logits_do_not_see_lorentz_transformations(kind):
    model, (momenta, scalars) = tagger(layer_type=kind), particles()
    graphs = Relation(GRAPHS, 2)
    wanted = model(momenta, scalars, graph(), graphs)
    for seed in range(3):
        got = model(momenta @ boost(seed).T, scalars, graph(), graphs)
        assert difference(got, wanted) < 1e-11


def test_jets_do_not_see_each_other_and_edges_may_be_two_relations():
    model, (momenta, scalars) = tagger(), particles()
    pairs = [(int(j), int(i)) for i, j in zip(RECEIVERS, SENDERS) if GRAPHS[i] == GRAPHS[j]]
    graphs, own = Relation(GRAPHS, 2), Graph(torch.tensor(pairs).T, NODES)
    wanted = model(momenta, scalars, own, graphs)
    moved = momenta + (GRAPHS == 1)[:, None]
    got = model(moved, scalars, (own.receivers, own.senders), graphs)
    assert torch.equal(got[0], wanted[0]) and not torch.allclose(got[1], wanted[1])


@pytest.mark.parametrize("gates", [False, True])
def test_autocast(gates):
    """Maps of scalars have 16 bits, products and sums float32."""
    model, given = tagger(gates=gates).float(), [x.detach().float() for x in particles()]
    wanted = model(*given, graph(), Relation(GRAPHS, 2))
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*given, graph(), Relation(GRAPHS, 2))
    found.float().sum().backward()
    assert (found.float() - wanted).abs().max() < 0.05 * wanted.abs().max()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads and all(g.isfinite().all() for g in grads)


def test_state_dicts_are_those_of_cgenn():
    def batch_norm(name):
        own = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (72,))
        return {f"{name}.{key}": shape for key, shape in own.items()} | {
            f"{name}.num_batches_tracked": ()
        }

    def fully_connected(name, start):
        return {
            f"{name}.0.weight": (8, start, 35),
            f"{name}.0.linear_right.weight": (start, start, 5),
            f"{name}.0.linear_left.weight": (8, start, 5),
            f"{name}.0.linear_left.bias": (1, 8, 1),
            f"{name}.1.a": (1, 8),
        }

    def linear(name, start, end, bias=True):
        return {f"{name}.weight": (end, start)} | ({f"{name}.bias": (end,)} if bias else {})

    shapes = {
        **linear("embedding_h", 2, 72),
        "embedding_x.weight": (8, 1),
        "embedding_x.bias": (1, 8, 1),
        **linear("graph_dec.0", 72 + 40, 64),
        **linear("graph_dec.3", 64, 2),
    }
    for at in range(4):
        own = f"CGLs.{at}."
        shapes |= {
            **linear(own + "phi_h.0", 40 + 3 * 72, 72, bias=False),
            **batch_norm(own + "phi_h.1"),
            **linear(own + "phi_h.3", 72, 72),
            **fully_connected(own + "phi_x", 27),
            **fully_connected(own + "theta_x", 17),
            **linear(own + "theta_h.0", 2 + 40 + 72 + 72, 72),
            **batch_norm(own + "theta_h.1"),
            **linear(own + "theta_h.3", 72, 72),
            **linear(own + "psi_x.0", 72, 72),
            **linear(own + "psi_x.2", 72, 40),
            **linear(own + "chi_x.0", 72, 72),
            **linear(own + "chi_x.2", 72, 40),
        }
    model = nn.models.JetTagger()
    assert {key: tuple(x.shape) for key, x in model.state_dict().items()} == shapes
    assert sum(p.numel() for p in model.parameters()) == 320_594
    # Optimisers know parameters by their order.
    order = [name.split(".")[2] for name, _ in model.named_parameters() if name[:6] == "CGLs.0"]
    assert list(dict.fromkeys(order)) == ["phi_h", "phi_x", "theta_x", "theta_h", "psi_x", "chi_x"]
    stored = {key: torch.randn(shape) for key, shape in shapes.items()}
    stored["algebra.metric"] = torch.tensor([1.0, -1.0, -1.0, -1.0])
    load_state_dict(model, stored)
    assert torch.equal(model.CGLs[3].chi_x[2].weight, stored["CGLs.3.chi_x.2.weight"])


X, H = random(16, NODES, 2), random(NODES, 3)


@pytest.mark.parametrize(
    ("kind", "match", "function"),
    [
        (ValueError, "layer_type: expected one of", lambda own: tagger(layer_type="mlp")),
        (ValueError, "aggregation: expected one of", lambda own: tagger(aggregation="max")),
        (ValueError, r"h: expected \[6, 3\], got \[6, 2\]", lambda own: own(X, H[:, :2], graph())),
        (ValueError, r"x: expected \[16, 6, 2\]", lambda own: own(X[:, :5], H, graph())),
        (
            ValueError,
            r"edge_x: expected \[16, 8, 1\], got None",
            lambda own: own(X, H, graph(), None),
        ),
        (
            ValueError,
            r"node_x: expected None, got \[16, 6, 2\]",
            lambda own: own(X, H, graph(), random(16, EDGES, 1), X),
        ),
        (TypeError, "edges: expected a flashcliff.graphs.Graph", lambda own: own(X, H, [RECEIVERS])),
        (
            ValueError,
            r"mask: expected \[6\], got \[6, 1\]",
            lambda own: tagger()(*particles(), graph(), Relation(GRAPHS, 2), torch.ones(6, 1)),
        ),
    ],
)
def test_errors(kind, match, function):
    with pytest.raises(kind, match=match):
        function(nn.models.CGLayer((1, 3, 0), 2, 3, edge_channels=1, **F64))
