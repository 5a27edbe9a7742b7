"""The calls of networks of layers, of the kernel of attention and of messages on graphs, as rows: which they are and what they cost, by the
arguments of the functions that launch them. A network is one call in each pass, and messages are a call for the arguments of each end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._ops import attention, derived, messages, segments
from .._ops.tensor_types import NAMES
from .clock import timed
from .events import Cost, Kernel, Key

Described = tuple[Key, Tensor]
"""The key of a call, and a tensor on its device."""


def places() -> list[tuple[Any, str, Callable[..., Described]]]:
    """The functions that launch kernels: where each is, and what describes its calls."""
    # Layers import much of the package, which a profile of operators does without.
    from ..nn.transformer.described.function import Run

    return [
        (attention, "forward", partial(attend, "forward")),
        (attention, "backward", partial(attend, "backward")),
        (messages, "_run", message),
        (Run, "forward", partial(network, "forward")),
        (Run, "backward", partial(network, "backward")),
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


def network(phase: str, run: Any, *_: Any) -> Described:
    """A network has the shapes of its inputs, and the costs that its plan says."""
    moved, flops = run.plan.size(phase == "backward")
    shapes = [tuple(t.shape) for t in run.rows]
    cost = _cost(phase, moved, flops, run.plan.kept)
    return _described("network", run.call.algebra, phase, run.rows[0], shapes, (), cost)


def attend(phase: str, call: attention.Call, given: Sequence[Tensor], *_: Any) -> Described:
    query, key, value = given[:3]
    heads, width, values = query.shape[-3], query.shape[-1], value.shape[-1]
    total, keys = call.queries.total, call.keys.total
    # Ragged sequences count as if all were of one length: how long each is, the GPU knows.
    pairs = heads * (total * keys // max(call.sequences, 1))
    moved = query.nbytes + key.nbytes + value.nbytes + query.element_size() * heads * total * values
    log_sums = 4 * heads * total
    if phase == "forward":
        # A dot product, a factor, an exponential, a sum; a sum of values.
        flops = pairs * (2 * (width + values) + 3)
    else:
        # Scores again; the gradients of weights, values, queries and keys.
        flops = pairs * (2 * (3 * width + 2 * values) + 6)
        moved *= 2
    details = [
        ("sequences", call.sequences),
        ("ragged", call.queries.bounds is not None),
        ("tf32", call.tf32),
    ]
    shapes = [tuple(x.shape) for x in (query, key, value)]
    cost = _cost(phase, moved + log_sums, flops, log_sums)
    return _described("attention", None, phase, query, shapes, details, cost)


def message(form: messages.Form, tensors: Sequence[Tensor], relations: Sequence[Tensor]) -> Described:
    """Messages move each tensor once, and their operator computes each row. A call within a backward pass is one of its gradients."""
    operator = derived.operator_of(form.of)
    rows, channels = relations[0].shape[0], messages.channels_of(form, tensors)
    items = rows if form.to < 0 else relations[segments.LISTS * form.to + 1].shape[0] - 1
    made = sum(
        int(axes[0]) * items * (1 if over_channels else channels)
        for (_, axes), over_channels in zip(operator.outputs, form.sums)
    )
    first = tensors[0]
    moved = sum(t.nbytes for t in (*tensors, *relations)) + made * first.element_size()
    flops = operator.flops(rows, channels, channels)[0]
    phase = "forward" if torch._C._current_graph_task_id() < 0 else "backward"
    details = [("operator", operator.name)]
    shapes = [tuple(t.shape) for t in tensors]
    return _described("messages", None, phase, first, shapes, details, _cost(phase, moved, flops, 0))


def _cost(phase: str, moved: int, flops: int, kept: int) -> Cost:
    # Functions of autograd decide what else they keep.
    return Cost(moved, flops, kept, None) if phase == "forward" else Cost(moved, flops)


def _described(
    name: str, algebra: Any, phase: str, tensor: Tensor, shapes: Any, details: Any, cost: Cost
) -> Described:
    subject = Kernel(name, algebra, tuple(pair for pair in details if pair[1]), cost)
    device = f"cuda:{tensor.get_device()}" if tensor.is_cuda else "cpu"
    return Key(subject, phase, tuple(shapes), NAMES[tensor.dtype], device), tensor
