"""The operators, forward only, on arrays of any library that speaks DLPack: NumPy, CuPy, JAX,
PyTorch and others. There are no gradients here: :mod:`flashcliff.jax` and
:mod:`flashcliff.functional` have them, for arrays of JAX and tensors of PyTorch.

The module has the functions of :mod:`flashcliff.functional`, with the same arguments, except that
involutions and duals are of all grades and take no ``grades``; a result is an array of the library
of the first array given. Arrays are read where they lie; those that are not
contiguous in C order are copied by their own library first. On the CPU they are float32 or float64,
on CUDA float16 and bfloat16 too. Under ``jax.jit`` arrays have no memory yet, so they are refused.
On CUDA a call runs on the default stream of the GPU and waits for it. Operators of :func:`flashcliff.operator` take arrays in the same way.

>>> import numpy as np
>>> from flashcliff import arrays
>>> x = np.ones((8, 4, 2), dtype=np.float32)
>>> arrays.reverse(x, (3, 0, 0))[7, 0]
array([-1., -1.], dtype=float32)
"""

from ._derived.arrays import *  # noqa: F403
from ._derived.arrays import __all__ as __all__
