"""Networks for tests of exports, each with batches and what the module computes for them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from nn_common import SIZES, disturb, random, statistics

from flashcliff import nn
from flashcliff.compat import lgatr
from flashcliff.graphs import Complexes, Relation
from flashcliff.nn import transformer as gt


class Case(NamedTuple):
    """A module, and a function from a size and a seed to inputs by name and the output, in float64."""

    module: torch.nn.Module
    batch: object


def tokens(mv, s):
    """Items ``[samples, items, token]``."""
    parts = [] if mv is None else [mv.movedim(0, -2).flatten(-2)]
    return torch.cat(parts + ([] if s is None else [s]), -1)


def transformer(signature, **options):
    """A transformer of flashcliff, whose parameters are no start values."""
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    net = disturb(gt.GATransformer(signature, 2, 3, 4, 3, 2, 8, **settings).double())

    def batch(sizes, seed, **more):
        mv = random(2 ** sum(signature), *sizes, 2, seed=seed)
        s = random(*sizes, 3, seed=seed + 1)
        given = {"tokens": tokens(mv, s)}
        if net.geometry.join:
            given["reference"] = random(*sizes, seed=seed + 2)
            more["reference"] = given["reference"][..., None]
        return given, tokens(*net(mv, s, **more))

    return Case(net, batch)


def slim():
    """L-GATr-slim."""
    net = lgatr.LGATrSlim(2, 2, 3, 4, 3, 2, 8, num_heads=2)
    net = disturb(net.double())

    def batch(sizes, seed):
        v, s = random(*sizes, 2, 4, seed=seed), random(*sizes, 3, seed=seed + 1)
        out, out_s = net(v, s)
        forth = (own.movedim(-1, 0) for own in (v, out))
        v, out = forth
        return {"tokens": tokens(v, s)}, tokens(out, out_s)

    return Case(net, batch)


def conditional():
    """L-GATr with a condition: cross-attention to items of another set."""
    condition = {"mv_channels_cond": 3, "s_channels_cond": 2, "crossattention": {"num_heads": 2}}
    net = disturb(lgatr.ConditionalLGATr(**SIZES, **condition).double())

    def batch(sizes, seed):
        samples, items = sizes
        of = {"tokens": (items, 2, 3), "context": (items + 2, 3, 2)}
        parts = {
            name: (
                random(samples, count, mv, 16, seed=seed + at),
                random(samples, count, s, seed=seed + at + 5),
            )
            for at, (name, (count, mv, s)) in enumerate(of.items())
        }
        (mv, s), (other, other_s) = parts.values()
        out, out_s = net(mv, other, s, other_s)
        given = {name: tokens(own.movedim(-1, 0), rest) for name, (own, rest) in parts.items()}
        return given, tokens(out.movedim(-1, 0), out_s)

    return Case(net, batch)


def messages():
    """A layer of messages, whose edges have scalars."""
    layer = disturb(nn.EGCL((2, 0, 0), 3, edge_scalars=2).double())

    def batch(sizes, seed):
        nodes = sizes[0] * sizes[1] + 1
        ends = torch.stack([torch.arange(nodes), torch.arange(nodes).flip(0)])
        # The last node has no messages.
        ends = ends[:, :-1]
        h, scalars = random(4, nodes, 3, seed=seed), random(1, nodes - 1, 2, seed=seed + 1)
        relations = Relation(ends[0], nodes), Relation(ends[1], nodes)
        given = {"nodes": h, "edge_scalars": scalars, "receivers": ends[0], "senders": ends[1]}
        return given, layer(h, relations, scalars[0])

    return Case(layer, batch)


def of_points(net, points, dim):
    """A model of CGENN on points."""
    net = disturb(net.double())

    def batch(sizes, seed):
        x = random(sizes[0] * sizes[1], points, dim, seed=seed)
        return {"points": x}, net(x)[None, :, None]

    return Case(net, batch)


def bodies(net):
    """A network of charged bodies."""
    net = disturb(net.double())

    def batch(sizes, seed):
        graphs, each = sizes
        nodes, edges = graphs * each, 3 * graphs * each
        generator = torch.Generator().manual_seed(seed)
        ends = torch.randint(0, nodes, (2, edges), generator=generator)
        of = torch.arange(nodes) // each
        x = random(nodes, 1, 7, seed=seed)
        relations = [Relation(own, nodes) for own in ends]
        parts = x[:, 0, 0], x[:, 0, 1:4], x[:, 0, 4:]
        out = net(*parts, (relations[0], relations[1]), Relation(of, graphs))
        given = {"bodies": x, "receivers": ends[0], "senders": ends[1], "graphs": of}
        return given, out.T[..., None]

    return Case(net, batch)


def simplices():
    """CSMPN's network on simplicial complexes."""
    net = disturb(nn.models.SimplicialHulls(3, 2, 1).double())

    def batch(sizes, seed):
        counts = [4, sizes[1] + 1]
        own = Complexes(counts, [[(0, 1, 2)], [(0, 1)]])
        points = random(sum(counts), 1, 3, seed=seed)
        graph, rest = own.graph, dict(own.relations())
        given = {"kinds": own.kinds(torch.float64)[None], "points": points}
        relations = {"receivers": graph.receivers, "senders": graph.senders, "graphs": own.graphs}
        given |= {name: of.targets.long() for name, of in (relations | rest).items()}
        return given, net(points[:, 0], own)[None, :, None]

    return Case(net, batch)


def jets():
    """CGENN's network of jets, in evaluation."""
    net = statistics(disturb(nn.models.JetTagger(2, 6, 2, 7, 3, 2).double()).eval())

    def batch(sizes, seed):
        graphs, each = sizes
        nodes = graphs * each
        generator = torch.Generator().manual_seed(seed)
        ends = torch.randint(0, nodes, (2, 3 * nodes), generator=generator)
        of = torch.arange(nodes) // each
        momenta, scalars = random(nodes, 1, 4, seed=seed), random(1, nodes, 2, seed=seed + 1)
        given = {"momenta": momenta, "scalars": scalars}
        given |= {"receivers": ends[0], "senders": ends[1], "graphs": of}
        relations = Relation(ends[0], nodes), Relation(ends[1], nodes)
        return given, net(momenta[:, 0], scalars[0], relations, Relation(of, graphs))[None]

    return Case(net, batch)


def frames():
    """A transformer of plain layers in local frames."""
    net = disturb(
        gt.FrameTransformer((1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}).double()
    )

    def batch(sizes, seed):
        v, s = random(4, *sizes, 2, seed=seed), random(*sizes, 3, seed=seed + 1)
        own = random(*sizes, 4, 4, seed=seed + 2)
        out = net(v, s, frames=own)
        return {"tokens": tokens(v, s), "frames": own.flatten(-2)}, tokens(*out)

    return Case(net, batch)


CASES = {
    "gatr": lambda: transformer((3, 0, 1)),
    "lgatr": lambda: transformer((1, 3, 0), affine=True),
    "gatr of rotary positions": lambda: transformer(
        (3, 0, 1), attention={"heads": 2, "rotary": True}
    ),
    "shared keys": lambda: transformer((3, 0, 1), attention={"heads": 2, "multi_query": True}),
    "euclidean": lambda: transformer((3, 0, 0)),
    "conformal": lambda: transformer((4, 1, 0), blocks=1),
    "slim": slim,
    "conditional": conditional,
    "frames": frames,
    "hulls": lambda: of_points(nn.models.Hulls(features=8), 16, 5),
    "volumes": lambda: of_points(nn.models.Volumes(features=16), 3, 3),
    "regression": lambda: of_points(nn.models.Regression(width=32), 2, 5),
    "messages": messages,
    "n-body": lambda: bodies(nn.models.NBody(8, 2)),
    "n-body of MVN": lambda: bodies(nn.models.MVNBody(6, 4, 2)),
    "simplices": simplices,
    "jets": jets,
}
