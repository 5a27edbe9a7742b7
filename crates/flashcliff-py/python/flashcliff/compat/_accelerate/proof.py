"""Compares a module with its counterpart by runs on random input."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .adopt import adopt
from .calls import called_as
from .counterpart import Call, Counterpart, Form, NotReplaced
from .outside import empty_caches
from .structure import number, probabilities
from .tables import factors_of, widen

__all__ = ["largest_difference", "runs", "undisturbed"]

# The largest difference in float64, of the largest element of a result, and that where a module does not compute in it.
_TOLERANCE = 1e-9
_NARROW = 1e-3


@contextlib.contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """A context in which random numbers, and the modes of gradients and of autocast, are as in a fresh process. It
    leaves all of them as they were, and shows no warnings of packages."""
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


def largest_difference(old: nn.Module, known: Counterpart) -> float:
    """Compares outputs and all gradients of a copy of ``old`` with the outputs and gradients of its counterpart, in both
    modes where nothing is dropped, in float64 where the module computes in it.

    Args:
        old: the module; it is not changed.
        known: its counterpart.

    Returns:
        The largest difference, of the largest element of a result.

    Raises:
        NotReplaced: they differ, or one of them cannot be run.
    """
    first = next(iter((*old.parameters(), *old.buffers())), torch.empty(0))
    place = first.device if first.device.type in ("cpu", "cuda") else torch.device("cpu")
    theirs, tolerance = _copy(old, known, place, first.dtype)
    _check_dropout(theirs, known)
    _check_norms(theirs)
    dtype = next((p.dtype for p in theirs.parameters()), torch.float64)
    ours = called_as(adopt(known.make(), copy.deepcopy(theirs)), old)
    factors = factors_of(theirs) if tolerance < _NARROW else None
    drops = any(map(bool, probabilities(theirs)))
    found = 0.0
    for training in (False,) if drops else (False, True):
        theirs.train(training), ours.train(training)
        found = max(
            found, _compare_calls(theirs, ours, _call(known, place, dtype), factors, tolerance)
        )
    _check_type(ours.eval(), _call(known, place, first.dtype), first.dtype)
    return found


def runs(module: nn.Module, form: Form) -> bool:
    """Whether a copy of a module takes a call of its form as it is."""
    first = next(iter((*module.parameters(), *module.buffers())), torch.empty(0))
    with undisturbed(first.device):
        # Modules may raise anything.
        try:
            calls = [_call(known, first.device, first.dtype) for known in form.counterparts(module)]
            return _runs(copy.deepcopy(module), [call for some in calls for call in some]) is None
        except Exception:
            return False


def _copy(
    old: nn.Module, known: Counterpart, place: torch.device, dtype: torch.dtype
) -> tuple[nn.Module, float]:
    """A copy with random parameters that runs, and the tolerance of comparisons in its type."""
    try:
        theirs = copy.deepcopy(old).to(place)
    except Exception as error:
        raise NotReplaced(f"it could not be copied for a comparison: {_said(error)}") from error
    _draw_parameters(theirs)
    empty_caches(theirs)
    narrow = copy.deepcopy(theirs)
    widen(theirs)
    if _runs(theirs, _call(known, place, torch.float64)) is None:
        return theirs, _TOLERANCE
    # Compiled kernels of a package may have one type only.
    refused = _runs(narrow, _call(known, place, dtype))
    if refused is not None:
        raise NotReplaced(f"it could not be run for a comparison: {_said(refused)}") from refused
    return narrow, _NARROW


def _runs(module: nn.Module, calls: list[Call]) -> Exception | None:
    """The error of the first call, if no call runs."""
    first: Exception | None = None
    for call in calls:
        try:
            _run(module.eval(), call)
            return None
        except Exception as error:
            first = first or error
    return first


def _check_dropout(theirs: nn.Module, known: Counterpart) -> None:
    found, ours = (sorted(probabilities(m)) for m in (theirs, known.make()))
    if found != ours:
        raise NotReplaced(
            f"its layers drop with the probabilities {found}, where ours drop with {ours}"
        )


def _check_norms(theirs: nn.Module) -> None:
    """Checks the norms within a module, whose smallest norm counts for small input only."""
    for name, inner in theirs.named_modules():
        for key, wanted in (("epsilon", 0.01), ("gain", 1.0), ("mv_channel_dim", -2.0)):
            found = number(getattr(inner, key, None))
            if name and found is not None and found != wanted:
                raise NotReplaced(f"`{key}` of `{name}` is {found:g}, where ours is {wanted:g}")


def _compare_calls(
    theirs: nn.Module, ours: nn.Module, calls: list[Call], factors: Tensor | None, tolerance: float
) -> float:
    """The largest difference in all calls that the other module takes."""
    found = 0.0
    for at, call in enumerate(calls):
        try:
            want = _run(theirs, call)
        except Exception:
            # It takes no input of such a shape, or no such argument; the first check saw that it takes one.
            continue
        try:
            got = _run_with(ours, call, factors)
        except Exception as error:
            raise NotReplaced(
                f"the counterpart could not be run for a comparison: {_said(error)}"
            ) from error
        found = max(found, _compare(want, got, tolerance, _named(at, call)))
    return found


def _named(at: int, call: Call) -> str:
    """What a message says of a call."""
    return ", ".join((f"call {at}", *(f"with {name}" for name in call[1])))


def _run_with(
    module: nn.Module, call: Call, factors: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The results with maps times factors, for the parameters as they are."""
    if factors is None:
        return _run(module, call)
    weights = [p for p in module.parameters() if p.dim() == 3 and p.shape[-1] == len(factors)]
    with torch.no_grad():
        kept = [p.clone() for p in weights]
        for parameter in weights:
            parameter.mul_(factors.to(parameter))
    outputs, gradients = _run(module, call)
    with torch.no_grad():
        for parameter, value in zip(weights, kept, strict=True):
            parameter.copy_(value)
    scaled = {id(p) for p in weights}
    leaves = _leaves(module, call)
    return outputs, [
        g * factors.to(g) if id(x) in scaled else g for x, g in zip(leaves, gradients, strict=True)
    ]


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


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
    leaves = _leaves(module, call)
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


def _leaves(module: nn.Module, call: Call) -> list[Tensor]:
    """The inputs and parameters that have gradients."""
    given = (*call[0], *call[1].values())
    inputs = [x for x in given if isinstance(x, Tensor) and x.requires_grad and x.numel()]
    return inputs + [p for p in module.parameters() if p.requires_grad]


def _compare(
    want: tuple[list[Tensor], list[Tensor]],
    got: tuple[list[Tensor], list[Tensor]],
    tolerance: float,
    which: str,
) -> float:
    # Gradients are sums of many terms.
    kinds = (("outputs", 1.0), ("gradients", 10.0))
    found = 0.0
    for (kind, factor), theirs, ours in zip(kinds, want, got, strict=True):
        shapes = [[list(x.shape) for x in tensors] for tensors in (ours, theirs)]
        if shapes[0] != shapes[1]:
            raise NotReplaced(
                f"in a comparison on random input ({which}) {kind} of shapes {shapes[1]} became {shapes[0]}"
            )
        largest = max((float(x.abs().max()) for x in theirs), default=0.0)
        for a, b in zip(ours, theirs, strict=True):
            size = float(b.abs().max())
            limit = factor * tolerance * max(size, 1e-3 * largest, 1e-30)
            off = float((a - b).abs().max())
            if not off <= limit:
                raise NotReplaced(
                    f"in a comparison on random input ({which}) its {kind} differ by {off:.1e}, where the "
                    f"largest is {size:.1e}"
                )
            found = max(found, off * factor * tolerance / limit)
    return found


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
