"""Networks in files: modules with what a file is given in a call, and what the module computes for it. Hosts of files share the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from nn_common import GRAPHS, RECEIVERS, SENDERS, SIZES, disturb, random, statistics

import flashcliff
from flashcliff import nn
from flashcliff.compat import gatr, lgatr
from flashcliff.compat.lgatr import v1
from flashcliff.graphs import Complexes, Relation
from flashcliff.nn import transformer as gt

GATR, LGATR = (3, 0, 1), (1, 3, 0)


@dataclass
class Case:
    """A module, the leaves of a call, what the file is given for them, and what the module gives as the file has it."""

    module: torch.nn.Module
    leaves: dict[str, torch.Tensor]
    given: Callable
    out: Callable
    batch: tuple
    """The samples, items, items of the context, edges, graphs and rows of other sets, as the C library counts them."""
    exact: bool = True
    """Whether the module itself is one function, whose bits a file must have."""
    mask: bool = False
    """Whether the network is saved with a mask."""

    def to(self, dtype):
        """The same in a type."""
        self.module.to(dtype)
        self.leaves = {name: x.detach().to(dtype).requires_grad_() for name, x in self.leaves.items()}
        return self


def leaf(*shape, seed=0):
    return random(*shape, seed=seed).requires_grad_()


def network(signature, **options):
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    return disturb(gt.GATransformer(signature, 2, 3, 4, 3, 2, 8, **settings).double())


def tokens(mv, s=None):
    """Items in rows, as the documentation of `save_network` says."""
    mv = mv.movedim(0, -2).flatten(-2)
    return (mv if s is None else torch.cat((mv, s), -1)).flatten(0, 1)


def tokens_of(mv, s=None):
    """Items in rows, of multivectors with the blades last."""
    return tokens(mv.movedim(-1, 0), s)


def of_items(net, call, blades=16, sizes=(2, 3), batch=(2, 5), seed=0, layout=tokens, context=None, ragged=None, **more):
    """A case of items with multivectors and scalars.

    Args:
        call: the result of the module, of multivectors, scalars, and the other leaves by their names.
        sizes: the channels of multivectors and scalars; ``context``: the channels of items to attend to, and how many these are.
        layout: rows of multivectors and scalars in the module's own layout.
        ragged: the boundaries of sequences, and the boundaries of the context.
        more: further inputs, by their names, that are leaves.
    """

    def pair(items, channels, seed):
        shape = (batch[0], items, channels[0], blades) if layout is tokens_of else (blades, batch[0], items, channels[0])
        return leaf(*shape, seed=seed), leaf(batch[0], items, channels[1], seed=seed + 1) if channels[1] else None

    leaves = dict(zip(("mv", "s"), pair(batch[1], sizes, seed + 10)))
    others = 0
    if context is not None:
        *channels, others = context
        leaves |= dict(zip(("other", "other_s"), pair(others, channels, seed + 20)))
    leaves = {name: x for name, x in {**leaves, **more}.items() if x is not None}

    def given(mv, s=None, other=None, other_s=None, **rest):
        found = {"tokens": layout(mv, s), **rest}
        if other is not None:
            found["context"] = layout(other, other_s)
        if ragged is None:
            return {**found, "samples": batch[0]}
        return {**found, **dict(zip(("cu_seqlens", "cu_seqlens_key"), map(torch.tensor, ragged)))}

    def out(**own):
        found = call(**own)
        return found if isinstance(found, torch.Tensor) else layout(*found)

    return Case(net, leaves, given, out, (*batch, others))


def transformer(signature, ragged=None, *, batch=(2, 5), seed=0, net=None, mask=None, **options):
    net = net or network(signature, **options)
    batch = (1, ragged[-1]) if ragged else batch
    more = {"cu_seqlens": torch.tensor(ragged)} if ragged else {"mask": mask}
    rows = batch[0] * batch[1]

    def call(mv, s, reference=None):
        # A number for each item, so that a wrong order shows.
        own = {} if reference is None else {"reference": reference.view(*batch, 1)}
        return net(mv, s, **own, **more)

    references = {"reference": leaf(rows, seed=seed + 2)} if net.geometry.join else {}
    of = {"blades": net.geometry.blade_count, "batch": batch, "seed": seed, "ragged": ragged and (ragged,)}
    return of_items(net, call, **of, **references)


def seen_again():
    """A mask, and channels that queries and keys see again: of the input, and of others in their place."""
    net = network(GATR, reinsert_channels=(1,), reinsert_scalars=(2, 0))
    mask = torch.where(random(2, 1, 5, 5, seed=2) > -0.5, random(2, 1, 5, 5, seed=3), -torch.inf)
    # The channels are channels of the input, in their order.
    more = {"reference": leaf(10, seed=4), "mask": mask.requires_grad_()}
    case = of_items(net, lambda mv, s, reference, mask: net(mv, s, reference=reference.view(2, 5, 1), mask=mask), **more)
    given = case.given
    case.given = lambda **own: {**given(**own), "extra": tokens(own["mv"][..., [1]], own["s"][..., [2, 0]])}
    case.mask = True
    return case


def layer(signature, name):
    """A block or a layer by itself."""
    attention, context = {"heads": 2}, (4, 5, 3) if name in ("cross", "conditional") else None
    made = {
        "linear": lambda: gt.EquiLinear(signature, 2, 5, 3, 4),
        "without scalars": lambda: gt.EquiLinear(signature, 2, 5),
        "bilinear": lambda: gt.GeometricBilinear(signature, 2, 4, 6, 3, 2),
        "mlp": lambda: gt.GeometricMLP(signature, (2, 4, 3), (3, 5, 2)),
        "block": lambda: gt.Block(signature, 2, 3, attention=attention),
        "self": lambda: gt.SelfAttention(signature, 2, 3, heads=2, out_channels=4, out_scalars=5),
        "cross": lambda: gt.CrossAttention(signature, 2, 3, 4, 5, heads=2, joint=False),
        "conditional": lambda: gt.ConditionalBlock(
            signature, 2, 3, 4, 5, attention=attention, cross_attention=attention
        ),
    }
    own, more = disturb(made[name]().double()), {}
    if name in ("bilinear", "mlp", "block", "conditional") and own.geometry.join:
        more["reference"] = leaf(10, seed=2)

    def call(mv, s=None, other=None, other_s=None, reference=None):
        pair = (mv, s) if other is None else (mv, other, s, other_s)
        return own(*pair, **({} if reference is None else {"reference": reference.view(2, 5, 1)}))

    sizes = 2, 0 if name == "without scalars" else 3
    return of_items(own, call, 2 ** sum(signature), sizes, context=context, **more)


LAYERS = "linear", "without scalars", "bilinear", "mlp", "block", "self", "cross", "conditional"


def slim(library, vectors, *, batch=(2, 5), seed=0, net=None):
    sizes = {"in_v_channels": 2, "out_v_channels": vectors, "hidden_v_channels": 4}
    sizes |= {"in_s_channels": 3, "out_s_channels": 2, "hidden_s_channels": 6}
    net = net or disturb(library.LGATrSlim(**sizes, num_blocks=2, num_heads=2).double())
    return of_items(net, lambda mv, s: net(mv, s), 4, batch=batch, seed=seed, layout=tokens_of)


def of_package(kind):
    net, more = disturb(kind(**SIZES).double()), {}
    if kind is gatr.GATr:
        more["reference"] = leaf(10, seed=1)

    def call(mv, s, reference=None):
        if reference is None:
            return net(mv, s)
        # The component that joins read is that of e123.
        at = torch.tensor([flashcliff.Algebra(3, 0, 1).blade_count - 2])
        whole = torch.zeros(2, 5, 1, 16).to(reference).index_add(-1, at, reference.view(2, 5, 1, 1))
        return net(mv, s, join_reference=whole)

    return of_items(net, call, layout=tokens_of, **more)


def conditional(ragged, *, batch=(2, 4), seed=0, net=None):
    condition = {"mv_channels_cond": 3, "s_channels_cond": 2, "crossattention": {"num_heads": 2}}
    net = net or disturb(lgatr.ConditionalLGATr(**SIZES, **condition).double())
    bounds, options = ((0, 3, 8), (0, 4, 6)) if ragged else None, {}
    if ragged:
        own, keys = map(torch.tensor, bounds)
        options = {
            "attn_kwargs": {"cu_seqlens_q": own, "cu_seqlens_k": own},
            "crossattn_kwargs": {"cu_seqlens_q": own, "cu_seqlens_k": keys},
        }

    def call(mv, s, other, other_s):
        return net(mv, other, s, other_s, **options)

    batch, others = ((1, 8), 6) if ragged else (batch, batch[1] + 2)
    return of_items(net, call, batch=batch, seed=seed, layout=tokens_of, context=(3, 2, others), ragged=bounds)


def frames(*, batch=(2, 5), seed=0, net=None):
    spacetime = flashcliff.Algebra(1, 3, 0)
    sizes = 2, 3, 4, 3, 3, 12
    net = net or disturb(gt.FrameTransformer(spacetime, *sizes, blocks=2, attention={"heads": 2}).double())
    boosts = 0.3 * random(*batch, 4, 4, seed=seed + 2)
    boosts = (boosts - boosts.mT) * torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
    rows = torch.linalg.matrix_exp(boosts).flatten(0, 1).flatten(1).requires_grad_()

    def call(mv, s, frames):
        return net(mv, s, frames.view(*batch, 4, 4))

    return of_items(net, call, 4, batch=batch, seed=seed, frames=rows)


class Graphs:
    """Nodes and their edges: as in other tests, or of graphs with so many nodes each, three edges for each node."""

    def __init__(self, batch, seed):
        ends, of, self.graphs = (RECEIVERS, SENDERS), GRAPHS, 2
        if batch is not None:
            self.graphs, each = batch
            nodes = self.graphs * each
            ends = torch.randint(0, nodes, (2, 3 * nodes), generator=torch.Generator().manual_seed(seed))
            of = torch.arange(nodes) // each
        self.nodes, self.edges = len(of), len(ends[0])
        self.ends = tuple(Relation(own, self.nodes) for own in ends)
        self.of = Relation(of, self.graphs)

    def case(self, net, leaves, call, of_graphs=True):
        relations = dict(zip(("receivers", "senders", "graphs"), (*self.ends, self.of)[: 3 if of_graphs else 2]))
        sizes = self.nodes, 1, 0, self.edges, self.graphs if of_graphs else 0
        return Case(net, leaves, lambda **own: {**own, **relations}, call, sizes)


def of_points(make, points, dim, *, batch=(2, 3), seed=0, net=None):
    net = net or disturb(make().double())
    rows = batch[0] * batch[1]
    leaves = {"points": leaf(rows, points, dim, seed=seed)}

    def out(points):
        return net(points)[None, :, None]

    # The module calls its layers.
    return Case(net, leaves, lambda points: {"points": points}, out, (rows, 1, 0, 0, 0), False)


def bodies(kind, *sizes, batch=None, seed=0, net=None):
    net = net or disturb(kind(*sizes, dtype=torch.float64))
    own = Graphs(batch, seed)

    def out(bodies):
        charges, positions, velocities = bodies[:, 0].split([1, 3, 3], -1)
        return net(charges[:, 0], positions, velocities, own.ends, own.of).T[..., None]

    return own.case(net, {"bodies": leaf(own.nodes, 1, 7, seed=seed)}, out)


def jets(*, batch=None, seed=0, net=None):
    net = net or statistics(disturb(nn.models.JetTagger(2, 6, 2, 7, 3, 2, dtype=torch.float64)).eval())
    own = Graphs(batch, seed)

    def out(momenta, scalars):
        return net(momenta[:, 0], scalars[0], own.ends, own.of)[None]

    leaves = {"momenta": leaf(own.nodes, 1, 4, seed=seed), "scalars": leaf(1, own.nodes, 2, seed=seed + 1)}
    case = own.case(net, leaves, out)
    case.exact = False
    return case


def messages(edge_scalars, node_scalars, *, batch=None, seed=0, net=None):
    sizes = {"edge_scalars": edge_scalars, "node_scalars": node_scalars}
    net = net or disturb(nn.EGCL((2, 0, 0), 3, **sizes, dtype=torch.float64))
    own = Graphs(batch, seed)
    leaves = {"nodes": leaf(4, own.nodes, 3, seed=seed)}
    if edge_scalars:
        leaves["edge_scalars"] = leaf(1, own.edges, edge_scalars, seed=seed + 1)
    if node_scalars:
        leaves["node_scalars"] = leaf(1, own.nodes, node_scalars, seed=seed + 2)

    def out(nodes, edge_scalars=None, node_scalars=None):
        return net(nodes, own.ends, *(None if x is None else x[0] for x in (edge_scalars, node_scalars)))

    return own.case(net, leaves, out, False)


def simplices(*, batch=(1, 1), seed=0, net=None):
    net = net or disturb(nn.models.SimplicialHulls(3, 2, 1, dtype=torch.float64))
    counts = [4, batch[1] + 1]
    own = Complexes(counts, [[(0, 1, 2)], [(0, 1)]])
    graph = own.graph
    relations = {"receivers": graph.receivers, "senders": graph.senders, "graphs": own.graphs, **dict(own.relations())}
    sizes = graph.num_nodes, 1, 0, graph.num_edges, 2, tuple(of.rows for of in own.simplices)

    def given(points):
        return {"kinds": own.kinds(points.dtype)[None], "points": points, **relations}

    leaves = {"points": leaf(sum(counts), 1, 3, seed=seed)}
    return Case(net, leaves, given, lambda points: net(points[:, 0], own)[None, :, None], sizes)


NETWORKS = {
    "GATr": partial(transformer, GATR, affine=True, scalar_activation="gelu"),
    "L-GATr": partial(transformer, LGATR, affine=True, scalar_activation="gelu"),
    "ragged": partial(transformer, GATR, (0, 2, 3, 7), attention={"heads": 2, "rotary": True}),
    "seen again": seen_again,
    **{
        f"slim of {version}, {vectors} vectors": partial(slim, library, vectors)
        for version, library in (("2.0", lgatr), ("1.4", v1))
        for vectors in (3, 0)
    },
    **{kind.__module__: partial(of_package, kind) for kind in (gatr.GATr, lgatr.LGATr, v1.LGATr)},
    "condition": partial(conditional, False),
    "ragged condition": partial(conditional, True),
    "frames": frames,
    "Hulls": partial(of_points, lambda: nn.models.Hulls(features=8), 16, 5),
    "Regression": partial(of_points, lambda: nn.models.Regression(width=7), 2, 5),
    "Volumes": partial(of_points, lambda: nn.models.Volumes(features=5, gates=2), 3, 3),
    "NBody": partial(bodies, nn.models.NBody, 3, 2),
    "MVNBody": partial(bodies, nn.models.MVNBody, 3, 2, 2),
    "jets": jets,
    "simplices": simplices,
    **{f"EGCL {e} {n}": partial(messages, e, n) for e in (0, 2) for n in (0, 1)},
}
CASES = {
    **NETWORKS,
    **{
        f"{name} {signature}": partial(layer, signature, name)
        for signature in (GATR, LGATR, (2, 0, 1))
        for name in LAYERS
    },
}


def gradients(out, leaves, module, create_graph=False):
    """The gradients of leaves, and of parameters by their names; those that no result depends on are left out. Statistics of norms are
    parameters of files alone."""
    named = ((name, p) for name, p in module.named_parameters() if ".running_" not in name)
    own = {**leaves, **{name: p for name, p in named if p.numel() and p.requires_grad}}
    seed = random(*out.shape, 1, seed=9)[..., 0].to(out)
    found = torch.autograd.grad(out, list(own.values()), seed, create_graph, create_graph, allow_unused=True)
    return {name: g for name, g in zip(own, found) if g is not None}


def compare(got, expected, limit=0.0):
    """Compares gradients, bit for bit without a limit. Gradients of a file have no axes of one element, and no zeros in the place of
    missing gradients."""
    least = 1e-3 * max(g.abs().max() for g in expected.values())
    for name in got.keys() | expected.keys():
        if name not in got or name not in expected:
            assert not {**got, **expected}[name].count_nonzero(), name
            continue
        own, right = got[name].view(expected[name].shape), expected[name]
        # Some gradients are zero but for rounding.
        assert (own - right).abs().max() <= limit * torch.maximum(right.abs().max(), least), name
