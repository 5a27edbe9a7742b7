"""Rotors and motors: exponentials, logarithms, inverses, interpolation, and layers of versors that act.

A rotor is the exponential of a bivector: a rotation, a boost, a translation (a null vector times another), or a product
of these, then called a motor. :func:`flashcliff.functional.sandwich` applies it.

All functions take algebras of up to five dimensions with any signature. Multivectors are ``[blades, *batch, channels]``:
bivectors hold the blades of grade 2, rotors those of the even grades, in the order of :attr:`flashcliff.Algebra.blades`.
An odd versor, such as a reflection, holds the blades of the odd grades, and functions that take it have the option
``odd``.

Everything is made of operations of PyTorch: it runs on every device, under ``torch.compile``, and has derivatives of
every order. In eager mode an exponential is about a hundred small operations, which ``torch.compile`` fuses. float16 and
bfloat16 are computed in float32. Results are the same from run to run on one device.

Items without a result, such as the logarithm of -1, the inverse of zero, or what is made of an item that is not finite, are
NaN in all their parts. Their gradient is exactly zero, whatever that of the result is, so they leave weights that all items
share alone: it is the value that shows them.

Sources: Roelfs and De Keninck, "Graded symmetry groups: plane and simple" (2021, arXiv 2107.03771); Dorst and De Keninck,
"Guided tour to the plane-based geometric algebra PGA" (2022). The functions are those of the papers; how they are computed
is our own (:mod:`flashcliff.rotors._ring`).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .. import _torch as _torch
from .._ops import checks, doors
from .._ops.kept import for_later_calls
from .._ops.run import refuse_sparse_and_nested, saved_dtype
from ..algebra import Algebra, AlgebraLike, Grades, as_algebra, by_name, grades_of
from ..errors import UnsupportedError
from . import _ring
from ._parts import (
    Parts,
    blades_with_squares,
    grades_by_blade,
    product,
    reverse_sign,
    scaled,
    square,
    times_reverse,
)

__all__ = ["action", "exp", "interpolate", "inverse", "log", "normalized"]

LARGEST_DIM = 5
"""The most dimensions. From six on the square of a bivector does not generate a ring of two dimensions."""


def exp(b: Tensor, algebra: AlgebraLike) -> Tensor:
    """The exponential of bivectors, a rotor: ``exp(B) = C(u) + B S(u)`` with ``u = B B``.

    ``C(u) = cosh(sqrt u)`` and ``S(u) = sinh(sqrt u) / sqrt u``; for ``u < 0`` these are the cosine and ``sin(r) / r`` of
    ``r = sqrt(-u)``. In four and five dimensions ``u`` is a scalar plus a 4-vector. ``exp(t e12 / 2)`` with
    ``e1 e1 = e2 e2 = 1`` turns by ``-t``: the sandwich takes ``e1`` to ``cos(t) e1 - sin(t) e2``.

    Args:
        b: bivectors, ``[blades of grade 2, *batch, channels]``.
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``.

    Returns:
        Rotors, ``[blades of even grades, *batch, channels]``. Tests hold the error to ``2 eps |B|`` of the largest part, for
        ``|B|`` from 3 to 250. In four and five dimensions float64 loses more where two angles are nearly equal:
        ``eps |B|^2 / d`` at a difference ``d``. Bivectors with ``|u|`` above 262144 (a rotation by more than 1024) give
        NaN, and boosts whose exponential is larger than any number.

    Raises:
        UnsupportedError: the algebra has more than five dimensions.

    >>> import torch
    >>> exp(torch.tensor([[[torch.pi / 4]]]), (2, 0, 0)).flatten()
    tensor([0.7071, 0.7071])
    """
    name, x = _enter("exp", "b", b, algebra, (2,))
    rotor, exists = _exp(name, x.parts, b)
    return _leave(rotor, exists & x.finite, b, _blades(name, _PARITIES[0]))


def log(r: Tensor, algebra: AlgebraLike) -> Tensor:
    """The logarithm of rotors, a bivector: ``exp(log(R)) = normalized(R)``.

    ``log(R) = <R>_2 k(w)`` with ``w = <R>_0 + <R>_4`` and ``k(w) = arccos(w) / sqrt(1 - w^2)``. Below four dimensions the
    angle is the arc tangent of the bivector's length and ``w``. In four and five, ``R`` is normalised and its square root
    ``normalized(1 + R)`` taken.

    The branch: the logarithm of a single rotation by an angle below ``2 pi`` has the norm ``angle / 2``, below ``pi``.
    ``R`` and ``-R`` are the same rotation with two logarithms; the shorter one is that of the rotor with the positive
    scalar part. In four and five dimensions, a rotation in two planes by ``2 x`` and ``2 y`` has ``|x + y|`` and
    ``|x - y|`` at most ``pi``; of all logarithms it is the shortest. At ``R = -1`` the logarithm is not unique, as every
    unit plane times ``pi`` is one: the result is NaN, as it is for rotors that are no exponential. Near ``-1``, at a distance
    ``d``, the result has the digits that the bivector of ``R`` has below four dimensions, and loses ``1 / d^2`` in four and
    five. Boosts of large rapidity ``2 x`` lose ``exp(2 x)`` in accuracy, as does ``R reverse(R)``.

    Args:
        r: rotors, ``[blades of even grades, *batch, channels]``. They need not be normalised.
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``.

    Returns:
        Bivectors, ``[blades of grade 2, *batch, channels]``.

    Raises:
        UnsupportedError: the algebra has more than five dimensions.

    >>> import torch
    >>> log(torch.tensor([[[0.0]], [[1.0]]]), (2, 0, 0)).flatten()
    tensor([1.5708])
    """
    name, x = _enter("log", "r", r, algebra, None)
    return _leave(*_log(name, x.parts), r, _blades(name, (2,)))


def normalized(x: Tensor, algebra: AlgebraLike, *, odd: bool = False) -> Tensor:
    """Versors with ``V reverse(V) = 1``: ``(V reverse(V))^(-1/2) V``.

    ``V reverse(V)`` is a scalar for multiples of versors. In four and five dimensions any multivector of even grades, or
    of odd ones, has a scalar plus a 4-vector there. So the result is a versor even if ``x`` was none: in Cl(3,0,1) it
    is the motor with the orthogonality of its two quaternions restored.

    Where metrics have both signs, ``V reverse(V)`` can be negative. The result then has -1. There is none if it is zero,
    or where the 4-vector is larger than the scalar and squares to a positive number: NaN.

    Args:
        x: multivectors, ``[blades of even grades, *batch, channels]``, or of the odd grades.
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``.
        odd: whether ``x`` has the odd grades.

    Returns:
        A tensor of the shape of ``x``.

    Raises:
        UnsupportedError: the algebra has more than five dimensions.
    """
    name, given = _enter("normalized", "x", x, algebra, None, odd)
    if not given.parts:
        return x.clone()
    return _leave(*_normalized(name, given.parts, signed=True), x, tuple(given.parts))


def inverse(x: Tensor, algebra: AlgebraLike, *, odd: bool = False) -> Tensor:
    """The inverse ``reverse(x) (x reverse(x))^(-1)`` of a multivector of even, or of odd grades.

    It is the inverse of versors and of all other such multivectors: in four and five dimensions ``x reverse(x)`` is a
    scalar plus a 4-vector ``a + P``, with the inverse ``(a - P) / (a a - P P)``. Multivectors without an inverse give NaN.

    Args:
        x: multivectors, ``[blades of even grades, *batch, channels]``, or of the odd grades.
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``.
        odd: whether ``x`` has the odd grades.

    Returns:
        A tensor of the shape of ``x``.

    Raises:
        UnsupportedError: the algebra has more than five dimensions.
    """
    name, given = _enter("inverse", "x", x, algebra, None, odd)
    if not given.parts:
        return x.clone()
    parts = given.parts
    a, p = times_reverse(name, parts)
    one = torch.ones_like(a) if p else None
    c = square(name, p)[0] if p else None
    over, exists = _ring.inverse((a, one), c)
    # The 4-vector does not commute with all of `x`: reverse(x) r is the reverse of r x.
    result = _reverse(name, scaled(name, over, p, parts))
    result = {blade: given.scale * value for blade, value in result.items()}
    return _leave(result, exists, x, tuple(parts))


def interpolate(
    a: Tensor, b: Tensor, t: Tensor | float, algebra: AlgebraLike, *, odd: bool = False
) -> Tensor:
    """The versor between two: ``a exp(t log(reverse(a) b))``, with ``a`` at ``t = 0`` and ``b`` or ``-b`` at ``t = 1``.

    ``b`` and ``-b`` act alike; the one nearer to ``a`` is taken. For rotors of space this is the spherical
    linear interpolation of quaternions, for motors the screw motion at constant speed. Both versors are normalised.

    Args:
        a: versors, ``[blades of even grades, *batch, channels]``, or of the odd grades.
        b: versors of the shape of ``a``.
        t: a number, or a tensor that broadcasts to ``[*batch, channels]``. Numbers outside of 0 to 1 go on along the path.
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``.
        odd: whether the versors have the odd grades.

    Returns:
        Normalised versors of the shape of ``a``.

    Raises:
        UnsupportedError: the algebra has more than five dimensions.
    """
    name, first = _enter("interpolate", "a", a, algebra, None, odd)
    _, second = _enter("interpolate", "b", b, algebra, None, odd)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"interpolate: `b` must be {list(a.shape)} of {a.dtype} as `a` is, got {list(b.shape)} of {b.dtype}"
        )
    _check_device("interpolate", "a", a, "b", b)
    if isinstance(t, Tensor):
        _check_kind("interpolate", "t", t, (*_TYPES, *_INTEGERS))
        _check_device("interpolate", "a", a, "t", t)
    else:
        t = checks.number("t", t)
    if isinstance(t, Tensor) and not _broadcasts(t.shape, a.shape[1:]):
        raise ValueError(
            f"interpolate: `t` must broadcast to {list(a.shape[1:])}, got {list(t.shape)}"
        )
    if not first.parts:
        return a.clone()
    start, starts = _normalized(name, first.parts, signed=True)
    end, ends = _normalized(name, second.parts, signed=True)
    between = product(name, _reverse(name, start), end, _PARITIES[0])
    nearer = torch.ones_like(between[0]).masked_fill(between[0] < 0, -1.0)
    step, goes = _log(name, {blade: nearer * value for blade, value in between.items()})
    turn, turns = _exp(name, {blade: t * value for blade, value in step.items()}, a)
    result = product(name, start, turn, _PARITIES[odd])
    return _leave(result, starts & ends & goes & turns, a, tuple(start))


def action(
    x: Tensor,
    versors: Tensor,
    weight: Tensor,
    algebra: AlgebraLike,
    *,
    grades: Grades = None,
    odd: bool = False,
) -> Tensor:
    """A layer whose weights are versors: ``o[m] = sum over n of weight[m, n] V[m, n] x[n] reverse(V[m, n])``.

    Each pair of an output and an input channel has a versor of its own. This is the linear layer of group action networks
    (Ruhe et al., "Geometric Clifford algebra networks", 2023, arXiv 2302.06594, section 3). Versors act as they are: give
    :func:`exp` of bivectors, or :func:`normalized`, to have them rotate without stretching. A sandwich is linear in ``x``,
    so the whole layer is one matrix product, whose matrix is formed from the versors and weights.

    Args:
        x: multivectors, ``[blades of grades, *batch, in]``.
        versors: ``[blades of even grades, out, in]``, or of the odd grades.
        weight: ``[out, in]``.
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``.
        grades: the grades of ``x``, all by default. Versors keep grades, so the result has the same.
        odd: whether the versors have the odd grades. Odd grades of ``x`` then change their sign beside the action, as in
            :func:`flashcliff.functional.sandwich`.

    Returns:
        Multivectors, ``[blades of grades, *batch, out]``. Parts of other grades, which multivectors that are no versors
        make, are left out.

    Raises:
        UnsupportedError: the algebra has more than five dimensions.
    """
    found = _supported("action", as_algebra(algebra))
    kept = grades_of(found, "grades", grades) or tuple(range(found.grade_count))
    blades = _blades(found.name, kept)
    _check("action", "x", x, len(blades), f"blades of grades {kept}")
    own = _blades(found.name, _PARITIES[odd])
    _check("action", "versors", versors, len(own), "blades of versors")
    if versors.dim() != 3 or versors.shape[2] != x.shape[-1]:
        raise ValueError(
            f"action: `versors` must be [{len(own)}, out, in = {x.shape[-1]}], got {list(versors.shape)}"
        )
    _check_kind("action", "weight", weight)
    if weight.shape != versors.shape[1:]:
        got = list(weight.shape)
        raise ValueError(f"action: `weight` must be {list(versors.shape[1:])}, got {got}")
    for argument, tensor in (("versors", versors), ("weight", weight)):
        _check_device("action", "x", x, argument, tensor)
    made = torch.promote_types(versors.dtype, weight.dtype)
    if made != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"action: `versors` and `weight` must be {x.dtype} as `x` is, got {versors.dtype} and "
            f"{weight.dtype}; call their `to(x.dtype)`"
        )
    table = _sandwich_table(found.name, own, blades, versors.dtype, versors.device)
    if isinstance(versors, FakeTensor):
        table = versors.fake_mode.from_tensor(table)
    squares = versors.unsqueeze(1) * versors.unsqueeze(0)
    matrices = torch.einsum("efab,efmn->abmn", table, squares) * weight
    return torch.einsum("abmn,b...n->a...m", matrices, x)


@torch.compiler.assume_constant_result
def _sandwich_table(
    name: str,
    versors: tuple[int, ...],
    blades: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    return _kept_table(name, versors, blades, dtype, device)


@lru_cache(maxsize=64)
def _kept_table(
    name: str,
    versors: tuple[int, ...],
    blades: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The sandwich as numbers: ``[e, f, a, b]`` is the blade ``a`` of ``e b reverse(f)``."""
    algebra = by_name(name)
    products = {(left, right): (output, sign) for left, right, output, sign in algebra.terms()}
    numbers = array("d", bytes(8 * len(versors) ** 2 * len(blades) ** 2))
    for b, blade in enumerate(blades):
        for e, left in enumerate(versors):
            half, sign = products.get((left, blade), (0, 0))
            for f, right in enumerate(versors):
                output, other = products.get((half, right), (0, 0))
                if sign * other and output in blades:
                    reverse = reverse_sign(algebra.grades[right])
                    row = (e * len(versors) + f) * len(blades) + blades.index(output)
                    numbers[row * len(blades) + b] += sign * other * reverse
    with for_later_calls():
        shape = len(versors), len(versors), len(blades), len(blades)
        return torch.tensor(numbers, dtype=dtype, device=device).view(shape)


# The functions on parts, and where they exist. Results elsewhere are numbers that nothing reads: what is not finite would
# make the derivatives NaN.


def _exp(name: str, b: Parts, like: Tensor) -> tuple[Parts, Tensor]:
    if not b:
        one = torch.ones_like(like[:0].sum(0), dtype=saved_dtype(like.dtype))
        return {0: one}, one > 0
    s, q, c, n = _square_of_bivector(name, b)
    cosine, sine, exists = _ring.exponential(s, c, n)
    if q:
        for value in q.values():
            exists = exists & (value.abs() < inf)
        q = {blade: value.masked_fill(~exists, 0.0) for blade, value in q.items()}
    rotor = scaled(name, sine, q, b)
    rotor[0] = cosine[0]
    if cosine[1] is not None:
        rotor.update({blade: cosine[1] * value for blade, value in q.items()})
    return rotor, exists


_WITH_FLOAT64 = ("cpu", "cuda", "meta")
"""Devices that surely have numbers of 64 bits."""


def _square_of_bivector(
    name: str, b: Parts
) -> tuple[Tensor, Parts, Tensor | None, Tensor | None]:
    """The scalar ``s`` and the 4-vector ``Q`` of ``B B``, the scalar ``c`` of ``Q Q``, and ``s^2 - c``.

    Sums of float32 are those of float64, rounded: where squares of boosts and rotations, or of two angles, cancel, large
    bivectors would lose more digits than they have.
    """
    like = next(iter(b.values()))
    wide = torch.float64 if like.device.type in _WITH_FLOAT64 else like.dtype
    s, q = square(name, {blade: value.to(wide) for blade, value in b.items()})
    if not q:
        return s.to(like.dtype), q, None, None
    c = square(name, q)[0]
    n = s * s - c
    narrow = {blade: value.to(like.dtype) for blade, value in q.items()}
    return s.to(like.dtype), narrow, c.to(like.dtype), n.to(like.dtype)


def _log(name: str, r: Parts) -> tuple[Parts, Tensor]:
    if 4 not in grades_by_blade(name):
        return _log_of_one_plane(name, r)
    grades = grades_by_blade(name)
    r, exists = _normalized(name, r, signed=False)
    r = {blade: value + 1 if blade == 0 else value for blade, value in r.items()}
    r, has_root = _normalized(name, r, signed=False)
    bivector = {blade: value for blade, value in r.items() if grades[blade] == 2}
    p = {blade: value for blade, value in r.items() if grades[blade] == 4}
    exists = exists & has_root
    w = r[0].masked_fill(~exists, 1.0), torch.ones_like(r[0])
    slope = _ring.slope_of_logarithm(w, square(name, p)[0].masked_fill(~exists, 0.0))
    half = scaled(name, slope, p, bivector)
    return {blade: 2 * value for blade, value in half.items()}, exists


def _log_of_one_plane(name: str, r: Parts) -> tuple[Parts, Tensor]:
    """The logarithm where there are no 4-vectors, of rotors of any length."""
    bivector = {blade: value for blade, value in r.items() if blade}
    if not bivector:
        return {}, r[0] > 0
    with torch.no_grad():
        signed = [bivector[blade].abs() for blade in blades_with_squares(name) if blade in bivector]
        scale = _ring.power_of_two(reduce(torch.maximum, signed)) if signed else 1.0
    unit = square(name, {blade: scale * value for blade, value in bivector.items()})[0]
    slope, exists = _ring.arc(r[0], square(name, bivector)[0], unit, scale)
    return {blade: slope * value for blade, value in bivector.items()}, exists


def _normalized(name: str, x: Parts, signed: bool) -> tuple[Parts, Tensor]:
    """``x`` with ``x reverse(x) = 1``, or -1 if ``signed`` and it was negative."""
    a, p = times_reverse(name, x)
    c = square(name, p)[0] if p else None
    if signed:
        with torch.no_grad():
            # A versor has no 4-vector here but for rounding, whose square has any sign.
            sign = torch.ones_like(a).masked_fill(a < 0, -1.0)
        a = sign * a
        p = {blade: sign * value for blade, value in p.items()}
    one = torch.ones_like(a) if p else None
    with torch.no_grad():
        exists = _ring.has_root((a, one), c)
    a = a.masked_fill(~exists, 1.0)
    if c is not None:
        c = c.masked_fill(~exists, 0.0)
        p = {blade: value.masked_fill(~exists, 0.0) for blade, value in p.items()}
    _, over = _ring.root((a, one), c)
    return scaled(name, over, p, x), exists


def _reverse(name: str, x: Parts) -> Parts:
    grades = grades_by_blade(name)
    return {
        blade: -value if reverse_sign(grades[blade]) < 0 else value for blade, value in x.items()
    }


# Checks, and the way in and out


def _supported(function: str, algebra: Algebra) -> Algebra:
    if algebra.dim > LARGEST_DIM:
        raise UnsupportedError(
            f"{function}: expected an algebra of at most {LARGEST_DIM} dimensions, got {algebra!r}, of {algebra.dim}"
        )
    return algebra


_PARITIES = ((0, 2, 4), (1, 3, 5))
"""The even and the odd grades of up to five dimensions."""


def _blades(name: str, grades: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(index for index, grade in enumerate(grades_by_blade(name)) if grade in grades)


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    """Whether a shape broadcasts to another and leaves it as it is."""
    sizes = zip(reversed(shape), reversed(to))
    return len(shape) <= len(to) and all(size in (1, wanted) for size, wanted in sizes)


_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _check_kind(function: str, argument: str, x: Any, types: tuple[torch.dtype, ...] = _TYPES) -> None:
    """Checks that something is a dense tensor with elements of some types."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}: `{argument}` must be a torch.Tensor, got {type(x).__name__}")
    refuse_sparse_and_nested(function, argument, x)
    if x.dtype not in types:
        remedy = "" if x.dtype.is_complex or x.is_quantized else f"; call `{argument}.float()`"
        raise TypeError(
            f"{function}: `{argument}` must have real floating-point elements, got {x.dtype}{remedy}"
        )
    doors.check_open(function, (x,), (argument,))


def _check_device(function: str, like: str, first: Tensor, argument: str, x: Tensor) -> None:
    """Checks that a tensor is where the first one is; a tensor of no axes may be elsewhere, as a number is."""
    if x.device != first.device and x.dim():
        raise RuntimeError(
            f"{function}: expected all tensors on the same device, got {like} on {first.device}, "
            f"{argument} on {x.device}; move them with `.to(device)`"
        )


def _check(function: str, argument: str, x: Any, blades: int, what: str) -> None:
    _check_kind(function, argument, x)
    if x.dim() < 2 or x.shape[0] != blades:
        raise ValueError(
            f"{function}: `{argument}` must be [{blades}, *batch, channels], the {what} first, got {list(x.shape)}"
        )


@dataclass(frozen=True)
class _Given:
    """A tensor blade by blade. Items that are not finite are zeros here, so that no gradient reaches them."""

    parts: Parts
    finite: Tensor
    scale: Tensor | float = 1.0
    """A power of two, by which parts are larger than those of the tensor: their squares are neither infinite nor zero."""


def _enter(
    function: str,
    argument: str,
    x: Any,
    algebra: AlgebraLike,
    grades: tuple[int, ...] | None,
    odd: bool = False,
) -> tuple[str, _Given]:
    """The name of the algebra, and the parts of a tensor: bivectors as they are, versors with the largest part near 1."""
    found = _supported(function, as_algebra(algebra))
    bivectors = grades is not None
    if grades is None:
        checks.flag("odd", odd)
        grades = _PARITIES[odd]
        what = f"blades of {'odd' if odd else 'even'} grades"
    else:
        what = "blades of bivectors"
    blades = _blades(found.name, grades)
    _check(function, argument, x, len(blades), what)
    x = x.to(saved_dtype(x.dtype))
    if not blades:
        return found.name, _Given({}, torch.ones_like(x.sum(0), dtype=torch.bool))
    with torch.no_grad():
        largest = x.abs().amax(0)
        finite = largest < inf
        scale = 1.0 if bivectors else _ring.power_of_two(largest)
    x = (x * scale).masked_fill(~finite, 0.0)
    return found.name, _Given(dict(zip(blades, x.unbind(0))), finite, scale)


def _leave(parts: Parts, exists: Tensor, like: Tensor, blades: tuple[int, ...]) -> Tensor:
    """One tensor of parts, NaN where they do not exist."""
    if not blades:
        return like.new_zeros((0, *like.shape[1:]))
    zero: Tensor | None = None
    values = []
    for blade in blades:
        value = parts.get(blade)
        if value is None:
            zero = torch.zeros_like(next(iter(parts.values()))) if zero is None else zero
            value = zero
        values.append(value)
    return _ring.missing(exists, torch.stack(values)).to(like.dtype)
