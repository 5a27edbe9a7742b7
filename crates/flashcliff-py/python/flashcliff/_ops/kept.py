"""Tensors that are made in one call and used by later ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def for_later_calls() -> Iterator[None]:
    """Makes tensors as if no call was in progress, on the CPU unless a device is named.

    A tensor made in inference mode could not be saved for a backward pass, one made under a mode that fakes tensors or records
    operations, within a trace or a transform such as ``vmap``, or on a default device could not be used outside of it.
    """
    trace = torch._C._get_tracing_state()
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        temporarily_clear_interpreter_stack(),
        _disable_current_modes(),
        torch.device("cpu"),
    ):
        if trace is not None:
            torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            if trace is not None:
                torch._C._set_tracing_state(trace)  # type: ignore[attr-defined]


def beside(table: Tensor, like: Tensor) -> Tensor:
    """A kept table for a call with another tensor. If that is fake, the table is made again from its numbers, so that traces and exports
    keep the numbers."""
    if not isinstance(like, FakeTensor):
        return table
    if table.is_meta:
        return like.fake_mode.from_tensor(table, static_shapes=True)
    with for_later_calls():
        numbers = table.tolist()
    return torch.tensor(numbers, dtype=table.dtype, device=table.device)
