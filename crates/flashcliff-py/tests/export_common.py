"""Networks for tests of exports, each with batches and what the module computes for them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from nn_common import disturb, random

from flashcliff import nn
from flashcliff.compat import lgatr
from flashcliff.graphs import Relation
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


def of_points(net, points, dim):
    """A model of CGENN on points."""
    net = disturb(net.double())

    def batch(sizes, seed):
        x = random(sizes[0] * sizes[1], points, dim, seed=seed)
        return {"points": x}, net(x)[None, :, None]

    return Case(net, batch)


def bodies():
    """CGENN's network of charged bodies."""
    net = disturb(nn.models.NBody(8, 2).double())

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
    "frames": frames,
    "hulls": lambda: of_points(nn.models.Hulls(features=8), 16, 5),
    "volumes": lambda: of_points(nn.models.Volumes(features=16), 3, 3),
    "regression": lambda: of_points(nn.models.Regression(width=32), 2, 5),
    "n-body": bodies,
}
