"""A network as its file has it: the graph, and the numbers of the parameters."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core

__all__ = ["Stored"]

_KEY = "flashcliff_network"
_VERSION = 1
_TYPES: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


@dataclass(frozen=True)
class Stored:
    """A network of a file.

    Attributes:
        graph: the graph, as ``flashcliff_network::file`` says.
        parameters: the numbers by their names, in float64.
        dtype: the type of the parameters in the file.
    """

    graph: dict[str, Any]
    parameters: dict[str, np.ndarray]
    dtype: np.dtype

    @classmethod
    def of(cls, network: Any, mask: bool) -> Stored:
        """The network of a file, or that which a module writes into one."""
        if isinstance(network, str | os.PathLike):
            if mask:
                raise ValueError("mask: expected False, because a file says whether it has masks")
            return cls.read(Path(network))
        from ..nn.transformer.files import save_network

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.safetensors"
            save_network(network, path, mask=mask)
            return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> Stored:
        """The network of a file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file has no network of a format that is known.
        """
        data = path.read_bytes()
        try:
            (size,) = struct.unpack_from("<Q", data)
            header = json.loads(data[8 : 8 + size])
            graph = json.loads(header.pop("__metadata__")[_KEY])
            found = {name: _array(data[8 + size :], own) for name, own in header.items()}
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: expected a network of flashcliff, got {error!r}") from None
        if graph.get("version") != _VERSION:
            raise _core.UnsupportedError(
                f"{path}: expected a network of the format {_VERSION}, got {graph.get('version')}"
            )
        types = {x.dtype for x in found.values()}
        dtype = types.pop() if len(types) == 1 else np.dtype("<f4")
        return cls(graph, {name: x.astype(np.float64) for name, x in found.items()}, dtype)


def _array(data: bytes, own: dict[str, Any]) -> np.ndarray:
    start, stop = own["data_offsets"]
    return np.frombuffer(data[start:stop], _TYPES[own["dtype"]]).reshape(own["shape"])
