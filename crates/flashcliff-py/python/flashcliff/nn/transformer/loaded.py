"""Networks that the core describes, as modules: networks of files, and networks of models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ... import _core
from ..._ops import checks, doors
from ..._ops.run import takes_tf32
from ...graphs import Relation
from . import path as calls
from .described.call import Bounds, Unready, bounds_of, types_of
from .described.draft import Slot
from .described.stored import Ends, StoredCall, StoredNetwork
from .ragged import Sequences, paired

__all__ = ["CoreNetwork", "LoadedNetwork", "load_network"]

Axes = dict[str, tuple[str, ...]]
"""For each name its axes: sizes, and names of those that are open."""
_NO_ROWS = 1, 1, 1, 1, 1, (1, 1, 1)
"""The rows of shapes of parameters, which have none."""


def load_network(
    path: str | os.PathLike[str],
    device: torch.device | str | int | None = None,
    dtype: torch.dtype | None = None,
) -> LoadedNetwork:
    """The network of a file of :func:`flashcliff.save_network`, or of one that Rust or the program ``flashcliff train`` wrote, as a module.

    Its ``state_dict()`` has the tensors of the file under their names, in the shapes of the network, whose axes of one element may be
    others. It is one function of autograd, by the plans that also run modules of :mod:`flashcliff.nn`. Results and gradients are the
    same bit for bit as from a module that runs as one function. Gradients of gradients are networks as well; masks and frames have none.
    The result is one tensor, all of which counts as used: parameters of columns that a loss leaves out have zeros as gradients, where a
    module, whose multivectors and scalars are two tensors, gives none.
    Inputs are the inputs of the file, by name::

        net = flashcliff.load_network("network.safetensors", device="cuda")
        print(net)  # names and axes of inputs, relations and outputs
        out = net(tokens=tokens, samples=8)

    Args:
        path: the file.
        device: the device of the parameters; the CPU without one.
        dtype: the type of the parameters; that of the file without one.

    Raises:
        ValueError: the file is not such a file, is damaged, or is of another version.
        UnsupportedError: a network with several outputs.
        TypeError: a type without floating-point numbers.
        OSError: the file cannot be read.

    >>> import flashcliff, tempfile, torch
    >>> from flashcliff.nn.transformer import EquiLinear
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     flashcliff.save_network(EquiLinear((3, 0, 1), 1, 2), f"{folder}/network.safetensors")
    ...     net = flashcliff.load_network(f"{folder}/network.safetensors")
    >>> net.inputs
    {'tokens': ('rows', '16')}
    >>> net(tokens=torch.randn(5, 16)).shape
    torch.Size([5, 32])
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype: expected a type of floating-point numbers, got {dtype!r}")
    json, parameters = _core.network_file(os.fspath(path))
    network = LoadedNetwork(json)
    for name, shape, of, data in parameters:
        own = torch.empty(shape, dtype=getattr(torch, of))
        if data:
            own.view(-1).copy_(torch.frombuffer(bytearray(data), dtype=own.dtype))
        network._add(name, nn.Parameter(own))
    return network.to(device=device, dtype=dtype)


@calls.stands_for
class Weights(nn.Module):
    """The parameters of a network whose names begin with the same words. It has no call."""


class CoreNetwork(nn.Module):
    """A network that the core describes. It is one function of autograd, whose gradients are networks, too.

    Attributes:
        inputs: the names of inputs, and their axes.
        relations: the names of relations, with the axes of their rows and of their targets.
        outputs: the name of the output, and its axes.
    """

    _what: str
    """The network in messages of errors."""

    _describe: Callable[..., _core.StoredNetwork]
    """Makes the description, of the options of the module, which copies of it make again."""

    def __init__(self, *options: Any) -> None:
        super().__init__()
        self._options = options
        self._make()
        core = self._network.core
        self.inputs: Axes = {name: tuple(axes) for name, axes in core.inputs}
        self.outputs: Axes = {name: tuple(axes) for name, axes in core.outputs}
        self.relations = {name: (start, end) for name, start, end in core.relations}
        self._names = [tuple(name.split(".")) for name in core.parameters]
        seen = core.shapes(_NO_ROWS)[0][len(self.inputs) :]
        stored = [shape for shape, *_ in core.starts] or seen
        # State dicts may have axes of one element more than the network.
        self._shapes = list(zip(map(torch.Size, stored), map(torch.Size, seen), strict=True))

    def _make(self) -> None:
        self._network = StoredNetwork(type(self)._describe(*self._options))
        self._function = self._network.core.function()

    def _begin(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        """Adds parameters as the description says that they begin."""
        core = self._network.core
        for name, (shape, kind, number) in zip(core.parameters, core.starts, strict=True):
            own = torch.empty(shape, device=device, dtype=dtype)
            if kind == "normal":
                nn.init.normal_(own, std=number)
            elif kind == "uniform":
                nn.init.uniform_(own, -number, number)
            else:
                nn.init.constant_(own, number)
            self._add(name, nn.Parameter(own))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_network", "_function")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._make()

    def _add(self, name: str, parameter: nn.Parameter) -> None:
        """Adds a parameter under a name with dots. A name may be the name of an attribute, which dictionaries of modules do not mind."""
        *path, leaf = name.split(".")
        module: nn.Module = self
        for part in path:
            module = module._modules.setdefault(part, Weights())  # type: ignore[assignment]
        module._parameters[leaf] = parameter

    def _slots(self) -> Iterator[tuple[nn.Module, str]]:
        """The module of each parameter and its name there, in the order of the network."""
        for *path, leaf in self._names:
            module: Any = self
            for part in path:
                module = module._modules[part]
            yield module, leaf

    def _weights(self) -> list[Tensor]:
        """The parameters of a call in the shapes of the network; those that a parametrization computes, too."""
        found = [
            getattr(module, leaf) if (own := module._parameters.get(leaf)) is None else own
            for module, leaf in self._slots()
        ]
        for at, (own, (shape, seen)) in enumerate(zip(found, self._shapes, strict=True)):
            if own.shape != shape:
                name = ".".join(self._names[at])
                raise ValueError(f"{name}: expected {list(shape)}, got {list(own.shape)}")
            if shape != seen:
                found[at] = own.view(seen)
        return found

    def stored(self) -> tuple[_core.NetworkFunction, list[Tensor]]:
        """The network for a file and its parameters, after a comparison with those that were read."""
        why = calls.why_other(self)
        if why is not None:
            raise _core.UnsupportedError(f"save_network of {type(self).__name__}: {why}")
        return self._function, self._weights()

    # A compiler runs the call as it is, between its graphs.
    @torch._disable_dynamo
    def _call(
        self,
        given: Mapping[str, Any],
        samples: int = 1,
        graph_count: int | None = None,
        cu_seqlens: Tensor | Sequences | None = None,
        cu_seqlens_key: Tensor | Sequences | None = None,
    ) -> Tensor:
        """The result, from a tensor for each input and the rows of each relation."""
        self._check_names(given)
        inputs: list[Tensor] = [given[name] for name in self.inputs]
        weights = self._weights()
        self._check_tensors(inputs, weights)
        try:
            types = types_of(inputs, takes_tf32())
        except Unready:
            found = ", ".join(sorted({str(x.dtype) for x in inputs}))
            raise TypeError(
                f"{self._what}: expected inputs of one type of floating-point numbers, got {found}"
            ) from None
        if not types.parameters.issuperset(own.dtype for own in weights):
            found = ", ".join(sorted({str(own.dtype) for own in weights}))
            raise TypeError(
                f"{self._what}: expected parameters of {inputs[0].dtype}, as the inputs are, got {found}; convert the network or the inputs with `.to()`"
            )
        sizes = self._sizes(inputs, given, samples, graph_count)
        rows = _rows(sizes)
        relations = [self._relation(name, given[name], sizes) for name in self.relations]
        values = dict(enumerate(weights))
        slots: list[Slot] = [(values, at) for at in values]  # type: ignore[misc]
        call = StoredCall(
            Ends(list(self.inputs), slots),
            self._function,
            rows,
            tuple(t for own in relations for t in (own.targets, own.starts, own.order)),
            [own for x in inputs for own in (x, None)],
            types,
            self._sequences(cu_seqlens, cu_seqlens_key, rows, inputs[0].device),
        )
        return self._network.call(call, weights)

    def _check_names(self, given: Mapping[str, Any]) -> None:
        expected = [*self.inputs, *self.relations]
        if set(expected) != set(given):
            raise TypeError(
                f"{self._what}: expected the inputs and relations {', '.join(expected)}, got {', '.join(given) or 'none'}"
            )
        for name in self.inputs:
            if not isinstance(given[name], Tensor):
                raise TypeError(f"{name}: expected a torch.Tensor, got {type(given[name]).__name__}")

    def _check_tensors(self, inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        device = inputs[0].device
        for own in (*inputs, *weights):
            if own.device != device:
                raise RuntimeError(
                    f"{self._what}: expected all inputs and parameters on {device}, got one on {own.device}"
                )
        if not (device.type == "cpu" or device.type == "cuda" and _core.CUDA):
            raise _core.UnsupportedError(
                f"{self._what}: expected tensors on the CPU, or on CUDA with a build that has its kernels, got {device}"
            )
        if not doors.opens(*inputs, *weights):
            raise _core.UnsupportedError(
                f"{self._what}: expected plain tensors with memory of their own, got such as a transform of torch.func, forward mode, a trace or a mode follows"
            )
        doors.check(self._what, [*inputs, *weights], [*self.inputs])

    def _sizes(
        self,
        inputs: Sequence[Tensor],
        given: Mapping[str, Any],
        samples: int,
        graph_count: int | None,
    ) -> dict[str, int]:
        """The size of each axis of rows."""
        samples = checks.integer("samples", samples)
        sizes: dict[str, int] = {}
        for axes, x in zip(self.inputs.values(), inputs, strict=True):
            if x.dim() == len(axes):
                for axis, size in zip(axes, x.shape):
                    if not axis.isdigit():
                        sizes.setdefault(axis, size)
        for name, (start, end) in self.relations.items():
            own = given[name]
            if not isinstance(own, Relation | Tensor):
                raise TypeError(f"{name}: expected a Relation or a torch.Tensor, got {own!r}")
            sizes.setdefault(start, own.rows if isinstance(own, Relation) else own.numel())
            if end == "graphs" and graph_count is None and isinstance(own, Relation):
                graph_count = own.count
        sizes["graphs"] = 1 if graph_count is None else checks.integer("graph_count", graph_count)
        rows, others = sizes.get("rows", 0), sizes.get("context rows", 0)
        if self.relations and samples != 1:
            raise ValueError(f"samples: expected 1, because the network is on graphs, got {samples}")
        if samples < 1 or rows % samples or others % samples:
            raise ValueError(
                f"samples: expected a divisor of the rows, {rows}{f' and {others}' if others else ''}, got {samples}"
            )
        sizes |= {"samples": samples, "items": rows // samples, "context items": others // samples}
        if self.relations:
            sizes |= {"samples": rows, "items": 1}
        for (name, axes), x in zip(self.inputs.items(), inputs, strict=True):
            wanted = [int(axis) if axis.isdigit() else sizes.get(axis, 0) for axis in axes]
            if list(x.shape) != wanted:
                raise ValueError(f"{name}: expected [{', '.join(axes)}] = {wanted}, got {list(x.shape)}")
        return sizes

    def _relation(self, name: str, given: Any, sizes: Mapping[str, int]) -> Relation:
        start, end = self.relations[name]
        if not isinstance(given, Relation):
            given = Relation(given, sizes[end])
        wanted = sizes[start], sizes[end]
        if given.sizes != wanted:
            raise ValueError(
                f"{name}: expected {wanted[0]} rows ({start}) and {wanted[1]} targets ({end}), got {given.sizes[0]} and {given.sizes[1]}"
            )
        return given

    def _sequences(
        self,
        own: Tensor | Sequences | None,
        keys: Tensor | Sequences | None,
        rows: tuple[int, ...],
        device: torch.device,
    ) -> tuple[Bounds, Bounds] | None:
        samples, items, others, *_ = rows
        # A context may have no rows.
        crosses = any("context rows" in axes for axes in self.inputs.values())
        found = paired(own, keys, items, others if crosses else items)
        if found is None:
            return None
        if samples != 1 or self.relations:
            raise ValueError(f"cu_seqlens: expected one sample of all rows, got {samples}")
        return bounds_of(found, (items, others if crosses else None), device)

    def __repr__(self) -> str:
        own = list(self.parameters())
        of = ", ".join(sorted({f"{x.dtype} on {x.device}" for x in own})) or "no type"
        lines = [f"inputs: {_ends(self.inputs)}", f"outputs: {_ends(self.outputs)}"]
        if self.relations:
            found = (f"{name} [{start}] to {end}" for name, (start, end) in self.relations.items())
            lines.insert(1, f"relations: {', '.join(found)}")
        lines.append(f"parameters: {len(own)}, of {sum(x.numel() for x in own)} numbers, {of}")
        return "\n".join([f"{type(self).__name__}(", *(f"  {line}" for line in lines), ")"])


class LoadedNetwork(CoreNetwork):
    """A network of a file, as :func:`flashcliff.load_network` makes it.

    Attributes:
        inputs: the names of inputs, and their axes.
        relations: the names of relations, with the axes of their rows and of their targets.
        outputs: the name of the output, and its axes.
    """

    _what = "a network of a file"
    _describe = _core.StoredNetwork.of_json

    def forward(
        self,
        *,
        samples: int = 1,
        graph_count: int | None = None,
        cu_seqlens: Tensor | Sequences | None = None,
        cu_seqlens_key: Tensor | Sequences | None = None,
        **given: Any,
    ) -> Tensor:
        """The result.

        Args:
            samples: the number of samples whose items, as many of each, are the rows; not for networks on graphs.
            graph_count: the number of graphs, for networks on graphs. Without it, it is the number of a
                :class:`~flashcliff.graphs.Relation` to graphs, or 1.
            cu_seqlens: the boundaries of the sequences of a ragged batch among its rows, ``[sequences + 1]``, as
                :class:`~flashcliff.nn.transformer.SelfAttention` takes them.
            cu_seqlens_key: the boundaries of the sequences of the context rows.
            given: a tensor for each input. For each relation a :class:`~flashcliff.graphs.Relation`, or the target of each row as
                integers, which are sorted in each call.

        Raises:
            TypeError: an input or a relation is missing, or the network does not have it; types differ from each other or from the
                types of the parameters.
            ValueError: shapes that do not belong to one batch.
            UnsupportedError: tensors lack their own memory, such as the tensors of ``torch.func`` and of forward mode.
        """
        return self._call(given, samples, graph_count, cu_seqlens, cu_seqlens_key)


def _rows(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The rows of a call."""
    names = "samples", "items", "context items", "edges", "graphs", "others 0", "others 1", "others 2"
    return tuple(sizes.get(name, 0) for name in names)


def _ends(ends: Axes) -> str:
    return ", ".join(f"{name} [{', '.join(axes)}]" for name, axes in ends.items())
