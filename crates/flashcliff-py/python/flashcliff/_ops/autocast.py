"""Applies autocast to the tensors of an operator.

On CUDA, products and linear maps (:attr:`~.op.Op.autocast`) take their multivectors in the type
of autocast, and parameters as they are: the kernels compute in float32 either way and round once,
at the end. Norms, gates and involutions run in the type of their multivectors. On the CPU, where
the kernels have no 16-bit types, 16-bit tensors are cast to float32. float64 is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .op import Op


def cast(op: Op, tensors: Sequence[Tensor | None], device: str) -> tuple[Tensor | None, ...]:
    """The tensors, cast to the types that the operator runs in."""
    eligible = [
        tensor is not None
        and tensor.is_floating_point()
        and tensor.dtype != torch.float64
        and tensor.device.type == device
        for tensor in tensors
    ]
    if device == "cpu":
        types = [torch.float32] * len(tensors)
    else:
        lanes = _lanes(op, tensors, eligible, device)
        # Kernels do not take a parameter of the other 16-bit type.
        types = [
            (tensor.dtype if tensor.dtype in (lanes, torch.float32) else torch.float32)
            if name in op.parameters and tensor is not None
            else lanes
            for name, tensor in zip(op.names, tensors)
        ]
        # All parameters must share one type.
        parameters = {
            t for t, name, ok in zip(types, op.names, eligible) if name in op.parameters and ok
        }
        if len(parameters) > 1:
            types = [torch.float32 if name in op.parameters else t for t, name in zip(types, op.names)]
    return tuple(
        tensor if tensor is None or not ok else tensor.to(dtype)
        for tensor, ok, dtype in zip(tensors, eligible, types)
    )


_NARROW = torch.bfloat16, torch.float16


def alike(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors of an operator that a user has written: under autocast some come from layers that it has cast to 16 bits, others do not.
    They are computed in float32 then, as all are on the CPU."""
    device = tensors[0].device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    if device != "cpu" and len({tensor.dtype for tensor in tensors}) == 1:
        return tensors
    return [tensor.float() if tensor.dtype in _NARROW else tensor for tensor in tensors]


def _lanes(op, tensors, eligible, device):
    if op.autocast:
        return torch.get_autocast_dtype(device)
    lanes = [
        tensor.dtype
        for name, tensor, ok in zip(op.names, tensors, eligible)
        if ok and name not in op.parameters
    ]
    return lanes[0] if len(set(lanes)) == 1 else torch.float32
