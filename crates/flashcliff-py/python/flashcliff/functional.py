"""Differentiable operators on tensors of PyTorch.

Multivectors are ``[blades, *batch, channels]``: any number of batch axes, the same for all
multivectors of a call (there is no broadcasting). They need not be contiguous; those that are not
are copied. A tensor has the blades of the grades that it carries, in the order of
:attr:`flashcliff.Algebra.blades`; the options ``left``, ``right`` and ``grades`` say
which grades a tensor carries, as an iterable of grades or ``None`` for all. ``algebra`` is a :class:`flashcliff.Algebra` or a
tuple ``(p, q, r)``. In the tables below ``C`` is the number of channels, ``G`` of grades, ``P`` of
paths (:attr:`flashcliff.Algebra.paths`).

Element types: float32 and float64; on CUDA bfloat16 and float16 too, computed in float32, with
parameters of the same type or of float32. Under autocast, products and linear maps take
multivectors in its type on CUDA, and all operators run in float32 on the CPU; float64 stays
float64. On CUDA ``torch.set_float32_matmul_precision``, or
``torch.backends.cuda.matmul.fp32_precision``, governs matrix products of float32.

Every operator is also one of PyTorch (``torch.ops.flashcliff``), and so works with
``torch.compile`` and ``torch.export``. Every operator has derivatives of every order that its
kernels have room for, at least the third in algebras of up to four dimensions: gradients with
``create_graph=True``, forward mode, the transforms of ``torch.func`` and batched gradients
(``is_grads_batched``). The first gradient is the fastest: its kernels read what the forward pass
saved. Maps with matrix products (``mv_linear``, ``fcgp_norm``, ``mv_linear_sgp_norm``) are composed
of operations of PyTorch for all others. ``torch.func.vmap`` makes one call of a batch of
multivectors, and a call for each of a batch of weights.

Raises, for all functions: ``ValueError`` for wrong shapes or options, ``TypeError`` for element
types and for options of other types, ``RuntimeError`` for tensors on different devices,
:class:`flashcliff.UnsupportedError` if there is no such operator between the grades or on the
device, or if a tensor is sparse or nested, :class:`flashcliff.CudaError` if CUDA fails.
"""

from . import _torch as _torch
from . import native as _native
from ._derived.functional import *  # noqa: F403
from ._derived.functional import __all__ as __all__
from ._ops import backends as _backends

if _backends.start():
    _native.start()
