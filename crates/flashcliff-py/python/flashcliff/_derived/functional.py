# Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.
"""The functions of :mod:`flashcliff.functional`, which documents them together."""

from __future__ import annotations

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from .._ops import checks
from .._ops.tensors import call, unary, warn_of_gates
from ..algebra import AlgebraLike, Grades, grades_of
from . import table

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

    ``o = norm(sum over paths p of weight[c, p] <<x'>_a <y'>_b>_p), x' = gate(x_0) x, y' alike``

    Paths are in lexicographic order of (left, output, right). Saved for the backward pass: one sum
    per output grade and batch element.

    The norm sums squares of the product. In ``f32`` the sum over the blades of a grade and all
    channels of a batch element must stay below 3.4e38: products up to ``1.8e19 / sqrt(blades C)``,
    which operands of some 1e8 have. Beyond it the grade is 0, or not a number where the squares
    have both signs: scale the weights.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    weight  ``[C, paths]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        gate: The gate on both operands: every blade times a function of the scalar component.
            An operand without scalars is gated by the constant ``gate(0)``, 0.5 for all gates but
            ``none``. ``none``: no gate; ``gelu``: ``(1 + erf(x / sqrt 2)) / 2``; the scalar part of
            the result is then GELU of the scalar; ``gelu_tanh``: the tanh form of GELU,
            ``(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2``; ``silu``: ``1 / (1 + exp(-x))``;
            ``gelu_fast``: the fast form of GELU, ``1 / (1 + exp(-1.702 x))``.
        norm: The norm of the result, for each grade and batch element:
            ``o_g / sqrt(mean over channels of |o_g|^2 + eps)``, where the option says what
            ``|o_g|^2`` is. ``none``: no norm; ``rms``: the sum of the squares of all coefficients,
            as in flash-clifford. It equals ``invariant``, bit for bit, if all vectors square to the
            same sign. In other algebras it is not equivariant: boosts and translations change it;
            ``invariant``: ``|<o_g reverse(o_g)>_0|``, which no versor changes, so that the operator
            is equivariant in every algebra. Blades with a null vector are left out; the
            pseudoscalar is measured by its own square; where the quadratic form ``q`` can be
            negative, ``sqrt(q^2 + eps^2)`` replaces ``|q| + eps``.
        eps: Added under the root of the mean; where the quadratic form can be negative, it
            smooths the magnitude instead.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, an unknown name, grades that the algebra lacks, a negative or
            infinite ``eps``.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor, grades without a product.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with
      ``weight`` in the same type or float32. Autocast casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r); with ``norm="rms"`` all versors, Pin(p, q, r) where
      all vectors square to one sign, orthogonal versors, O(p) x O(q) elsewhere.
    - Source: flash-clifford's ``fused_gelu_sgp_norm``; the product is CGENN's (arXiv 2305.11141,
      section 4), gate and norm are flash-clifford's.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> weight = torch.ones(1, 10)  # [C, paths]
        >>> F.sgp_norm(x, y, weight, (2, 0, 0)).flatten()
        tensor([1.0000, 0.8192, 0.5735, 1.0000])
    """
    if not is_dynamo_compiling() and (native := table.SGP_NORM.native) is not None:
        output = native(x, y, weight, algebra, gate, norm, eps, left, right)
        if output is not None:
            return output
    options = (
        checks.choice("gate", gate),
        checks.choice("norm", norm),
        checks.number("eps", eps),
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
    )
    warn_of_gates("sgp_norm", options[0], options[3], options[4])
    return call(table.SGP_NORM, (x, y, weight), algebra, options)


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
    """The fused fully connected geometric product: :func:`sgp_norm` from all channels to all
    channels.

    ``o[m] = norm(sum over n and paths p of weight[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)``

    There is one matrix product for each path, whose left operand is formed from ``x`` and ``y``
    block by block. Saved for the backward pass: one sum per output grade and batch element.

    The range of the norm is that of :func:`sgp_norm`, here of sums over ``n``.

    ======  ===================================
    tensor  shape
    ======  ===================================
    x       ``[blades of left, *batch, in]``
    y       ``[blades of right, *batch, in]``
    weight  ``[paths, in, out]``
    output  ``[reachable blades, *batch, out]``
    ======  ===================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        gate: The gate on both operands: every blade times a function of the scalar component.
            An operand without scalars is gated by the constant ``gate(0)``, 0.5 for all gates but
            ``none``. ``none``: no gate; ``gelu``: ``(1 + erf(x / sqrt 2)) / 2``; the scalar part of
            the result is then GELU of the scalar; ``gelu_tanh``: the tanh form of GELU,
            ``(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2``; ``silu``: ``1 / (1 + exp(-x))``;
            ``gelu_fast``: the fast form of GELU, ``1 / (1 + exp(-1.702 x))``.
        norm: The norm of the result, for each grade and batch element:
            ``o_g / sqrt(mean over channels of |o_g|^2 + eps)``, where the option says what
            ``|o_g|^2`` is. ``none``: no norm; ``rms``: the sum of the squares of all coefficients,
            as in flash-clifford. It equals ``invariant``, bit for bit, if all vectors square to the
            same sign. In other algebras it is not equivariant: boosts and translations change it;
            ``invariant``: ``|<o_g reverse(o_g)>_0|``, which no versor changes, so that the operator
            is equivariant in every algebra. Blades with a null vector are left out; the
            pseudoscalar is measured by its own square; where the quadratic form ``q`` can be
            negative, ``sqrt(q^2 + eps^2)`` replaces ``|q| + eps``.
        eps: Added under the root of the mean; where the quadratic form can be negative, it
            smooths the magnitude instead.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        block_bytes: On CUDA the bytes that the path products of a block of rows may take, the
            main part of the workspace; a block has a row in any case. ``None`` takes what was
            tuned, or 256 MiB. Less memory is slower, and gradients of weights are rounded in
            another order: they are sums from block to block. On the CPU it has no effect.

    Raises:
        ValueError: A shape, an unknown name, grades that the algebra lacks, a negative or
            infinite ``eps``, ``block_bytes`` below 1.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with
      ``weight`` in the same type or float32. Autocast casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU, tuning table, version of cuBLASLt and
      ``block_bytes``.
    - Derivatives: every order, reverse and forward mode; all but the first gradient are composed of
      PyTorch operations.
    - Commutes with: all versors, Pin(p, q, r); with ``norm="rms"`` all versors, Pin(p, q, r) where
      all vectors square to one sign, orthogonal versors, O(p) x O(q) elsewhere.
    - Source: flash-clifford's ``fused_gelu_fcgp_norm``; CGENN's fully connected product (arXiv
      2305.11141, section 4).

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 9.0).reshape(4, 1, 2)  # [blades of left, *batch, in]
        >>> y = torch.arange(9.0, 17.0).reshape(4, 1, 2)  # [blades of right, *batch, in]
        >>> weight = torch.ones(10, 2, 1)  # [paths, in, out]
        >>> F.fcgp_norm(x, y, weight, (2, 0, 0)).flatten()
        tensor([1.0000, 0.8500, 0.5267, 1.0000])
    """
    if not is_dynamo_compiling() and (native := table.FCGP_NORM.native) is not None:
        output = native(x, y, weight, algebra, gate, norm, eps, left, right, block_bytes)
        if output is not None:
            return output
    options = (
        checks.choice("gate", gate),
        checks.choice("norm", norm),
        checks.number("eps", eps),
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
        checks.block_bytes(block_bytes),
    )
    warn_of_gates("fcgp_norm", options[0], options[3], options[4])
    return call(table.FCGP_NORM, (x, y, weight), algebra, options)


def mv_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    algebra: AlgebraLike,
    per_grade: bool = True,
    bias_mode: str = "scalar",
    grades: Grades = None,
    weight_layout: str = "out_in_grade",
) -> Tensor:
    """The linear map of channels, with a matrix for each grade.

    ``o[m] = sum over n of weight[m, n, grade] x[n] (+ bias[m])``

    Without ``per_grade`` the weight is ``[out, in]``; the layout ``grade_in_out`` reverses its
    axes.

    ======  ===================================
    tensor  shape
    ======  ===================================
    x       ``[blades of grades, *batch, in]``
    weight  ``[out, in, grades]``
    bias    ``[out]``, or ``None``
    output  ``[blades of grades, *batch, out]``
    ======  ===================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        per_grade: A matrix for each grade, or one for all.
        bias_mode: The bias. ``scalar``: on the scalar blade, which keeps the map equivariant;
            ``every_blade``: on every blade, which is not equivariant and is there for
            flash-clifford's weights.
        grades: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        weight_layout: The order of the axes of the weight of the linear map. ``out_in_grade``:
            ``[out, in, grades]``, as in CGENN; ``grade_in_out``: ``[grades, in, out]``, as in
            flash-clifford; on CUDA it saves a copy of larger weights.

    Raises:
        ValueError: A shape, an unknown name, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor, a scalar bias for grades without
            0.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with
      ``weight`` and ``bias`` in the same type or float32. Autocast casts multivectors to its type
      on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU, tuning table and version of cuBLASLt.
    - Derivatives: every order, reverse and forward mode; all but the first gradient are composed of
      PyTorch operations.
    - Commutes with: all versors, Pin(p, q, r); with ``bias_mode="every_blade"`` no transformation.
    - Source: CGENN's ``MVLinear`` (arXiv 2305.11141, section 4).

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 9.0).reshape(4, 1, 2)  # [blades of grades, *batch, in]
        >>> weight = torch.ones(1, 2, 3)  # [out, in, grades]
        >>> bias = torch.ones(1)  # [out]
        >>> F.mv_linear(x, weight, bias, algebra=(2, 0, 0)).flatten()
        tensor([ 4.,  7., 11., 15.])
    """
    if not is_dynamo_compiling() and (native := table.MV_LINEAR.native) is not None:
        output = native(x, weight, bias, algebra, per_grade, bias_mode, grades, weight_layout)
        if output is not None:
            return output
    options = (
        checks.flag("per_grade", per_grade),
        checks.choice("bias_mode", bias_mode),
        None if grades is None else grades_of(algebra, "grades", grades),
        checks.choice("weight_layout", weight_layout),
    )
    return call(table.MV_LINEAR, (x, weight, bias), algebra, options)


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
    weight_layout: str = "out_in_grade",
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    recompute: bool = False,
) -> Tensor:
    """The gated product of ``x`` with a linear map of it: flash-clifford's layer.

    ``o = sgp_norm(x, y, weight), y = mv_linear(x, linear_weight, linear_bias)``

    Without ``per_grade`` the weight of the map is ``[C, C]``; the layout ``grade_in_out`` puts
    grades first.

    Saved for the backward pass: ``y`` in the type of ``x``, and one sum per output grade and batch
    element. With ``recompute`` the sums alone: ``y`` is then in the workspace of each pass. The
    range of the norm is that of :func:`sgp_norm`.

    The output, and all gradients but that of ``x``, are the same bits as of the two operators in
    turn. In the backward pass the linear map adds to the gradient of ``x`` in place. This saves a
    pass over memory; that gradient may differ in its last bits.

    =============  =================================
    tensor         shape
    =============  =================================
    x              ``[blades of grades, *batch, C]``
    linear_weight  ``[C, C, grades]``
    linear_bias    ``[C]``, or ``None``
    weight         ``[C, paths]``
    output         ``[reachable blades, *batch, C]``
    =============  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        per_grade: A matrix for each grade, or one for all.
        bias_mode: The bias. ``scalar``: on the scalar blade, which keeps the map equivariant;
            ``every_blade``: on every blade, which is not equivariant and is there for
            flash-clifford's weights.
        grades: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        weight_layout: The order of the axes of the weight of the linear map. ``out_in_grade``:
            ``[out, in, grades]``, as in CGENN; ``grade_in_out``: ``[grades, in, out]``, as in
            flash-clifford; on CUDA it saves a copy of larger weights.
        gate: The gate on both operands: every blade times a function of the scalar component.
            An operand without scalars is gated by the constant ``gate(0)``, 0.5 for all gates but
            ``none``. ``none``: no gate; ``gelu``: ``(1 + erf(x / sqrt 2)) / 2``; the scalar part of
            the result is then GELU of the scalar; ``gelu_tanh``: the tanh form of GELU,
            ``(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2``; ``silu``: ``1 / (1 + exp(-x))``;
            ``gelu_fast``: the fast form of GELU, ``1 / (1 + exp(-1.702 x))``.
        norm: The norm of the result, for each grade and batch element:
            ``o_g / sqrt(mean over channels of |o_g|^2 + eps)``, where the option says what
            ``|o_g|^2`` is. ``none``: no norm; ``rms``: the sum of the squares of all coefficients,
            as in flash-clifford. It equals ``invariant``, bit for bit, if all vectors square to the
            same sign. In other algebras it is not equivariant: boosts and translations change it;
            ``invariant``: ``|<o_g reverse(o_g)>_0|``, which no versor changes, so that the operator
            is equivariant in every algebra. Blades with a null vector are left out; the
            pseudoscalar is measured by its own square; where the quadratic form ``q`` can be
            negative, ``sqrt(q^2 + eps^2)`` replaces ``|q| + eps``.
        eps: Added under the root of the mean; where the quadratic form can be negative, it
            smooths the magnitude instead.
        recompute: Whether the backward pass computes ``y`` again, by one more product of
            matrices, instead of reading it from what the forward pass saved.

    Raises:
        ValueError: A shape, an unknown name, grades that the algebra lacks, a negative or
            infinite ``eps``.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor, a scalar bias for grades without
            0.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with
      ``linear_weight``, ``linear_bias`` and ``weight`` in the same type or float32. Autocast casts
      multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU, tuning table and version of cuBLASLt.
    - Derivatives: every order, reverse and forward mode; all but the first gradient are composed of
      PyTorch operations.
    - Commutes with: all versors, Pin(p, q, r); with ``norm="rms"`` all versors, Pin(p, q, r) where
      all vectors square to one sign, orthogonal versors, O(p) x O(q) elsewhere; with
      ``bias_mode="every_blade"`` no transformation.
    - Source: flash-clifford's ``Layer``.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of grades, *batch, C]
        >>> linear_weight = torch.ones(1, 1, 3)  # [C, C, grades]
        >>> linear_bias = torch.ones(1)  # [C]
        >>> weight = torch.ones(1, 10)  # [C, paths]
        >>> F.mv_linear_sgp_norm(x, linear_weight, linear_bias, weight, (2, 0, 0)).flatten()
        tensor([-1.0000,  0.5547,  0.8321,  1.0000])
    """
    if not is_dynamo_compiling() and (native := table.MV_LINEAR_SGP_NORM.native) is not None:
        output = native(
            x,
            linear_weight,
            linear_bias,
            weight,
            algebra,
            per_grade,
            bias_mode,
            grades,
            weight_layout,
            gate,
            norm,
            eps,
            recompute,
        )
        if output is not None:
            return output
    options = (
        checks.flag("per_grade", per_grade),
        checks.choice("bias_mode", bias_mode),
        None if grades is None else grades_of(algebra, "grades", grades),
        checks.choice("weight_layout", weight_layout),
        checks.choice("gate", gate),
        checks.choice("norm", norm),
        checks.number("eps", eps),
        checks.flag("recompute", recompute),
    )
    warn_of_gates("mv_linear_sgp_norm", options[4], options[2], options[2])
    return call(table.MV_LINEAR_SGP_NORM, (x, linear_weight, linear_bias, weight), algebra, options)


def steerable_product(
    x: Tensor,
    r: Tensor,
    weight: Tensor,
    a: Tensor | None = None,
    l: Tensor | None = None,  # noqa: E741, the name in the formula
    *,
    algebra: AlgebraLike,
) -> Tensor:
    """CGENN's weighted geometric product, as it stands between its linear maps.

    ``o = (l + z) / sqrt 2, z = sum over paths p of weight[c, p] <<x>_a <r'>_b>_p, r' = grade_norm(r, a)``

    Without ``l`` the output is ``z``; without ``a`` the right operand is ``r`` itself.

    ======  ====================================
    tensor  shape
    ======  ====================================
    x       ``[blades, *batch, C]``
    r       ``[blades, *batch, C]``
    weight  ``[C, paths]``
    a       ``[C, grades]``, or ``None``
    l       ``[blades, *batch, C]``, or ``None``
    output  ``[blades, *batch, C]``
    ======  ====================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.

    Raises:
        ValueError: A shape.
        TypeError: An element type, tensors of several types.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with
      ``weight`` and ``a`` in the same type or float32. Autocast casts multivectors to its type on
      CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: CGENN's ``SteerableGeometricProductLayer`` (arXiv 2305.11141, section 4).

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> r = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> weight = torch.ones(1, 10)  # [C, paths]
        >>> a = torch.ones(1, 3)  # [C, grades]
        >>> l = torch.arange(9.0, 13.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.steerable_product(x, r, weight, a, l, algebra=(2, 0, 0)).flatten()
        tensor([ 6.8953,  9.5289, 10.6154, 12.6102])
    """
    if not is_dynamo_compiling() and (native := table.STEERABLE_PRODUCT.native) is not None:
        output = native(x, r, weight, a, l, algebra)
        if output is not None:
            return output
    return call(table.STEERABLE_PRODUCT, (x, r, weight, a, l), algebra, ())


def product(
    x: Tensor,
    y: Tensor,
    algebra: AlgebraLike,
    kind: str = "geometric",
    *,
    left: Grades = None,
    right: Grades = None,
) -> Tensor:
    """A product of ``x`` and ``y`` without weights, channel by channel.

    Only terms between the grades of the operands are computed, and only reachable blades are
    written. Where no blade can be reached, as by the commutator in one dimension, the output has
    all blades and is zero.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        kind: Which product. ``geometric``: ``x y``; ``exterior``: ``x ^ y``; ``regressive``:
            ``undual(dual(x) ^ dual(y))``; ``left_contraction``: the part of ``<x>_g <y>_h`` of
            grade ``h - g``; ``right_contraction``: the part of ``<x>_g <y>_h`` of grade ``g - h``;
            ``scalar``: the scalar part of ``x y``, without a reverse; ``commutator``:
            ``(x y - y x) / 2``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, an unknown name, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r); :func:`regressive_product` even versors, Spin(p, q,
      r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.product(x, y, (2, 0, 0)).flatten()
        tensor([ 6., 20., 14., 24.])
    """
    if not is_dynamo_compiling() and (native := table.PRODUCT.native) is not None:
        output = native(x, y, algebra, kind, left, right)
        if output is not None:
            return output
    options = (
        checks.choice("kind", kind),
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
    )
    return call(table.PRODUCT, (x, y), algebra, options)


def geometric_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``x y``; one kind of :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.geometric_product(x, y, (2, 0, 0)).flatten()
        tensor([ 6., 20., 14., 24.])
    """
    return product(x, y, algebra, "geometric", left=left, right=right)


def exterior_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``x ^ y``; one kind of :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.exterior_product(x, y, (2, 0, 0)).flatten()
        tensor([ 5., 16., 22., 24.])
    """
    return product(x, y, algebra, "exterior", left=left, right=right)


def regressive_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``undual(dual(x) ^ dual(y))``; one kind of :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: even versors, Spin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.regressive_product(x, y, (2, 0, 0)).flatten()
        tensor([24., 40., 52., 32.])
    """
    return product(x, y, algebra, "regressive", left=left, right=right)


def left_contraction(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """The part of ``<x>_g <y>_h`` of grade ``h - g``; one kind of :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.left_contraction(x, y, (2, 0, 0)).flatten()
        tensor([  6., -18.,  23.,   8.])
    """
    return product(x, y, algebra, "left_contraction", left=left, right=right)


def right_contraction(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """The part of ``<x>_g <y>_h`` of grade ``g - h``; one kind of :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.right_contraction(x, y, (2, 0, 0)).flatten()
        tensor([ 6., 38., -9., 20.])
    """
    return product(x, y, algebra, "right_contraction", left=left, right=right)


def scalar_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """The scalar part of ``x y``, without a reverse; one kind of :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.scalar_product(x, y, (2, 0, 0)).flatten()
        tensor([6.])
    """
    return product(x, y, algebra, "scalar", left=left, right=right)


def commutator_product(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """``(x y - y x) / 2``; one kind of :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2,
      3, 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine
      Development, volume 1 (2016), chapter 4.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.commutator_product(x, y, (2, 0, 0)).flatten()
        tensor([ 4., -8., -4.])
    """
    return product(x, y, algebra, "commutator", left=left, right=right)


def sandwich(
    x: Tensor, y: Tensor, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Tensor:
    """The sandwich ``x y reverse(x)``: for a unit versor ``x`` its action on ``y``, up to a sign.

    For an even versor, a rotor, it is the action. For an odd versor, such as a reflection, it is
    the action with the odd grades of ``y`` negated: a unit vector ``n`` with ``n n = 1`` keeps
    ``n`` and negates the vectors at right angles to it, where the reflection does the reverse. The
    action is then the sandwich of ``x`` with :func:`grade_involution` of ``y``. In both cases the
    result is multiplied by the number ``x reverse(x)``, which is 1 or -1 for a unit versor.

    The output has the blades of the grades that ``x y`` times ``x`` can reach and whose sign under
    the reverse is that of a grade of ``y``, in ascending order: more than ``y`` has if ``x`` is not
    a versor. Python's ``Algebra.reachable("sandwich", left, right)`` and
    ``cayley::Algebra::reachable_by_sandwich`` list them. Blades of these grades whose terms cancel
    are zeros. Where no grade can be reached, the output has all blades and is zero, as that of
    :func:`product`.

    ======  =================================
    tensor  shape
    ======  =================================
    x       ``[blades of left, *batch, C]``
    y       ``[blades of right, *batch, C]``
    output  ``[reachable blades, *batch, C]``
    ======  =================================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        left: The grades that ``x`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.
        right: The grades that ``y`` carries. Its tensor holds the blades of these grades only.
            ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast
      casts multivectors to its type on CUDA.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 7.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades of left, *batch, C]
        >>> y = torch.arange(5.0, 9.0).reshape(4, 1, 1)  # [blades of right, *batch, C]
        >>> F.sandwich(x, y, (2, 0, 0)).flatten()
        tensor([184., 160., -96.,  32.])
    """
    if not is_dynamo_compiling() and (native := table.SANDWICH.native) is not None:
        output = native(x, y, algebra, left, right)
        if output is not None:
            return output
    options = (
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
    )
    return call(table.SANDWICH, (x, y), algebra, options)


def reverse(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The reverse: grade ``k`` times ``(-1)^(k(k-1)/2)``.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        grades: The grades that ``x`` carries; ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order, reverse and forward mode; the operator is linear, so those above the
      first are zero.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 2;
      ``beta`` in CGENN's code.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.reverse(x, (2, 0, 0)).flatten()
        tensor([ 1.,  2.,  3., -4.])
    """
    if (
        grades is None and not is_dynamo_compiling()
        and (native := table.REVERSE.native) is not None
    ):
        output = native(x, algebra)
        if output is not None:
            return output
    return unary(table.REVERSE, x, algebra, grades)


def grade_involution(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The grade involution: grade ``k`` times ``(-1)^k``.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        grades: The grades that ``x`` carries; ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order, reverse and forward mode; the operator is linear, so those above the
      first are zero.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 2;
      ``alpha`` in CGENN's code.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.grade_involution(x, (2, 0, 0)).flatten()
        tensor([ 1., -2., -3.,  4.])
    """
    if (
        grades is None and not is_dynamo_compiling()
        and (native := table.GRADE_INVOLUTION.native) is not None
    ):
        output = native(x, algebra)
        if output is not None:
            return output
    return unary(table.GRADE_INVOLUTION, x, algebra, grades)


def clifford_conjugate(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The Clifford conjugate: grade ``k`` times ``(-1)^(k(k+1)/2)``.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        grades: The grades that ``x`` carries; ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order, reverse and forward mode; the operator is linear, so those above the
      first are zero.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: The grade involution of the reverse; ``gamma`` in CGENN's code.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.clifford_conjugate(x, (2, 0, 0)).flatten()
        tensor([ 1., -2., -3., -4.])
    """
    if (
        grades is None and not is_dynamo_compiling()
        and (native := table.CLIFFORD_CONJUGATE.native) is not None
    ):
        output = native(x, algebra)
        if output is not None:
            return output
    return unary(table.CLIFFORD_CONJUGATE, x, algebra, grades)


def dual(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The dual without a metric, the right complement: ``e_a ^ dual(e_a) = I``.

    It commutes with rotations among vectors of the same square. Reflections along such vectors
    change its sign. Boosts and translations act on a vector and on its complement in different
    ways: a layer that mixes a multivector with its dual is not equivariant under them. The
    regressive product of two multivectors is equivariant, up to a sign under reflections.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        grades: The grades that ``x`` carries; ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order, reverse and forward mode; the operator is linear, so those above the
      first are zero.
    - Commutes with: even versors, Spin(p, q, r) where all vectors square to one sign, orthogonal
      versors of determinant 1 elsewhere.
    - Source: Lengyel, Foundations of Game Engine Development, volume 1 (2016), chapter 4: the right
      complement.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.dual(x, (2, 0, 0)).flatten()
        tensor([ 4., -3.,  2.,  1.])
    """
    if grades is None and not is_dynamo_compiling() and (native := table.DUAL.native) is not None:
        output = native(x, algebra)
        if output is not None:
            return output
    return unary(table.DUAL, x, algebra, grades)


def undual(x: Tensor, algebra: AlgebraLike, *, grades: Grades = None) -> Tensor:
    """The inverse of :func:`dual`, the left complement; both commute with the same transformations.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        grades: The grades that ``x`` carries; ``None`` is all of them.

    Raises:
        ValueError: A shape, grades that the algebra lacks.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order, reverse and forward mode; the operator is linear, so those above the
      first are zero.
    - Commutes with: even versors, Spin(p, q, r) where all vectors square to one sign, orthogonal
      versors of determinant 1 elsewhere.
    - Source: Lengyel, Foundations of Game Engine Development, volume 1 (2016), chapter 4: the left
      complement.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.undual(x, (2, 0, 0)).flatten()
        tensor([ 4.,  3., -2.,  1.])
    """
    if grades is None and not is_dynamo_compiling() and (native := table.UNDUAL.native) is not None:
        output = native(x, algebra)
        if output is not None:
            return output
    return unary(table.UNDUAL, x, algebra, grades)


def grade_rms(
    x: Tensor, algebra: AlgebraLike, *, norm: str = "invariant", eps: float = 1e-6
) -> Tensor:
    """The norm of :func:`sgp_norm`, for each grade and batch element, over channels.

    ``o_g = x_g / sqrt(mean over channels of |x_g|^2 + eps)``

    In ``f32`` the sum of the squares of a grade, over its blades and all channels of a batch
    element, must stay below 3.4e38: numbers up to ``1.8e19 / sqrt(blades C)``. Beyond it the grade
    is 0, or not a number where the squares have both signs.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        norm: The form of ``|x_g|^2``. ``rms``: the sum of the squares of all coefficients, as
            in flash-clifford. It equals ``invariant``, bit for bit, if all vectors square to the
            same sign. In other algebras it is not equivariant: boosts and translations change it;
            ``invariant``: ``|<o_g reverse(o_g)>_0|``, which no versor changes, so that the operator
            is equivariant in every algebra. Blades with a null vector are left out; the
            pseudoscalar is measured by its own square; where the quadratic form ``q`` can be
            negative, ``sqrt(q^2 + eps^2)`` replaces ``|q| + eps``.
        eps: Added under the root of the mean; where the quadratic form can be negative, it
            smooths the magnitude instead.

    Raises:
        ValueError: A shape, an unknown name, a negative or infinite ``eps``.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r); with ``norm="rms"`` all versors, Pin(p, q, r) where
      all vectors square to one sign, orthogonal versors, O(p) x O(q) elsewhere.
    - Source: flash-clifford.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.grade_rms(x, (2, 0, 0)).flatten()
        tensor([1.0000, 0.5547, 0.8321, 1.0000])
    """
    if not is_dynamo_compiling() and (native := table.GRADE_RMS.native) is not None:
        output = native(x, algebra, norm, eps)
        if output is not None:
            return output
    options = (
        checks.choice("norm", norm),
        checks.number("eps", eps),
    )
    return call(table.GRADE_RMS, (x,), algebra, options)


def gate(x: Tensor, algebra: AlgebraLike, *, gate: str = "gelu") -> Tensor:
    """The gate of :func:`sgp_norm`: every blade times a function of the scalar component.

    ``o = gate(x_0) x``

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        gate: The function of the scalar component that multiplies every blade. ``none``: no
            gate; ``gelu``: ``(1 + erf(x / sqrt 2)) / 2``; the scalar part of the result is then
            GELU of the scalar; ``gelu_tanh``: the tanh form of GELU,
            ``(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2``; ``silu``: ``1 / (1 + exp(-x))``;
            ``gelu_fast``: the fast form of GELU, ``1 / (1 + exp(-1.702 x))``.

    Raises:
        ValueError: A shape, an unknown name.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: flash-clifford.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.gate(x, (2, 0, 0)).flatten()
        tensor([0.8413, 1.6827, 2.5240, 3.3654])
    """
    if not is_dynamo_compiling() and (native := table.GATE.native) is not None:
        output = native(x, algebra, gate)
        if output is not None:
            return output
    options = (
        checks.choice("gate", gate),
    )
    return call(table.GATE, (x,), algebra, options)


def grade_norm(x: Tensor, a: Tensor, algebra: AlgebraLike) -> Tensor:
    """CGENN's learned normalisation of each grade.

    ``o_g = x_g / (s (|x_g| - 1) + 1 + 1e-6), s = sigmoid(a_g)``

    ``|x_g|`` is the smooth norm of :func:`grade_norms`.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    a       ``[C, grades]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.

    Raises:
        ValueError: A shape.
        TypeError: An element type, tensors of several types.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with ``a``
      in the same type or float32. Autocast on CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: CGENN's ``NormalizationLayer`` (arXiv 2305.11141, section 4).

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> a = torch.ones(1, 3)  # [C, grades]
        >>> F.grade_norm(x, a, (2, 0, 0)).flatten()
        tensor([1.0000, 0.6885, 1.0328, 1.2527])
    """
    if not is_dynamo_compiling() and (native := table.GRADE_NORM.native) is not None:
        output = native(x, a, algebra)
        if output is not None:
            return output
    return call(table.GRADE_NORM, (x, a), algebra, ())


def mv_silu(
    x: Tensor, a: Tensor, b: Tensor, algebra: AlgebraLike, *, invariant: str = "mag2"
) -> Tensor:
    """CGENN's gated nonlinearity.

    ``o_g = sigmoid(a_g u_g + b_g) x_g``

    ``u_0`` is the scalar component, ``u_g`` an invariant of the grade.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    a       ``[C, grades]``
    b       ``[C, grades]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.
        invariant: The invariant of the grades above 0. ``mag2``: the quadratic form of the
            grade; ``norm``: the smooth norm of the grade, :func:`grade_norms`.

    Raises:
        ValueError: A shape, an unknown name.
        TypeError: An element type, tensors of several types, an option of another kind.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with ``a``
      and ``b`` in the same type or float32. Autocast on CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: CGENN's ``MVSiLU``.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> a = torch.ones(1, 3)  # [C, grades]
        >>> b = torch.ones(1, 3)  # [C, grades]
        >>> F.mv_silu(x, a, b, (2, 0, 0)).flatten()
        tensor([0.8808, 2.0000, 3.0000, 4.0000])
    """
    if not is_dynamo_compiling() and (native := table.MV_SILU.native) is not None:
        output = native(x, a, b, algebra, invariant)
        if output is not None:
            return output
    options = (
        checks.choice("invariant", invariant),
    )
    return call(table.MV_SILU, (x, a, b), algebra, options)


def mv_layer_norm(x: Tensor, a: Tensor, algebra: AlgebraLike) -> Tensor:
    """CGENN's layer norm.

    ``o = a x / (mean over channels of |x| + 1e-6)``

    ``|x|`` is the smooth norm of the whole multivector, :func:`norm`. Saved for the backward pass:
    one sum per batch element.

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    a       ``[C, 1]``
    output  ``[blades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.

    Raises:
        ValueError: A shape.
        TypeError: An element type, tensors of several types.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with ``a``
      in the same type or float32. Autocast on CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: CGENN's ``MVLayerNorm``.

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> a = torch.ones(1, 1)  # [C, 1]
        >>> F.mv_layer_norm(x, a, (2, 0, 0)).flatten()
        tensor([0.1826, 0.3651, 0.5477, 0.7303])
    """
    if not is_dynamo_compiling() and (native := table.MV_LAYER_NORM.native) is not None:
        output = native(x, a, algebra)
        if output is not None:
            return output
    return call(table.MV_LAYER_NORM, (x, a), algebra, ())


def norm(x: Tensor, algebra: AlgebraLike) -> Tensor:
    """The smooth norm of a multivector.

    ``o = (q(x)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0``

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[1, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.

    Raises:
        ValueError: A shape.
        TypeError: An element type, tensors of several types.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: CGENN's ``norm`` (arXiv 2305.11141, section 3).

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.norm(x, (2, 0, 0)).flatten()
        tensor([5.4772])
    """
    if not is_dynamo_compiling() and (native := table.NORM.native) is not None:
        output = native(x, algebra)
        if output is not None:
            return output
    return call(table.NORM, (x,), algebra, ())


def grade_norms(x: Tensor, algebra: AlgebraLike) -> Tensor:
    """The smooth norm of each grade.

    ``o_g = (q(x_g)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0``

    ======  =======================
    tensor  shape
    ======  =======================
    x       ``[blades, *batch, C]``
    output  ``[grades, *batch, C]``
    ======  =======================

    Args:
        algebra: An :class:`flashcliff.Algebra`, or ``(p, q, r)``.

    Raises:
        ValueError: A shape.
        TypeError: An element type, tensors of several types.
        RuntimeError: Tensors on different devices.
        flashcliff.UnsupportedError: A sparse or nested tensor.
        flashcliff.CudaError: A failure of CUDA.

    - Types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32. Autocast on
      CUDA leaves the type.
    - Deterministic: yes, forward and backward. The bits depend on the SIMD tier of a CPU, not on
      threads; on CUDA on shapes, alignment, kind of GPU and tuning table.
    - Derivatives: every order that kernels have room for, at least three in algebras of up to four
      dimensions, reverse and forward mode.
    - Commutes with: all versors, Pin(p, q, r).
    - Source: CGENN's ``norms`` (arXiv 2305.11141, section 3).

    Example:
        >>> import torch
        >>> from flashcliff import functional as F
        >>> x = torch.arange(1.0, 5.0).reshape(4, 1, 1)  # [blades, *batch, C]
        >>> F.grade_norms(x, (2, 0, 0)).flatten()
        tensor([1.0000, 3.6056, 4.0000])
    """
    if not is_dynamo_compiling() and (native := table.GRADE_NORMS.native) is not None:
        output = native(x, algebra)
        if output is not None:
            return output
    return call(table.GRADE_NORMS, (x,), algebra, ())
