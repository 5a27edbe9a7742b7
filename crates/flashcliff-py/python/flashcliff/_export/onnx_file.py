"""A network as a file of ONNX."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ..errors import MissingPackageError
from .inputs import Inputs
from .lowered import stages
from .lowered.network import lowered
from .operations import Operations
from .stored import Stored

__all__ = ["model_of", "write"]


def write(
    stored: Stored, path: str | os.PathLike[str], batch: str, opset: int, dtype: np.dtype
) -> None:
    """Writes a network as a file of ONNX."""
    model = model_of(stored, batch, opset, dtype)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def model_of(
    stored: Stored, batch: str, opset: int, dtype: np.dtype, evaluate: Any = stages.evaluate
) -> Any:
    """The model of ONNX of a network.

    Raises:
        MissingPackageError: ``onnx`` is not installed.
    """
    try:
        from .onnx_host import Graph
    except ImportError:
        raise MissingPackageError(
            "export: expected the package onnx for a file of ONNX; run `pip install onnx`"
        ) from None
    host = Graph(dtype)
    inputs = Inputs(stored, batch)
    tensors = {own.name: host.input(*own) for own in inputs.fields}
    found = lowered(stored, Operations(host), evaluate, inputs.given(host, tensors))
    outputs: dict[str, tuple[Any, Sequence[int | str]]] = {}
    for name, value in found.items():
        own = inputs.output(host, value, tensors)
        outputs[name] = own, inputs.output_axes(own.shape)
    doc = f"A network of flashcliff {_core.__version__}, for {batch} batches."
    return host.model(outputs, opset, doc)
