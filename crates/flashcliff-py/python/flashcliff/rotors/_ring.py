"""Functions of ``a + b Q`` with ``Q Q = c``, in operations of PyTorch.

In up to five dimensions the square of a bivector is ``s + Q`` with a scalar ``s`` and a 4-vector ``Q`` whose square is a
scalar ``c`` and which commutes with the bivector. So functions of bivectors are functions of elements ``a + b Q``. These
form a commutative ring: ``c < 0`` makes it the complex numbers, ``c = 0`` the dual numbers, ``c > 0`` pairs of real numbers.

An element is the pair ``(a, b)``. Below four dimensions there are no 4-vectors: ``b`` and ``c`` are ``None``.

Nothing here divides by a number that can be zero where its quotient is used, so derivatives of every order exist. Where a
formula does not hold, it runs on numbers that it can take, and a mask leaves the result out: a number that is not finite
would make the derivatives of others NaN.
"""

from __future__ import annotations

from math import factorial, inf, log, nan

import torch
from torch import Tensor

Element = tuple[Tensor, Tensor | None]
"""``a + b Q``."""

_LARGEST = 262144.0
"""The largest ``|u|`` of an exponential: that of a rotation by 1024."""

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


def _short(u: Element, c: Tensor | None) -> tuple[Element, Element]:
    """``C(u)`` and ``S(u)`` by their power series, for ``u`` up to 1."""
    terms = 9 if u[0].dtype == torch.float64 else 5
    rest = times(u, _series(u, c, [1 / factorial(2 * k) for k in range(1, terms + 1)]), c)
    sine = _series(u, c, [1 / factorial(2 * k + 1) for k in range(terms + 1)])
    return _shifted(rest, 1.0), sine


def _of_number(u: Tensor) -> tuple[Tensor, Tensor]:
    """``C(u)`` and ``S(u)`` of real numbers."""
    turns, boosts = u < -1, u > 1
    (cosine, _), (sine, _) = _short((u.masked_fill(turns | boosts, 0.0), None), None)
    angle = (-u).masked_fill(~turns, 1.0).sqrt()
    rapidity = u.masked_fill(~boosts, 1.0).sqrt()
    cosine = torch.where(turns, angle.cos(), torch.where(boosts, rapidity.cosh(), cosine))
    by_rapidity = torch.where(boosts, rapidity.sinh() / rapidity, sine)
    return cosine, torch.where(turns, angle.sin() / angle, by_rapidity)


def exponential(
    s: Tensor, c: Tensor | None, n: Tensor | None
) -> tuple[Element, Element, Tensor]:
    """``C(u)`` and ``S(u)`` of ``u = s + Q``, with ``C(u) = cosh(sqrt u)`` and ``S(u) = sinh(sqrt u) / sqrt u``, and where
    they are: others are those of ``u = 0``. ``n`` is ``s^2 - c``, which may cancel.

    Both are entire functions, and power series where ``u`` is small. Elsewhere they follow from values at two real numbers.
    If ``c`` is large, these are ``s + sqrt c`` and ``s - sqrt c``, whose product is ``n``; their halved sum and difference
    are the parts of the result. Else they are the ``p`` and ``q`` with ``sqrt u = sqrt p + sqrt q``, for which ``p + q = s``
    and ``4 p q = c``. With ``d = p - q = sqrt n``

        C(u) = C(p) C(q) + S(p) S(q) Q / 2
        S(u) = (p S(p) C(q) - q C(p) S(q)) / d + (C(p) S(q) - S(p) C(q)) / (2 d) Q
    """
    with torch.no_grad():
        size, growth = _size(s, c, n)
        # The largest number whose exponential is one.
        most = log(torch.finfo(s.dtype).max)
        exists = (size <= _LARGEST) & (growth <= most * most)
    s = s.masked_fill(~exists, 0.0)
    if c is None or n is None:
        of_number = _of_number(s)
        return (of_number[0], None), (of_number[1], None), exists
    c = c.masked_fill(~exists, 0.0)
    far = exists & (size > 1)
    near_s, near_c = s.masked_fill(far, 0.0), c.masked_fill(far, 0.0)
    small = _short((near_s, torch.ones_like(s)), near_c)
    apart = far & (4 * c > s * s)
    large = _of_pair(s, c, n, apart, far & ~apart)

    def chosen(large: tuple[Tensor, Tensor], small: Element) -> Element:
        assert small[1] is not None
        return torch.where(far, large[0], small[0]), torch.where(far, large[1], small[1])

    return chosen(large[0], small[0]), chosen(large[1], small[1]), exists


def _size(s: Tensor, c: Tensor | None, n: Tensor | None) -> tuple[Tensor, Tensor]:
    """A bound of ``|u|``, and the square of the real part of ``sqrt u``, with the sign of ``u`` where there is none."""
    if c is None or n is None:
        return s.abs(), s
    root = c.abs().sqrt()
    return s.abs() + root, torch.where(c < 0, (s + n.abs().sqrt()) / 2, s + root)


def _of_pair(
    s: Tensor, c: Tensor, n: Tensor, apart: Tensor, split: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """``C(u)`` and ``S(u)`` where either mask is set, by the formulas of :func:`exponential` for large and for other ``c``."""
    negative = s < 0
    half = c.masked_fill(~apart, 1.0).sqrt()
    half = torch.where(negative, -half, half)
    d = n.masked_fill(~split, 1.0).sqrt()
    d = torch.where(negative, -d, d)
    over = 1 / d
    # Of two numbers the smaller one follows from the product, as their sum may cancel.
    larger = torch.where(apart, s + half, ((s + d) / 2).masked_fill(~split, 1.0))
    smaller = torch.where(apart, n, (c / 4).masked_fill(~split, 0.0)) / larger
    c1, s1 = _of_number(larger)
    c2, s2 = _of_number(smaller)
    # Zeros keep the factors below from growing where the other formula counts.
    p, q = (x.masked_fill(~split, 0.0) * over for x in (larger, smaller))
    cosine = (
        torch.where(apart, (c1 + c2) / 2, c1 * c2),
        torch.where(apart, (c1 - c2) / (2 * half), s1 * s2 / 2),
    )
    sine = (
        torch.where(apart, (s1 + s2) / 2, p * s1 * c2 - q * s2 * c1),
        torch.where(apart, (s1 - s2) / (2 * half), (c1 * s2 - s1 * c2) * (over / 2)),
    )
    return cosine, sine


def has_root(x: Element, c: Tensor | None) -> Tensor:
    """Where an element has a principal square root with an inverse."""
    a, b = x
    if b is None or c is None:
        return (a > 0) & (a < inf)
    part = c * (b * b)
    square = a * a - part
    # Where the scalar is negative, only complex numbers have a root, and only off the real axis.
    return (square > 0) & (square < inf) & ((a > 0) | (part < 0))


def root(x: Element, c: Tensor | None) -> tuple[Element, Element]:
    """The principal square root and its inverse.

    With ``n = sqrt(a^2 - c b^2)`` and ``r = sqrt((a + n) / 2)`` the root is ``r + b / (2 r) Q``, and its inverse is the
    conjugate over ``n``. Where ``a < 0``, ``a + n`` would lose its digits; it is ``-c b^2 / (n - a)``. NaN or infinity where
    the ring has no root: :func:`has_root`.
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


def inverse(x: Element, c: Tensor | None) -> tuple[Element, Tensor]:
    """``1 / x``, the conjugate over the product with it, and where it is: others are 1."""
    a, b = x
    n = a if b is None or c is None else a * a - c * (b * b)
    exists = (n != 0) & (n.abs() < inf)
    n = n.masked_fill(~exists, 1.0)
    if b is None or c is None:
        return (1 / n, None), exists
    return (a / n, -b / n), exists


def slope_of_logarithm(w: Element, c: Tensor) -> Element:
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


def arc(w: Tensor, s: Tensor, unit: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor]:
    """The number that takes the bivector ``B`` of a rotor ``w + B`` to its logarithm, and where there is one: others are 0.

    The rotor may be of any length. ``s`` is ``B B``; ``unit`` is that of ``scale B``, and tells an angle near ``pi`` where
    ``B B`` has no digits.

        angle(B) / |B|            where s < 0, and where w is negative or small, by the arc tangent of |B| and w
        artanh(|B| / w) / |B|     where s > 0
        their series in s / w^2   where that is small
    """
    near = (w > 0) & (16 * s.abs() <= w * w)
    turns = ~near & (unit < 0)
    boosts = ~near & (s > 0) & (s.detach().abs().sqrt() < w)
    over = 1 / w.masked_fill(~near, 1.0)
    terms = 13 if w.dtype == torch.float64 else 6
    ratio = s.masked_fill(~near, 0.0) * over * over
    series, _ = _series((ratio, None), None, [1 / (2 * j + 1) for j in range(terms)])
    length = (-unit).masked_fill(~turns, 1.0).sqrt()
    angle = torch.atan2(length, (scale * w).masked_fill(~turns, 1.0))
    # With the scale of the bivector last: it is large where the length is small.
    turn = angle / length * scale
    rapidity = s.masked_fill(~boosts, 1.0).sqrt()
    time = w.masked_fill(~boosts, 2.0)
    boost = ((time + rapidity) / (time - rapidity)).log() / (2 * rapidity)
    slope = torch.where(turns, turn, torch.where(near, series * over, boost))
    exists = near | turns | boosts
    return slope.masked_fill(~exists, 0.0), exists


def power_of_two(x: Tensor) -> Tensor:
    """A power of two that takes the magnitudes of numbers to 1 up to 2; 1 for zero and for what is not finite."""
    largest = 1022.0 if x.dtype == torch.float64 else 126.0
    usable = (x != 0) & (x.abs() < inf)
    exponent = x.masked_fill(~usable, 1.0).abs().log2().floor()
    return exponent.clamp(-largest, largest).neg().exp2()


def missing(exists: Tensor, value: Tensor) -> Tensor:
    """A value where it exists, else NaN, whose gradient is zero."""
    return value.masked_fill(~exists, nan)
