"""The host of ONNX: each operation is a node of standard operators.

Constants are initialisers, each once. Sizes that a run gives are read from shapes; a shape with one of them has -1 in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Graph", "Named", "Sized"]

_TYPES = {np.dtype("f4"): TensorProto.FLOAT, np.dtype("f8"): TensorProto.DOUBLE}
_FUNCTIONS = {
    "sqrt": "Sqrt",
    "exp": "Exp",
    "sin": "Sin",
    "cos": "Cos",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    "abs": "Abs",
    "relu": "Relu",
    "negative": "Neg",
}


class Named(NamedTuple):
    """A tensor of the graph, with the sizes that are known."""

    name: str
    shape: tuple[int | None, ...]


class Sized(NamedTuple):
    """A size that a run gives: a tensor of one integer."""

    name: str


class Graph:
    """A graph in the making.

    Args:
        dtype: the type of all numbers, float32 or float64.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.initializers: list[Any] = []
        self._count = 0
        self._constants: dict[Any, str] = {}
        self._sizes: dict[tuple[str, int], Sized] = {}

    # The graph.

    def input(self, name: str, shape: Sequence[int | str], integers: bool = False) -> Named:
        """An input; axes with names are open."""
        of = TensorProto.INT64 if integers else _TYPES[self.dtype]
        self.inputs.append(helper.make_tensor_value_info(name, of, list(shape)))
        return Named(name, tuple(own if isinstance(own, int) else None for own in shape))

    def model(
        self, outputs: dict[str, tuple[Named, Sequence[int | str]]], opset: int, doc: str
    ) -> Any:
        """The model with outputs of these names and axes."""
        infos = []
        for name, (value, shape) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value.name], [name]))
            infos.append(helper.make_tensor_value_info(name, _TYPES[self.dtype], list(shape)))
        graph = helper.make_graph(
            self.nodes, "flashcliff", self.inputs, infos, self.initializers, doc_string=doc
        )
        imports = [helper.make_opsetid("", opset)]
        # The version of the format that belongs to the oldest operators that are used.
        model = helper.make_model(
            graph, opset_imports=imports, producer_name="flashcliff", ir_version=9
        )
        onnx.checker.check_model(model)
        return model

    def _node(
        self, kind: str, inputs: Sequence[str], shape: Sequence[int | None], **attributes: Any
    ) -> Named:
        self._count += 1
        name = f"{kind}_{self._count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return Named(name, tuple(shape))

    def _initializer(self, array: np.ndarray) -> str:
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = name
            self.initializers.append(numpy_helper.from_array(array, name))
        return self._constants[key]

    def _integers(self, *numbers: int) -> str:
        return self._initializer(np.array(numbers, np.int64))

    def constant(self, array: np.ndarray) -> Named:
        own = np.ascontiguousarray(array.astype(self.dtype)).reshape(array.shape)
        return Named(self._initializer(own), own.shape)

    # Sizes.

    def size(self, x: Named, axis: int) -> int | Sized:
        axis %= len(x.shape)
        known = x.shape[axis]
        if known is not None:
            return known
        key = x.name, axis
        if key not in self._sizes:
            own = self._node("Shape", [x.name], (1,), start=axis, end=axis + 1)
            self._sizes[key] = Sized(own.name)
        return self._sizes[key]

    def _shape(self, sizes: Sequence[int | Sized]) -> str:
        """The tensor of a shape."""
        open_ = [at for at, own in enumerate(sizes) if isinstance(own, Sized)]
        if len(open_) == 1 and -1 not in sizes:
            sizes = [-1 if isinstance(own, Sized) else own for own in sizes]
            open_ = []
        if not open_:
            return self._integers(*(own for own in sizes if isinstance(own, int)))
        parts = [own.name if isinstance(own, Sized) else self._integers(own) for own in sizes]
        return self._node("Concat", parts, (len(parts),), axis=0).name

    # Functions of elements.

    def _pair(self, kind: str, x: Named, y: Named) -> Named:
        return self._node(kind, [x.name, y.name], _broadcast(x.shape, y.shape))

    def add(self, x: Named, y: Named) -> Named:
        return self._pair("Add", x, y)

    def subtract(self, x: Named, y: Named) -> Named:
        return self._pair("Sub", x, y)

    def multiply(self, x: Named, y: Named) -> Named:
        return self._pair("Mul", x, y)

    def divide(self, x: Named, y: Named) -> Named:
        return self._pair("Div", x, y)

    def maximum(self, x: Named, y: Named) -> Named:
        return self._pair("Max", x, y)

    def greater(self, x: Named, y: Named) -> Named:
        is_greater = self._pair("Greater", x, y)
        return self._node("Cast", [is_greater.name], is_greater.shape, to=_TYPES[self.dtype])

    def function(self, x: Named, name: str) -> Named:
        return self._node(_FUNCTIONS[name], [x.name], x.shape)

    # Sums and products.

    def sum(self, x: Named, axis: int) -> Named:
        shape = [1 if at == axis else own for at, own in enumerate(x.shape)]
        return self._node("ReduceSum", [x.name, self._integers(axis)], shape, keepdims=1)

    def softmax(self, x: Named) -> Named:
        return self._node("Softmax", [x.name], x.shape, axis=-1)

    def matmul(self, x: Named, y: Named) -> Named:
        front = _broadcast(x.shape[:-2], y.shape[:-2])
        return self._node("MatMul", [x.name, y.name], (*front, x.shape[-2], y.shape[-1]))

    # Elements in other places.

    def reshape(self, x: Named, sizes: Sequence[int | Sized]) -> Named:
        shape = [own if isinstance(own, int) and own >= 0 else None for own in sizes]
        if None not in x.shape and shape.count(None) == 1:
            elements = math.prod(own for own in x.shape if own is not None)
            rest = math.prod(own for own in shape if own is not None)
            shape = [elements // max(rest, 1) if own is None else own for own in shape]
        # A size that a run gives may be 0, which else stands for the size of the input there.
        given = {} if -1 in sizes else {"allowzero": 1}
        return self._node("Reshape", [x.name, self._shape(sizes)], shape, **given)

    def transpose(self, x: Named, axes: Sequence[int]) -> Named:
        return self._node("Transpose", [x.name], [x.shape[at] for at in axes], perm=list(axes))

    def concatenate(self, *parts_and_axis: Any) -> Named:
        *parts, axis = parts_and_axis
        shape = list(parts[0].shape)
        sizes = [own.shape[axis] for own in parts]
        shape[axis] = None if None in sizes else sum(sizes)
        return self._node("Concat", [own.name for own in parts], shape, axis=axis)

    def slice(self, x: Named, axis: int, start: int, stop: int) -> Named:
        if (start, stop) == (0, x.shape[axis]):
            return x
        shape = [stop - start if at == axis else own for at, own in enumerate(x.shape)]
        bounds = [self._integers(own) for own in (start, stop, axis)]
        return self._node("Slice", [x.name, *bounds], shape)

    def choose(self, x: Named, axis: int, places: Sequence[int]) -> Named:
        shape = [len(places) if at == axis else own for at, own in enumerate(x.shape)]
        return self._node("Gather", [x.name, self._integers(*places)], shape, axis=axis)

    # Places that a run gives.

    def take(self, x: Named, places: Named, axis: int) -> Named:
        shape = [places.shape[0] if at == axis else own for at, own in enumerate(x.shape)]
        return self._node("Gather", [x.name, places.name], shape, axis=axis)

    def scatter(self, x: Named, places: Named, count: Any) -> Named:
        width = x.shape[1]
        assert width is not None
        shape = self._shape_of_rows(count, width)
        zeros = self._node(
            "ConstantOfShape",
            [shape],
            (None, width),
            value=numpy_helper.from_array(np.zeros(1, self.dtype)),
        )
        column = self._node("Unsqueeze", [places.name, self._integers(1)], (None, 1))
        inputs = [zeros.name, column.name, x.name]
        return self._node("ScatterND", inputs, (None, width), reduction="add")

    def _shape_of_rows(self, count: Any, width: int) -> str:
        if isinstance(count, int):
            return self._integers(count, width)
        parts = [count.name, self._integers(width)]
        return self._node("Concat", parts, (2,), axis=0).name

    def most(self, places: Named) -> Sized:
        """One more than the largest place."""
        largest = self._largest(places, -1)
        return Sized(self._node("Add", [largest, self._integers(1)], (1,)).name)

    def _largest(self, numbers: Named, least: int) -> str:
        """The largest of some numbers and another one, of which alone it is where there are none."""
        all_ = self._node("Concat", [numbers.name, self._integers(least)], (None,), axis=0)
        return self._node("ReduceMax", [all_.name], (1,), keepdims=1).name

    # Items of samples.

    def positions(self, samples: Sized | int, items: Any) -> Named:
        """The position of each row among the items of its sample, ``[rows, 1]``."""
        counted = self._range(items)
        shape = [
            own.name if isinstance(own, Sized) else self._integers(own) for own in (samples, items)
        ]
        both = self._node("Concat", shape, (2,), axis=0)
        all_ = self._node("Expand", [counted, both.name], (None, None))
        flat = self._node("Reshape", [all_.name, self._integers(-1, 1)], (None, 1))
        return self._node("Cast", [flat.name], (None, 1), to=_TYPES[self.dtype])

    def positions_of_rows(self, rows: Any) -> Named:
        """The position of each row among all."""
        column = self._node("Reshape", [self._range(rows), self._integers(-1, 1)], (None, 1))
        return self._node("Cast", [column.name], (None, 1), to=_TYPES[self.dtype])

    def _range(self, count: Any) -> str:
        """The numbers below a size."""
        name = count.name if isinstance(count, Sized) else self._integers(count)
        none = self._initializer(np.array(0, np.int64))
        one = self._initializer(np.array(1, np.int64))
        stop = self._node("Squeeze", [name], ())
        return self._node("Range", [none, stop.name, one], (None,)).name

    def _is_there(self, lengths: Named, items: int | Sized) -> str:
        """For each sample and item whether it is there, ``[samples, items]``."""
        column = self._node("Unsqueeze", [lengths.name, self._integers(1)], (None, 1))
        return self._node("Less", [self._range(items), column.name], (None, None)).name

    def seen(self, lengths: Named, items: int | Sized) -> Named:
        """0 for keys that are there and minus infinity for others, ``[samples, 1, 1, items]``."""
        return self._seen(self._is_there(lengths, items))

    def _seen(self, is_there: str) -> Named:
        zero, minus = self.constant(np.zeros(())), self.constant(np.array(-np.inf))
        flat = self._node("Where", [is_there, zero.name, minus.name], (None, None))
        axes = self._integers(1, 2)
        return self._node("Unsqueeze", [flat.name, axes], (None, 1, 1, None))

    def ragged(self, lengths: Named) -> tuple[Sized, Named, Named, Named]:
        """The longest length; for each sample and item its row; which keys are seen; for each row its sample and item."""
        items = Sized(self._largest(lengths, 0))
        is_there = self._is_there(lengths, items)
        zero = self._initializer(np.array(0, np.int64))
        first = self._node("CumSum", [lengths.name, zero], (None,), exclusive=1)
        column = self._node("Unsqueeze", [first.name, self._integers(1)], (None, 1))
        row = self._node("Add", [column.name, self._range(items)], (None, None))
        # Items that are not there have the numbers of the first row, which nothing reads.
        safe = self._node("Where", [is_there, row.name, zero], (None, None))
        places = self._node("Reshape", [safe.name, self._integers(-1)], (None,))
        line = self._node("Reshape", [is_there, self._integers(-1)], (None,))
        both = self._node("NonZero", [line.name], (1, None))
        back = self._node("Squeeze", [both.name, self._integers(0)], (None,))
        return items, places, self._seen(is_there), back


def _broadcast(x: Sequence[int | None], y: Sequence[int | None]) -> list[int | None]:
    length = max(len(x), len(y))
    sides = [[*[1] * (length - len(own)), *own] for own in (x, y)]
    return [b if a == 1 else a if b == 1 or a is not None else b for a, b in zip(*sides)]
