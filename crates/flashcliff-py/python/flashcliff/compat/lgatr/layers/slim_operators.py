"""The norm and the gated linear unit of L-GATr-slim as operators of :mod:`flashcliff.operators`: vectors are multivectors of grade 1 in
Cl(1,3,0), and scalars have their own channels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from ....algebra import Algebra
from ....nn.transformer import Geometry
from ....operators import Multivector, Operator, PerChannel, Scalar, Scalars, operator

__all__ = ["SLIM", "glu_operator", "norm_operator"]

_SPACETIME = (1, 3, 0)
SLIM = Geometry(
    Algebra(*_SPACETIME), group="spin", vectors=True, product=False, head_norm=True
)
"""The geometry of L-GATr-slim."""

_ACTIVATIONS: dict[str, Callable[[Scalar], Scalar]] = {
    "relu": lambda s: s.maximum(0.0),
    "sigmoid": lambda s: s.sigmoid(),
    "tanh": lambda s: 2.0 * (2.0 * s).sigmoid() - 1.0,
    "silu": lambda s: s * s.sigmoid(),
    # The approximation by a hyperbolic tangent, which is 2 sigmoid(2 x) - 1.
    "gelu_tanh": lambda s: s * (2.0 * math.sqrt(2.0 / math.pi) * (s + 0.044715 * (s * s * s))).sigmoid(),
    "gelu": lambda s: s * s.gate(),
}


@functools.lru_cache
def norm_operator(epsilon: float, has_gains: bool) -> Operator:
    """The norm of vectors and scalars, with gains of both if there are some."""

    def factor(x: Multivector, s: Scalar) -> Scalar:
        square = x.quadratic_form()
        size, own = square.maximum(-square), s * s
        mean = (size.sum() + own.sum()) / (size.count() + own.count())
        return 1.0 / (mean + epsilon).sqrt()

    def slim_norm(x: Multivector.of(1), s: Scalars):  # type: ignore[valid-type]
        by = factor(x, s)  # type: ignore[arg-type]
        return x * by, s * by

    def slim_norm_with_gains(
        x: Multivector.of(1),  # type: ignore[valid-type]
        s: Scalars,
        a: PerChannel(),  # type: ignore[valid-type]
        b: PerChannel(scalars=True),  # type: ignore[valid-type]
    ):
        by = factor(x, s)  # type: ignore[arg-type]
        return x * (by * a), s * (by * b)

    return _made(slim_norm_with_gains if has_gains else slim_norm)


@functools.lru_cache
def glu_operator(activations: tuple[str, str], scale: float) -> Operator:
    """The gated linear unit of vectors ``v, a, b`` and scalars ``s, g``."""
    of_vectors, of_scalars = (_ACTIVATIONS[name] for name in activations)

    def slim_glu(
        v: Multivector.of(1),  # type: ignore[valid-type]
        a: Multivector.of(1),  # type: ignore[valid-type]
        b: Multivector.of(1),  # type: ignore[valid-type]
        s: Scalars,
        g: Scalars,
    ):
        gate = of_vectors((a | b).scalar * scale)
        return v * gate, of_scalars(g) * s  # type: ignore[arg-type]

    return _made(slim_glu)


def _made(function: Callable[..., object]) -> Operator:
    """The operator of a function, with gates of the exact GELU."""
    return operator(_SPACETIME, gate="gelu")(function)
