"""Steps as CUDA graphs: what tells calls apart (``signature``), what a step trains (``training``), how a GPU
records (``recorder``), and the step itself (``step``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

import torch

from .. import _torch as _torch
from .._ops import checks
from .recorder import Cuda
from .step import Captured

P = ParamSpec("P")
T = TypeVar("T")

_FALLBACKS = ("eager", "error")

__all__ = ["Captured", "capture"]


@overload
def capture(
    step: Callable[P, T],
    *,
    modules: torch.nn.Module | Iterable[torch.nn.Module] = (),
    warmup: int = 3,
    max_graphs: int = 8,
    copy_outputs: bool = True,
    fallback: str = "eager",
) -> Captured[P, T]: ...


@overload
def capture(
    step: None = None,
    *,
    modules: torch.nn.Module | Iterable[torch.nn.Module] = (),
    warmup: int = 3,
    max_graphs: int = 8,
    copy_outputs: bool = True,
    fallback: str = "eager",
) -> Callable[[Callable[P, T]], Captured[P, T]]: ...


def capture(
    step: Callable[P, T] | None = None,
    *,
    modules: torch.nn.Module | Iterable[torch.nn.Module] = (),
    warmup: int = 3,
    max_graphs: int = 8,
    copy_outputs: bool = True,
    fallback: str = "eager",
) -> Captured[P, T] | Callable[[Callable[P, T]], Captured[P, T]]:
    """Makes a training or inference step one CUDA graph: all its launches become one, so that small
    networks no longer wait for the host.

    ::

        @flashcliff.capture(modules=model)
        def step(x, y):
            optimiser.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimiser.step()
            return loss

        for x, y in batches:  # tensors on the GPU
            loss = step(x, y)

    **Each call is one step**, with the results of an eager one, bit for bit, dropout included. The first
    ``warmup`` calls of a signature run eagerly, the next one is recorded and replayed, all later ones are replayed.
    A signature is the shapes, strides, types and places of the tensors, all other arguments, and the modes of
    PyTorch (gradients, inference, autocast) and of ``modules`` (training or not). Each signature has its own graph.

    **What is recorded stays.** A replay copies the tensors of the call into memory of the graph and starts it; the Python
    of ``step`` does not run. So what ``step`` reads besides its arguments must stay where it is: parameters and buffers that are
    written in place, as optimisers and ``load_state_dict`` do. Numbers that change must be tensors on the GPU; learning rates
    too: ``AdamW(parameters, lr=torch.tensor(1e-3, device="cuda"), capturable=True)``, with schedulers called outside of
    the step. Seeds and generators of PyTorch's dropout are taken care of. Settings such as
    ``torch.set_float32_matmul_precision`` stay as they were at the recording; call ``reset()`` after a change.

    **Several steps side by side**, as for several seeds, may be replayed on separate streams: each captured step is recorded on a
    stream that no other one uses (of up to 32). Graphs that ``torch.cuda.graph`` records on its default stream may not, because they share
    the workspace of cuBLAS.

    Args:
        step: a function of tensors and other arguments. Its result is any structure of tensors and other values; the
            tensors come without a graph of autograd, so the backward pass belongs into the step.
        modules: what the step trains or calls. Their modes are a part of the signature, and the gradients of their
            parameters are right after each call; optimisers that the step calls are found, and need no mention.
        warmup: calls of each signature that run eagerly before one is recorded; at least 1. ``DistributedDataParallel``
            needs 11.
        max_graphs: the most graphs, of all signatures. Calls of further ones run eagerly.
        copy_outputs: whether results are copies. Without, they are tensors of the graph, which its next replay overwrites.
        fallback: what happens to a call that cannot be a graph: on the CPU, with a step that waits for the GPU, beyond
            ``max_graphs``. ``"eager"`` runs it without and warns once (:class:`flashcliff.CaptureWarning`); ``reason`` of the
            result says why. ``"error"`` raises.

    Returns:
        A function with the arguments of ``step``, and ``reason``, ``graph_count`` and ``reset()``. One thread at a time
        may call it.

    Raises:
        CaptureError: at a call that a graph would get wrong: an optimiser without ``capturable=True``, an option of an
            optimiser that was changed, inputs that require gradients, tensors on several devices, autocast with its cache around
            the call; and with ``fallback="error"``.
        TypeError, ValueError: for options of other types, and out of range.
    """
    if step is not None and not callable(step):
        raise TypeError(f"step: expected a function, got {step!r}")
    if fallback not in _FALLBACKS:
        raise ValueError(f"fallback: expected one of {', '.join(_FALLBACKS)}, got `{fallback}`")
    for name, value in (("warmup", warmup), ("max_graphs", max_graphs)):
        if checks.integer(name, value) < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    checks.flag("copy_outputs", copy_outputs)
    parts = _modules(modules)

    def make(step: Callable[P, T]) -> Captured[P, T]:
        return Captured(step, parts, warmup, max_graphs, copy_outputs, fallback, Cuda)

    return make if step is None else make(step)


def _modules(
    given: torch.nn.Module | Iterable[torch.nn.Module],
) -> tuple[torch.nn.Module, ...]:
    parts: tuple[Any, ...] = (given,)
    if isinstance(given, Iterable) and not isinstance(given, torch.nn.Module):
        parts = tuple(given)
    for part in parts:
        if not isinstance(part, torch.nn.Module):
            raise TypeError(f"modules: expected a torch.nn.Module, or several, got {part!r}")
    return parts
