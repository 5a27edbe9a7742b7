"""Runs of operators with scalar channels on tensors whose axes lie in another order in memory, without copies.

Networks of vectors and scalars hold ``[*batch, components, channels]``; seen as ``[components, batch, channels]``, such a tensor is not
contiguous. The kernels of these operators take any strides of components and rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from .. import _core
from . import doors
from .tensor_types import NAMES


def results(operator: _core.Operator, tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """All outputs of an operator on a GPU, in the order of axes that the first tensor has; ``None`` if contiguous tensors are to be made
    instead."""
    lanes = _lanes(operator)
    if lanes is None or len(lanes) != len(tensors) or not tensors[0].is_cuda:
        return None
    if all(tensor.is_contiguous() for tensor in tensors):
        return None
    device = tensors[0].get_device()
    views, strides = [], []
    for tensor, lane in zip(tensors, lanes):
        name = NAMES.get(tensor.dtype)
        if name is None or tensor.get_device() != device or not _is_plain(tensor):
            return None
        stride = tensor.stride()
        if lane and (tensor.dim() != 3 or (stride[2] != 1 and tensor.shape[2] > 1)):
            return None
        if not lane and not tensor.is_contiguous():
            return None
        views.append((tensor.data_ptr(), tensor.shape, name))
        strides.append((stride[0], stride[1]) if lane else (0, 0))
    with torch.cuda.device(device):
        stream = torch._C._cuda_getCurrentRawStream(device)
        return _run(operator, tensors, lanes, views, strides, (device, stream, False))


def _run(operator, tensors, lanes, views, strides, place):
    shapes, workspace_len = operator.plan_strided(views, place)
    like = {lane: tensor for tensor, lane in zip(tensors, lanes)}
    components, rows = strides[lanes.index(True)]
    moved = rows > components
    outputs = [
        _moved(like[True], shape) if "batch" in axes and moved else like["batch" in axes].new_empty(shape)
        for (_, axes), shape in zip(operator.outputs, shapes)
    ]
    space = (0, 0)
    if workspace_len:
        workspace = like[True].new_empty(workspace_len, dtype=torch.uint8)
        space = (workspace.data_ptr(), workspace_len)
    # The strides of a parameter are not read.
    places = [(output.data_ptr(), output.stride(0), output.stride(1)) for output in outputs]
    operator.run_strided(views, strides, places, space, place)
    return outputs


def _moved(like: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor ``[components, batch, channels]`` in memory of the order ``[batch, components, channels]``."""
    components, batch, channels = shape
    return like.new_empty(batch, components, channels).transpose(0, 1)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in doors.PLAIN and not tensor.is_neg() and doors.lies_in_memory(tensor)


@lru_cache(maxsize=256)
def _lanes(operator: _core.Operator) -> list[bool] | None:
    """Which inputs are tensors of lanes, for operators with scalar channels."""
    axes = [axes for _, axes in operator.inputs]
    return ["batch" in each for each in axes] if any("scalars" in each for each in axes) else None
