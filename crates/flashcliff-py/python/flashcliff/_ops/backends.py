"""The choice between the kernels of the extension and the kernels of Triton.

Tensors on accelerators for which the extension has no kernels (AMD, Intel) always take Triton's kernels.
``FLASHCLIFF_BACKEND=triton``, or a block of :func:`flashcliff.backend`, asks for them on NVIDIA GPUs too. The choice is one of
the process: backward passes run on their own threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from . import native

__all__ = ["BACKENDS", "backend", "start", "takes_triton"]

BACKENDS = ("native", "triton")
"""The names of backends."""

_VARIABLE = "FLASHCLIFF_BACKEND"
_OTHERS = ("xpu",)
"""Devices of PyTorch, beside those that are called ``cuda``, on which Triton runs."""
_IS_ROCM = torch.version.hip is not None

_asked = False


def takes_triton(tensor: Tensor) -> bool:
    """Whether Triton kernels compute with tensors on the device of this one."""
    if tensor.is_cuda:
        return _asked or _IS_ROCM
    if tensor.is_cpu:
        # The interpreter of Triton has tensors on the CPU.
        return _asked and os.environ.get("TRITON_INTERPRET") == "1"
    return tensor.device.type in _OTHERS


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Says which kernels compute with tensors on NVIDIA GPUs, within a block.

    Triton kernels serve operators without matrix products, operators of :func:`flashcliff.operator`, and their derivatives of
    every order, in float32, bfloat16 and float16. GPUs of AMD and Intel take them without being asked. The variable
    ``FLASHCLIFF_BACKEND`` asks for them in a whole process.

    The choice is one of the process, since backward passes run on threads of PyTorch: a backward pass takes the kernels that are chosen
    when it runs.

    Args:
        name: ``"native"``, the kernels of this package, or ``"triton"``.

    Raises:
        ValueError: another name.
        MissingPackageError: Triton is not installed.
    """
    before, module = _asked, native.loaded
    _ask(_checked("backend", name))
    if _asked and module is not None:
        # The compiled call path knows the kernels of the extension alone.
        native.use(None)
    try:
        yield
    finally:
        _ask(before)
        if native.loaded is not module:
            native.use(module)


def start() -> bool:
    """Reads the variable of the environment. Returns whether the compiled call path may be used."""
    name = os.environ.get(_VARIABLE, "")
    if name:
        _ask(_checked(_VARIABLE, name))
    return not _asked


def _checked(what: str, name: str) -> bool:
    if name not in BACKENDS:
        raise ValueError(f"{what}: expected one of {', '.join(BACKENDS)}, got {name!r}")
    if name == "triton":
        from .._triton.sources import require

        require()
    return name == "triton"


def _ask(asked: bool) -> None:
    global _asked
    _asked = asked
