"""Layers, what they compute in plain torch, and the transformations that they commute with."""

from itertools import product
from typing import Any, NamedTuple

import nn_reference as reference
import torch

from flashcliff import nn

F64 = {"dtype": torch.float64}
ALL, EUCLIDEAN, NONE = "all versors", "versors of Euclidean space", "none"


class Case(NamedTuple):
    """A layer of an algebra, and its function of a table, inputs in CGENN's layout and parameters by name."""

    make: Any
    want: Any
    inputs: int = 1
    commutes: str = ALL


def of_norm(norm):
    """Root mean squares are Euclidean, so boosts and translations change them."""
    return EUCLIDEAN if norm == "rms" else ALL


def whole(table):
    return torch.ones(3, len(table.paths), dtype=torch.float64)


def linear(per_grade, bias):
    return Case(
        lambda a: nn.MVLinear(a, 3, 4, bias, per_grade=per_grade, **F64),
        lambda t, x, p: reference.linear(t, x, p["weight"], p.get("bias")),
    )


def silu(invariant):
    return Case(
        lambda a: nn.MVSiLU(a, 3, invariant, **F64),
        lambda t, x, p: reference.silu(t, x, p["a"], p["b"], invariant),
    )


def grade_rms(norm):
    return Case(
        lambda a: nn.GradeRMSNorm(a, eps=1e-3, norm=norm),
        lambda t, x, p: reference.NORMS[norm](t, x, 1e-3),
        commutes=of_norm(norm),
    )


def gate(name):
    return Case(lambda a: nn.MVGate(a, name), lambda t, x, p: reference.gate(x, name))


def sgp_norm(gate, norm):
    def want(table, x, y, p):
        z = reference.sgp(table, reference.gate(x, gate), reference.gate(y, gate), p["weight"])
        return reference.NORMS[norm](table, z, 1e-2)

    return Case(lambda a: nn.SGPNorm(a, 3, gate=gate, norm=norm, eps=1e-2, **F64), want, 2, of_norm(norm))


def fcgp_norm(norm):
    def want(table, x, y, p):
        weight = p["weight"].permute(2, 1, 0)
        return reference.NORMS[norm](table, reference.fcgp(table, reference.gate(x), reference.gate(y), weight))

    return Case(lambda a: nn.FCGPNorm(a, 3, 4, norm=norm, **F64), want, 2, of_norm(norm))


def steerable(first_order, init):
    return Case(lambda a: nn.SteerableGeometricProduct(a, 3, first_order, init, **F64), reference.steerable)


def fully_connected(first_order, init):
    return Case(
        lambda a: nn.FullyConnectedSteerableGeometricProduct(a, 3, 4, first_order, init, **F64),
        lambda t, x, p: reference.steerable(t, x, p, fully_connected=True),
    )


def flash_clifford(norm, connected, bias_mode):
    options = {"norm": norm, "fully_connected": connected}
    every_blade = bias_mode == "every_blade"
    return Case(
        lambda a: nn.FlashCliffordLayer(a, 3, bias_mode=bias_mode, **options, **F64),
        lambda t, x, p: reference.flash_layer(t, x, p, every_blade=every_blade, **options),
        commutes=NONE if every_blade else of_norm(norm),
    )


def sandwich(table, x, y, p):
    reverse = (-1.0) ** (table.grades * (table.grades - 1) // 2)
    turned = reference.sgp(table, x, y, whole(table))
    return reference.sgp(table, turned, reverse * x, whole(table))


NORMS, FLAGS = ["none", "rms", "invariant"], [True, False]
FAMILIES = {
    linear: (FLAGS, FLAGS),
    silu: (["mag2", "norm"],),
    grade_rms: (NORMS[1:],),
    gate: (["none", "gelu", "gelu_tanh", "silu", "gelu_fast"],),
    sgp_norm: (["gelu", "silu"], NORMS),
    fcgp_norm: (NORMS,),
    steerable: (FLAGS, [0.0, None]),
    fully_connected: (FLAGS, [0.0, None]),
    flash_clifford: (NORMS, FLAGS, ["scalar", "every_blade", "none"]),
}
LAYERS = {
    "linear, bias on every blade": Case(
        lambda a: nn.MVLinear(a, 3, 4, bias_mode="every_blade", **F64),
        lambda t, x, p: reference.linear(t, x, p["weight"], p["bias"], every_blade=True),
        commutes=NONE,
    ),
    "grade_norm": Case(
        lambda a: nn.GradeNorm(a, 3, 0.5, **F64), lambda t, x, p: reference.grade_norm(t, x, p["a"])
    ),
    "layer_norm": Case(
        lambda a: nn.MVLayerNorm(a, 3, **F64), lambda t, x, p: reference.layer_norm(t, x, p["a"])
    ),
    "product": Case(nn.Product, lambda t, x, y, p: reference.sgp(t, x, y, whole(t)), 2),
    "sandwich": Case(nn.Sandwich, sandwich, 2),
    **{
        " ".join(map(str, (make.__name__, *options))): make(*options)
        for make, choices in FAMILIES.items()
        for options in product(*choices)
    },
}


def commuting(with_what):
    """The names of layers that commute with these transformations and no others."""
    return [name for name, case in LAYERS.items() if case.commutes == with_what]
