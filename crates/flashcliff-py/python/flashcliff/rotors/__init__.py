"""Rotors and motors: exponentials, logarithms, inverses, interpolation, and layers of versors that act.

A rotor is the exponential of a bivector: a rotation, a boost, a translation (a null vector times another), or a product
of these, then called a motor. :func:`flashcliff.functional.sandwich` applies it.

All functions take algebras of up to five dimensions with any signature. Multivectors are ``[blades, *batch, channels]``:
bivectors hold the blades of grade 2, rotors the blades of the even grades, in the order of :attr:`flashcliff.Algebra.blades`.
An odd versor, such as a reflection, holds the blades of the odd grades, and functions that take it have the option
``odd``.

Each map is one operator, an interpolation four, on the CPU and on GPUs, where they are compiled when they are first used. They have
derivatives of every order, an interpolation at least the first three, and work with ``torch.func`` and ``torch.compile``. All types are
computed in float64, and results are rounded once. :func:`action` is made of operations of PyTorch. Results are the same from run to run on
one device.

Items without a result, such as the logarithm of -1, the inverse of zero, or what is made of an item that is not finite, are
NaN in all their parts. Their gradient is exactly zero, whatever that of the result is, so they leave weights that all items
share alone: it is the value that shows them.

Sources: Roelfs and De Keninck, "Graded symmetry groups: plane and simple" (2021, arXiv 2107.03771); Dorst and De Keninck,
"Guided tour to the plane-based geometric algebra PGA" (2022). The functions come from the papers; how they are computed
is our own. In four and five dimensions parts of versors may be up to 1e75, and down to 1e-75.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _torch as _torch
from .._ops import checks
from .._ops.kept import beside
from ..algebra import AlgebraLike, Grades, as_algebra, grades_of
from . import _maps
from ._checks import (
    PARITIES,
    blades_of,
    check,
    check_bivectors,
    check_device,
    check_kind,
    check_position,
    check_versors,
    supported,
)
from ._sandwich import sandwich_table

__all__ = ["action", "exp", "interpolate", "inverse", "log", "normalized"]


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
        ``eps |B|^2 / d`` at a difference ``d``. Bivectors with ``|u|`` from ``2^54`` on (a rotation by ``2^28``) give
        NaN, and boosts whose exponential is larger than any number.

    Raises:
        UnsupportedError: the algebra has more than five dimensions.

    >>> import torch
    >>> exp(torch.tensor([[[torch.pi / 4]]]), (2, 0, 0)).flatten()
    tensor([0.7071, 0.7071])
    """
    name = check_bivectors("exp", "b", b, algebra)
    found = _maps.result_of("exp", name, b)
    # The exponential of no bivector is 1.
    return b.new_ones((1, *b.shape[1:])) if found is None else found


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
    name = check_versors("log", "r", r, algebra)
    found = _maps.result_of("log", name, r)
    return r.new_zeros((0, *r.shape[1:])) if found is None else found


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

    >>> import torch
    >>> normalized(torch.tensor([[[3.0]], [[4.0]]]), (2, 0, 0)).flatten()
    tensor([0.6000, 0.8000])
    """
    name = check_versors("normalized", "x", x, algebra, odd)
    found = _maps.result_of("normalized", name, x, odd)
    return x.clone() if found is None else found


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

    >>> import torch
    >>> inverse(torch.tensor([[[3.0]], [[4.0]]]), (2, 0, 0)).flatten()
    tensor([ 0.1200, -0.1600])
    """
    name = check_versors("inverse", "x", x, algebra, odd)
    found = _maps.result_of("inverse", name, x, odd)
    return x.clone() if found is None else found


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

    >>> import torch
    >>> one, half = torch.tensor([[[1.0]], [[0.0]]]), torch.tensor([[[0.0]], [[1.0]]])
    >>> interpolate(one, half, 0.5, (2, 0, 0)).flatten()
    tensor([0.7071, 0.7071])
    """
    name = check_versors("interpolate", "a", a, algebra, odd)
    check_versors("interpolate", "b", b, algebra, odd)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"interpolate: `b` must be {list(a.shape)} of {a.dtype} as `a` is, got {list(b.shape)} of {b.dtype}"
        )
    check_device("interpolate", "a", a, "b", b)
    if isinstance(t, Tensor):
        check_position("interpolate", "t", t, "a", a)
    else:
        t = checks.number("t", t)
    found = _maps.interpolated(name, a, b, t, odd)
    return a.clone() if found is None else found


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

    Each pair of an output and an input channel has its own versor. This is the linear layer of group action networks
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

    >>> import torch
    >>> vector, half_turn = torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[[0.0]], [[1.0]]])
    >>> action(vector, half_turn, torch.ones(1, 1), (2, 0, 0), grades=[1]).flatten()
    tensor([-1., -2.])
    """
    found = supported("action", as_algebra(algebra))
    kept = grades_of(found, "grades", grades) or tuple(range(found.grade_count))
    blades = blades_of(found.name, kept)
    check("action", "x", x, len(blades), f"blades of grades {kept}")
    own = blades_of(found.name, PARITIES[int(odd)])
    check("action", "versors", versors, len(own), "blades of versors")
    if versors.dim() != 3 or versors.shape[2] != x.shape[-1]:
        raise ValueError(
            f"action: `versors` must be [{len(own)}, out, in = {x.shape[-1]}], got {list(versors.shape)}"
        )
    check_kind("action", "weight", weight)
    if weight.shape != versors.shape[1:]:
        got = list(weight.shape)
        raise ValueError(f"action: `weight` must be {list(versors.shape[1:])}, got {got}")
    for argument, tensor in (("versors", versors), ("weight", weight)):
        check_device("action", "x", x, argument, tensor)
    made = torch.promote_types(versors.dtype, weight.dtype)
    if made != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"action: `versors` and `weight` must be {x.dtype} as `x` is, got {versors.dtype} and "
            f"{weight.dtype}; call their `to(x.dtype)`"
        )
    table = sandwich_table(found.name, own, blades, versors.dtype, versors.device)
    table = beside(table, versors)
    squares = versors.unsqueeze(1) * versors.unsqueeze(0)
    matrices = torch.einsum("efab,efmn->abmn", table, squares) * weight
    return torch.einsum("abmn,b...n->a...m", matrices, x)
