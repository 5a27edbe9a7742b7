"""The norm and the gated linear unit of L-GATr-slim as operators, and as one kernel each for eager calls on a GPU.

They are operators of :mod:`flashcliff.operators`: vectors are multivectors of grade 1 in Cl(1,3,0), scalars have channels of their own.
Kernels are compiled at the first call. Elsewhere, and under ``torch.compile`` and transforms, the parts are operations of PyTorch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...._ops import doors
from ....algebra import Algebra
from ....nn.transformer import Geometry
from ....operators import Multivector, Operator, PerChannel, Scalar, Scalars, operator
from .slim_version import VectorsScalars

__all__ = ["SLIM", "glu", "glu_operator", "norm", "norm_operator"]

_SPACETIME = (1, 3, 0)
SLIM = Geometry(
    Algebra(*_SPACETIME), group="spin", vectors=True, product=False, head_norm=True
)
"""The geometry of L-GATr-slim."""
_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

_ACTIVATIONS: dict[str, Callable[[Scalar], Scalar]] = {
    "relu": lambda s: s.maximum(0.0),
    "sigmoid": lambda s: s.sigmoid(),
    "tanh": lambda s: 2.0 * (2.0 * s).sigmoid() - 1.0,
    "silu": lambda s: s * s.sigmoid(),
    # The approximation by a hyperbolic tangent, which is 2 sigmoid(2 x) - 1.
    "gelu_tanh": lambda s: s * (2.0 * math.sqrt(2.0 / math.pi) * (s + 0.044715 * (s * s * s))).sigmoid(),
    "gelu": lambda s: s * s.gate(),
}


def norm(
    vectors: Tensor, scalars: Tensor, gains: Sequence[Tensor], epsilon: float
) -> VectorsScalars | None:
    """Vectors ``[*batch, 4, channels]`` and scalars ``[*batch, channels]`` over the root of their mean square plus epsilon, times gains if there are
    any, ``[channels]`` each; ``None`` if operations of PyTorch are to compute it."""
    if not _serves(vectors, scalars, *gains):
        return None
    of = norm_operator(float(epsilon), bool(gains))
    return _call(of, (vectors,), (scalars,), [gain.unsqueeze(-1) for gain in gains])


def glu(
    vectors: Sequence[Tensor], scalars: Sequence[Tensor], activations: tuple[str, str], scale: float
) -> VectorsScalars | None:
    """``f_v(scale <a, b>) v`` of vectors ``v, a, b``, ``[*batch, 4, channels]``, and ``f(g) s`` of scalars ``s, g``, ``[*batch, channels]``; ``None`` if
    operations of PyTorch are to compute it."""
    if not _serves(vectors[0], scalars[0]):
        return None
    return _call(glu_operator(activations, float(scale)), vectors, scalars, ())


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
    """The operator of a function, whose gates are those of the exact GELU."""
    return operator(_SPACETIME, gate="gelu")(function)


def _call(
    of: Operator, vectors: Sequence[Tensor], scalars: Sequence[Tensor], gains: Sequence[Tensor]
) -> VectorsScalars:
    batch = vectors[0].shape[:-2]
    rows = math.prod(batch)
    flat = [v.reshape(rows, *v.shape[-2:]).transpose(0, 1) for v in vectors]
    flat += [s.reshape(rows, s.shape[-1]).unsqueeze(0) for s in scalars]
    o, t = of(*flat, *gains)
    return o.transpose(0, 1).reshape(*batch, *vectors[0].shape[-2:]), t[0].reshape(
        *batch, scalars[0].shape[-1]
    )


def _serves(vectors: Tensor, scalars: Tensor, *gains: Tensor) -> bool:
    """Whether a kernel takes these tensors."""
    if not vectors.is_cuda or vectors.dtype is not scalars.dtype or vectors.dtype not in _TYPES:
        return False
    if vectors.shape[:-2] != scalars.shape[:-1] or torch.compiler.is_compiling():
        return False
    if any(gain.dtype is not gains[0].dtype for gain in gains):
        return False
    return doors.opens(vectors, scalars, *gains) and _compiles(vectors.device)


@functools.lru_cache
def _can_compile(index: int) -> bool:
    """Whether kernels can be compiled for a GPU; tried once."""
    tried = norm_operator(1.0, False)
    x, s = (torch.zeros(shape, device=f"cuda:{index}") for shape in ((4, 1, 1), (1, 1, 1)))
    try:
        with torch.no_grad():
            tried(x, s)
    except (RuntimeError, NotImplementedError):
        return False
    return True


_known: set[int] = set()
"""The GPUs for which it was tried."""


def _compiles(device: torch.device) -> bool:
    index = torch.cuda.current_device() if device.index is None else device.index
    if index not in _known:
        # Nothing may be compiled within a capture.
        if torch.cuda.is_current_stream_capturing():
            return False
        _known.add(index)
    return _can_compile(index)
