"""Small calls of every operator for derivatives, with the ways to call it and the reference, as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from cases import Case, _cases, dispatch

SIGNATURES = ((2, 0, 0), (3, 0, 0), (3, 0, 1), (1, 3, 0))
TABLE = [case for signature in SIGNATURES for case in _cases(signature)]
"""Every operator and option, for four algebras: two Euclidean ones, a degenerate and an indefinite one."""
PLANE = [case for case in TABLE if case.signature == (2, 0, 0)]
SPACE = [case for case in TABLE if case.signature == (3, 0, 0)]
OPERATORS = list({case.name: case for case in reversed(SPACE)}.values())
"""One case of each operator."""

Function = Callable[..., torch.Tensor]
Tensors = tuple[torch.Tensor, ...]


def named(name: str, signature: tuple[int, int, int] = (3, 0, 0)) -> Case:
    """The first case of an operator."""
    return next(case for case in TABLE if case.name == name and case.signature == signature)


def tensors(case: Case, batch: int = 2, channels: int = 2, seed: int = 0, **options) -> Tensors:
    """Random tensors of a case, small ones unless said otherwise."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"batch": batch, "in": channels, "out": channels}
    made = []
    for axes in case.shapes.values():
        shape = [sizes.get(axis, axis) for axis in axes]
        made.append(torch.randn(shape, generator=generator, dtype=torch.float64).to(**options))
    return tuple(made)


@dataclass(frozen=True)
class Ways:
    """The functions of an operator."""

    case: Case

    def __call__(self, way: str) -> Function:
        return {"eager": self.eager, "dispatcher": self.dispatched, "reference": self.exact}[way]

    def _named(self, given: Tensors) -> dict[str, torch.Tensor]:
        return dict(zip(self.case.shapes, given, strict=True))

    def eager(self, *given: torch.Tensor) -> torch.Tensor:
        return self.case.run(**self._named(given))

    def dispatched(self, *given: torch.Tensor) -> torch.Tensor:
        return dispatch(self.case, self._named(given))

    def exact(self, *given: torch.Tensor) -> torch.Tensor:
        return self.case.reference(**self._named(given))


def leaves(given: Tensors) -> Tensors:
    """The tensors as variables that need gradients."""
    return tuple(tensor.detach().clone().requires_grad_() for tensor in given)


def close(got, wanted, tolerance: float = 1e-10) -> None:
    """Checks tensors, or nested tuples of them, beside each other, relative to the largest number."""
    if isinstance(wanted, (tuple, list)):
        assert len(got) == len(wanted)
        for one, two in zip(got, wanted):
            close(one, two, tolerance)
        return
    assert got.shape == wanted.shape
    if not wanted.numel():
        return
    wanted = wanted.detach().double()
    scale = max(1.0, float(wanted.abs().max()))
    error = float((got.detach().double() - wanted).abs().max()) / scale
    assert error <= tolerance, error


def gradients(function: Function, given: Tensors, create_graph: bool = True) -> Tensors:
    """The gradients of the sum of squares, zeros where there are none."""
    loss = function(*given).square().sum()
    found = torch.autograd.grad(loss, given, create_graph=create_graph, allow_unused=True)
    return tuple(torch.zeros_like(t) if g is None else g for t, g in zip(given, found))


def second(function: Function, given: Tensors) -> Tensors:
    """The gradients of the sum of squares of :func:`gradients`."""
    return gradients(lambda *given: joined(gradients(function, given)), given)


def joined(given: Tensors) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in given])
