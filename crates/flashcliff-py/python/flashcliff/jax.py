"""The operators, and networks of files, on arrays of JAX, within ``jax.jit``, with derivatives of every order.

The module has the functions of :mod:`flashcliff.functional`, with the same arguments and the same numbers: on the CPU bit for bit, first
gradients included, by the same kernels. They are calls within the programs that XLA compiles, on the CPU and on NVIDIA GPUs, of the arrays
where they lie.

===================================  ==========================================================================
``jax.jit``                          a call is one foreign function of the program; a GPU's workspace is planned by XLA
``jax.grad``, ``jax.vjp``            the backward pass, which reads what the forward pass saved
``jax.jvp``, ``jax.linearize``       the operator's tangent, a separate operator
``jax.hessian`` and further orders   derivatives of derivatives, as far as kernels have room: at least the third in up to four dimensions
``jax.vmap``                         one call for a batch of multivectors; a call after the other for a batch of weights, and for sums over
                                     the batch such as gradients of weights
``jax.checkpoint``, ``lax.scan``     as any other function
===================================  ==========================================================================

A program of XLA names an operator by its content, so it may be stored, and run in another process. Operators of
:func:`flashcliff.operator` take arrays of JAX in the same way, and :func:`load_network` makes a function of a file of
:func:`flashcliff.save_network`.

Element types: float32, and float64 where ``jax_enable_x64`` is on; on CUDA float16 and bfloat16 too, with parameters of the same type or
of float32. Matrix products of float32 on CUDA are rounded to TF32 only if ``jax_default_matmul_precision`` is set to ``"tensorfloat32"``,
``"bfloat16"``, ``"default"`` or ``"fastest"``; where it is not set, they are of float32, as PyTorch's are.

Several devices: call within ``jax.shard_map``, each shard of the batch on its own device. XLA does not split a call: under
``jax.jit`` alone it gathers arrays that are spread over devices.

JAX is imported with this module, and PyTorch is not. Errors: ``ValueError`` for shapes and options, ``TypeError`` for element types and
for what is not an array, when the function is traced.

>>> import jax
>>> from flashcliff import jax as fj
>>> x = jax.numpy.ones((8, 4, 2))
>>> jax.grad(lambda x: fj.geometric_product(x, x, (3, 0, 0))[0].sum())(x)[:, 0, 0].tolist()
[2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0]
"""

import importlib.util as _util

from .errors import MissingPackageError as _MissingPackageError

if _util.find_spec("jax") is None:
    raise _MissingPackageError("flashcliff.jax needs JAX, which is not installed: pip install jax")

from ._derived import jax as _functions  # noqa: E402
from ._derived.jax import *  # noqa: E402, F403
from ._jax.network import LoadedNetwork, load_network  # noqa: E402

__all__ = [*_functions.__all__, "LoadedNetwork", "load_network"]  # noqa: PLE0604
