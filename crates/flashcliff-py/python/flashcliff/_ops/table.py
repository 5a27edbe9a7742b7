"""Every operator: its tensors, its options, what its gradient needs. Everything else is derived
from this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from .. import _core
from ..algebra import by_name

PARAMETERS = frozenset(("weight", "bias", "linear_weight", "linear_bias", "a", "b"))
"""The names of inputs without a batch axis."""

CACHED = 256
"""How many operators are kept, of all algebras and options."""

Maker = Callable[..., "_core.Operator"]


@dataclass(frozen=True)
class Option:
    """An option, as the schema of an operator of PyTorch declares it."""

    name: str
    type: str
    default: Any


@dataclass(frozen=True, eq=False)
class Op:
    """An operator of the library."""

    name: str
    tensors: tuple[str, ...]
    """The names of the inputs; those that end in ``?`` may be ``None``."""
    options: tuple[Option, ...]
    make: Maker
    """``make(core algebra, which tensors are given, *options)``."""
    saves: bool = False
    """Whether forward may save sums, or a tensor, for backward."""
    linear: bool = False
    """The gradient needs the gradient of the output alone."""
    reads_output: Callable[..., bool] = field(default=lambda *options: False)
    """Whether backward reads the output, by options. Otherwise it is not kept in memory."""
    autocast: bool = False
    """Under autocast, tensors with a batch axis are cast to its element type. Other operators run
    in the type that their tensors have."""

    names: tuple[str, ...] = field(init=False)
    """The names of the inputs, bare."""
    optional: tuple[bool, ...] = field(init=False)
    """Which inputs may be ``None``."""
    lanes: tuple[bool, ...] = field(init=False)
    """Which inputs have a batch axis; the others are parameters."""
    everything: tuple[bool, ...] = field(init=False)
    """:meth:`given` of all inputs."""

    def __post_init__(self) -> None:
        names = tuple(name.rstrip("?") for name in self.tensors)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "optional", tuple(name.endswith("?") for name in self.tensors))
        object.__setattr__(self, "lanes", tuple(name not in PARAMETERS for name in names))
        object.__setattr__(self, "everything", (True,) * len(names))

    def given(self, tensors: Sequence[Any]) -> tuple[bool, ...]:
        """Which inputs are not ``None``."""
        if True not in self.optional:
            return self.everything
        return tuple(tensor is not None for tensor in tensors)


def present(tensors: Sequence[Any]) -> Sequence[Any]:
    """Those that are not ``None``."""
    for tensor in tensors:
        if tensor is None:
            return [tensor for tensor in tensors if tensor is not None]
    return tensors


@lru_cache(maxsize=CACHED)
def operator(
    op: Op, algebra: str, given: tuple[bool, ...], options: tuple[Any, ...]
) -> _core.Operator:
    """The compiled operator of an algebra and options; made once, unless many others are used
    before the next time."""
    try:
        return op.make(by_name(algebra)._core, given, *options)
    except OverflowError as error:
        raise ValueError(f"{op.name}: an option is out of range: {error}") from None


_GATE = Option("gate", "str", "gelu")
_EPS = Option("eps", "float", 1e-6)
_LEFT = Option("left", "int[]?", None)
_RIGHT = Option("right", "int[]?", None)
_NORM = Option("norm", "str", "invariant")
_GATED = (_GATE, _NORM, _EPS)
_PRODUCT = (*_GATED, _LEFT, _RIGHT)
_LINEAR = (
    Option("per_grade", "bool", True),
    Option("bias_mode", "str", "scalar"),
    Option("grades", "int[]?", None),
    Option("weight_layout", "str", "out-in-grade"),
)


def _with_bias(name: str) -> Maker:
    """Of an operator with the options of a linear map, whose bias comes third."""
    make = getattr(_core.Operator, name)

    def with_bias(core, given, per_grade, bias_mode, *options):
        if bias_mode not in ("scalar", "all"):
            raise ValueError(f"unknown bias mode `{bias_mode}`: expected one of scalar, all")
        return make(core, per_grade, bias_mode if given[2] else None, *options)

    return with_bias


def _steerable_product(core, given):
    return _core.Operator.steerable_product(core, given[3], given[4])


def _plain(name: str) -> Maker:
    make = getattr(_core.Operator, name)
    return lambda core, given, *options: make(core, *options)


def _op(name: str, tensors: str, *options: Option, make: Maker | None = None, **flags: Any) -> Op:
    return Op(name, tuple(tensors.split()), options, make or _plain(name), **flags)


SGP_NORM = _op("sgp_norm", "x y weight", *_PRODUCT, saves=True, autocast=True)
FCGP_NORM = _op(
    "fcgp_norm",
    "x y weight",
    *_PRODUCT,
    Option("block_bytes", "int?", None),
    saves=True,
    autocast=True,
    # The gradient undoes the norm on the output.
    reads_output=lambda gate, norm, *rest: norm != "none",
)
MV_LINEAR = _op(
    "mv_linear",
    "x weight bias?",
    *_LINEAR,
    make=_with_bias("mv_linear"),
    autocast=True,
)
MV_LINEAR_SGP_NORM = _op(
    "mv_linear_sgp_norm",
    "x linear_weight linear_bias? weight",
    *_LINEAR,
    *_GATED,
    Option("recompute", "bool", False),
    make=_with_bias("mv_linear_sgp_norm"),
    saves=True,
    autocast=True,
)
PRODUCT = _op("product", "x y", Option("kind", "str", "geometric"), _LEFT, _RIGHT, autocast=True)
SANDWICH = _op("sandwich", "x y", _LEFT, _RIGHT, autocast=True)
STEERABLE_PRODUCT = _op(
    "steerable_product", "x r weight a? l?", make=_steerable_product, autocast=True
)
MV_SILU = _op("mv_silu", "x a b", Option("invariant", "str", "mag2"))
MV_LAYER_NORM = _op("mv_layer_norm", "x a", saves=True)
GRADE_NORM = _op("grade_norm", "x a")
GRADE_RMS = _op("grade_rms", "x", _NORM, _EPS, saves=True)
GATE = _op("gate", "x", _GATE)
NORM = _op("norm", "x")
GRADE_NORMS = _op("grade_norms", "x")
REVERSE = _op("reverse", "x", linear=True)
GRADE_INVOLUTION = _op("grade_involution", "x", linear=True)
CLIFFORD_CONJUGATE = _op("clifford_conjugate", "x", linear=True)
DUAL = _op("dual", "x", linear=True)
UNDUAL = _op("undual", "x", linear=True)

OPS: tuple[Op, ...] = tuple(value for value in globals().values() if isinstance(value, Op))
"""All operators."""
