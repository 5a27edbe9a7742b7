"""Functions of the packages gatr and lgatr that are no layers, for multivectors ``[..., 16]`` or ``[..., channels, 16]``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import functional
from .._ops import remedies
from ..nn import transformer
from ..nn.transformer.contract import mapped
from ..nn.transformer.geometry import check_types, constant

__all__ = [
    "gated_gelu",
    "gated_relu",
    "gated_sigmoid",
    "gated_silu",
    "grade_dropout",
    "grade_involute",
    "grade_project",
    "linear",
    "product",
    "reverse",
]

# The grade of each of the 16 blades, in both algebras.
GRADES = (0,) + 4 * (1,) + 6 * (2,) + 4 * (3,) + (4,)


def tensor(name: str, x: Tensor) -> Tensor:
    """A tensor."""
    remedies.check_tensor(name, x)
    return x


def checked(name: str, x: Tensor) -> Tensor:
    """A tensor of multivectors."""
    if tensor(name, x).dim() < 1 or x.shape[-1] != 16:
        raise ValueError(f"{name}: expected [..., 16], got {list(x.shape)}")
    return x


def product(x: Tensor, y: Tensor, geometry: transformer.Geometry, kind: str) -> Tensor:
    """A product of multivectors whose other axes broadcast."""
    dtype = torch.promote_types(checked("x", x).dtype, checked("y", y).dtype)
    left, right = torch.broadcast_tensors(x.to(dtype), y.to(dtype))
    first, second = (operand.reshape(-1, 1, 16).movedim(-1, 0) for operand in (left, right))
    found = functional.product(first, second, geometry.algebra, kind)
    return found.movedim(0, -1).reshape(left.shape)


def linear(x: Tensor, coeffs: Tensor, geometry: transformer.Geometry) -> Tensor:
    """The equivariant linear map of multivectors ``[..., in, 16]`` with coefficients ``[out, in, maps]``."""
    checked("x", x)
    tensor("coeffs", coeffs)
    wanted = [x.shape[-2] if x.dim() > 1 else 1, geometry.plan.count]
    if coeffs.dim() != 3 or list(coeffs.shape[1:]) != wanted or x.dim() < 2:
        raise ValueError(
            f"coeffs: expected [outputs, {wanted[0]}, {wanted[1]}] for x {list(x.shape)}, got {list(coeffs.shape)}"
        )
    outputs, inputs, _ = coeffs.shape
    check_types("equi_linear", (x, coeffs))
    rows = x.movedim(-1, 0).reshape(16, -1, inputs)
    found = mapped(geometry, rows, coeffs)
    return found.movedim(0, -1).reshape(*x.shape[:-2], outputs, 16)


def grade_project(x: Tensor) -> Tensor:
    """The parts of each grade, ``[..., 5, 16]``."""
    parts = [[float(grade == wanted) for grade in GRADES] for wanted in range(5)]
    masks = constant(tuple(value for part in parts for value in part), checked("x", x))
    return x.unsqueeze(-2) * masks.view(5, 16)


def reverse(x: Tensor) -> Tensor:
    """The reverse: grades 2 and 3 change their signs."""
    return _signed(x, (2, 3))


def grade_involute(x: Tensor) -> Tensor:
    """The grade involution: grades 1 and 3 change their signs."""
    return _signed(x, (1, 3))


def _signed(x: Tensor, odd: tuple[int, ...]) -> Tensor:
    signs = tuple(-1.0 if grade in odd else 1.0 for grade in GRADES)
    return checked("x", x) * constant(signs, x)


def grade_dropout(x: Tensor, p: float, training: bool, geometry: transformer.Geometry) -> Tensor:
    """Dropout of whole grades."""
    layer = transformer.GradeDropout(geometry.algebra, p).train(training)
    return layer(checked("x", x).movedim(-1, 0), None)[0].movedim(0, -1)


def gated_relu(x: Tensor, gates: Tensor) -> Tensor:
    """Tensors, such as multivectors, times the ReLU of gates ``[..., 1]``."""
    return F.relu(gates) * tensor("x", x)


def gated_sigmoid(x: Tensor, gates: Tensor) -> Tensor:
    """Tensors, such as multivectors, times the sigmoid of gates ``[..., 1]``."""
    return torch.sigmoid(gates) * tensor("x", x)


def gated_gelu(x: Tensor, gates: Tensor) -> Tensor:
    """Tensors, such as multivectors, times the GELU, with tanh, of gates ``[..., 1]``."""
    return F.gelu(gates, approximate="tanh") * tensor("x", x)


def gated_silu(x: Tensor, gates: Tensor) -> Tensor:
    """Tensors, such as multivectors, times the SiLU of gates ``[..., 1]``."""
    return F.silu(gates) * tensor("x", x)
