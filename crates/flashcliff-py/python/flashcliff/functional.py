"""Differentiable operators on tensors of PyTorch.

Multivectors are ``[blades, *batch, channels]``: any number of batch axes, the same for all
multivectors of a call (there is no broadcasting). They need not be contiguous; those that are not
are copied. Blades are those of the grades that the tensor carries, in the order of
:attr:`flashcliff.Algebra.blades`; which grades, the options ``left``, ``right`` and ``grades`` say,
as an iterable of grades or ``None`` for all. ``algebra`` is a :class:`flashcliff.Algebra` or a
tuple ``(p, q, r)``. In the tables below ``C`` is the number of channels, ``G`` of grades, ``P`` of
paths (:attr:`flashcliff.Algebra.paths`).

Element types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with
parameters of the same type or of float32. Under autocast, products and linear maps take
multivectors in its type on CUDA, and all operators run in float32 on the CPU; float64 stays
float64. On CUDA ``torch.set_float32_matmul_precision``, or
``torch.backends.cuda.matmul.fp32_precision``, governs matrix products of float32.

Every operator is also one of PyTorch (``torch.ops.flashcliff``), and so works with
``torch.compile`` and ``torch.export``. Gradients cannot be differentiated again, except those of
the involutions and duals. There are no derivatives in forward mode, by ``torch.func.grad`` and its
relatives, nor batched gradients (``is_grads_batched``): each raises ``NotImplementedError`` or
:class:`flashcliff.UnsupportedError`, a kind of it. ``torch.func.vmap`` works, one call at a time.

Raises, for all functions: ``ValueError`` for wrong shapes or options, ``TypeError`` for element
types and for options of other types, ``RuntimeError`` for tensors on different devices,
:class:`flashcliff.UnsupportedError` if there is no such operator between the grades or on the
device, or if a tensor is sparse or nested, :class:`flashcliff.CudaError` if CUDA fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ._ops import checks, run, surprises, table
from ._ops.eager import call
from ._ops.options import gated, linear_map, sides
from .algebra import Algebra, HasAlgebra, as_algebra, grades_of

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

AlgebraLike = Algebra | HasAlgebra | tuple[int, int, int]
Grades = Iterable[int] | None


def sgp_norm(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    algebra: AlgebraLike,
    *,
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    left: Grades = None,
    right: Grades = None,
) -> Tensor:
    """The fused steerable geometric product: gates, a weighted geometric product, a norm.

    ``o = norm(sum over paths p of weight[c, p] <<x'>_a <y'>_b>_p)`` with ``x' = gate(x_0) x``,
    ``y'`` alike, and ``norm(o)_g = o_g / sqrt(mean over channels of |o_g|^2 + eps)`` for each grade
    and batch element; ``norm`` says what ``|o_g|^2`` is.

    ========  ================================
    tensor    shape
    ========  ================================
    x, y      ``[blades, *batch, C]``
    weight    ``[C, P]``
    output    ``[reachable blades, *batch, C]``
    ========  ================================

    Args:
        gate: ``none``, ``gelu`` (by the normal distribution function), ``gelu_tanh``, ``silu`` or
            ``sigmoid``. The gate of an operand without scalars is the constant 0.5, so that of two
            vectors multiplies by 0.25; :class:`flashcliff.EquivarianceWarning` says so once.
        norm: ``invariant``, ``rms`` or ``none``. ``invariant`` takes ``|<o_g reverse(o_g)>_0|``, which
            every versor leaves alone, so that the function is equivariant in every algebra. Blades
            with a null vector are left out; the pseudoscalar is taken by its own square; a form of
            both signs is smoothed, ``sqrt(q^2 + eps^2)``, in place of the ``+ eps``. ``rms`` takes the
            sum of the squares of all coefficients, as flash-clifford does: the same, bit for bit,
            where all vectors square to one sign, and **not equivariant** elsewhere, where boosts and
            translations change it.
        eps: added under the root of the mean.
        left: the grades that ``x`` carries.
        right: the grades that ``y`` carries. Kernels are compiled for all grades and for vectors, in
            any combination; the CPU interprets others.

    Source: flash-clifford's ``fused_gelu_sgp_norm``; the product is CGENN's (arXiv 2305.11141, eq.
    10).
    """
    carried = sides(algebra, left, right)
    options = (*gated(gate, norm, eps), *carried)
    _warn_of_gates("sgp_norm", gate, *carried)
    return _call(table.SGP_NORM, (x, y, weight), algebra, options)


def fcgp_norm(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    algebra: AlgebraLike,
    *,
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    left: Grades = None,
    right: Grades = None,
    block_bytes: int | None = None,
) -> Tensor:
    """The fused fully connected geometric product, :func:`sgp_norm` from all channels to all
    channels.

    ``o[m] = norm(sum over n and paths p of weight[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)``

    ========  ==================================
    tensor    shape
    ========  ==================================
    x, y      ``[blades, *batch, in]``
    weight    ``[P, in, out]``, the paths between ``left`` and ``right``
    output    ``[reachable blades, *batch, out]``
    ========  ==================================

    The options are those of :func:`sgp_norm`, with any grades, and

    Args:
        block_bytes: on CUDA the bytes, at least 1, that the path products of a block of rows may
            take, the main part of the workspace; a block has a row in any case. ``None`` takes what
            was tuned, or 256 MiB. Less memory is slower, and gradients of weights are rounded
            otherwise: they are sums from block to block. On the CPU it has no effect.

    Source: flash-clifford's ``fused_gelu_fcgp_norm``; CGENN's fully connected product (arXiv
    2305.11141, section 4).
    """
    blocks = checks.block_bytes(block_bytes)
    carried = sides(algebra, left, right)
    options = (*gated(gate, norm, eps), *carried, blocks)
    _warn_of_gates("fcgp_norm", gate, *carried)
    return _call(table.FCGP_NORM, (x, y, weight), algebra, options)


def mv_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    algebra: AlgebraLike,
    per_grade: bool = True,
    bias_mode: str = "scalar",
    grades: Grades = None,
    weight_layout: str = "out-in-grade",
) -> Tensor:
    """The linear map of channels, with a matrix for each grade: ``o[m] = sum over n of weight[m, n,
    grade] x[n] + bias``.

    ========  ==========================================================
    tensor    shape
    ========  ==========================================================
    x         ``[blades, *batch, in]``
    weight    ``[out, in, grades of x]``, or ``[out, in]`` without ``per_grade``;
              reversed with ``weight_layout="grade-in-out"``
    bias      ``[out]``, or ``None``
    output    ``[blades, *batch, out]``
    ========  ==========================================================

    Args:
        per_grade: a matrix for each grade, or one for all.
        bias_mode: ``scalar`` adds the bias to the scalar blade, which keeps the map equivariant;
            ``all`` to every blade, which does not, and is there for flash-clifford's weights.
        grades: the grades that ``x`` carries.
        weight_layout: ``out-in-grade`` as in CGENN or ``grade-in-out`` as in flash-clifford, which on
            CUDA saves a copy of larger weights.

    Source: CGENN's ``MVLinear`` (arXiv 2305.11141, section 4).
    """
    options = linear_map(algebra, per_grade, bias_mode, grades, weight_layout)
    return _call(table.MV_LINEAR, (x, weight, bias), algebra, options)


def mv_linear_sgp_norm(
    x: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor,
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
) -> Tensor:
    """:func:`sgp_norm` of ``x`` with a linear map of it, flash-clifford's layer, in one call:
    ``sgp_norm(x, y, weight)`` of ``y = mv_linear(x, linear_weight, linear_bias)``.

    =============  ==========================================================
    tensor         shape
    =============  ==========================================================
    x              ``[blades, *batch, C]``
    linear_weight  ``[C, C, grades of x]``, or ``[C, C]`` without ``per_grade``;
                   grades first with ``weight_layout="grade-in-out"``
    linear_bias    ``[C]``, or ``None``
    weight         ``[C, P]``
    output         ``[reachable blades, *batch, C]``
    =============  ==========================================================

    The gradient of ``x`` takes no pass to add that of the map to that of the product. Everything
    else is what the two functions in turn give, bit for bit.

    Args:
        per_grade: as for :func:`mv_linear`.
        bias_mode: as for :func:`mv_linear`.
        grades: the grades that ``x`` carries, and so ``y``: all, or the vectors.
        weight_layout: as for :func:`mv_linear`.
        gate: as for :func:`sgp_norm`.
        norm: as for :func:`sgp_norm`.
        eps: as for :func:`sgp_norm`.
        recompute: what becomes of ``y`` where gradients are needed. By default it is kept for
            backward; otherwise backward computes it again, by one more product of matrices, which
            saves the memory of a tensor like ``x``.

    Source: flash-clifford's ``Layer``.
    """
    linear = linear_map(algebra, per_grade, bias_mode, grades, weight_layout)
    options = (*linear, *gated(gate, norm, eps), checks.flag("recompute", recompute))
    tensors = (x, linear_weight, linear_bias, weight)
    _warn_of_gates("mv_linear_sgp_norm", gate, linear[2], linear[2])
    return _call(table.MV_LINEAR_SGP_NORM, tensors, algebra, options)


def product(
    x: Tensor,
    y: Tensor,
    algebra: AlgebraLike,
    kind: str = "geometric",
    *,
    left: Grades = None,
    right: Grades = None,
) -> Tensor:
    """A plain product, channel by channel, from ``[blades, *batch, C]`` twice to ``[reachable
    blades, *batch, C]``.

    Args:
        kind: ``geometric``, ``exterior``, ``regressive``, ``left_contraction``,
            ``right_contraction``, ``scalar`` or ``commutator``.
        left: the grades that ``x`` carries.
        right: the grades that ``y`` carries. Kernels are compiled for all grades and for vectors, in
            any combination; the CPU interprets others.
    """
    return _call(
        table.PRODUCT, (x, y), algebra, (checks.word("kind", kind), *sides(algebra, left, right))
    )


def geometric_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``x y``; see :func:`product`."""
    return product(x, y, algebra, "geometric", left=left, right=right)


def exterior_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``x ^ y``; see :func:`product`."""
    return product(x, y, algebra, "exterior", left=left, right=right)


def regressive_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``undual(dual(x) ^ dual(y))``; see :func:`product`."""
    return product(x, y, algebra, "regressive", left=left, right=right)


def left_contraction(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """The part of ``<x>_g <y>_h`` of grade ``h - g``; see :func:`product`."""
    return product(x, y, algebra, "left_contraction", left=left, right=right)


def right_contraction(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """The part of ``<x>_g <y>_h`` of grade ``g - h``; see :func:`product`."""
    return product(x, y, algebra, "right_contraction", left=left, right=right)


def scalar_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """The scalar part of ``x y``, without a reverse; see :func:`product`."""
    return product(x, y, algebra, "scalar", left=left, right=right)


def commutator_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``(x y - y x) / 2``; see :func:`product`."""
    return product(x, y, algebra, "commutator", left=left, right=right)


def sandwich(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``x y reverse(x)``, the action of a unit versor ``x`` on ``y`` up to a sign.

    For an even versor, a rotor, it is the action. For an odd versor, such as a reflection, it is the
    action with the odd grades of ``y`` negated: a unit vector ``n`` with ``n n = 1`` keeps ``n`` and
    negates the vectors at right angles to it, where the reflection does the reverse. The action is
    ``sandwich(x, grade_involution(y))`` then. With ``x reverse(x) = -1`` all grades are negated, and
    otherwise the result is scaled by ``x reverse(x)``.

    From ``[blades, *batch, C]`` twice to ``[reachable blades, *batch, C]``. Kernels are
    compiled for all grades, and for rotors (the even grades) on vectors; the CPU interprets others.
    """
    return _call(table.SANDWICH, (x, y), algebra, sides(algebra, left, right))


def steerable_product(
    x: Tensor,
    r: Tensor,
    weight: Tensor,
    a: Tensor | None = None,
    l: Tensor | None = None,  # noqa: E741, the name in the formula
    *,
    algebra: AlgebraLike,
) -> Tensor:
    """CGENN's weighted product between its linear maps: ``z = sum over paths p of weight[c, p]
    <<x>_a <r>_b>_p``.

    With ``a``, ``r`` is normalised first as by :func:`grade_norm`. With ``l``, the output is ``(l +
    z) / sqrt 2``, else ``z``.

    ===============  =======================
    tensor           shape
    ===============  =======================
    x, r, l, output  ``[blades, *batch, C]``
    weight           ``[C, P]``
    a                ``[C, G]``
    ===============  =======================

    Source: CGENN's ``SteerableGeometricProductLayer`` (arXiv 2305.11141, section 3.3).
    """
    return _call(table.STEERABLE_PRODUCT, (x, r, weight, a, l), algebra, ())


def mv_silu(
    x: Tensor, a: Tensor, b: Tensor, algebra: AlgebraLike, *, invariant: str = "mag2"
) -> Tensor:
    """CGENN's gated nonlinearity: ``o_g = sigmoid(a_g u_g + b_g) x_g``, ``u_0`` the scalar
    component and ``u_g`` an invariant of the grade.

    ``x`` is ``[blades, *batch, C]``, ``a`` and ``b`` are ``[C, G]``.

    Args:
        invariant: ``mag2``, the quadratic form of the grade, or ``norm``, its smooth norm.

    Source: CGENN's ``MVSiLU``.
    """
    return _call(table.MV_SILU, (x, a, b), algebra, (checks.word("invariant", invariant),))


def mv_layer_norm(x: Tensor, a: Tensor, algebra: AlgebraLike) -> Tensor:
    """CGENN's layer norm: ``o = a x / (mean over channels of |x| + 1e-6)``, ``|x|`` by
    :func:`norm`.

    ``x`` is ``[blades, *batch, C]``, ``a`` is ``[C, 1]``.

    Source: CGENN's ``MVLayerNorm``.
    """
    return _call(table.MV_LAYER_NORM, (x, a), algebra, ())


def grade_norm(x: Tensor, a: Tensor, algebra: AlgebraLike) -> Tensor:
    """CGENN's normalisation: ``o_g = x_g / (s (|x_g| - 1) + 1 + 1e-6)``, ``s = sigmoid(a_g)``,
    ``|x_g|`` by :func:`grade_norms`.

    ``x`` is ``[blades, *batch, C]``, ``a`` is ``[C, G]``.

    Source: CGENN's ``NormalizationLayer`` (arXiv 2305.11141, section 4).
    """
    return _call(table.GRADE_NORM, (x, a), algebra, ())


def grade_rms(
    x: Tensor, algebra: AlgebraLike, *, norm: str = "invariant", eps: float = 1e-6
) -> Tensor:
    """The norm of :func:`sgp_norm`: ``o_g = x_g / sqrt(mean over channels of |x_g|^2 + eps)`` for
    each grade and batch element; ``norm``, ``invariant`` or ``rms``, says what ``|x_g|^2`` is. ``x`` is
    ``[blades, *batch, C]``."""
    options = (checks.word("norm", norm), checks.number("eps", eps))
    return _call(table.GRADE_RMS, (x,), algebra, options)


def gate(x: Tensor, algebra: AlgebraLike, *, gate: str = "gelu") -> Tensor:
    """The gate of :func:`sgp_norm`: ``o = gate(x_0) x``. ``x`` is ``[blades, *batch, C]``."""
    return _call(table.GATE, (x,), algebra, (checks.word("gate", gate),))


def norm(x: Tensor, algebra: AlgebraLike) -> Tensor:
    """The smooth norm, ``(q^2 + 1e-16)^(1/4)``, ``q`` the scalar part of ``reverse(x) x``; from
    ``[blades, *batch, C]`` to ``[1, *batch, C]``."""
    return _call(table.NORM, (x,), algebra, ())


def grade_norms(x: Tensor, algebra: AlgebraLike) -> Tensor:
    """The smooth norm of each grade (:func:`norm`), from ``[blades, *batch, C]`` to ``[G, *batch,
    C]``."""
    return _call(table.GRADE_NORMS, (x,), algebra, ())


def reverse(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The reverse: grade ``k`` times ``(-1)^(k(k-1)/2)``. ``x`` is ``[blades, *batch, C]``."""
    return _unary(table.REVERSE, x, algebra, grades)


def grade_involution(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The grade involution: grade ``k`` times ``(-1)^k``. ``x`` is ``[blades, *batch, C]``."""
    return _unary(table.GRADE_INVOLUTION, x, algebra, grades)


def clifford_conjugate(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The Clifford conjugate: grade ``k`` times ``(-1)^(k(k+1)/2)``. ``x`` is ``[blades, *batch,
    C]``."""
    return _unary(table.CLIFFORD_CONJUGATE, x, algebra, grades)


def dual(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The dual without a metric: ``e_a ^ dual(e_a) = I``. ``x`` is ``[blades, *batch, C]``.

    It commutes with rotations of the coordinates, those among vectors of the same square, and with
    reflections of them up to the sign -1. Boosts and translations act on a vector and on its
    complement in different ways: a layer that mixes a multivector with its dual is not equivariant
    under them. The regressive product of two multivectors is, up to the sign of reflections."""
    return _unary(table.DUAL, x, algebra, grades)


def undual(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The inverse of :func:`dual`, and as equivariant. ``x`` is ``[blades, *batch, C]``."""
    return _unary(table.UNDUAL, x, algebra, grades)


def _call(
    op: table.Op, tensors: tuple[Any, ...], algebra: AlgebraLike, options: tuple[Any, ...]
) -> Tensor:
    """Runs an operator over any batch axes."""
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor) and (tensor is not None or not op.optional[index]):
            raise TypeError(
                f"{op.name}: `{op.names[index]}` must be a torch.Tensor, got "
                f"{type(tensor).__name__}"
            )
    name = algebra.name if type(algebra) is Algebra else as_algebra(algebra).name
    if tensors[0].dim() == 3:
        return call(op, tensors, name, options)
    run.refuse_layouts(op.name, op.names, tensors)
    batch = tensors[0].shape[1:-1]
    flat = tuple(
        _flatten(op.name, op.names[index], tensor, batch)
        if op.lanes[index] and tensor is not None
        else tensor
        for index, tensor in enumerate(tensors)
    )
    output = call(op, flat, name, options)
    return output.reshape(output.shape[0], *batch, output.shape[-1])


def _warn_of_gates(
    operator: str, gate: str, left: tuple[int, ...] | None, right: tuple[int, ...] | None
) -> None:
    if (left is not None or right is not None) and not torch.compiler.is_compiling():
        surprises.gates_without_scalars(operator, gate, left, right)


def _flatten(operator: str, name: str, tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    """One batch axis."""
    if tensor.dim() < 2 or tensor.shape[1:-1] != batch:
        expected = ", ".join(("blades", *map(str, batch), "channels"))
        raise ValueError(
            f"{operator}: tensor `{name}` must be [{expected}], got {list(tensor.shape)}"
        )
    return tensor.unsqueeze(1) if tensor.dim() == 2 else tensor.flatten(1, -2)


def _unary(op: table.Op, x: Tensor, algebra: AlgebraLike, grades: Grades) -> Tensor:
    """An involution or a dual; of some grades by way of all."""
    if grades is None:
        return _call(op, (x,), algebra, ())
    algebra = as_algebra(algebra)
    carried = grades_of(algebra, "grades", grades) or ()
    dim = algebra.dim
    sizes = [math.comb(dim, grade) for grade in range(dim + 1)]
    count = sum(sizes[grade] for grade in carried)
    if not isinstance(x, Tensor):
        raise TypeError(f"{op.name}: `x` must be a torch.Tensor, got {type(x).__name__}")
    if x.dim() < 2 or x.shape[0] != count:
        raise ValueError(
            f"{op.name}: tensor `x` must be [{count}, *batch, channels], got {list(x.shape)}"
        )
    # Without an index, which would be copied from the host.
    given = iter(x.split([sizes[grade] for grade in carried]))
    parts = [
        next(given) if grade in carried else x.new_zeros((sizes[grade], *x.shape[1:]))
        for grade in range(dim + 1)
    ]
    output = _call(op, (torch.cat(parts),), algebra, ()).split(sizes)
    dual = op in (table.DUAL, table.UNDUAL)
    reached = sorted(dim - grade for grade in carried) if dual else carried
    return torch.cat([output[grade] for grade in reached])
