"""Arrays of other libraries."""

import numpy as np
import torch
from misuse import R3, refused, right

from flashcliff import arrays


def ones(blades=8, dtype=np.float64, **options):
    return np.ones((blades, 3, 4), dtype=dtype, **options)


def reverse(array):
    return lambda: arrays.reverse(array, R3)


def frozen():
    array = ones()
    array.flags.writeable = False
    return array


DLPACK = "reverse: `x` must be an array with `__dlpack__`, got "
TYPES = "expected f32, f64, bf16 or f16, got "

ROWS = [
    refused("a list as an array", reverse([[1.0]]), TypeError, DLPACK + "list"),
    refused("a number as an array", reverse(1.0), TypeError, DLPACK + "float"),
    refused("a number of NumPy as an array", reverse(np.float64(1)), TypeError, DLPACK + "float64"),
    refused("None as an array", reverse(None), TypeError, DLPACK + "NoneType"),
    refused("a string as an array", reverse("x"), TypeError, DLPACK + "str"),
    refused("an array with a mask", reverse(np.ma.masked_array(ones())), TypeError, "reverse: `x` must be an array without a mask, got MaskedArray; call its `filled"),
    refused("a weight with a mask", lambda: arrays.grade_norm(ones(), np.ma.ones((4, 4)), R3), TypeError, "`a` must be an array without a mask"),
    refused("an array of integers", reverse(ones(dtype=np.int64)), TypeError, "reverse: tensor `x`: " + TYPES + "int64"),
    refused("an array of booleans", reverse(ones(dtype=bool)), TypeError, TYPES + "bool"),
    refused("an array of complex numbers", reverse(ones(dtype=complex)), TypeError, TYPES + "complex128"),
    refused("an array of objects", reverse(ones(dtype=object)), BufferError, "reverse: cannot read `x` by DLPack"),
    refused("an array of strings", reverse(ones().astype(str)), BufferError, "cannot read `x` by DLPack"),
    refused("an array in the other byte order", reverse(ones(dtype=">f8")), BufferError, "cannot read `x` by DLPack.*byte order"),
    refused("an array of float16 on the CPU", reverse(ones(dtype=np.float16)), TypeError, "f32 or f64 on the CPU"),
    refused("an array of long doubles", reverse(ones(dtype=np.longdouble)), BufferError, "cannot read `x` by DLPack"),
    refused("a tensor with gradients as an array", reverse(torch.ones(8, 3, 4, requires_grad=True)), BufferError, r"cannot read `x` by DLPack.*detach\(\)"),
    refused("a sparse tensor as an array", reverse(torch.eye(8)[:, None].to_sparse()), BufferError, "cannot read `x` by DLPack.*layout"),
    refused("a tensor without data as an array", reverse(torch.ones(8, 3, 4, device="meta")), BufferError, "cannot read `x` by DLPack.*meta"),
    refused("arrays of types that differ", lambda: arrays.geometric_product(ones(), ones(dtype=np.float32), R3), TypeError, "tensor `y` must be f64"),
    refused("an array with too few blades", reverse(ones(7)), ValueError, r"reverse: tensor `x` must be \[8"),
    refused("an array of one axis", reverse(np.ones(8)), ValueError, "tensor `x` must be"),
    refused("arrays with batches that differ", lambda: arrays.geometric_product(ones(), ones()[:, :2], R3), ValueError, r"`y` must be \[blades, 3, channels\]"),
    refused("arrays with channels that differ", lambda: arrays.geometric_product(ones(), ones()[..., :2], R3), ValueError, "tensor `y` must be"),
    refused("no weight for arrays", lambda: arrays.sgp_norm(ones(), ones(), None, R3), TypeError, "`weight` must be an array with `__dlpack__`, got NoneType"),
    refused("a string as eps for arrays", lambda: arrays.grade_rms(ones(), R3, eps="1"), TypeError, "eps: expected a number, got '1'"),
    refused("eps below zero for arrays", lambda: arrays.grade_rms(ones(), R3, eps=-1), ValueError, "eps must be a finite number"),
    refused("a number as per_grade for arrays", lambda: arrays.mv_linear(ones(), np.ones((2, 4, 4)), algebra=R3, per_grade=1), TypeError, "per_grade: expected True or False"),
    refused("a name as the algebra of arrays", lambda: arrays.norm(ones(), "cl300"), TypeError, "algebra: expected"),
    refused("grades of an involution of arrays", lambda: arrays.reverse(ones(), R3, grades=(1,)), TypeError, "grades"),
    right("an array that may not be written", reverse(frozen()), lambda o: o.shape == (8, 3, 4)),
    right("an array read backwards", lambda: arrays.norm(ones()[::-1], R3), lambda o: np.allclose(o, 8**0.5)),
    right("an array in the order of Fortran", lambda: arrays.norm(np.asfortranarray(ones()), R3), lambda o: np.allclose(o, 8**0.5)),
    right("an empty array", lambda: arrays.norm(ones()[:, :0], R3), lambda o: o.shape == (1, 0, 4)),
    right("arrays of two libraries", lambda: arrays.geometric_product(ones(), torch.ones(8, 3, 4).double(), R3), lambda o: isinstance(o, np.ndarray)),
]  # fmt: skip
