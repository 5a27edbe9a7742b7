"""The types of kernels under autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

_KINDS = frozenset(
    kind for kind in ("cpu", "cuda", "xpu", "mps", "mtia") if torch.amp.is_autocast_available(kind)
)
"""Kinds of devices that have autocast. Not every release of `torch.compile` can trace the question."""


def type_under_autocast(device: str, dtype: torch.dtype) -> torch.dtype:
    """The type that a convolution on a kind of device casts a kernel to. A kernel that is kept has it already, so it is cast once."""
    if dtype == torch.float32 and is_on(device):
        return torch.get_autocast_dtype(device)
    return dtype


def is_on(device: str) -> bool:
    """Whether autocast is on for a kind of device. Meta tensors have none."""
    has_autocast = device in _KINDS or (
        not torch.compiler.is_compiling() and torch.amp.is_autocast_available(device)
    )
    return has_autocast and torch.is_autocast_enabled(device)


def turned_off(device: str) -> AbstractContextManager[object]:
    """A context in which types stay."""
    return torch.autocast(device, enabled=False) if is_on(device) else nullcontext()
