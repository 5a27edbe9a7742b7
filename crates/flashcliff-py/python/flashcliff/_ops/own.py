"""Calls of operators that users have written, on tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .. import _core
from .. import _torch as _torch
from . import autocast, derived
from .tensors import flattened

Argument = tuple[str, Any, bool]
"""The name of an argument, what was given for it, and whether it has a batch."""


def key(made: _core.Operator, content: str) -> str:
    """The key of an operator: equal contents are one operator."""
    return derived.own_key(made, content)


def is_among(given: Sequence[Argument]) -> bool:
    """Whether a tensor of PyTorch is among the arguments."""
    return any(isinstance(value, Tensor) for _, value, _ in given)


def call(operator: str, of: str, given: Sequence[Argument]) -> list[Tensor]:
    """The results, which can be differentiated.

    Args:
        operator: the name of the operator, for messages.
        of: the key of the operator.
        given: its arguments.
    """
    for name, value, _ in given:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{operator}: `{name}` must be a torch.Tensor, got {type(value).__name__}, while another argument is one"
            )
    batch = next(tensor.shape[1:-1] for _, tensor, lane in given if lane)
    tensors = autocast.alike([tensor for _, tensor, _ in given])
    flat = [
        flattened(operator, name, tensor, batch) if lane else tensor
        for (name, _, lane), tensor in zip(given, tensors)
    ]
    return [
        output.reshape(output.shape[0], *batch, output.shape[-1])
        for output in derived.call(of, flat)
    ]
