"""Operators, layers and networks, each with the axes of its inputs: the rows of the tables of odd inputs and of determinism.

An axis is a number, ``"b"`` for batch elements, which do not see each other, or ``"n"`` for items, which may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from cases import CASES as OPERATORS
from nn_common import disturb
from torch import Tensor

import flashcliff
from flashcliff import nn, rotors
from flashcliff.compat import cgenn, flash_clifford, gatr, lgatr
from flashcliff.nn import transformer as gt

Axes = tuple[int | str, ...]

SEED = 50
"""A seed for which no squared norm of a grade is so near 0 that 16 bits change its sign, where norms have a kink."""


@dataclass(frozen=True)
class Subject:
    name: str
    make: Callable[[], Callable[..., Any]]
    shapes: tuple[Axes, ...]
    ragged: Callable[..., Any] | None = None
    """The options of a call by the boundaries of a ragged batch, where the first batch element holds all items."""
    ragged_shapes: tuple[Axes, ...] = ()

    def module(self, dtype: torch.dtype, device: str = "cpu") -> Callable[..., Any]:
        torch.manual_seed(0)
        made = self.make()
        if isinstance(made, torch.nn.Module):
            made = disturb(made).eval().to(device, dtype)
        return made

    def inputs(
        self, batch: int, items: int, dtype: torch.dtype = torch.float64, *, ragged: bool = False
    ) -> list[Tensor]:
        sizes = {"b": batch, "n": items}
        shapes = self.ragged_shapes if ragged else self.shapes
        found = []
        for at, axes in enumerate(shapes):
            shape = [sizes.get(axis, axis) for axis in axes]  # type: ignore[call-overload]
            # The first numbers of a larger batch are the numbers of a smaller batch.
            generator = torch.Generator().manual_seed(SEED + at)
            order = sorted(range(len(axes)), key=lambda i: not isinstance(axes[i], str))
            drawn = torch.randn(
                [shape[i] for i in order], generator=generator, dtype=torch.float64
            )
            found.append(drawn.permute(*map(order.index, range(len(axes)))).contiguous().to(dtype))
        return found

    def axis(self, name: str) -> bool:
        return any(name in axes for axes in self.shapes)


def flat(found: Any) -> list[Tensor]:
    """The tensors of a result."""
    if isinstance(found, Tensor):
        return [found]
    return [tensor for part in found if part is not None for tensor in flat(part)]


R3, PGA, STA, CGA = (flashcliff.Algebra(*s) for s in ((3, 0, 0), (3, 0, 1), (1, 3, 0), (4, 1, 0)))


def _operators() -> list[Subject]:
    found = []
    for case in OPERATORS:
        if case.signature != (3, 0, 0):
            continue
        names = list(case.shapes)
        sizes = {"batch": "b", "in": 5, "out": 3}
        shapes = tuple(tuple(sizes.get(a, a) for a in axes) for axes in case.shapes.values())

        def run(*given: Tensor, case: Any = case, names: list[str] = names) -> Tensor:
            return case.run(**dict(zip(names, given, strict=True)))

        found.append(Subject(f"functional.{case.id}", partial(_same, run), shapes))
    return found


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _layers() -> list[Subject]:
    x: Axes = (8, "b", 4)
    one: dict[str, Callable[[], Any]] = {
        "MVLinear": lambda: nn.MVLinear(R3, 4, 3),
        "MVLayerNorm": lambda: nn.MVLayerNorm(R3, 4),
        "MVSiLU": lambda: nn.MVSiLU(R3, 4),
        "MVGate": lambda: nn.MVGate(R3),
        "GradeNorm": lambda: nn.GradeNorm(R3, 4),
        "GradeRMSNorm": lambda: nn.GradeRMSNorm(R3),
        "FlashCliffordLayer": lambda: nn.FlashCliffordLayer(R3, 4),
        "FlashCliffordLayer, fully connected": lambda: nn.FlashCliffordLayer(
            R3, 4, fully_connected=True
        ),
        "SteerableGeometricProduct": lambda: nn.SteerableGeometricProduct(R3, 4),
        "FullyConnectedSteerableGeometricProduct": (
            lambda: nn.FullyConnectedSteerableGeometricProduct(R3, 4, 3)
        ),
    }
    two: dict[str, Callable[[], Any]] = {
        "SGPNorm": lambda: nn.SGPNorm(R3, 4),
        "FCGPNorm": lambda: nn.FCGPNorm(R3, 4, 3),
        "Product": lambda: nn.Product(R3),
        "Sandwich": lambda: nn.Sandwich(R3),
    }
    theirs: Axes = ("b", 4, 8)
    metric = (1.0, 1.0, 1.0)
    of_cgenn: dict[str, Callable[[Any], Any]] = {
        "MVLinear": lambda a: cgenn.MVLinear(a, 4, 3),
        "MVLayerNorm": lambda a: cgenn.MVLayerNorm(a, 4),
        "MVSiLU": lambda a: cgenn.MVSiLU(a, 4),
        "NormalizationLayer": lambda a: cgenn.NormalizationLayer(a, 4),
        "SteerableGeometricProductLayer": lambda a: cgenn.SteerableGeometricProductLayer(a, 4),
        "FullyConnectedSteerableGeometricProductLayer": (
            lambda a: cgenn.FullyConnectedSteerableGeometricProductLayer(a, 4, 3)
        ),
    }
    return [
        *(Subject(f"nn.{name}", make, (x,)) for name, make in one.items()),
        *(Subject(f"nn.{name}", make, (x, x)) for name, make in two.items()),
        Subject("nn.PointEmbedding", lambda: nn.PointEmbedding(R3, 4, 3), (("b", 4, 3),)),
        Subject("nn.CEMLP", lambda: nn.CEMLP(R3, 4, 5, 3), (x,)),
        Subject("nn.models.Hulls", lambda: nn.models.Hulls(6, 4, 2), (("b", 6, 5),)),
        *(
            Subject(f"cgenn.{name}", lambda make=make: make(cgenn.CliffordAlgebra(metric)), (theirs,))
            for name, make in of_cgenn.items()
        ),
        Subject("flash_clifford.Layer", lambda: flash_clifford.Layer(4, 3), (x,)),
    ]


def _rotors() -> list[Subject]:
    def turned(x: Tensor, b: Tensor, weight: Tensor) -> Tensor:
        return rotors.action(x, rotors.exp(b, R3), weight, R3)

    return [
        Subject("rotors.exp", lambda: partial(rotors.exp, algebra=R3), ((3, "b", 2),)),
        Subject(
            "rotors.log",
            lambda: lambda b: rotors.log(rotors.exp(0.5 * b, R3), R3),
            ((3, "b", 2),),
        ),
        Subject(
            "rotors.inverse", lambda: partial(rotors.inverse, algebra=R3), ((4, "b", 2),)
        ),
        Subject(
            "rotors.normalized",
            lambda: partial(rotors.normalized, algebra=R3),
            ((4, "b", 2),),
        ),
        Subject(
            "rotors.interpolate",
            lambda: lambda a, b: rotors.interpolate(rotors.exp(a, R3), rotors.exp(b, R3), 0.3, R3),
            ((3, "b", 2), (3, "b", 2)),
        ),
        Subject("rotors.action", lambda: turned, ((8, "b", 2), (3, 3, 2), (3, 2))),
    ]


def _bounds(name: str) -> Callable[[Tensor], dict[str, Any]]:
    return lambda bounds: {name: bounds}


def _transformers() -> list[Subject]:
    found = []
    for algebra in (PGA, STA, R3, CGA):
        blades, name = algebra.blade_count, algebra.name
        mv, s = (blades, "b", "n", 4), ("b", "n", 3)
        flat_mv, flat_s = (blades, "n", 4), ("n", 3)
        # Points whose weight is near 0 are so far away that 16 bits have no digits for their distances.
        heads = {"heads": 2, "eps": 1.0}

        def add(
            what: str,
            make: Callable[[], Any],
            shapes: tuple[Axes, ...] = (mv, s),
            flattened: tuple[Axes, ...] | None = (flat_mv, flat_s),
            name: str = name,
        ) -> None:
            ragged = None if flattened is None else _bounds("cu_seqlens")
            found.append(
                Subject(f"{what}, {name}", make, shapes, ragged, flattened or ())
            )

        def of(kind: Any, *given: Any, algebra: Any = algebra, **options: Any) -> Callable[[], Any]:
            return lambda: kind(algebra, *given, **options)

        add("EquiLinear", of(gt.EquiLinear, 4, 5, 3, 2), flattened=None)
        add("EquiLayerNorm", of(gt.EquiLayerNorm, 4, 3, affine=True), flattened=None)
        add("SelfAttention", of(gt.SelfAttention, 4, 3, **heads))
        add("SelfAttention, multi-query", of(gt.SelfAttention, 4, 3, multi_query=True, **heads))
        add("SelfAttention, rotary", of(gt.SelfAttention, 4, 3, rotary=True, **heads), flattened=None)
        add(
            "CrossAttention",
            of(_Crossed, 4, 3, 4, 3, **heads),
            (mv, (blades, "b", 6, 4), s, ("b", 6, 3)),
            None,
        )
        network = of(
            gt.GATransformer, 4, 2, 4, 3, 2, 4, blocks=2, attention=heads, affine=True
        )
        add("GATransformer", network)
        if not gt.geometry_of(algebra).join:
            continue
        add(
            "GATransformer, no scalars",
            of(gt.GATransformer, 4, 2, 4, blocks=1, attention=heads),
            (mv,),
            (flat_mv,),
        )
    gate = Subject("ScalarGate", gt.ScalarGate, ((8, "b", 4), ("b", 3)))
    turn = Subject("RotaryEncoding", lambda: gt.RotaryEncoding(8), (("b", "n", 2, 8),))
    return [*found, gate, turn, *_attend()]


class _Crossed(gt.CrossAttention):
    """Takes multivectors first."""

    def forward(self, mv: Tensor, others: Tensor, s: Tensor, others_s: Tensor) -> Any:
        return super().forward(mv, others, s, others_s)


def _attend() -> list[Subject]:
    one = ("b", 2, "n", 8)
    return [
        Subject(
            "attend",
            lambda: gt.attend,
            (one, one, ("b", 2, "n", 12)),
            _bounds("cu_seqlens"),
            ((2, "n", 8), (2, "n", 8), (2, "n", 12)),
        ),
        Subject(
            "attend, one head of keys",
            lambda: gt.attend,
            (one, ("b", 1, 5, 8), ("b", 1, 5, 8)),
        ),
        Subject("attend, causal", lambda: partial(gt.attend, is_causal=True), (one, one, one)),
        Subject(
            "attend, many features",
            lambda: gt.attend,
            (("b", 2, "n", 104),) * 3,
            _bounds("cu_seqlens"),
            ((2, "n", 104),) * 3,
        ),
        Subject(
            "attend, a mask",
            lambda: lambda q, k, v, m: gt.attend(q, k, v, mask=m),
            (one, ("b", 2, 5, 8), ("b", 2, 5, 8), ("b", 1, "n", 5)),
        ),
    ]


def _compat() -> list[Subject]:
    mv, s = ("b", "n", 4, 16), ("b", "n", 3)
    flat_mv, flat_s = ("n", 4, 16), ("n", 3)
    attention, one = {"num_heads": 2}, {"num_heads": 2, "multi_query": True}
    near = {**attention, "normalizer_eps": 1.0}

    def flash(bounds: Tensor) -> dict[str, Any]:
        return {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds}

    def of_gatr(name: str, make: Callable[[], Any], *, is_ragged: bool = True) -> Subject:
        ragged = _bounds("cu_seqlens") if is_ragged else None
        return Subject(f"gatr.{name}", make, (mv, s), ragged, (flat_mv, flat_s))

    vectors, flat_vectors = ("b", "n", 3, 4), ("n", 3, 4)
    conditions = (mv, ("b", 5, 2, 16), s, ("b", 5, 2))
    return [
        of_gatr("EquiLinear", lambda: gatr.EquiLinear(4, 5, 3, 2), is_ragged=False),
        of_gatr("EquiLayerNorm", gatr.EquiLayerNorm, is_ragged=False),
        of_gatr("ScalarGatedNonlinearity", gatr.ScalarGatedNonlinearity, is_ragged=False),
        Subject(
            "gatr.ApplyRotaryPositionalEncoding",
            lambda: gatr.ApplyRotaryPositionalEncoding(8, 1),
            (("b", "n", 2, 8),),
        ),
        of_gatr("GATr", lambda: gatr.GATr(4, 2, 4, 3, 2, 4, near, {}, num_blocks=1)),
        of_gatr(
            "GATr, positions",
            lambda: gatr.GATr(4, 2, 4, 3, 2, 4, {**near, "pos_encoding": True}, {}, num_blocks=1),
            is_ragged=False,
        ),
        Subject(
            "gatr.AxialGATr",
            lambda: gatr.AxialGATr(4, 2, 4, 3, 2, 4, near, {}, num_blocks=2),
            (("b", "n", 3, 4, 16), ("b", "n", 3, 3)),
        ),
        Subject(
            "lgatr.LGATr",
            lambda: lgatr.LGATr(1, 4, 2, 4, 3, 2, 4, attention, {}),
            (mv, s),
            flash,
            ((1, *flat_mv), (1, *flat_s)),
        ),
        Subject(
            "lgatr.LGATr, multi-query",
            lambda: lgatr.LGATr(1, 4, 2, 4, 3, 2, 4, one, {}),
            (mv, s),
        ),
        Subject(
            "lgatr.LGATrSlim",
            lambda: lgatr.LGATrSlim(1, 3, 2, 4, 3, 2, 4, 2),
            (vectors, s),
            flash,
            ((1, *flat_vectors), (1, *flat_s)),
        ),
        Subject(
            "lgatr.ConditionalLGATr",
            lambda: lgatr.ConditionalLGATr(1, 4, 2, 2, 4, 3, 2, 2, 4, attention, attention, {}),
            conditions,
        ),
        Subject(
            "lgatr.ConditionalLGATrSlim",
            lambda: lgatr.ConditionalLGATrSlim(1, 3, 2, 2, 4, 3, 2, 2, 4, 2),
            (vectors, ("b", 5, 2, 4), s, ("b", 5, 2)),
        ),
    ]


SUBJECTS = [*_operators(), *_layers(), *_rotors(), *_transformers(), *_compat()]
