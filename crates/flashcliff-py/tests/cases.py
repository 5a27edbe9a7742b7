"""Calls of every operator, with the reference for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import reference
import torch

from flashcliff import functional as F
from flashcliff._derived.choices import CHOICES
from flashcliff._derived.table import OPS
from flashcliff._ops.op import Op, operator

LANES = ("x", "y", "r", "l")


@dataclass(frozen=True)
class Case:
    """An operator with options, and the shapes of its tensors."""

    name: str
    signature: tuple[int, int, int]
    shapes: dict[str, tuple[Any, ...]]
    """Axes: a number, or ``batch``, ``in``, ``out``."""
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def id(self) -> str:
        digits = "".join(map(str, self.signature))
        options = "-".join(str(v).replace(" ", "") for v in self.options.values())
        return "-".join(part for part in (self.name, digits, self.label, options) if part)

    def tensors(self, dtype=torch.float64, device="cpu", batch=6, seed=0, grad=False, params=None):
        """Random tensors, by name."""
        generator = torch.Generator().manual_seed(seed)
        sizes = {"batch": batch, "in": 5, "out": 3}
        result = {}
        for name, axes in self.shapes.items():
            shape = [sizes.get(axis, axis) for axis in axes]
            tensor = torch.randn(shape, generator=generator, dtype=torch.float64)
            lanes = name in LANES
            tensor = tensor.to(device, dtype if lanes or params is None else params)
            result[name] = tensor.requires_grad_(grad)
        return result

    def run(self, **tensors):
        return getattr(F, self.name)(**tensors, algebra=self.signature, **self.options)

    def reference(self, **tensors):
        formula = getattr(reference, self.name, None)
        if formula is not None:
            return formula(self.signature, **tensors, **self.options)
        return self.by_program(**tensors)

    def by_program(self, **tensors):
        """The expressions of the program of an operator without matrix products, which the tests of Rust compare with its reference."""
        options = {option.name: option.default for option in self.op.options} | self.options
        gate = reference.GATES[options["gate"]] if "gate" in options else torch.ones_like
        return reference.of_program(self.core(), options.get("eps", 0.0), gate, **tensors)

    def core(self):
        """The compiled operator."""
        given = tuple(name in self.shapes for name in self.op.names)
        options = [self.options.get(option.name, option.default) for option in self.op.options]
        return operator(self.op, f"cl{''.join(map(str, self.signature))}", given, tuple(options))

    @property
    def op(self) -> Op:
        """The package's entry for the operator."""
        return next(op for op in OPS if op.name == self.name)

    def arguments(self, tensors: dict[str, torch.Tensor]) -> tuple[Any, ...]:
        """The arguments of ``torch.ops.flashcliff``: tensors, algebra, options."""
        given = [tensors.get(name) for name in self.op.names]
        algebra = "cl" + "".join(map(str, self.signature))
        options = [self.options.get(option.name, option.default) for option in self.op.options]
        return (*given, algebra, *(list(o) if isinstance(o, tuple) else o for o in options))

    @property
    def overload(self) -> Callable[..., Any]:
        return getattr(torch.ops.flashcliff, self.name).default


def dispatch(case: Case, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The output, through PyTorch's dispatcher."""
    result = case.overload(*case.arguments(tensors))
    return result[0] if isinstance(result, tuple) else result


def _cases(signature):
    """The cases that are written down, then one of every other operator with each name of each of its choices."""
    named = list(_named(signature))
    yield from named
    for op in OPS:
        if op.name in {case.name for case in named}:
            continue
        core = operator(
            op,
            f"cl{''.join(map(str, signature))}",
            op.everything,
            tuple(option.default for option in op.options),
        )
        shapes = {name: axes for name, (_, axes) in zip(op.names, core.inputs)}
        yield Case(op.name, signature, shapes)
        for option in op.options:
            for name in CHOICES.get(option.name, ()):
                if name != option.default:
                    yield Case(op.name, signature, shapes, {option.name: name})


def _named(signature):
    space = reference.basis(signature)
    blades, grades = len(space.blades), space.dim + 1
    x = (blades, "batch", "in")
    vectors = (space.dim, "batch", "in")
    paths = len(reference.paths(signature))

    def case(name, shapes, label="", **options):
        return Case(name, signature, shapes, options, label)

    weighted = {"x": x, "y": x, "weight": ("in", paths)}
    connected = {"x": x, "y": x, "weight": (paths, "in", "out")}
    yield case("sgp_norm", weighted)
    yield case("sgp_norm", weighted, gate="silu", norm="none")
    vector_paths = len(reference.paths(signature, (1,), (1,)))
    yield case(
        "sgp_norm",
        {"x": vectors, "y": vectors, "weight": ("in", vector_paths)},
        eps=1e-3,
        left=(1,),
        right=(1,),
    )
    yield case("fcgp_norm", connected)
    yield case("fcgp_norm", connected, gate="none", norm="none")
    # On CUDA the product runs in blocks of a few rows.
    yield case("fcgp_norm", connected, block_bytes=3000)
    yield case("mv_linear", {"x": x, "weight": ("out", "in", grades), "bias": ("out",)})
    yield case("mv_linear", {"x": x, "weight": ("out", "in", grades)}, label="no-bias")
    reversed_weight = {"x": x, "weight": (grades, "in", "out"), "bias": ("out",)}
    yield case("mv_linear", reversed_weight, weight_layout="grade_in_out")
    yield case(
        "mv_linear",
        {"x": x, "weight": ("out", "in"), "bias": ("out",)},
        per_grade=False,
        bias_mode="every_blade",
    )
    yield case("mv_linear", {"x": vectors, "weight": ("out", "in", 1)}, grades=(1,))
    square = {"x": x, "linear_weight": ("in", "in", grades), "linear_bias": ("in",)}
    yield case("mv_linear_sgp_norm", {**square, "weight": ("in", paths)})
    reversed_square = {**square, "linear_weight": (grades, "in", "in"), "weight": ("in", paths)}
    yield case(
        "mv_linear_sgp_norm",
        reversed_square,
        bias_mode="every_blade",
        weight_layout="grade_in_out",
        gate="silu",
        recompute=True,
    )
    yield case(
        "mv_linear_sgp_norm",
        {"x": vectors, "linear_weight": ("in", "in", 1), "weight": ("in", vector_paths)},
        linear_bias=None,
        grades=(1,),
        norm="none",
    )
    kinds = "geometric exterior regressive left_contraction right_contraction scalar commutator"
    for kind in kinds.split():
        yield case("product", {"x": x, "y": x}, kind=kind)
    yield case("product", {"x": vectors, "y": x}, kind="geometric", left=(1,))
    yield case("sandwich", {"x": x, "y": x})
    weights = {"weight": ("in", paths), "a": ("in", grades), "l": x}
    for names in ((), ("a",), ("l",), ("a", "l")):
        shapes = {n: s for n, s in weights.items() if n == "weight" or n in names}
        yield case("steerable_product", {"x": x, "r": x, **shapes}, label="".join(names))
    per_grade = ("in", grades)
    yield case("mv_silu", {"x": x, "a": per_grade, "b": per_grade})
    yield case("mv_silu", {"x": x, "a": per_grade, "b": per_grade}, invariant="norm")
    yield case("mv_layer_norm", {"x": x, "a": ("in", 1)})
    yield case("grade_norm", {"x": x, "a": per_grade})
    yield case("grade_rms", {"x": x}, eps=1e-4)
    yield case("grade_rms", {"x": x}, norm="rms")
    yield case("gate", {"x": x}, gate="gelu_tanh")
    for name in "norm grade_norms reverse grade_involution clifford_conjugate dual undual".split():
        yield case(name, {"x": x})


CASES = [case for signature in ((3, 0, 0), (3, 0, 1)) for case in _cases(signature)]
"""Every operator, for a Euclidean and for a degenerate algebra."""

SPACE = [case for case in CASES if case.signature == (3, 0, 0)]
"""Every operator, once."""


def relative_error(got, wanted):
    """The largest difference, relative to the largest expected number."""
    wanted = wanted.detach().to(torch.float64).cpu()
    scale = wanted.abs().max().clamp_min(1e-30)
    return float((got.detach().to(torch.float64).cpu() - wanted).abs().max() / scale)
