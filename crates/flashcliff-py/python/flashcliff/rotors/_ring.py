"""Functions of ``a + b Q`` with ``Q Q = c``, in operations of PyTorch.

In up to five dimensions the square of a bivector is ``s + Q`` with a scalar ``s`` and a 4-vector ``Q`` whose square is a
scalar ``c`` and which commutes with the bivector. So functions of bivectors are functions of elements ``a + b Q``. These
form a commutative ring: ``c < 0`` makes it the complex numbers, ``c = 0`` the dual numbers, ``c > 0`` pairs of real numbers.

An element is the pair ``(a, b)``. Below four dimensions there are no 4-vectors: ``b`` and ``c`` are ``None``.

Nothing here divides by ``c`` or asks for its sign: all functions are sums, products, quotients and square roots of
positive numbers, so derivatives of every order exist and need no special cases where ``c`` or ``b`` is zero.
"""

from __future__ import annotations

from math import factorial

import torch
from torch import Tensor

Element = tuple[Tensor, Tensor | None]
"""``a + b Q``."""

DOUBLINGS = 8
"""How many times :func:`exponential` doubles its argument at the most."""

_HALVINGS = 5
"""How many times :func:`slope_of_logarithm` takes a square root."""


def times(x: Element, y: Element, c: Tensor | None) -> Element:
    """The product."""
    (a, b), (d, e) = x, y
    if b is None or e is None or c is None:
        return a * d, None
    return a * d + c * (b * e), a * e + b * d


def _shifted(x: Element, number: float) -> Element:
    return x[0] + number, x[1]


def _series(x: Element, c: Tensor | None, coefficients: list[float]) -> Element:
    """The sum of ``coefficients[k] x^k``."""
    *others, last = coefficients
    zero = None if x[1] is None else torch.zeros_like(x[1])
    result: Element = (torch.full_like(x[0], last), zero)
    for coefficient in reversed(others):
        result = _shifted(times(x, result, c), coefficient)
    return result


def exponential(s: Tensor, c: Tensor | None) -> tuple[Element, Element]:
    """``C(u) - 1`` and ``S(u)`` of ``u = s + Q``, with ``C(u) = cosh(sqrt u)`` and ``S(u) = sinh(sqrt u) / sqrt u``.

    Both are entire functions. They are power series of ``u / 4^k`` and then ``k`` doublings, ``C(4 u) = 2 C(u)^2 - 1`` and
    ``S(4 u) = S(u) C(u)``, where ``k`` makes ``u / 4^k`` small. ``C - 1`` is carried in place of ``C``, which keeps its
    digits where it is small. Arguments that eight doublings do not reach give NaN.
    """
    terms = 9 if s.dtype == torch.float64 else 5
    with torch.no_grad():
        size = s.abs() if c is None else s.abs() + c.abs().sqrt()
        doublings = (size.clamp(min=1.0).log2() / 2).ceil()
        doublings = doublings.where(doublings <= DOUBLINGS, torch.nan)
        scale = (-2 * doublings).exp2()
    u: Element = (s * scale, None if c is None else scale)
    cosine = times(u, _series(u, c, [1 / factorial(2 * k) for k in range(1, terms + 1)]), c)
    sine = _series(u, c, [1 / factorial(2 * k + 1) for k in range(terms + 1)])
    for index in range(DOUBLINGS):
        active = doublings > index
        one_more = _shifted(cosine, 1.0)
        twice = times(cosine, _shifted(cosine, 2.0), c)
        sine = _where(active, times(sine, one_more, c), sine)
        cosine = _where(active, (2 * twice[0], None if twice[1] is None else 2 * twice[1]), cosine)
    return cosine, sine


def _where(condition: Tensor, x: Element, y: Element) -> Element:
    a = torch.where(condition, x[0], y[0])
    if x[1] is None or y[1] is None:
        return a, None
    return a, torch.where(condition, x[1], y[1])


def root(x: Element, c: Tensor | None) -> tuple[Element, Element]:
    """The principal square root and its inverse.

    With ``n = sqrt(a^2 - c b^2)`` and ``r = sqrt((a + n) / 2)`` the root is ``r + b / (2 r) Q``, and its inverse is the
    conjugate over ``n``. Where ``a < 0``, ``a + n`` would lose its digits; it is ``-c b^2 / (n - a)``. NaN or infinity where
    the ring has no root.
    """
    a, b = x
    if b is None or c is None:
        plain = a.sqrt()
        return (plain, None), (1 / plain, None)
    part = c * (b * b)
    n = (a * a - part).sqrt()
    mean = (a.abs() + n) / 2
    r = torch.where(a < 0, -part / (4 * mean), mean).sqrt()
    rest = b / (2 * r)
    return (r, rest), (r / n, -rest / n)


def inverse(x: Element, c: Tensor | None) -> Element:
    """``1 / x``, the conjugate over the product with it."""
    a, b = x
    if b is None or c is None:
        return 1 / a, None
    n = a * a - c * (b * b)
    return a / n, -b / n


def slope_of_logarithm(w: Element, c: Tensor | None) -> Element:
    """``k(w) = arccos(w) / sqrt(1 - w^2)``, and ``arcosh(w) / sqrt(w^2 - 1)`` where ``w`` is more than 1.

    It takes a bivector ``B S(u)`` with ``w = C(u)`` back to ``B``. Five times ``k(w) = k(v) / v`` with
    ``v = sqrt((1 + w) / 2)``, then a series in ``1 - v``: ``k(1 - y) = sum of 2^j (j!)^2 / (2 j + 1)! y^j``.
    """
    terms = 12 if w[0].dtype == torch.float64 else 6
    total: Element | None = None
    for _ in range(_HALVINGS):
        half: Element = ((w[0] + 1) / 2, None if w[1] is None else w[1] / 2)
        w, over = root(half, c)
        total = over if total is None else times(total, over, c)
    rest: Element = (1 - w[0], None if w[1] is None else -w[1])
    coefficients = [2**j * factorial(j) ** 2 / factorial(2 * j + 1) for j in range(terms)]
    series = _series(rest, c, coefficients)
    return series if total is None else times(total, series, c)
