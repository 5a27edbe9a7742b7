"""The networks of :mod:`network_cases` as exports take them: items ``[samples, items, token]``, and relations by their targets."""

from __future__ import annotations

import network_cases as networks
import torch
from network_cases import GATR, LGATR, NETWORKS


class Case:
    """A module, whose ``batch`` gives inputs by name and the output, in float64."""

    def __init__(self, make):
        self._make, self.module = make, make().module

    def batch(self, sizes, seed, **more):
        case = self._make(batch=sizes, seed=seed, net=self.module, **more)
        with torch.no_grad():
            given, out = case.given(**case.leaves), case.out(**case.leaves)
        samples = given.pop("samples", None)
        found = {name: getattr(x, "targets", x) for name, x in given.items()}
        found = {name: x if x.is_floating_point() else x.long() for name, x in found.items()}
        if samples is None:
            return found, out
        return {name: x.unflatten(0, (samples, -1)) for name, x in found.items()}, out.unflatten(0, (samples, -1))


def transformer(signature, **options):
    """A transformer of flashcliff, whose parameters are no start values."""
    return Case(lambda **of: networks.transformer(signature, **options, **of))


def tokens(mv, s):
    """Items ``[samples, items, token]``."""
    return networks.tokens(mv, s).unflatten(0, mv.shape[1:-1])


ROTARY = {"attention": {"heads": 2, "rotary": True}}
SHARED = {"attention": {"heads": 2, "multi_query": True}}
STORED = {
    "slim": "slim of 2.0, 3 vectors",
    "conditional": "condition",
    "frames": "frames",
    "hulls": "Hulls",
    "volumes": "Volumes",
    "regression": "Regression",
    "messages": "EGCL 2 0",
    "n-body": "NBody",
    "n-body of MVN": "MVNBody",
    "simplices": "simplices",
    "jets": "jets",
}
CASES = {
    "gatr": lambda: transformer(GATR),
    "lgatr": lambda: transformer(LGATR, affine=True),
    "gatr of rotary positions": lambda: transformer(GATR, **ROTARY),
    "shared keys": lambda: transformer(GATR, **SHARED),
    "euclidean": lambda: transformer((3, 0, 0)),
    "conformal": lambda: transformer((4, 1, 0), blocks=1),
    **{name: lambda own=own: Case(NETWORKS[own]) for name, own in STORED.items()},
}
