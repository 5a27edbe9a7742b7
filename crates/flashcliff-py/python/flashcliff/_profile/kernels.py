"""The calls of kernels of transformers as rows: which they are, by the arguments of the functions that launch them.

A network of layers is one call in each pass. Costs follow from keys, in :mod:`.kernel_costs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._ops import attention
from .._ops.tensor_types import NAMES
from .clock import timed
from .events import Kernel, Key

Described = tuple[Key, Tensor]
"""The key of a call, and a tensor on its device."""


def places() -> list[tuple[Any, str, Callable[..., Described]]]:
    """The functions that launch kernels: where each is, and what describes its calls."""
    # Layers import much of the package, which a profile of operators does without.
    from ..nn.transformer.described.function import Run

    return [
        (attention, "forward", attend),
        (attention, "backward", attend_gradient),
        (Run, "forward", network),
        (Run, "backward", network_gradient),
    ]


def clocked(inner: Callable[..., Any], describe: Callable[..., Described]) -> Callable[..., Any]:
    """A function that launches kernels, with a clock."""

    def call(*arguments: Any, **named: Any) -> Any:
        key, tensor = describe(*arguments, **named)
        if not tensor.is_cuda:
            return timed(key, False, lambda: inner(*arguments, **named))
        # Marks are of the current device.
        with torch.cuda.device(tensor.device):
            return timed(key, True, lambda: inner(*arguments, **named))

    return call


def _device(tensor: Tensor) -> str:
    return f"cuda:{tensor.get_device()}" if tensor.is_cuda else "cpu"


def _key(
    name: str, algebra: Any, phase: str, tensor: Tensor, shapes: Any, *details: tuple[str, Any]
) -> Described:
    subject = Kernel(name, algebra, tuple(pair for pair in details if pair[1]))
    return Key(subject, phase, tuple(shapes), NAMES[tensor.dtype], _device(tensor)), tensor


def network(run: Any) -> Described:
    return _network("forward", run)


def network_gradient(run: Any, *_: Any) -> Described:
    return _network("backward", run)


def _network(phase: str, run: Any) -> Described:
    """A network has the shapes of its inputs, and details of its other tensors: elements of parameters, of the result and of
    gradients, the bytes that the backward pass reads of the forward pass, and its operations."""
    shapes = [tuple(t.shape) for t in run.rows]
    parameters = sum(t.numel() for t in run.tensors[len(shapes) :])
    details = [
        ("parameters", parameters),
        ("result", sum(map(math.prod, run.plan.shapes))),
        ("kept", run.plan.kept),
        ("flops", run.plan.flops[phase == "backward"]),
    ]
    if phase == "backward":
        details.append(("gradients", sum(t.numel() for t in run.wanted)))
    return _key("network", run.call.algebra, phase, run.rows[0], shapes, *details)


def attend(call: Any, given: Any, out: Any) -> Described:
    return _attention("forward", call, given)


def attend_gradient(call: Any, given: Sequence[Tensor], *_: Any) -> Described:
    return _attention("backward", call, given)


def _attention(phase: str, call: attention.Call, given: Any) -> Described:
    shapes = [tuple(x.shape) for x in given[:3]]
    rows = ("sequences", call.sequences), ("ragged", call.queries.bounds is not None)
    return _key("attention", None, phase, given[0], shapes, *rows, ("tf32", call.tf32))
