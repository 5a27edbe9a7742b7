"""A network of multivectors of nodes and edges, which layers of messages add their nodes to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...._derived.table import MV_LINEAR
from ...._ops.op import Op, operator
from ....algebra import Algebra
from .call import Unready
from .draft import Draft, Undescribed

__all__ = ["MessageDescription", "MessageVariant", "Multivectors"]

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.SiLU: "silu", nn.ReLU: "relu"}


class Multivectors(NamedTuple):
    """A value of a network: ``[blades, rows, channels]``, where rows may be edges, graphs or the rows of further sets."""

    value: int
    blades: int
    channels: int
    of_graphs: bool = False
    """Whether its rows are graphs, as the rows of a result may be."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The blades, channels and scalars of a row."""
        return self.blades, self.channels, 0


class MessageVariant(NamedTuple):
    """The part of a call on which its network depends: the input of nodes."""

    name: str
    blades: int
    channels: int
    by_rows: bool = False
    """Whether the numbers of a node lie side by side, and not the numbers of a blade."""

    def check(self, here: Tensor) -> None:
        """Raises unless the nodes have the sizes of the network, by which a plan reads their memory."""
        if here.shape[0] != self.blades or here.shape[-1] != self.channels:
            raise Unready("nodes have other blades or channels than the module")

    def draft(self, _: None, owner: nn.Module | None = None) -> MessageDescription:
        """A network of such calls in the making."""
        return MessageDescription(self, owner)


class MessageDescription(Draft):
    """A network of nodes and edges in the making. Relations, and inputs of edges, are added when a layer asks for them.

    Args:
        variant: the call.
        owner: the module whose state dict names the parameters; without one they are numbered.
    """

    method = "describe_on_graph"

    def __init__(self, variant: MessageVariant, owner: nn.Module | None = None) -> None:
        super().__init__(owner)
        self.relations: list[str] = []
        """The relations in the order of the network, as fields of :class:`.graphs.MessageGiven`."""
        self._known: dict[str, int] = {}
        name, blades, channels, by_rows = variant
        axes: list[int | str] = [blades, channels]
        axes.insert(0 if by_rows else 1, "rows")
        self.here = Multivectors(self._input("here", name, axes), blades, channels)

    def _input(self, field: str, name: str, axes: Sequence[int | str]) -> int:
        self.inputs.append(field)
        made: int = self.network.input(name, axes)
        return made

    def ends(self) -> tuple[int, int]:
        """The relations of edges to their receivers and to their senders."""
        return self.relation("receivers", "edges", "rows"), self.relation(
            "senders", "edges", "rows"
        )

    def graphs(self) -> int:
        """The relation of nodes to their graphs."""
        return self.relation("graphs", "rows", "graphs")

    def relation(self, name: str, start: str, end: str) -> int:
        """A relation between two axes of rows, by its name."""
        if name not in self._known:
            self.relations.append(name)
            self._known[name] = self.network.relation(name, start, end)
        return self._known[name]

    def edge_scalars(self, count: int) -> Multivectors:
        """The input of scalars of edges."""
        value = self._input("edge_scalars", "edge_scalars", [1, "edges", count])
        return Multivectors(value, 1, count)

    def node_scalars(self, count: int, name: str = "node_scalars") -> Multivectors:
        """The input of scalars of nodes."""
        value = self._input("node_scalars", name, [1, "rows", count])
        return Multivectors(value, 1, count)

    def vertices(self, dim: int) -> Multivectors:
        """The input of the positions of vertices, the first further set of rows, with numbers side by side."""
        return Multivectors(self._input("points", "points", ["others 0", 1, dim]), 1, dim)

    # Nodes of the network.

    def operator(
        self, op: Op, algebra: Algebra, tensors: Sequence[int | None], *options: Any
    ) -> int:
        """An operator of the table with all of its options."""
        core = self._step(operator, op, algebra.name, op.given(tensors), options)
        given = [own for own in tensors if own is not None]
        value: int = self._step(self.network.operator, core, given)
        return value

    def linear(
        self,
        algebra: Algebra,
        x: Multivectors,
        parameters: tuple[int, int | None],
        channels: int,
        *,
        per_grade: bool = False,
        bias_mode: str = "scalar",
        grades: tuple[int, ...] | None = (0,),
    ) -> Multivectors:
        """A linear map to so many channels, by a weight ``[out, in]``, or ``[out, in, grades]``, and a bias if there is one. The options
        are the options of :func:`flashcliff.functional.mv_linear`."""
        options = per_grade, bias_mode, grades, "out_in_grade"
        value = self.operator(MV_LINEAR, algebra, (x.value, *parameters), *options)
        return x._replace(value=value, channels=channels)

    def program(self, own: Any, *tensors: int) -> int:
        """An operator of :func:`flashcliff.operators.operator`."""
        value: int = self._step(self.network.operator, own._core, list(tensors))
        return value

    def join(self, values: Sequence[int], axis: int) -> int:
        """Values one after another along an axis; they may be parameters."""
        found: int = self._step(self.network.join, list(values), axis)
        return found

    def gather(self, x: Multivectors, relation: int, minus: int | None = None) -> Multivectors:
        """For each row what it belongs to, less what it belongs to by a second relation."""
        return x._replace(value=self._step(self.network.gather, x.value, relation, minus))

    def segment_sum(self, x: Multivectors, relation: int, reduce: str) -> Multivectors:
        """The sum over the rows of each target."""
        return x._replace(value=self._step(self.network.segment_sum, x.value, relation, reduce))

    def side_by_side(self, *parts: Multivectors) -> Multivectors:
        """The channels of values one after another."""
        value = self.join([own.value for own in parts], 2)
        return parts[0]._replace(value=value, channels=sum(own.channels for own in parts))

    def stacked(self, *parts: Multivectors) -> Multivectors:
        """The blades of values one after another."""
        value = self.join([own.value for own in parts], 0)
        return parts[0]._replace(value=value, blades=sum(own.blades for own in parts))

    def blades_of(self, x: Multivectors, sizes: Sequence[int]) -> list[Multivectors]:
        """The blades of a value in parts."""
        parts = self.split(x.value, 0, sizes)
        return [x._replace(value=own, blades=size) for own, size in zip(parts, sizes, strict=True)]

    def split(self, value: int, axis: int, sizes: Sequence[int]) -> list[int]:
        """The parts of a value along an axis; it may be a parameter."""
        found: list[int] = self._step(self.network.split, value, axis, list(sizes))
        return found

    def extended(self, x: Multivectors, blades: int) -> Multivectors:
        """Multivectors with further blades, which are 0."""
        return x._replace(
            value=self._step(self.network.extend_blades, x.value, blades), blades=blades
        )

    def sum(self, x: Multivectors, y: Multivectors, scale: float = 1.0) -> Multivectors:
        return x._replace(value=self._step(self.network.sum, x.value, y.value, scale))

    def blade_norm(self, x: Multivectors) -> Multivectors:
        """The Euclidean norm over blades, as scalars."""
        return x._replace(value=self._step(self.network.blade_norm, x.value), blades=1)

    def reversed_axes(self, value: int) -> int:
        """A parameter of three axes with these in reverse order."""
        found: int = self._step(self.network.reverse_axes, value)
        return found

    def perceptron(
        self, modules: Iterable[nn.Module], algebra: Algebra, x: Multivectors
    ) -> Multivectors:
        """Linear maps and activations of scalars, one after another."""
        for module in modules:
            if type(module) is nn.Linear:
                x = self._dense(module, algebra, x)
            elif type(module) in _ACTIVATIONS:
                name = _ACTIVATIONS[type(module)]
                x = x._replace(value=self._step(self.network.activation, x.value, name))
            else:
                raise Undescribed(f"a layer is of the class {type(module).__name__}")
        return x

    def _dense(self, module: nn.Linear, algebra: Algebra, x: Multivectors) -> Multivectors:
        self.reads(module, "in_features", "out_features")
        if x.channels != module.in_features:
            raise Undescribed("a linear map has another number of channels than its input")
        shape = module.out_features, module.in_features
        bias = self.optional(module, "bias", shape[:1])
        parameters = self.parameter(module, "weight", shape), bias
        return self.linear(algebra, x, parameters, module.out_features)

    def points(self, x: Multivectors) -> Multivectors:
        """The numbers of nodes, which lie side by side, as blades behind a 0."""
        value = self._step(self.network.points, x.value)
        return Multivectors(value, 1 + x.channels, x.blades)

    def _step(self, add: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return super()._step(add, *arguments, **options)
        except ValueError as error:
            # Layers that do not fit each other say so themselves.
            raise Undescribed(str(error)) from None
