"""Networks out of Python: files of ONNX, packages of AOTInductor, and files of flashcliff's own.

One idea: **a network describes itself as a graph of operators, and each way out is made of that graph.** A module writes the graph as it
writes a file for Rust and C; ``stored`` reads it, ``lowered`` turns each node into standard operations, and a host writes these down or
runs them.

======================= ====================================================================================================
module                  what it does
======================= ====================================================================================================
``stored``              the graph and the parameters of a network, from a module or a file
``operations``          the operations that hosts have alike; what is known is computed at once, in float64
``lowered``             nodes of networks as operations
``onnx_host``           the host that writes nodes of ONNX, ``onnx_file`` the file
``torch_host``          the host of operations of PyTorch, ``package`` the package of AOTInductor
======================= ====================================================================================================

Programs of lanes become few operations on stacks of components where a runtime calls one after another, and one operation for each
expression where a compiler fuses them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from .._ops import checks
from .stored import Stored

__all__ = ["export"]

BATCHES = "equal", "padded", "ragged"
_TYPES: dict[str, np.dtype] = {"float32": np.dtype("f4"), "float64": np.dtype("f8")}
_FORMATS = ".onnx", ".pt2", ".safetensors"
_OPSETS = 18, 23
_DEVICES = "cpu", "cuda"


def export(
    network: Any,
    path: str | os.PathLike[str],
    *,
    batch: str = "equal",
    mask: bool = False,
    dtype: str | None = None,
    opset: int = 18,
    device: str = "cpu",
    gradients: bool = False,
) -> None:
    """Writes a network into a file that runs without Python. The end of the path says which.

    ================ ======================================================================== ====================================
    path             file                                                                     what runs it
    ================ ======================================================================== ====================================
    ``.onnx``        standard operators of ONNX alone                                         onnxruntime, and all that read ONNX
    ``.pt2``         a package of AOTInductor, compiled for this machine                      C++ with PyTorch's library
    ``.safetensors`` flashcliff's own, as :func:`flashcliff.save_network` writes it           Rust, C and C++ with nothing else
    ================ ======================================================================== ====================================

    The network is a module that :func:`flashcliff.save_network` can write, or a file that it, Rust or candle wrote. Inputs have the names
    that are said there. Axes of samples, items, rows, nodes and edges are open: one file serves all sizes.

    ============= ========================================================== =================================================
    ``batch``     tokens                                                     more inputs
    ============= ========================================================== =================================================
    ``"equal"``   ``[samples, items, token]``                                none
    ``"padded"``  ``[samples, items, token]``; nobody sees the items after   ``lengths [samples]`` of int64, and
                  the length of a sample                                     ``context_lengths`` with a context
    ``"ragged"``  ``[rows, token]``, sample after sample (ONNX only)         the same
    ============= ========================================================== =================================================

    Other inputs of rows follow: ``reference`` is ``[samples, items]`` or ``[rows]``. Networks on graphs, such as
    :class:`flashcliff.nn.models.NBody`, have their relations as inputs of int64: for each edge its node.

    A network in float32 differs from the module by rounding, some 1e-6 of the largest value. Infinite and missing numbers need not come out
    the same.

    Args:
        network: the module, or the path of a file with a network.
        path: the file, which is replaced if it is there.
        batch: how samples lie, as above.
        mask: whether attention has masks, as for :func:`flashcliff.save_network`.
        dtype: ``"float32"`` or ``"float64"`` for all numbers; by default the type of the parameters.
        opset: the version of ONNX's operators, from 18 to 23.
        device: of a package, ``"cpu"`` or ``"cuda"``: what it is compiled for.
        gradients: of a package, whether it also computes the gradients of its inputs: a further input ``output_gradient`` has
            the shape of the output, and results are the output, then the gradient of each input of numbers. Forces are the gradients of an
            energy, with the sign changed.

    Raises:
        UnsupportedError: the network, or the choice, has no such file. The message says why.
        MissingPackageError: ``onnx`` is not installed.
        TypeError: an option has another type.
        ValueError: an option has another value than is said here.

    >>> import flashcliff, tempfile
    >>> from flashcliff.nn.transformer import GATransformer
    >>> net = GATransformer(flashcliff.Algebra(3, 0, 1), 1, 1, 8, hidden_scalars=16, blocks=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     flashcliff.export(net, f"{folder}/network.safetensors")
    """
    kind = Path(path).suffix
    _check("path", kind, _FORMATS)
    _check("batch", batch, BATCHES)
    if dtype is not None:
        _check("dtype", dtype, tuple(_TYPES))
    _check("device", device, _DEVICES)
    mask, gradients = checks.flag("mask", mask), checks.flag("gradients", gradients)
    opset = checks.integer("opset", opset)
    if not _OPSETS[0] <= opset <= _OPSETS[1]:
        raise ValueError(f"opset: expected {_OPSETS[0]} to {_OPSETS[1]}, got {opset}")
    if kind != ".pt2" and (gradients or device != "cpu"):
        raise ValueError(f"expected a package (.pt2) for gradients and devices, got {kind}")
    if kind == ".safetensors":
        _own(network, path, batch, mask, dtype)
        return
    stored = Stored.of(network, mask)
    of = stored.dtype if dtype is None else _TYPES[dtype]
    if kind == ".onnx":
        from . import onnx_file

        onnx_file.write(stored, path, batch, opset, of)
        return
    from . import package

    package.write(stored, path, batch, of, device, gradients)


def _check(name: str, got: str, expected: tuple[str, ...]) -> None:
    if checks.word(name, got) not in expected:
        raise ValueError(f"{name}: expected one of {', '.join(expected)}, got {got!r}")


def _own(
    network: Any, path: str | os.PathLike[str], batch: str, mask: bool, dtype: str | None
) -> None:
    """Writes a file of flashcliff's own, which serves batches of all kinds."""
    if batch != "equal" or dtype is not None:
        raise ValueError(
            "expected no batch and no dtype for .safetensors: a run says how samples lie, and numbers are those of the module"
        )
    if isinstance(network, str | os.PathLike):
        Stored.of(network, mask)
        shutil.copyfile(network, path)
        return
    from ..nn.transformer.files import save_network

    save_network(network, path, mask=mask)
