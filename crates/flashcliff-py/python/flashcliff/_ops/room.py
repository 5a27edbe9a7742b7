"""The errors of calls that find no memory.

On the CPU a call of 64 MiB or more asks for the memory of the system before it allocates, in the extension
(``Operator.plan``), and raises ``MemoryError``. On a GPU nothing is asked, because that takes the host longer than a launch:
PyTorch's own error gets the numbers of the call.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch
from torch import Tensor

from .. import _core
from .tensor_types import NAMES


def explained(
    error: torch.OutOfMemoryError,
    operator: _core.Operator,
    tensors: Sequence[Tensor],
    wanted: Sequence[bool] | None,
) -> torch.OutOfMemoryError:
    """The error of PyTorch's allocator with the bytes that the call needs, those that are free, and the largest batch that
    fits. ``wanted`` are the gradients of a backward pass; ``None`` stands for a forward pass."""
    # The memory that the call has got until then lives in the variables of its frames.
    traceback.clear_frames(error.__traceback__)
    device = tensors[0].get_device()
    if device < 0 or any(tensor.dtype not in NAMES for tensor in tensors):
        return error
    views = [(0, tuple(tensor.shape), NAMES[tensor.dtype]) for tensor in tensors]
    gradients = None if wanted is None else list(wanted)
    try:
        message = operator.no_room(
            views, wanted is not None, (device, 0, False), gradients, available(device)
        )
    except (RuntimeError, TypeError, ValueError):
        # The call is wrong in another way too, and the allocator was first.
        return error
    return type(error)(f"{message}\n{error}")


def available(device: int) -> int | None:
    """The bytes that PyTorch can still give on a GPU: those that are free, and those that its cache holds and nobody uses, within the share
    of the GPU that this process may take. ``None`` if the driver does not tell, as it may while a graph is captured."""
    try:
        free, total = torch.cuda.mem_get_info(device)
        used = torch.cuda.memory_allocated(device)
        cached = torch.cuda.memory_reserved(device) - used
        share = torch.cuda.get_per_process_memory_fraction(device)
    except RuntimeError:
        return None
    return max(0, min(free + cached, int(share * total) - used))
