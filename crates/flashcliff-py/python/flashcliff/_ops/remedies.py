"""The advice about a tensor that an operator refuses, added to the message that says what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core

_NAMED = re.compile("tensor `([a-z_]+)`")
_ENDS = "; "
_SHOWN = 80
"""The characters of a value that a message has."""


def of_tensor(error: Exception, operator: _core.Operator, tensors: Sequence[Tensor]) -> Exception:
    """The error of a tensor with the remedy, if there is a plain one."""
    message = str(error)
    named = _NAMED.search(message)
    given = {name: (axes, tensor) for (name, axes), tensor in zip(operator.inputs, tensors)}
    if named is None or named[1] not in given or _ENDS in message:
        return error
    axes, tensor = given[named[1]]
    remedy = (
        _of_type(named[1], tensor, tensors[0])
        if isinstance(error, TypeError)
        else _of_shape(named[1], axes, tensor, tensors[0])
    )
    return type(error)(f"{message}{_ENDS}{remedy}") if remedy else error


def _of_type(name: str, tensor: Tensor, first: Tensor) -> str | None:
    if not tensor.dtype.is_floating_point or tensor.is_quantized:
        return None if tensor.is_complex() or tensor.is_quantized else f"call `{name}.float()`"
    if tensor.is_cpu and tensor.dtype in (torch.float16, torch.bfloat16):
        return f"call `{name}.float()`"
    return f"call `{name}.to({first.dtype})`" if tensor.dtype != first.dtype else None


def _of_shape(name: str, axes: Sequence[int | str], tensor: Tensor, first: Tensor) -> str | None:
    shape = tuple(tensor.shape)
    if len(axes) == 3 and axes[1] == "batch" and len(shape) == 3:
        blades = axes[0]
        if shape[0] != blades and shape[-1] == blades:
            return f"blades are the first axis: call `{name}.movedim(-1, 0)`"
        channels_fit = shape[0] == blades and shape[2] == first.shape[-1]
        if channels_fit and shape[1] == 1 and first.dim() == 3:
            return (
                f"operators do not broadcast: call `{name}.expand(-1, {first.shape[1]}, -1)`"
            )
    if len(axes) == len(shape) == 2 and axes == ("in", axes[1]):
        channels = first.shape[-1]
        if shape == (axes[1], channels) and shape[0] != shape[1]:
            return f"call `{name}.t()`"
    return None


def check_tensor(name: str, value: Any) -> None:
    """Checks that an argument is a tensor."""
    if isinstance(value, Tensor):
        return
    # Numbers and words are short. Other values may print as all that they hold.
    is_short = value is None or isinstance(value, (bool, int, float, complex, str))
    got = repr(value)[:_SHOWN] if is_short else type(value).__name__
    raise TypeError(f"{name}: expected a torch.Tensor, got {got}{of_value(name.split(': ')[-1], value)}")


def check_dense(name: str, value: Any) -> None:
    """Checks that an argument is a tensor that is an array of numbers."""
    check_tensor(name, value)
    if value.is_nested or value.layout is not torch.strided:
        raise _core.UnsupportedError(
            f"{name}: expected a dense tensor, got {'nested' if value.is_nested else value.layout}; "
            "pad it, or call `to_dense()` first"
        )


def of_value(name: str, value: Any) -> str:
    """The remedy for a value that is not a tensor, to be added to a message."""
    if hasattr(value, "__dlpack__"):
        return f"{_ENDS}call `torch.from_dlpack({name})`, or a function of flashcliff.arrays"
    if isinstance(value, (list, tuple)):
        if any(isinstance(part, Tensor) for part in value):
            return f"{_ENDS}pass one of its tensors, or call `torch.stack({name})`"
        return f"{_ENDS}call `torch.tensor({name})`"
    return ""
