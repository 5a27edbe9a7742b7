"""Rows of the table of doors: every way into memory, each with tensors that it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from cases import CASES, Case

import flashcliff
from flashcliff import nn, rotors
from flashcliff._derived.table import OPS
from flashcliff.compat import lgatr
from flashcliff.nn import transformer as gt

R3, PGA, STA = flashcliff.Algebra(3), flashcliff.Algebra(3, 0, 1), flashcliff.Algebra(1, 3)


@dataclass(frozen=True)
class Way:
    """A function of tensors, whose first output is compared."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]

    def made(self) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
        torch.manual_seed(0)
        function, tensors = self.make()

        def first(*given: torch.Tensor) -> torch.Tensor:
            out = function(*given)
            return out if isinstance(out, torch.Tensor) else out[0]

        return first, tensors


def operator(case: Case) -> Way:
    """The first case of an operator, in float32."""

    def make() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        tensors = case.tensors(torch.float32)
        return lambda *given: case.run(**dict(zip(tensors, given, strict=True))), tuple(tensors.values())

    return Way(case.name, make)


def layer(name: str, module: Callable[[], Any], *shapes: tuple[int, ...], **options: bool) -> Way:
    return Way(name, lambda: (module().eval(), tuple(map(torch.randn, shapes))), **options)


OPERATORS = list({case.name: operator(case) for case in CASES if case.signature == (3, 0, 0)}.values())
assert {way.name for way in OPERATORS} == {op.name for op in OPS}

LAYERS = [
    layer("EquiLinear", lambda: gt.EquiLinear(STA, 3, 4, 2, 2), (16, 5, 3), (5, 2)),
    layer("EquiLinear alone", lambda: gt.EquiLinear(STA, 3, 4), (16, 5, 3)),
    layer("EquiLayerNorm", lambda: gt.EquiLayerNorm(STA, 3, 2, affine=True), (16, 5, 3), (5, 2)),
    layer("ScalarGate", gt.ScalarGate, (16, 5, 3), (5, 2)),
    layer("SelfAttention", lambda: gt.SelfAttention(PGA, 4, 4, heads=2), (16, 3, 5, 4), (3, 5, 4)),
    layer(
        "multi-query",
        lambda: gt.SelfAttention(STA, 4, 4, heads=2, multi_query=True),
        (16, 3, 5, 4),
        (3, 5, 4),
    ),
    Way("attend", lambda: (gt.attend, tuple(torch.randn(3, 2, 5, 8) for _ in range(3)))),
    layer("GeometricMLP", lambda: gt.GeometricMLP(STA, (4, 8, 4), (2, 4, 2)), (16, 5, 4), (5, 2)),
    Way("exp", lambda: (lambda b: rotors.exp(b, PGA), (torch.randn(6, 3, 4),))),
    Way("log", lambda: (lambda r: rotors.log(r, R3), (rotors.exp(torch.randn(3, 3, 4), R3),))),
    Way("inverse", lambda: (lambda r: rotors.inverse(r, PGA), (torch.randn(8, 3, 4),))),
    Way(
        "interpolate",
        lambda: (lambda a, b: rotors.interpolate(a, b, 0.3, PGA), tuple(torch.randn(2, 8, 3, 4))),
    ),
]


def lgatr_net() -> torch.nn.Module:
    return lgatr.LGATr(
        num_blocks=1,
        in_mv_channels=1,
        out_mv_channels=1,
        hidden_mv_channels=4,
        in_s_channels=3,
        out_s_channels=2,
        hidden_s_channels=8,
        attention={"num_heads": 2},
        mlp={},
    )


def slim_net() -> torch.nn.Module:
    return lgatr.LGATrSlim(
        in_v_channels=1,
        out_v_channels=1,
        hidden_v_channels=4,
        in_s_channels=3,
        out_s_channels=2,
        hidden_s_channels=8,
        num_blocks=1,
        num_heads=2,
    )


def ours() -> torch.nn.Module:
    return gt.GATransformer(PGA, 1, 1, 4, 3, 2, 8, blocks=1, attention={"heads": 2})


NETWORKS = [
    layer("GATransformer", ours, (16, 2, 5, 1), (2, 5, 3)),
    layer("LGATr", lgatr_net, (2, 5, 1, 16), (2, 5, 3)),
    layer("LGATrSlim", slim_net, (2, 5, 1, 4), (2, 5, 3)),
]

MODULES = [
    layer("MVLinear", lambda: nn.MVLinear(R3, 4, 5), (8, 3, 4)),
    layer("SGPNorm", lambda: nn.SGPNorm(R3, 4), (8, 3, 4), (8, 3, 4)),
]

ALL = [*OPERATORS, *LAYERS, *NETWORKS, *MODULES]
