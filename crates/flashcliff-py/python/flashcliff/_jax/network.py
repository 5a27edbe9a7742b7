"""Networks of files as functions of JAX.

A first gradient is the backward pass of the plan that PyTorch runs, which reads what the forward pass kept: one more result of the
call, of bytes that only the plan knows. Gradients of gradients are networks, too. They compute again what they need, and so every order is
there that the network has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import _core
from .._ops import checks
from .._ops.op import CACHED
from . import lowering, primitives
from .call import takes_tf32
from .sequences import Sequences
from .which import like

Sizes = tuple[int, int, int, int, int, tuple[int, int, int]]
"""Samples, items, context items, edges, graphs, and the rows of further sets, such as simplices of each dimension."""

Call = Callable[[Sequence[Any], "Network"], list[Any]]
"""A call of a network with arguments."""

Step = tuple[tuple[bool, ...], tuple[bool, ...]]
"""A step to a gradient: which results have gradients, and which arguments are wanted."""


@dataclass(frozen=True, repr=False)
class Network:
    """A network, or a gradient of one. Arguments are three lists for each relation, the boundaries of sequences, the inputs, the
    parameters, then gradients of results."""

    json: str
    """The network as files have it."""
    sizes: Sizes
    float64: bool
    steps: tuple[Step, ...] = ()
    """The steps to a gradient."""
    longest: int | None = None
    """The length of the longest sequence of a ragged batch, or more; ``None`` without sequences."""
    wanted: tuple[bool, ...] = ()
    """For each argument but lists whether the backward pass computes its gradient. What the forward pass keeps depends on it."""

    linear = replayable = False

    def __repr__(self) -> str:
        return f"network{'.g' * len(self.steps)}"

    @property
    def core(self) -> _core.StoredNetwork:
        """The network of the compiled half."""
        return _made(self.json, self.steps)

    @property
    def lists(self) -> int:
        """The number of lists: the lists of relations, and the boundaries of sequences."""
        of_sequences = 0 if self.longest is None else 1 + (self.sizes[2] > 0)
        return 3 * len(self.core.relations) + of_sequences

    @property
    def shapes(self) -> tuple[list[list[int]], list[list[int]]]:
        """The shapes of arguments but lists, and of results."""
        return _shapes(self)

    @property
    def lanes(self) -> tuple[bool, ...]:
        """No argument has a batch that calls could share."""
        return (False,) * (self.lists + len(self.shapes[0]))

    @property
    def outputs(self) -> tuple[bool, ...]:
        """The same of results."""
        return (False,) * len(self.shapes[1])

    # Derivatives

    @property
    def has_passes(self) -> bool:
        """Whether there is a backward pass, which reads what the forward pass keeps."""
        return any(self.wanted)

    saves = reads_output = has_passes
    keeps = False
    """A forward pass without gradients has a plan that keeps nothing."""

    def keeping(self, moved: Sequence[bool]) -> Network:
        """The network with a backward pass for some arguments. Of a gradient there is none."""
        needed = tuple(moved[self.lists :])
        if self.steps or not any(needed) or self.has_passes and _covers(self.wanted, needed):
            return self
        found = iter(_found(self.json, (), ((True,) * len(self.outputs), needed)))
        return replace(self, wanted=tuple(own and next(found) for own in needed))

    def wants(self, needed: Sequence[bool]) -> tuple[bool, ...]:
        """The arguments whose gradients the backward pass computes: all that it has."""
        return (*(False,) * self.lists, *self.wanted)

    def gradient(
        self, there: Sequence[bool], needed: Sequence[bool]
    ) -> tuple[Network, tuple[bool, ...]]:
        """The gradient of some results by some arguments, and for each of these whether there is one."""
        step = (tuple(there), tuple(needed[self.lists :]))
        return self._then(step), _found(self.json, self.steps, step)

    def _then(self, step: Step) -> Network:
        return replace(self, steps=(*self.steps, step), wanted=())

    def along(
        self, call: Call, moved: Sequence[bool], inputs: Sequence[Any], along: Sequence[Any]
    ) -> list[Any]:
        """The tangents of results by the tangents of arguments.

        A gradient ``G`` of ``F`` by some arguments has as its tangent along ``v`` another gradient by the same arguments. It is the
        gradient of the product of ``v`` with the gradient of ``F`` by the arguments that ``v`` belongs to: second derivatives have one
        value in both orders. ``G`` is linear in its gradients of results, so its tangent along them is ``G`` of their tangents. The tangent
        of a network along ``v`` is the gradient, by the gradients of results, of the product of ``v`` with the gradient of the network,
        which is linear in them.
        """
        avals = self.results([jax.typeof(x) for x in inputs])
        if not self.steps:
            seeds = [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
            results = (True,) * len(seeds)
            others = (False,) * len(inputs)
            return self._twice(call, results, moved, (*others, *results), [*inputs, *seeds], along, avals)
        *before, (there, wanted) = self.steps
        base = replace(self, steps=tuple(before))
        count = len(inputs) - sum(there)
        of_arguments, of_seeds = moved[:count], moved[count:]
        found = [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
        following = iter(along)
        own = [next(following) for move in of_arguments if move]
        if own:
            # Lists come first, and no gradient is by them.
            needed = ((False,) * self.lists + wanted)[:count]
            kept = base.gradient(there, needed)[1]
            more = base._twice(call, there, of_arguments, (*needed, *(False,) * sum(there)), inputs, own, None)
            found = [each for each, is_there in zip(more, kept) if is_there]
        if any(of_seeds):
            seeds = [next(following) if move else jnp.zeros_like(x) for x, move in zip(inputs[count:], of_seeds)]
            of_these = call([*inputs[:count], *seeds], self)
            found = [one + other for one, other in zip(found, of_these)]
        return found

    def _twice(
        self,
        call: Call,
        there: Sequence[bool],
        by: Sequence[bool],
        then_by: Sequence[bool],
        arguments: Sequence[Any],
        along: Sequence[Any],
        avals: Sequence[Any] | None,
    ) -> list[Any]:
        """The gradient, by some arguments, of the product of some numbers with a gradient by others; zeros where there is none."""
        first, found = self.gradient(there, by)
        like_these = avals or [jax.typeof(x) for x, own in zip(arguments, then_by) if own]
        results: list[Any] = []
        second_found: tuple[bool, ...] = (False,) * len(like_these)
        if any(found):
            second, second_found = first.gradient((True,) * sum(found), then_by)
            seeds = [own for own, is_there in zip(along, found) if is_there]
            if any(second_found):
                results = call([*arguments, *seeds], second)
        following = iter(results)
        return [
            next(following) if is_there else jnp.zeros(aval.shape, aval.dtype)
            for is_there, aval in zip(second_found, like_these)
        ]

    # Shapes

    def results(self, avals: Sequence[Any]) -> list[Any]:
        """The shapes of results for arguments of some shapes."""
        arguments, results = self.shapes
        given = avals[self.lists :]
        dtype = np.dtype("float64" if self.float64 else "float32")
        for shape, aval in zip(arguments, given):
            if aval.dtype != dtype:
                raise TypeError(f"network: expected arrays of {dtype}, as the first one is, got {aval.dtype}")
            if list(aval.shape) != shape:
                raise ValueError(f"network: expected an array {shape}, got {list(aval.shape)}")
        return [like(given[0], shape) for shape in results]

    def saved(self, avals: Sequence[Any], tf32: bool) -> Any:
        """The shape of what the forward pass keeps: as many bytes as the plan of any device needs that this process has."""
        return like(avals[self.lists], (_kept(self, tf32),), np.dtype("uint8"))

    # Calls

    def handler(self, kind: str) -> str:
        """The handler of a pass."""
        return "network_backward" if kind == lowering.BACKWARD else "network"

    def target(self, rest: dict[str, Any]) -> dict[str, Any]:
        """The description of a call, as data. It is the same for both passes, which have one plan."""
        return {
            "network": self.json,
            "steps": self.steps,
            "wanted": self.wanted,
            "sizes": self.sizes,
            "longest": self.longest,
            "float64": self.float64,
            "tf32": rest["tf32"],
        }

    def check_on_cpu(self, avals: Sequence[Any]) -> None:
        """Every type that networks have runs on the CPU."""

    def prepare(
        self, digest: str, target: str, kind: str, avals: Sequence[Any], ordinal: int
    ) -> int:
        """Plans a call on a GPU; the bytes of workspace that it needs."""
        return _core.jax_prepare_network(digest, target, ordinal)[1][kind == lowering.BACKWARD]


@lru_cache(maxsize=CACHED)
def _made(json: str, steps: tuple[Any, ...]) -> _core.StoredNetwork:
    if not steps:
        return _core.StoredNetwork.of_json(json)
    *before, (there, needed) = steps
    return _made(json, tuple(before)).gradient(list(there), list(needed))[0]


@lru_cache(maxsize=CACHED)
def _found(json: str, steps: tuple[Any, ...], step: tuple[Any, ...]) -> tuple[bool, ...]:
    there, needed = step
    return tuple(_made(json, steps).gradient(list(there), list(needed))[1])


def _covers(wanted: Sequence[bool], needed: Sequence[bool]) -> bool:
    return all(own or not need for own, need in zip(wanted, needed))


@lru_cache(maxsize=4 * CACHED)
def _kept(network: Network, tf32: bool) -> int:
    of_call = lowering.target(network, (("tf32", tf32),))
    most = max(_core.jax_prepare_network(*of_call, device)[0] for device in lowering.devices())
    # So that rows of a batch of these bytes begin where XLA lets arrays begin.
    return -(-most // 256) * 256


@lru_cache(maxsize=CACHED)
def _shapes(network: Network) -> tuple[list[list[int]], list[list[int]]]:
    return network.core.shapes(network.sizes)


class LoadedNetwork:
    """A network of a file of :func:`flashcliff.save_network`: a function of parameters and inputs.

    Attributes:
        parameters: the weights of the file, by name.
        inputs: the names of inputs, and their axes.
        relations: the names of relations, with the axes of their rows and of their targets.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._json, parameters = _core.network_file(path)
        core = _made(self._json, ())
        if len(core.outputs) != 1:
            raise _core.UnsupportedError(f"networks: expected one output, got {len(core.outputs)}")
        self.parameters: dict[str, Array] = {
            name: jnp.asarray(np.frombuffer(data, dtype).reshape(shape))
            for name, shape, dtype, data in parameters
        }
        self.inputs: dict[str, tuple[str, ...]] = {name: tuple(axes) for name, axes in core.inputs}
        self.relations = {name: (start, end) for name, start, end in core.relations}

    def __call__(
        self,
        parameters: Mapping[str, Any],
        /,
        *,
        samples: int = 1,
        graph_count: int = 1,
        cu_seqlens: Any = None,
        cu_seqlens_key: Any = None,
        longest: int | None = None,
        **given: Any,
    ) -> Array:
        """The result.

        Args:
            parameters: an array for each parameter, of the type of the inputs.
            samples: the number of samples whose items, as many of each, are the rows; not for networks on graphs.
            graph_count: the number of graphs, for networks on graphs.
            cu_seqlens: the boundaries of the sequences of a ragged batch among its rows: ``[sequences + 1]`` of int32 or int64, ascending
                from 0 to the number of rows. Its numbers are traced; the numbers of sequences and of rows are static, as all shapes are.
            cu_seqlens_key: the boundaries of the context rows; without it they are ``cu_seqlens``.
            longest: the length of the longest sequence, or more: a static number, which only CUDA reads. Without it sequences may have
                all rows, which is right, and slower.
            given: an array for each input and, as integers, for each relation: the target of each row. Targets out of range are clipped, as
                indices of JAX are.

        Raises:
            TypeError: an input, a relation or a parameter is missing, or is none of the network's; other element types than float32 and
                float64.
            ValueError: shapes that do not belong to one batch; boundaries that do not ascend from 0 to the number of rows, or of sequences
                that are longer than ``longest``. Boundaries that are traced are compared when the program runs: on the CPU wrong ones are
                an error of JAX that says the same, and on CUDA, where no host reads them, the result is not a number.
        """
        _check_names("inputs and relations", [*self.inputs, *self.relations], given)
        if not isinstance(parameters, Mapping):
            raise TypeError(f"network: expected parameters as a mapping, got {type(parameters).__name__}")
        _check_names("parameters", list(_made(self._json, ()).parameters), parameters)
        arrays = {name: _array(name, value) for name, value in given.items()}
        for name in self.relations:
            _check_relation(name, arrays[name])
        sizes = self._sizes(checks.integer("samples", samples), checks.count("graph_count", graph_count), arrays)
        lists = [own for name in self.relations for own in self._lists(name, arrays[name], sizes)]
        inputs = [arrays[name] for name in self.inputs]
        if inputs[0].dtype not in (np.float32, np.float64):
            raise TypeError(f"network: expected arrays of float32 or float64, got {inputs[0].dtype}")
        weights = [jnp.asarray(parameters[name]) for name in _made(self._json, ()).parameters]
        sequences = None
        if cu_seqlens is not None or cu_seqlens_key is not None or longest is not None:
            if samples != 1 or self.relations:
                raise ValueError(f"cu_seqlens: expected one sample of all rows, of a network that is not on graphs, got {sizes[0]}")
            crosses = any("context rows" in axes for axes in self.inputs.values())
            context = sizes[2] if crosses else None
            sequences = Sequences.of(cu_seqlens, cu_seqlens_key, longest, (sizes[1], context))
            lists += sequences.bounds
        of = Network(
            self._json,
            sizes,
            inputs[0].dtype == np.float64,
            longest=None if sequences is None else sequences.longest,
        )
        result = primitives.operator([*lists, *inputs, *weights], of, takes_tf32())[0]
        return result if sequences is None else sequences.guarded(result)

    def _sizes(self, samples: int, graphs: int, arrays: Mapping[str, Array]) -> Sizes:
        found: dict[str, int] = {}
        for name, axes in self.inputs.items():
            for axis, size in zip(axes, arrays[name].shape):
                found.setdefault(axis, size)
        for name, (start, _) in self.relations.items():
            found.setdefault(start, arrays[name].shape[0])
        rows = found.get("rows", 0)
        if self.relations:
            if samples != 1:
                raise ValueError(f"samples: expected 1, because the network is on graphs, got {samples}")
            samples = rows
        if samples < 1 or rows % samples or found.get("context rows", 0) % samples:
            if rows:
                raise ValueError(f"samples: expected a divisor of the rows, {rows}, got {samples}")
            samples = 1
        context = found.get("context rows", 0) // samples
        first, second, third = (found.get(f"others {number}", 0) for number in range(3))
        return samples, rows // samples, context, found.get("edges", 0), graphs, (first, second, third)

    def _lists(self, name: str, targets: Array, sizes: Sizes) -> list[Array]:
        """The lists of a relation, whose rows and targets are as many as there are."""
        start, end = (self._size(axis, sizes) for axis in self.relations[name])
        if targets.shape[0] != start:
            raise ValueError(f"{name}: expected {start} rows ({self.relations[name][0]}), got {targets.shape[0]}")
        if start and not end:
            raise ValueError(f"{name}: expected at least one of {self.relations[name][1]} as the targets of {start} rows, got none")
        return _lists(targets, end)

    def _size(self, axis: str, sizes: Sizes) -> int:
        """The size of an axis of rows."""
        samples, items, context, edges, graphs, others = sizes
        counts = {
            "rows": samples * items,
            "samples": samples,
            "items": items,
            "context rows": samples * context,
            "edges": edges,
            "graphs": graphs,
            **{f"others {number}": count for number, count in enumerate(others)},
        }
        return counts[axis]

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {list(axes)}" for name, axes in self.inputs.items())
        return f"<network of {len(self.parameters)} parameters: {inputs}>"


def load_network(path: str | os.PathLike[str]) -> LoadedNetwork:
    """The network of a file of :func:`flashcliff.save_network`, as a function of JAX.

    It works within ``jax.jit``, with the derivatives that the network has, in both modes: of transformers at least the first two, of
    networks of operators every order. A batch by ``jax.vmap`` is a loop; batches of a network are its samples, or the sequences of a
    ragged batch. Its weights are a dictionary, ``parameters``, and the first argument of a call.

    Args:
        path: the file.

    Raises:
        ValueError: the file is not such a file, or it has another version.
        UnsupportedError: a network with several outputs.
        OSError: the file cannot be read.
    """
    return LoadedNetwork(path)


def _check_names(what: str, expected: list[str], given: Mapping[str, Any]) -> None:
    if set(expected) != set(given):
        raise TypeError(
            f"network: expected {what} {', '.join(expected) or 'none'}, got {', '.join(given) or 'none'}"
        )


def _array(name: str, value: Any) -> Array:
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected an array, got {type(value).__name__}") from error


def _check_relation(name: str, targets: Array) -> None:
    if targets.ndim != 1 or not jnp.issubdtype(targets.dtype, jnp.integer):
        raise TypeError(f"{name}: expected a relation as a list of integers, got {targets.dtype} {list(targets.shape)}")


def _lists(targets: Array, count: int) -> list[Array]:
    """Targets, where the rows of each target begin, and the rows in the order of their targets."""
    targets = jnp.clip(targets, 0, max(count - 1, 0)).astype(jnp.int32)
    order = jnp.argsort(targets, stable=True).astype(jnp.int32)
    starts = jnp.searchsorted(targets[order], jnp.arange(count + 1, dtype=jnp.int32)).astype(jnp.int32)
    return [targets, starts, order]
