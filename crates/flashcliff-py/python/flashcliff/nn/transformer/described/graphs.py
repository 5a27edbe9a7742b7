"""The tensors of a call on a graph, as a plan reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .... import _core
from ....graphs import Relation
from .call import Maybe, Rows, Types, Unready

__all__ = ["MessageCall", "MessageGiven", "rows_of", "types_on_graph"]

_SERVED = torch.float32, torch.float64


class MessageGiven(NamedTuple):
    """The arguments of a call of layers on a graph."""

    here: Tensor
    """The nodes ``[blades, nodes, channels]``; ``[1, nodes, numbers]`` where the numbers of a node lie side by side."""
    receivers: Relation | None = None
    """The nodes that edges bring messages to."""
    senders: Relation | None = None
    """The nodes that edges come from."""
    edge_scalars: Tensor | None = None
    """The scalars of edges, ``[edges, scalars]``."""
    graphs: Relation | None = None
    """The graphs of nodes."""
    node_scalars: Tensor | None = None
    """The scalars of nodes, ``[nodes, scalars]``."""
    points: Tensor | None = None
    """The positions of vertices, ``[vertices, dim]``."""
    more: tuple[tuple[str, Relation], ...] = ()
    """Further relations, by their names."""

    def tensors(self) -> list[Tensor]:
        """The tensors of numbers."""
        found = self.here, self.edge_scalars, self.node_scalars, self.points
        return [own for own in found if own is not None]

    def relation(self, name: str) -> Relation:
        """A relation by its name."""
        found = getattr(self, name, None) if "." not in name else None
        return dict(self.more)[name] if found is None else found

    def of(self, inputs: Sequence[str]) -> list[Tensor | None]:
        """The tensors of inputs, two for each as tokens have: the second one is not there."""
        return [own for name in inputs for own in (getattr(self, name), None)]

    def lists(self, relations: Sequence[str]) -> tuple[Tensor, ...]:
        """The tensors of relations, three for each."""
        found = map(self.relation, relations)
        return tuple(t for own in found for t in (own.targets, own.starts, own.order))

    def all_lists(self) -> tuple[Tensor, ...]:
        """The tensors of the relations that are there."""
        named = [
            name for name in ("receivers", "senders", "graphs") if getattr(self, name) is not None
        ]
        return self.lists([*named, *(name for name, _ in self.more)])


def types_on_graph(given: MessageGiven, takes_tf32: bool) -> Types:
    """The types of a call, where matrix products of float32 may round to TF32 or not.

    Layers of messages round tensors of 16 bits one after another, with and without autocast, so these are their own affair.
    """
    dtype = given.here.dtype
    if dtype not in _SERVED or any(t.dtype != dtype for t in given.tensors()):
        raise Unready("the tensors are not all of float32, or all of float64")
    if dtype == torch.float32 and torch.is_autocast_enabled(given.here.device.type):
        raise Unready("autocast chooses the types of operators")
    return Types(dtype, dtype, frozenset((dtype,)), takes_tf32)


def rows_of(nodes: Any, relations: Sequence[str], lists: Sequence[Tensor]) -> tuple[Any, ...]:
    """The rows of a call: its nodes, and the edges, graphs and orders of simplices of its relations; symbols in a trace."""
    sizes = {
        name: (lists[3 * at].shape[0], lists[3 * at + 1].shape[0] - 1)
        for at, name in enumerate(relations)
    }
    edges, graphs = sizes.get("receivers", (0, 0))[0], sizes.get("graphs", (0, 0))[1]
    others = [sizes[f"simplices.{at}"][0] for at in range(3) if f"simplices.{at}" in sizes]
    return nodes, 1, 0, edges, graphs, *others


class MessageCall(NamedTuple):
    """A call on a graph that the function serves: what :class:`~.call.Call` is for tokens."""

    description: Any
    """The part of a description that a call reads."""
    function: _core.NetworkFunction
    rows: Rows
    sizes: tuple[int, int, int]
    """The blades and channels of the result, and no scalars."""
    relations: tuple[Tensor, ...]
    """The tensors of relations, three for each."""
    template: MessageGiven | None
    """The arguments without tensors of numbers; ``None`` where layers are never called."""
    tensors: Sequence[Tensor | None]
    """Two for each input, of which the second is ``None``."""
    types: Types
    algebra: Any = None
    """The algebra of the layers, as far as reports name it."""
    sequences: None = None
    draw: None = None
    of_graphs: bool = False
    """Whether the rows of the result are graphs, and not nodes."""

    def together(self, name: str, pair: Sequence[Tensor | None]) -> Tensor:
        """The tensor of an input."""
        found = pair[0]
        assert found is not None
        return found

    def apart(self, name: str, gradient: Tensor | None, *tensors: Tensor | None) -> Maybe:
        """The gradient of the tensor of an input."""
        return gradient, None

    def parts(self, result: Tensor) -> Maybe:
        """The result as a tensor with its own memory: a caller may write to it, and the backward pass reads the result of the plan."""
        return result.view(self._shape()).clone(), None

    def seed(self, incoming: Sequence[Tensor | None], like: Tensor) -> Tensor:
        """The gradient of the result."""
        gradient = incoming[0]
        assert gradient is not None
        return like.new_empty(self._shape()).copy_(gradient)

    def _shape(self) -> tuple[int, int, int]:
        blades, channels, _ = self.sizes
        return blades, self.rows[4 if self.of_graphs else 0], channels

    def given(self, tensors: Sequence[Tensor | None]) -> MessageGiven:
        """The arguments of a call of layers, from the tensors of a function."""
        assert self.template is not None
        named: dict[str, Any] = dict(zip(self.description.inputs, tensors[::2]))
        return self.template._replace(**named)
