"""MVN's network of bodies: numbers edge by edge, names, symmetries, derivatives, errors."""

import copy
import pickle

import nn_reference as reference
import pytest
import torch
from nn_common import (
    EDGES,
    GRAPHS,
    NODES,
    RECEIVERS,
    SENDERS,
    check_motions,
    difference,
    disturb,
    parameters_of,
    random,
)
from test_nn_messages import given, graph

import flashcliff
from flashcliff import nn
from flashcliff.compat.cgenn import load_state_dict
from flashcliff.graphs import Relation

F64 = {"dtype": torch.float64}
TABLE = reference.Table(3, 0, 0)


def linear(x, p, name):
    return reference.linear(TABLE, x, p[name + ".weight"], p.get(name + ".bias"))


def perceptron(x, p, name):
    hidden = (x @ p[name + ".0.weight"].T + p[name + ".0.bias"]).clamp(min=0)
    return hidden @ p[name + ".2.weight"].T + p[name + ".2.bias"]


def scalar_norm(x, p, name):
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return x * p[name + ".weight"] + p[name + ".bias"]


SIDES = set()
"""The sides of the rectifier that were reached."""


def rectified(x, p, name):
    """One channel after another."""
    q, k = (linear(x, p, f"{name}.lin{at}") for at in (1, 2))
    rows = []
    for a, b in zip(q.flatten(0, 1), k.flatten(0, 1)):
        along = a @ b
        SIDES.add(bool(along > 0))
        rows.append(a if along > 0 else a - along / (b @ b + 1e-8) * b)
    return torch.stack(rows).view_as(q)


def layer(s, v, p, prefix):
    own = {key.removeprefix(prefix): x for key, x in p.items() if key.startswith(prefix)}
    i, j = SENDERS, RECEIVERS
    v_e = linear(torch.cat([v[i], v[j]], 1), own, "v_linear")
    s_e = perceptron(torch.cat([s[i], s[j], v_e.square().sum(-1)], 1), own, "edge_model_s")
    u_e = v_e
    for at in (0, 2):
        u_e = linear(u_e, own, f"edge_model_v.mlp.{at}")
        u_e = rectified(u_e, own, f"edge_model_v.mlp.{at + 1}")
    u_e = linear(u_e, own, "edge_model_v.mlp.4")
    factors = perceptron(s_e, own, "pos_net").view(EDGES, v.shape[1], 4)
    u_e = u_e * factors[..., TABLE.grades]
    s_e = scalar_norm(s_e, own, "mes_norm.scalar_norm")
    u_e = reference.layer_norm(TABLE, u_e, own["mes_norm.vec_norm.a"])
    sums, sums_v = [], []
    for node in range(NODES):
        edges = [edge for edge in range(EDGES) if RECEIVERS[edge] == node]
        root = max(len(edges), 1) ** 0.5
        sums.append(s_e[edges].sum(0) / root)
        sums_v.append(u_e[edges].sum(0) / root)
    s_n = perceptron(torch.stack(sums), own, "update_model_s")
    sums_v = torch.stack(sums_v)
    left, right = (
        linear(sums_v, own, f"update_model_v.linear_{side}") for side in ("left", "right")
    )
    product = torch.einsum("nci,ijk,nck->ncj", left, TABLE.cayley, right)
    out = linear(torch.cat([product, sums_v], 1), own, "update_model_v.linear_out")
    v_n = reference.layer_norm(TABLE, out, own["update_model_v.vec_norm.a"])
    return s + scalar_norm(s_n, own, "update_norm_s"), v + v_n


def bodies(charges, positions, velocities, p, layers):
    centres = torch.stack([positions[GRAPHS == GRAPHS[node]].mean(0) for node in range(NODES)])
    x = torch.zeros(NODES, 3, 8, **F64)
    x[:, 0, 1:4], x[:, 1, 1:4], x[:, 2, 0] = positions - centres, velocities, charges
    v = linear(x, p, "feature_embedding")
    s = charges[:, None] @ p["feature_embedding_s.weight"].T + p["feature_embedding_s.bias"]
    for at in range(layers):
        s, v = layer(s, v, p, f"model.{at}.")
    return centres + linear(v, p, "projection")[:, 0, 1:4]


def network(layers=2, **options):
    return disturb(nn.models.MVNBody(3, 2, layers, **{**F64, **options}))


def test_bodies_edge_by_edge():
    model, leaves = network(), [x.requires_grad_() for x in given()]
    named = parameters_of(model)
    wanted = bodies(*leaves, named, 2)
    got = model(*leaves, graph(), Relation(GRAPHS, 2))
    assert difference(got, wanted) < 1e-12
    assert {True, False} == SIDES
    seed = random(NODES, 3, seed=9)
    # Nothing reads the last scalars.
    everything = [*leaves, *named.values()], [*leaves, *model.parameters()]
    wanted, found = (
        torch.autograd.grad(out, own, seed, allow_unused=True)
        for out, own in zip((wanted, got), everything)
    )
    for g, w in zip(found, wanted, strict=True):
        assert (g is None) == (w is None)
        assert w is None or difference(g, w) < 1e-9


def test_parameters_begin_as_those_of_mvn():
    torch.manual_seed(0)
    named = parameters_of(nn.models.MVNBody(**F64))
    weight, bias = named["model.0.edge_model_s.0.weight"], named["model.0.edge_model_s.0.bias"]
    for own in (weight, bias):
        assert own.abs().max() <= 144**-0.5 and abs(own.std() * 144**0.5 * 3**0.5 - 1) < 0.25
    of_vectors = named["model.1.v_linear.weight"]
    assert abs(of_vectors.std() * 32**0.5 - 1) < 0.1
    for name, own in named.items():
        if name.endswith((".a", "norm.weight", "norm_s.weight")):
            assert (own == 1).all()
        if name.endswith(("linear.bias", "norm.bias", "norm_s.bias")):
            assert (own == 0).all()


def test_files_have_the_network(tmp_path):
    model, (charges, positions, velocities) = network(), given()
    path = tmp_path / "bodies.safetensors"
    flashcliff.save_network(model, path)
    loaded = flashcliff.load_network(path)
    numbers = torch.cat([charges[:, None], positions, velocities], dim=1)[:, None]
    ends = {"receivers": graph().receivers, "senders": graph().senders}
    out = loaded(bodies=numbers, **ends, graphs=Relation(GRAPHS, 2))
    wanted = model(charges, positions, velocities, graph(), Relation(GRAPHS, 2))
    assert torch.equal(out[..., 0].T, wanted)
    state = model.state_dict()
    # What nothing reads is not there.
    left = {name for name in state if name not in loaded.state_dict()}
    assert left == {name for name in left if name.startswith("model.1.") and "s" in name} != set()
    for name, own in loaded.state_dict().items():
        assert torch.equal(own, state[name].view_as(own))


def test_copies_are_equal():
    model, leaves = network(), given()
    wanted = model(*leaves, graph())
    for own in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(own(*leaves, graph()), wanted)
    doubled = {name: 2 * p for name, p in model.named_parameters()}
    got = torch.func.functional_call(model, doubled, (*leaves, graph()))
    model.load_state_dict(doubled)
    assert torch.equal(got, model(*leaves, graph()))
    small = {**doubled, "projection.weight": torch.zeros(1, **F64)}
    with pytest.raises(ValueError, match=r"projection.weight: expected \[1, 2\]"):
        torch.func.functional_call(model, small, (*leaves, graph()))


def test_bodies_commute_with_motions_of_space():
    model = network()
    check_motions(model, *given(), graph(), Relation(GRAPHS, 2))


def test_state_dicts_are_those_of_mvn():
    def affine(name, start, end, grades=None, bias=True):
        weight = (end, start) if grades is None else (end, start, grades)
        return {f"{name}.weight": weight} | ({f"{name}.bias": (1, end, 1)} if bias else {})

    def perceptron(name, start, end):
        weights = {f"{name}.0.weight": (64, start), f"{name}.2.weight": (end, 64)}
        return weights | {f"{name}.0.bias": (64,), f"{name}.2.bias": (end,)}

    def norm(name):
        return {f"{name}.weight": (64,), f"{name}.bias": (64,)}

    shapes = {
        **affine("feature_embedding", 3, 16),
        "feature_embedding_s.weight": (64, 1),
        "feature_embedding_s.bias": (64,),
        **affine("projection", 16, 1),
    }
    for at in range(4):
        own, mlp = f"model.{at}.", f"model.{at}.edge_model_v.mlp."
        shapes |= {
            **affine(own + "v_linear", 32, 16, 4),
            **affine(mlp + "0", 16, 16),
            **affine(mlp + "2", 16, 16),
            **affine(mlp + "4", 16, 16, 4),
            **perceptron(own + "edge_model_s", 144, 64),
            **affine(own + "update_model_v.linear_left", 16, 16),
            **affine(own + "update_model_v.linear_right", 16, 16),
            **affine(own + "update_model_v.linear_out", 32, 16),
            own + "update_model_v.vec_norm.a": (1, 16),
            **perceptron(own + "update_model_s", 64, 64),
            **perceptron(own + "pos_net", 64, 64),
            **norm(own + "mes_norm.scalar_norm"),
            own + "mes_norm.vec_norm.a": (1, 16),
            **norm(own + "update_norm_s"),
        }
        for act in ("1", "3"):
            for lin in ("lin1", "lin2"):
                shapes |= affine(f"{mlp}{act}.{lin}", 16, 16, bias=False)
    model = nn.models.MVNBody()
    assert {key: tuple(x.shape) for key, x in model.state_dict().items()} == shapes
    assert sum(p.numel() for p in model.parameters()) == 144_657
    # Optimisers know parameters by their order.
    names = [name for name, _ in model.named_parameters()]
    parts = [name.split(".")[2] for name in names if name.startswith("model.0.")]
    assert list(dict.fromkeys(parts)) == [
        "v_linear",
        "edge_model_v",
        "edge_model_s",
        "update_model_v",
        "update_model_s",
        "pos_net",
        "mes_norm",
        "update_norm_s",
    ]
    stored = {key: torch.randn(shape) for key, shape in shapes.items()}
    stored["model.0.v_linear.algebra.metric"] = torch.ones(3)
    load_state_dict(model, stored)
    own = model.get_parameter("model.3.pos_net.2.weight")
    assert torch.equal(own, stored["model.3.pos_net.2.weight"])


@pytest.mark.parametrize(
    ("kind", "match", "function"),
    [
        (ValueError, "channels: expected at least 1", lambda: nn.models.MVNBody(2, 0)),
        (ValueError, "layers: expected at least 0", lambda: nn.models.MVNBody(layers=-1)),
        (
            ValueError,
            r"charges: expected \[6\], got \[6, 1\]",
            lambda: network()(given()[0][:, None], *given()[1:], graph()),
        ),
        (
            ValueError,
            "graphs: expected 6 rows",
            lambda: network()(*given(), graph(), Relation(GRAPHS[:5], 2)),
        ),
        (
            TypeError,
            "edges: expected a flashcliff.graphs.Graph",
            lambda: network()(*given(), [RECEIVERS]),
        ),
    ],
)
def test_errors(kind, match, function):
    with pytest.raises(kind, match=match):
        function()
