"""A network as a package of AOTInductor, which C++ runs with PyTorch's library and without Python.

The lowered network is traced by ``torch.export`` with open axes, and compiled ahead of time. Gradients are traced through: a
package with gradients runs the forward and the backward pass as one list of kernels.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _core
from .inputs import Inputs
from .lowered import elementwise
from .lowered.network import lowered
from .operations import Operations
from .stored import Stored
from .torch_host import Eager

__all__ = ["Lowered", "write"]

_SIZES = {"samples": 3, "items": 5, "context_items": 7, "rows": 11, "context_rows": 13, "edges": 17}
"""Sizes of axes for a trace; all others are 2."""


class Lowered(torch.nn.Module):
    """A network as operations of PyTorch.

    Args:
        stored: the network.
        batch: how samples lie.
        dtype: the type of all numbers.
        device: the device of the constants.
    """

    def __init__(self, stored: Stored, batch: str, dtype: torch.dtype, device: str = "cpu") -> None:
        super().__init__()
        self._inputs = Inputs(stored, batch)
        self._stored = stored
        self._host = Eager(self, dtype, device)

    def forward(self, *tensors: Tensor) -> Tensor:
        named = {own.name: x for own, x in zip(self._inputs.fields, tensors, strict=True)}
        given = self._inputs.given(self._host, named)
        found = lowered(self._stored, Operations(self._host), elementwise.evaluate, given)
        (value,) = found.values()
        output: Tensor = self._inputs.output(self._host, value, named)
        return output

    def examples(self) -> tuple[Tensor, ...]:
        """Inputs of some sizes."""
        return tuple(map(self._example, self._inputs.fields))

    def _example(self, field: Any) -> Tensor:
        sizes = [own if isinstance(own, int) else _SIZES.get(own, 2) for own in field.axes]
        if not field.integers:
            return torch.randn(sizes, dtype=self._host.dtype, device=self._host.device)
        return torch.ones(sizes, dtype=torch.int64, device=self._host.device)

    def axes(self) -> list[dict[int, Any]]:
        """The open axes of each input."""
        dims: dict[str, Any] = {}
        found = []
        for field in self._inputs.fields:
            names = {at: own for at, own in enumerate(field.axes) if isinstance(own, str)}
            found.append(
                {at: dims.setdefault(own, torch.export.Dim(own)) for at, own in names.items()}
            )
        return found


def write(
    stored: Stored,
    path: str | os.PathLike[str],
    batch: str,
    dtype: np.dtype,
    device: str,
    gradients: bool,
) -> None:
    """Writes a network as a package."""
    if batch == "ragged":
        raise _core.UnsupportedError(
            "export: expected equal or padded batches for a package, because the longest sample of a ragged one is not known ahead"
        )
    of = torch.float64 if dtype == np.dtype("f8") else torch.float32
    program = program_of(Lowered(stored, batch, of, device), gradients)
    torch._inductor.aoti_compile_and_package(program, package_path=os.fspath(path))


def program_of(module: Lowered, gradients: bool) -> torch.export.ExportedProgram:
    """The traced program of a network, with gradients of its inputs if they are wanted."""
    inputs, axes = module.examples(), module.axes()
    with torch.no_grad():
        # The first run makes the constants.
        output = module(*inputs)
    if not gradients:
        return _traced(module, inputs, (tuple(axes),))
    seed = torch.ones_like(output)
    own = _with_gradients(module, (*inputs, seed))
    of_output = {at: dim for at, dim in axes[0].items() if at < output.dim()}
    return _traced(own, (*inputs, seed), (*axes, of_output))


def _traced(
    module: torch.nn.Module, inputs: tuple[Tensor, ...], axes: Any
) -> torch.export.ExportedProgram:
    # PyTorch 2.11 compares strides such as n and 2 n, and refuses open axes where it cannot prove the result. As an assertion of the
    # program it always holds.
    name = "prefer_deferred_runtime_asserts_over_guards"
    known = inspect.signature(torch.export.export).parameters
    more: dict[str, Any] = {name: True} if name in known else {}
    return torch.export.export(module, inputs, dynamic_shapes=axes, strict=False, **more)


def _with_gradients(module: Lowered, inputs: Sequence[Tensor]) -> torch.fx.GraphModule:
    """The output and the gradients of all inputs of numbers, as one graph."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def both(*tensors: Tensor) -> tuple[Tensor, ...]:
        *given, seed = tensors
        leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
        output = module(*leaves)
        wanted = [x for x in leaves if x.is_floating_point()]
        grads = torch.autograd.grad(output, wanted, seed, materialize_grads=True)
        return output.detach(), *grads

    traced: torch.fx.GraphModule = make_fx(
        both, tracing_mode="symbolic", _allow_non_fake_inputs=True
    )(*inputs)
    return traced
