"""Compares a module with its counterpart by runs on random input."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .counterpart import Call, Counterpart, NotReplaced

__all__ = ["check_same", "undisturbed"]

Adopt = Callable[[nn.Module, nn.Module], nn.Module]

# The tolerance of comparisons where a package does not compute in float64.
_NARROW = 1e-3


@contextlib.contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """A context in which random numbers, and the modes of gradients and of autocast, are those of a fresh process, and
    which leaves all of them as they were, without warnings of packages."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with (
        warnings.catch_warnings(),
        torch.random.fork_rng(devices, enabled=True),
        torch.device(device),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        warnings.simplefilter("ignore")
        yield


def check_same(old: nn.Module, known: Counterpart, adopt: Adopt) -> None:
    """Compares outputs and all gradients of a copy of ``old`` with those of its counterpart, in both modes where nothing
    is dropped, in float64 where the package computes in it.

    Args:
        old: the module; it is not changed.
        known: its counterpart.
        adopt: puts the parameters of a copy into a counterpart.

    Raises:
        NotReplaced: they differ, or one of them cannot be run.
    """
    first = next(iter((*old.parameters(), *old.buffers())), torch.empty(0))
    place = first.device if first.device.type in ("cpu", "cuda") else torch.device("cpu")
    try:
        theirs = copy.deepcopy(old).to(place)
    except Exception as error:
        raise NotReplaced(f"it could not be copied for a comparison: {_said(error)}") from error
    _draw_parameters(theirs)
    tolerance = known.tolerance
    try:
        theirs.double()
        _run(theirs.eval(), _call(known, place, torch.float64)[0])
    except Exception:
        # Compiled kernels of a package may have one type only.
        theirs, tolerance = theirs.to(first.dtype), _NARROW
    dtype = next((p.dtype for p in theirs.parameters()), first.dtype)
    ours = adopt(known.make(), theirs)
    drops = any(_drops(module) for module in theirs.modules())
    for training in (False,) if drops else (False, True):
        for number, call in enumerate(_call(known, place, dtype)):
            results = []
            for whose, module in (("it", theirs), ("the counterpart", ours)):
                try:
                    results.append(_run(module.train(training), call))
                except Exception as error:
                    raise NotReplaced(
                        f"{whose} could not be run for a comparison: {_said(error)}"
                    ) from error
            _compare(results[0], results[1], tolerance, number)
    _check_type(ours.eval(), _call(known, place, first.dtype), first.dtype)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _drops(module: nn.Module) -> bool:
    return "dropout" in type(module).__name__.lower()


def _draw_parameters(module: nn.Module) -> None:
    """Fills the parameters, so that no zeros hide what is done with them."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.grad = None
        parameter.requires_grad_(parameter.numel() > 0)
        with torch.no_grad():
            drawn = torch.randn(
                parameter.shape, generator=generator, dtype=torch.float64, device="cpu"
            )
            inputs = math.prod(parameter.shape[1:]) if parameter.dim() > 1 else 1
            parameter.copy_(drawn / math.sqrt(max(inputs, 1)))


def _call(known: Counterpart, device: torch.device, dtype: torch.dtype) -> list[Call]:
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
        return drawn.to(device, dtype).requires_grad_()

    return known.calls(draw)


def _run(module: nn.Module, call: Call) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs, and the gradients of inputs and parameters."""
    positional, named = call
    found: Any = module(*positional, **named)
    outputs = [found] if isinstance(found, Tensor) else [x for x in found if x is not None]
    outputs = [x for x in outputs if x.numel()]
    inputs = [x for x in positional if isinstance(x, Tensor) and x.requires_grad and x.numel()]
    leaves = inputs + [p for p in module.parameters() if p.requires_grad]
    total = sum(
        (
            x * torch.arange(1, x.numel() + 1, dtype=x.dtype, device=x.device).cos().view(x.shape)
        ).sum()
        for x in outputs
    )
    found = torch.autograd.grad(total, leaves, allow_unused=True)  # type: ignore[arg-type]
    gradients = [
        torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)
    ]
    return [x.detach() for x in outputs], gradients


def _compare(
    want: tuple[list[Tensor], list[Tensor]],
    got: tuple[list[Tensor], list[Tensor]],
    tolerance: float,
    number: int,
) -> None:
    # Gradients are sums of many terms.
    kinds = (("outputs", 1.0), ("gradients", 10.0))
    for (kind, factor), theirs, ours in zip(kinds, want, got, strict=True):
        shapes = [[list(x.shape) for x in tensors] for tensors in (ours, theirs)]
        if shapes[0] != shapes[1]:
            raise NotReplaced(
                f"in a comparison on random input {kind} of shapes {shapes[1]} became {shapes[0]}"
            )
        largest = max((float(x.abs().max()) for x in theirs), default=0.0)
        for a, b in zip(ours, theirs, strict=True):
            size = float(b.abs().max())
            limit = factor * tolerance * max(size, 1e-3 * largest, 1e-30)
            off = float((a - b).abs().max())
            if not off <= limit:
                raise NotReplaced(
                    f"in a comparison on random input (call {number}) its {kind} differ by {off:.1e}, where the "
                    f"largest is {size:.1e}"
                )


def _check_type(ours: nn.Module, calls: list[Call], dtype: torch.dtype) -> None:
    """Checks that the counterpart computes in the type of the module."""
    if dtype in (torch.float32, torch.float64):
        return
    ours.to(dtype)
    positional, named = calls[0]
    try:
        with torch.no_grad():
            ours(*positional, **named)
    except Exception as error:
        raise NotReplaced(
            f"the counterpart does not compute in {dtype} here: {_said(error)}"
        ) from error
