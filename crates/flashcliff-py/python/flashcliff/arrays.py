"""The operators, forward only, on arrays of any library that speaks DLPack: NumPy, JAX, CuPy,
PyTorch and others.

The functions are those of :mod:`flashcliff.functional`, with the same arguments, except that
involutions and duals are of all grades and take no ``grades``; a result is an array of the library
of the first array given. Arrays are read where they lie; those that are not
contiguous in C order are copied by their own library first. On the CPU they are float32 or float64,
on CUDA float16 and bfloat16 too. There are no gradients; under ``jax.jit`` arrays have no memory
yet, so call through ``jax.pure_callback``. On CUDA a call runs on the default stream of the GPU and
waits for it.

>>> import numpy as np
>>> from flashcliff import arrays
>>> x = np.ones((8, 4, 2), dtype=np.float32)
>>> arrays.reverse(x, (3, 0, 0))[7, 0]
array([-1., -1.], dtype=float32)
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from typing import Any

from . import _core
from ._ops import checks, surprises, table
from ._ops.options import gated, linear_map, sides
from .algebra import Algebra, HasAlgebra, as_algebra

__all__ = [
    "clifford_conjugate",
    "commutator_product",
    "dual",
    "exterior_product",
    "fcgp_norm",
    "gate",
    "geometric_product",
    "grade_involution",
    "grade_norm",
    "grade_norms",
    "grade_rms",
    "left_contraction",
    "mv_layer_norm",
    "mv_linear",
    "mv_linear_sgp_norm",
    "mv_silu",
    "norm",
    "product",
    "regressive_product",
    "reverse",
    "right_contraction",
    "sandwich",
    "scalar_product",
    "sgp_norm",
    "steerable_product",
    "undual",
]

Array = Any
AlgebraLike = Algebra | HasAlgebra | tuple[int, int, int]
Grades = Iterable[int] | None

# Kinds of memory, by DLPack.
_CPU, _CUDA, _PINNED = 1, 2, 3

_DTYPES = ("f32", "f64", "bf16", "f16")


def sgp_norm(
    x: Array,
    y: Array,
    weight: Array,
    algebra: AlgebraLike,
    *,
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    left: Grades = None,
    right: Grades = None,
) -> Array:
    """As :func:`flashcliff.functional.sgp_norm`."""
    carried = sides(algebra, left, right)
    options = (*gated(gate, norm, eps), *carried)
    surprises.gates_without_scalars("sgp_norm", gate, *carried)
    return _call(table.SGP_NORM, (x, y, weight), algebra, options)


def fcgp_norm(
    x: Array,
    y: Array,
    weight: Array,
    algebra: AlgebraLike,
    *,
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    left: Grades = None,
    right: Grades = None,
    block_bytes: int | None = None,
) -> Array:
    """As :func:`flashcliff.functional.fcgp_norm`."""
    blocks = checks.block_bytes(block_bytes)
    carried = sides(algebra, left, right)
    options = (*gated(gate, norm, eps), *carried, blocks)
    surprises.gates_without_scalars("fcgp_norm", gate, *carried)
    return _call(table.FCGP_NORM, (x, y, weight), algebra, options)


def mv_linear(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    algebra: AlgebraLike,
    per_grade: bool = True,
    bias_mode: str = "scalar",
    grades: Grades = None,
    weight_layout: str = "out-in-grade",
) -> Array:
    """As :func:`flashcliff.functional.mv_linear`."""
    options = linear_map(algebra, per_grade, bias_mode, grades, weight_layout)
    return _call(table.MV_LINEAR, (x, weight, bias), algebra, options)


def mv_linear_sgp_norm(
    x: Array,
    linear_weight: Array,
    linear_bias: Array | None,
    weight: Array,
    algebra: AlgebraLike,
    *,
    per_grade: bool = True,
    bias_mode: str = "scalar",
    grades: Grades = None,
    weight_layout: str = "out-in-grade",
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    recompute: bool = False,
) -> Array:
    """As :func:`flashcliff.functional.mv_linear_sgp_norm`."""
    linear = linear_map(algebra, per_grade, bias_mode, grades, weight_layout)
    options = (*linear, *gated(gate, norm, eps), checks.flag("recompute", recompute))
    tensors = (x, linear_weight, linear_bias, weight)
    surprises.gates_without_scalars("mv_linear_sgp_norm", gate, linear[2], linear[2])
    return _call(table.MV_LINEAR_SGP_NORM, tensors, algebra, options)


def product(
    x: Array,
    y: Array,
    algebra: AlgebraLike,
    kind: str = "geometric",
    *,
    left: Grades = None,
    right: Grades = None,
) -> Array:
    """As :func:`flashcliff.functional.product`."""
    return _call(
        table.PRODUCT, (x, y), algebra, (checks.word("kind", kind), *sides(algebra, left, right))
    )


def geometric_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """``x y``; see :func:`product`."""
    return product(x, y, algebra, "geometric", left=left, right=right)


def exterior_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """``x ^ y``; see :func:`product`."""
    return product(x, y, algebra, "exterior", left=left, right=right)


def regressive_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """``undual(dual(x) ^ dual(y))``; see :func:`product`."""
    return product(x, y, algebra, "regressive", left=left, right=right)


def left_contraction(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """The part of ``<x>_g <y>_h`` of grade ``h - g``; see :func:`product`."""
    return product(x, y, algebra, "left_contraction", left=left, right=right)


def right_contraction(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """The part of ``<x>_g <y>_h`` of grade ``g - h``; see :func:`product`."""
    return product(x, y, algebra, "right_contraction", left=left, right=right)


def scalar_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """The scalar part of ``x y``; see :func:`product`."""
    return product(x, y, algebra, "scalar", left=left, right=right)


def commutator_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """``(x y - y x) / 2``; see :func:`product`."""
    return product(x, y, algebra, "commutator", left=left, right=right)


def sandwich(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.sandwich`."""
    return _call(table.SANDWICH, (x, y), algebra, sides(algebra, left, right))


def steerable_product(
    x: Array,
    r: Array,
    weight: Array,
    a: Array | None = None,
    l: Array | None = None,  # noqa: E741, the name in the formula
    *,
    algebra: AlgebraLike,
) -> Array:
    """As :func:`flashcliff.functional.steerable_product`."""
    return _call(table.STEERABLE_PRODUCT, (x, r, weight, a, l), algebra, ())


def mv_silu(
    x: Array, a: Array, b: Array, algebra: AlgebraLike, *, invariant: str = "mag2"
) -> Array:
    """As :func:`flashcliff.functional.mv_silu`."""
    return _call(table.MV_SILU, (x, a, b), algebra, (checks.word("invariant", invariant),))


def mv_layer_norm(x: Array, a: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.mv_layer_norm`."""
    return _call(table.MV_LAYER_NORM, (x, a), algebra, ())


def grade_norm(x: Array, a: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.grade_norm`."""
    return _call(table.GRADE_NORM, (x, a), algebra, ())


def grade_rms(
    x: Array, algebra: AlgebraLike, *, norm: str = "invariant", eps: float = 1e-6
) -> Array:
    """As :func:`flashcliff.functional.grade_rms`."""
    options = (checks.word("norm", norm), checks.number("eps", eps))
    return _call(table.GRADE_RMS, (x,), algebra, options)


def gate(x: Array, algebra: AlgebraLike, *, gate: str = "gelu") -> Array:
    """As :func:`flashcliff.functional.gate`."""
    return _call(table.GATE, (x,), algebra, (checks.word("gate", gate),))


def norm(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.norm`."""
    return _call(table.NORM, (x,), algebra, ())


def grade_norms(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.grade_norms`."""
    return _call(table.GRADE_NORMS, (x,), algebra, ())


def reverse(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.reverse`, of all grades."""
    return _call(table.REVERSE, (x,), algebra, ())


def grade_involution(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.grade_involution`, of all grades."""
    return _call(table.GRADE_INVOLUTION, (x,), algebra, ())


def clifford_conjugate(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.clifford_conjugate`, of all grades."""
    return _call(table.CLIFFORD_CONJUGATE, (x,), algebra, ())


def dual(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.dual`, of all grades."""
    return _call(table.DUAL, (x,), algebra, ())


def undual(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.undual`, of all grades."""
    return _call(table.UNDUAL, (x,), algebra, ())


def _call(
    op: table.Op, arrays: tuple[Array | None, ...], algebra: AlgebraLike, options: tuple[Any, ...]
) -> Array:
    core = table.operator(
        op, as_algebra(algebra).name, tuple(a is not None for a in arrays), options
    )
    given = [
        (name, array, lane)
        for name, array, lane, optional in zip(op.names, arrays, op.lanes, op.optional)
        if array is not None or not optional
    ]
    borrowed = [_Borrowed(op.name, name, array) for name, array, _ in given]
    device = borrowed[0].device
    for (name, _, _), other in zip(given, borrowed):
        if other.device != device:
            raise RuntimeError(
                f"{op.name}: expected all arrays on the same device, got `{given[0][0]}` on "
                f"{device} and `{name}` on {other.device}"
            )
    batch = borrowed[0].shape[1:-1]
    views = []
    for (name, _, lane), array in zip(given, borrowed):
        shape = _flat(op.name, name, array.shape, batch) if lane else array.shape
        views.append((array.address, shape, array.dtype))
    # The default stream, without rounding to TF32.
    ordinal = None if device == "cpu" else int(device.removeprefix("cuda:"))
    place = None if ordinal is None else (ordinal, 0, False)
    shape, saved_len, workspace_len = core.plan(views, False, place)
    output = _core.Array([shape[0], *batch, shape[2]], borrowed[0].dtype, ordinal)
    statistics = "f64" if borrowed[0].dtype == "f64" else "f32"
    saved = _core.Array([saved_len], statistics, ordinal)
    workspace = _core.Array([-(-workspace_len // 4)], "f32", ordinal)
    core.forward(
        views,
        output.address,
        saved.address,
        (workspace.address, workspace_len),
        place,
    )
    output.synchronize()
    return _library(given[0][1]).from_dlpack(output)


class _Borrowed:
    """The memory of an array, for as long as this lives."""

    def __init__(self, operator: str, name: str, array: Array) -> None:
        if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
            raise TypeError(
                f"{operator}: `{name}` must be an array with `__dlpack__`, got "
                f"{type(array).__name__}"
            )
        if hasattr(array, "mask") and hasattr(array, "fill_value"):
            # Masked arrays of NumPy hand out their numbers and leave the mask behind.
            raise TypeError(
                f"{operator}: `{name}` must be an array without a mask, got "
                f"{type(array).__name__}; call its `filled()` first"
            )
        try:
            kind, ordinal = (int(number) for number in array.__dlpack_device__())
        except (BufferError, RuntimeError, ValueError) as error:
            raise _unreadable(operator, name, error) from None
        if kind in (_CPU, _PINNED):
            self.device = "cpu"
        elif kind == _CUDA:
            self.device = f"cuda:{ordinal}"
        else:
            raise _core.UnsupportedError(
                f"{operator}: `{name}` must be on the CPU or on CUDA, got device {kind} of DLPack"
            )
        try:
            self._read(array)
            if not self._contiguous:
                self._read(_contiguous(operator, name, array))
        except (BufferError, RuntimeError, TypeError) as error:
            raise _unreadable(operator, name, error) from None
        if self.dtype not in _DTYPES:
            raise TypeError(
                f"{operator}: tensor `{name}`: expected f32, f64, bf16 or f16, got {self.dtype}"
            )

    def _read(self, array: Array) -> None:
        if hasattr(array, "resolve_neg"):
            # A tensor of PyTorch may be a view of the negative, of which capsules say nothing.
            array = array.resolve_neg()
        # The array too: not every library lets its capsules keep the memory.
        self._array = array
        # 1 is the default stream of CUDA.
        stream = {} if self.device == "cpu" else {"stream": 1}
        try:
            self._capsule = array.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:
            self._capsule = array.__dlpack__(**stream)
        self.address, self.shape, self.dtype, _, self._contiguous = _core.read_dlpack(self._capsule)


def _unreadable(operator: str, name: str, error: Exception) -> BufferError:
    """What to raise for an array that its library does not hand out, and why."""
    return BufferError(f"{operator}: cannot read `{name}` by DLPack: {error}")


def _contiguous(operator: str, name: str, array: Array) -> Array:
    """A copy in C order."""
    if hasattr(array, "contiguous"):
        return array.contiguous()
    library = _library(array)
    if hasattr(library, "ascontiguousarray"):
        return library.ascontiguousarray(array)
    raise ValueError(f"{operator}: `{name}` must be contiguous in C order")


def _library(array: Array) -> Any:
    """The module of arrays like this one."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return importlib.import_module(type(array).__module__.partition(".")[0])


def _flat(
    operator: str, name: str, shape: tuple[int, ...], batch: tuple[int, ...]
) -> tuple[int, ...]:
    """The shape with one batch axis."""
    if len(shape) < 2 or shape[1:-1] != batch:
        expected = ", ".join(("blades", *map(str, batch), "channels"))
        raise ValueError(f"{operator}: tensor `{name}` must be [{expected}], got {list(shape)}")
    return shape[0], math.prod(batch), shape[-1]
