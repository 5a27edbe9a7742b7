"""The helpers of ``lgatr.utils`` (2.0) that models of others import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...nn.transformer.gate import ACTIVATIONS
from .._utils import floor_of_precision
from .compiling import compile_network
from .config import activation
from .precision import is_naive, naive_amp

__all__ = [
    "autocast_dtype",
    "compile_model",
    "get_nonlinearity",
    "minimum_autocast_precision",
    "naive_amp",
    "residual_add",
]


def minimum_autocast_precision(
    min_dtype: torch.dtype = torch.float32, output: torch.dtype | str | None = "low"
) -> Callable[..., Any]:
    """A decorator of functions that run without autocast, on tensors of at least ``min_dtype``, while autocast is on
    and :class:`naive_amp` is not.

    Args:
        min_dtype: the type.
        output: the type of results: a type; ``"low"`` for the narrowest of the arguments' and ``min_dtype``; ``"high"``
            for the widest of the arguments'; ``None`` for what comes.
    """
    return floor_of_precision(min_dtype, output, is_naive)


def autocast_dtype(device_type: str = "cuda") -> torch.dtype:
    """The type of autocast on a kind of device."""
    return torch.get_autocast_dtype(device_type)


def get_nonlinearity(label: str) -> Callable[[Tensor], Tensor]:
    """The function of a nonlinearity: ``"relu"``, ``"sigmoid"``, ``"tanh"``, ``"gelu"`` (with tanh) or ``"silu"``."""
    return ACTIVATIONS[activation(label)]


def residual_add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The sum of two tensors, of which one or both may be ``None``."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def compile_model(
    model: torch.nn.Module,
    *,
    compile_kwargs: dict[str, Any] | None = None,
    activation_memory_budget: float | None = None,
) -> None:
    """Compiles the calls of a network; see the networks' arguments of these names."""
    compile_network(model, compile_kwargs, activation_memory_budget)
