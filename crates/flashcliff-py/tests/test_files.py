"""Networks in files: what is in them, and that the C library computes what the modules do, with their gradients."""

import json
import struct

import c_library
import pytest
import torch
from c_library import needs_library
from nn_common import GRAPHS, RECEIVERS, SENDERS, SIZES, difference, disturb, random, statistics

import flashcliff
from flashcliff import nn
from flashcliff.compat import gatr, lgatr
from flashcliff.compat.lgatr import v1
from flashcliff.graphs import Complexes, Relation
from flashcliff.nn import transformer as gt

GATR, LGATR = (3, 0, 1), (1, 3, 0)
LIMITS = {torch.float64: 1e-12, torch.float32: 2e-5}
KEY = "flashcliff_network"


def network(signature, **options):
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    return disturb(gt.GATransformer(signature, 2, 3, 4, 3, 2, 8, **settings).double())


def tokens(mv, s=None):
    """Items in rows, as the documentation of `save_network` says."""
    mv = mv.movedim(0, -2).flatten(-2)
    return (mv if s is None else torch.cat((mv, s), -1)).flatten(0, 1)


def contents(path):
    """The network and the tensors of a file, read by the rules of safetensors."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    graph = json.loads(header.pop("__metadata__")[KEY])
    types = {"F32": torch.float32, "F64": torch.float64}
    tensors = {}
    for name, own in header.items():
        start, end = (8 + size + at for at in own["data_offsets"])
        found = torch.frombuffer(bytearray(data[start:end]), dtype=types[own["dtype"]])
        tensors[name] = found.view(own["shape"])
    return graph, tensors


@pytest.fixture
def saved(tmp_path):
    """Saves a module, and gives the path."""

    def save(module, **options):
        path = tmp_path / "network.safetensors"
        flashcliff.save_network(module, path, **options)
        return path

    return save


def compare(path, batch, given, out, leaves, dtype=torch.float64, **sequences):
    """Compares the output and all gradients of a file with the output and gradients of a module.

    Args:
        path: the file.
        batch: samples, items, and items of the context.
        given: the inputs of the file by their names, computed from the leaves.
        out: the output of the module, as the file has it.
        leaves: the parameters of the module by their names.
    """
    seed = random(*out.shape, seed=9).to(dtype)
    differentiable = {name: x for name, x in given.items() if x.requires_grad}
    wanted = {**differentiable, **leaves}
    right = torch.autograd.grad(out, list(wanted.values()), seed)
    plain = {name: x.detach() for name, x in given.items()}
    got, grads = c_library.Network(path).run(batch, plain, seed, wanted, **sequences)
    assert difference(got, out) < LIMITS[dtype]
    assert grads.keys() == wanted.keys()
    # Some gradients are zero but for rounding.
    least = 1e-3 * max(w.abs().max() for w in right)
    for (name, g), w in zip(grads.items(), right, strict=True):
        # Parameters of messages have no axes of one element in files.
        assert g.shape == w.shape or "relations" in sequences
        g = g.view(w.shape)
        assert (g - w).abs().max() <= 10 * LIMITS[dtype] * torch.maximum(w.abs().max(), least), name
    alone, _ = c_library.Network(path).run(batch, plain, **sequences)
    assert difference(alone, out) < LIMITS[dtype]


def leaf(x):
    return x.detach().requires_grad_()


def apart(rows, batch, channels, blades=16):
    """Multivectors and scalars of rows, as leaves of a graph that begins with the rows."""
    mv, s = rows.split([blades * channels[0], channels[1]], -1)
    mv = mv.unflatten(-1, (blades, channels[0])).unflatten(0, batch).movedim(-2, 0)
    return mv, s.unflatten(0, batch)


@needs_library
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_networks_run_in_c(signature, dtype, saved):
    options = {"affine": True, "scalar_activation": "gelu"}
    net = network(signature, **options).to(dtype)
    rows = leaf(random(3 * 4, 16 * 2 + 3).to(dtype))
    mv, s = apart(rows, (3, 4), (2, 3))
    given, more = {"tokens": rows}, {}
    if net.geometry.join:
        # A number for each item, so that a wrong order shows.
        given["reference"] = leaf(random(12, seed=1).to(dtype))
        more["reference"] = given["reference"].view(3, 4, 1)
    path = saved(net)
    leaves = dict(net.named_parameters())
    compare(path, (3, 4, 0), given, tokens(*net(mv, s, **more)), leaves, dtype)


@needs_library
def test_masks_and_channels_that_are_seen_again(saved):
    net = network(GATR, reinsert_channels=(1,), reinsert_scalars=(2, 0))
    rows, seen = leaf(random(10, 16 * 2 + 3)), leaf(random(10, 16 + 2, seed=1))
    (mv, s), extra = apart(rows, (2, 5), (2, 3)), apart(seen, (2, 5), (1, 2))
    mask = torch.where(random(2, 1, 5, 5, seed=2) > -0.5, random(2, 1, 5, 5, seed=3), -torch.inf)
    mask, reference = leaf(mask), leaf(random(10, seed=4))
    given = {"tokens": rows, "reference": reference, "extra": seen, "mask": mask}
    path = saved(net, mask=True)
    here = net.linear_in(mv, s)
    for block in net.blocks:
        here = block(*here, *extra, reference.view(2, 5, 1), mask=mask)
    compare(path, (2, 5, 0), given, tokens(*net.linear_out(*here)), dict(net.named_parameters()))
    # The channels are the channels of the input, in their order.
    with torch.no_grad():
        given["extra"] = tokens(mv[..., [1]], s[..., [2, 0]])
        given["reference"] = gt.join_reference(mv).expand(2, 5, 1).flatten()
        got, _ = c_library.Network(path).run((2, 5, 0), {n: x.detach() for n, x in given.items()})
        assert difference(got, tokens(*net(mv, s, mask=mask))) < 1e-12


@needs_library
def test_ragged_batches(saved):
    net = network(GATR, attention={"heads": 2, "rotary": True})
    rows, bounds = leaf(random(7, 35)), (0, 2, 3, 7)
    mv, s = apart(rows, (1, 7), (2, 3))
    reference = leaf(random(7, seed=1))
    out = net(mv, s, reference=reference.view(1, 7, 1), cu_seqlens=torch.tensor(bounds))
    given, leaves = {"tokens": rows, "reference": reference}, dict(net.named_parameters())
    path = saved(net)
    compare(path, (1, 7, 0), given, tokens(*out), leaves, sequences=(bounds, ()))


def layers(signature):
    """Blocks and layers with the channels of their inputs and contexts."""
    attention = {"heads": 2}
    return {
        "linear": (gt.EquiLinear(signature, 2, 5, 3, 4), None),
        "without scalars": (gt.EquiLinear(signature, 2, 5), None),
        "bilinear": (gt.GeometricBilinear(signature, 2, 4, 6, 3, 2), None),
        "mlp": (gt.GeometricMLP(signature, (2, 4, 3), (3, 5, 2)), None),
        "block": (gt.Block(signature, 2, 3, attention=attention), None),
        "self": (gt.SelfAttention(signature, 2, 3, heads=2, out_channels=4, out_scalars=5), None),
        "cross": (gt.CrossAttention(signature, 2, 3, 4, 5, heads=2, joint=False), (4, 5)),
        "conditional": (
            gt.ConditionalBlock(
                signature, 2, 3, 4, 5, attention=attention, cross_attention=attention
            ),
            (4, 5),
        ),
    }


@needs_library
@pytest.mark.parametrize("name", layers(LGATR))
@pytest.mark.parametrize("signature", [GATR, LGATR, (2, 0, 1)], ids=str)
def test_blocks_and_layers_run_in_c(signature, name, saved):
    layer, context = layers(signature)[name]
    layer, blades = disturb(layer.double()), 2 ** sum(signature)
    scalars = 0 if name == "without scalars" else 3
    rows = leaf(random(2 * 3, blades * 2 + scalars))
    mv, s = apart(rows, (2, 3), (2, scalars), blades)
    given, pair = {"tokens": rows}, (mv, s if scalars else None)
    if context is not None:
        given["context"] = leaf(random(2 * 5, blades * context[0] + context[1], seed=1))
        other, other_s = apart(given["context"], (2, 5), context, blades)
        pair = mv, other, s, other_s
    more = {}
    if name in ("bilinear", "mlp", "block", "conditional") and layer.geometry.join:
        given["reference"] = leaf(random(6, seed=2))
        more["reference"] = given["reference"].view(2, 3, 1)
    path = saved(layer)
    out = tokens(*layer(*pair, **more))
    compare(path, (2, 3, 0 if context is None else 5), given, out, dict(layer.named_parameters()))


@needs_library
@pytest.mark.parametrize("vectors", [3, 0])
@pytest.mark.parametrize("library", [lgatr, v1], ids=["2.0", "1.4"])
def test_slim_networks_run_in_c(library, vectors, saved):
    sizes = {"in_v_channels": 2, "out_v_channels": vectors, "hidden_v_channels": 4}
    sizes |= {"in_s_channels": 3, "out_s_channels": 2, "hidden_s_channels": 6}
    net = disturb(library.LGATrSlim(**sizes, num_blocks=2, num_heads=2).double())
    rows = leaf(random(2 * 5, 4 * 2 + 3))
    v, s = apart(rows, (2, 5), (2, 3), 4)
    out, out_s = net(v.movedim(0, -1), s)
    named = {name: p for name, p in net.named_parameters() if p.numel() and p.requires_grad}
    if not vectors:
        # Nothing reads the last vectors. Version 2.0 freezes their map.
        named.pop("blocks.1.mlp.layers.1.weight_v", None)
    compare(saved(net), (2, 5, 0), {"tokens": rows}, tokens(out.movedim(-1, 0), out_s), named)


def blades_last(pair):
    mv, s = pair
    return mv.movedim(0, -1), s


@needs_library
@pytest.mark.parametrize(
    "kind", [gatr.GATr, lgatr.LGATr, v1.LGATr], ids=lambda kind: kind.__module__
)
def test_networks_of_other_packages_run_in_c(kind, saved):
    net = disturb(kind(**SIZES).double())
    rows = leaf(random(2 * 5, 16 * 2 + 3))
    mv, s = blades_last(apart(rows, (2, 5), (2, 3)))
    given, more = {"tokens": rows}, {}
    if kind is gatr.GATr:
        given["reference"] = leaf(random(10, seed=1))
        # The component that joins read is that of e123.
        at = flashcliff.Algebra(3, 0, 1).blade_count - 2
        more["join_reference"] = torch.zeros(2, 5, 1, 16, dtype=torch.float64).index_add(
            -1, torch.tensor([at]), given["reference"].view(2, 5, 1, 1)
        )
    path = saved(net)
    out, out_s = net(mv, s, **more)
    named = {name: p for name, p in net.named_parameters() if p.numel()}
    compare(path, (2, 5, 0), given, tokens(out.movedim(-1, 0), out_s), named)


@needs_library
@pytest.mark.parametrize("ragged", [False, True])
def test_networks_with_a_condition_run_in_c(ragged, saved):
    condition = {"mv_channels_cond": 3, "s_channels_cond": 2, "crossattention": {"num_heads": 2}}
    net = disturb(lgatr.ConditionalLGATr(**SIZES, **condition).double())
    samples, items, others = batch = (1, 8, 6) if ragged else (2, 4, 3)
    rows, context = leaf(random(8, 16 * 2 + 3)), leaf(random(6, 16 * 3 + 2, seed=1))
    mv, s = blades_last(apart(rows, (samples, items), (2, 3)))
    other, other_s = blades_last(apart(context, (samples, others), (3, 2)))
    options, sequences = {}, ((), ())
    if ragged:
        sequences = (0, 3, 8), (0, 4, 6)
        own, keys = map(torch.tensor, sequences)
        options = {
            "attn_kwargs": {"cu_seqlens_q": own, "cu_seqlens_k": own},
            "crossattn_kwargs": {"cu_seqlens_q": own, "cu_seqlens_k": keys},
        }
    out, out_s = net(mv, other, s, other_s, **options)
    given, path = {"tokens": rows, "context": context}, saved(net)
    out = tokens(out.movedim(-1, 0), out_s)
    compare(path, batch, given, out, dict(net.named_parameters()), sequences=sequences)


@needs_library
def test_networks_of_bodies_run_in_c(saved):
    net = disturb(nn.models.NBody(3, 2, dtype=torch.float64))
    graphs = Relation(GRAPHS, 2)
    ends = Relation(RECEIVERS, 6), Relation(SENDERS, 6)
    bodies = leaf(random(6, 1, 7))
    charges, positions, velocities = bodies[:, 0].split([1, 3, 3], -1)
    out = net(charges[:, 0], positions, velocities, ends, graphs).T[..., None]
    named = dict(net.named_parameters())
    more = {"relations": (*ends, graphs)}
    compare(saved(net), (6, 1, 0, 8, 2), {"bodies": bodies}, out, named, **more)


@needs_library
def test_networks_of_jets_run_in_c(saved):
    net = statistics(disturb(nn.models.JetTagger(2, 6, 2, 7, 3, 2, dtype=torch.float64)).eval())
    graphs = Relation(GRAPHS, 2)
    ends = Relation(RECEIVERS, 6), Relation(SENDERS, 6)
    given = {"momenta": leaf(random(6, 1, 4)), "scalars": leaf(random(1, 6, 2, seed=1))}
    out = net(given["momenta"][:, 0], given["scalars"][0], ends, graphs)[None]
    named = dict(net.named_parameters())
    compare(saved(net), (6, 1, 0, 8, 2), given, out, named, relations=(*ends, graphs))


@needs_library
@pytest.mark.parametrize(
    ("model", "points", "dim"),
    [
        (nn.models.Hulls(features=6, products=2), 16, 5),
        (nn.models.Regression(width=7), 2, 5),
        (nn.models.Volumes(features=5, gates=2), 3, 3),
    ],
    ids=lambda own: type(own).__name__,
)
def test_models_of_points_run_in_c(model, points, dim, saved):
    net = disturb(model.double())
    given = leaf(random(6, points, dim))
    named = dict(net.named_parameters())
    out = net(given)[None, :, None]
    compare(saved(net), (6, 1, 0, 0, 0), {"points": given}, out, named, relations=())


@needs_library
def test_networks_on_simplices_run_in_c(saved):
    net = disturb(nn.models.SimplicialHulls(3, 2, 1, dtype=torch.float64))
    own = Complexes([4, 2], [[(0, 1, 2)], [(0, 1)]])
    given = {"kinds": own.kinds(torch.float64)[None], "points": leaf(random(6, 1, 3))}
    out = net(given["points"][:, 0], own)[None, :, None]
    graph, relations = own.graph, [of for _, of in own.relations()]
    more = {"relations": (graph.receivers, graph.senders, own.graphs, *relations)}
    batch = (graph.num_nodes, 1, 0, graph.num_edges, 2, tuple(of.rows for of in own.simplices))
    compare(saved(net), batch, given, out, dict(net.named_parameters()), **more)


@needs_library
@pytest.mark.parametrize("of_nodes", [0, 1])
@pytest.mark.parametrize("scalars", [0, 2])
def test_messages_run_in_c(scalars, of_nodes, saved):
    sizes = {"edge_scalars": scalars, "node_scalars": of_nodes}
    layer = disturb(nn.EGCL((2, 0, 0), 3, **sizes, dtype=torch.float64))
    ends = Relation(RECEIVERS, 6), Relation(SENDERS, 6)
    given = {"nodes": leaf(random(4, 6, 3))}
    if scalars:
        given["edge_scalars"] = leaf(random(1, 8, scalars))
    if of_nodes:
        given["node_scalars"] = leaf(random(1, 6, of_nodes, seed=2))
    own = [None if x is None else x[0] for x in map(given.get, ("edge_scalars", "node_scalars"))]
    out = layer(given["nodes"], ends, *own)
    named = dict(layer.named_parameters())
    compare(saved(layer), (6, 1, 0, 8, 0), given, out, named, relations=ends)


@needs_library
def test_relations_with_wrong_targets_are_refused(saved):
    path = saved(nn.EGCL((2, 0, 0), 3, dtype=torch.float64))
    ends = Relation(RECEIVERS, 6), Relation(SENDERS, 6)
    ends[1].targets[3] = 6
    with pytest.raises(RuntimeError, match="got 6 for row 3"):
        c_library.Network(path).run((6, 1, 0, 8, 0), {"nodes": random(4, 6, 3)}, relations=ends)


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_parameters_are_those_of_the_state_dict(dtype, saved):
    net = network(LGATR, affine=True).to(dtype)
    graph, tensors = contents(saved(net))
    state = net.state_dict()
    assert tensors.keys() == state.keys()
    assert [own["name"] for own in graph["parameters"]] == [
        name for name, _ in sorted(state.items(), key=lambda own: order(graph, own[0]))
    ]
    for name, found in tensors.items():
        assert found.dtype == dtype
        assert torch.equal(found, state[name])
    assert [own["name"] for own in graph["outputs"]] == ["output"]


def order(graph, name):
    return [own["name"] for own in graph["parameters"]].index(name)


def test_parameters_that_modules_share_are_stored_once(saved):
    net = network(LGATR, affine=True)
    net.blocks[0].norm2 = net.blocks[0].norm1
    _, tensors = contents(saved(net))
    assert net.state_dict().keys() - tensors.keys() == {
        "blocks.0.norm2.weight_mv",
        "blocks.0.norm2.weight_s",
    }


def test_training_and_what_is_computed_again_do_not_matter(saved):
    net = network(LGATR, dropout=0.3).eval()
    plain = saved(net).read_bytes()
    other = network(LGATR, dropout=0.3, checkpoint_blocks=True).train()
    other.load_state_dict(net.state_dict())
    assert saved(other).read_bytes() == plain
    for p in net.parameters():
        p.data = p.data.mT.contiguous().mT if p.dim() > 1 else p.data
    assert saved(net).read_bytes() == plain


class Wrapped(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)[0].sum()


class Doubled(gt.GATransformer):
    def forward(self, *given, **more):
        return super().forward(*given, **more)[0] * 2, None


def hooked(net):
    net.register_forward_hook(lambda *_: None)
    return net


def hooked_within(net):
    net.blocks[1].mlp.register_forward_hook(lambda *_: None)
    return net


def parametrised(net):
    torch.nn.utils.parametrizations.weight_norm(net.linear_in, "weight")
    return net


def replaced(net):
    net.forward = lambda x: x
    return net


UNSUPPORTED = {
    "a class of one's own": (Wrapped, "save the module within"),
    "a class with a forward of its own": (
        lambda net: Doubled(LGATR, 1, 1, 4, blocks=1),
        "Doubled, which has a forward of its own",
    ),
    "hooks": (hooked, "it has hooks"),
    "hooks within": (hooked_within, "blocks.1.mlp has hooks"),
    "a parametrization": (parametrised, "linear_in is of the class"),
    "a forward": (replaced, "it has forward as an attribute of its own"),
    "attention in 16 bits": (
        lambda net: network(LGATR, attention={"heads": 2, "dtype": torch.bfloat16}),
        "features of torch.bfloat16",
    ),
    "an option": (
        lambda net: gt.GATransformer(GATR, 1, 1, 4, blocks=1, attention={"heads": 2, "eps": 0.1}),
        "regularisation of distances",
    ),
    "no channels of its own": (lambda net: gt.EquiLayerNorm(LGATR), "knows its channels"),
    "axes of items": (
        lambda net: gatr.AxialGATr(1, 1, 4, 1, 1, 4, {"num_heads": 2}, {}, num_blocks=1),
        "AxialGATr: expected a network",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_has_no_description_is_refused(name, tmp_path):
    make, words = UNSUPPORTED[name]
    with pytest.raises(flashcliff.UnsupportedError, match=words):
        flashcliff.save_network(make(network(LGATR)), tmp_path / "network")
    assert not list(tmp_path.iterdir())


def test_wrong_arguments(tmp_path):
    net, path = network(LGATR), tmp_path / "network"
    with pytest.raises(TypeError, match=r"module: expected a torch.nn.Module"):
        flashcliff.save_network("net", path)
    with pytest.raises(TypeError, match=r"all of torch.float64, got torch.bfloat16"):
        flashcliff.save_network(network(LGATR).bfloat16(), path)
    net.linear_in.float()
    with pytest.raises(TypeError, match=r"got torch.float32, torch.float64"):
        flashcliff.save_network(net, path)
    with pytest.raises(ValueError, match="device meta"):
        flashcliff.save_network(network(LGATR).to("meta"), path)
    with pytest.raises(ValueError, match="mask=False, because there is no attention"):
        flashcliff.save_network(gt.EquiLinear(LGATR, 1, 1), path, mask=True)
    with pytest.raises(FileNotFoundError, match="no/such"):
        flashcliff.save_network(network(LGATR), tmp_path / "no/such/network")
    assert not list(tmp_path.iterdir())
    path.write_text("something else")
    flashcliff.save_network(network(LGATR), path)
    assert contents(path)[1]
