"""The walk over the nodes of a network: each becomes operations, with the parameters as known numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ... import _core
from ..operations import Operations, Tensor
from ..stored import Stored
from . import linear, nodes, steps
from .attention import attention, rotary
from .layout import Channels, Rows, Token, channels_of, packed, unpacked
from .operators import Operator

__all__ = ["Given", "lowered"]


class Given(NamedTuple):
    """What a run gives, as tensors of a host.

    Attributes:
        inputs: the inputs of the network by name; tokens have one axis of rows.
        rows: the items of samples, and the items of their context.
        relations: for each relation, for each row the row that it belongs to.
    """

    inputs: Mapping[str, Tensor]
    rows: Rows | None
    context: Rows | None
    relations: Mapping[str, Tensor]


def lowered(stored: Stored, ops: Operations, evaluate: Any, given: Given) -> dict[str, Tensor]:
    """The outputs of a network by their names."""
    return _Walk(stored, ops, evaluate, given).run()


class _Walk:
    def __init__(self, stored: Stored, ops: Operations, evaluate: Any, given: Given) -> None:
        self.graph = stored.graph
        self.ops = ops
        self.evaluate = evaluate
        self.given = given
        self.values: list[Any] = []
        self.operators = [Operator(own) for own in self.graph["operators"]]
        self.relations = nodes.Relations(ops, self.graph.get("relations", []), given.relations)
        for record in self.graph["inputs"]:
            self.values.append(self._input(record))
        for record in self.graph["parameters"]:
            self.values.append(stored.parameters[record["name"]].reshape(record["shape"]))

    def _input(self, record: dict[str, Any]) -> Any:
        x = self.given.inputs[record["name"]]
        last = record["axes"][-1]
        if not isinstance(last, dict) or "token" not in last:
            self.relations.see(x, record["axes"])
            return x
        token = last["token"]
        return unpacked(self.ops, x, token["blades"], channels_of(token["channels"]))

    def run(self) -> dict[str, Tensor]:
        for at, node in enumerate(self.graph["nodes"]):
            work, inputs = node["work"], [self.values[own] for own in node["inputs"]]
            kind, of = (work, None) if isinstance(work, str) else next(iter(work.items()))
            self.values += self._results(at, kind, of, inputs)
        return {
            own["name"]: self._output(self.values[own["value"]]) for own in self.graph["outputs"]
        }

    def _output(self, value: Any) -> Tensor:
        """An output as the file says it."""
        if not isinstance(value, Token):
            return value
        mv, s = value
        channels = Channels(
            0 if mv is None else self.ops.size(mv, 2), 0 if s is None else self.ops.size(s, 1)
        )
        return packed(self.ops, value, 0 if mv is None else self.ops.size(mv, 0), channels)

    def _results(self, at: int, kind: str, of: Any, inputs: list[Any]) -> list[Any]:
        """The values of a node: what it computes, and a place for what it saves."""
        if kind == "step":
            ((step, record),) = of.items()
            return [self._step(at, step, record, inputs), None]
        if kind == "operator":
            return [self.operators[of].apply(self.ops, self.evaluate, inputs), None]
        if kind in ("gather", "segment_sum"):
            return [getattr(self.relations, kind)(of, inputs[0])]
        found = nodes.KINDS.get(kind)
        if found is None:
            raise _unknown(at, kind)
        return found(self.ops, of, inputs)

    def _step(self, at: int, kind: str, record: dict[str, Any], inputs: list[Any]) -> Token:
        own = _STEPS.get(kind)
        if own is None:
            raise _unknown(at, kind)
        return own(self, record, inputs)

    def geometry(self, record: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.graph["geometries"][record["geometry"]]
        return found


def _unknown(at: int, kind: str) -> _core.UnsupportedError:
    return _core.UnsupportedError(
        f"export: expected nodes that standard operations can compute, got `{kind}` as node {at}"
    )


def _linear(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    flat = inputs[1] if len(inputs) > 1 else np.zeros(0)
    of = walk.geometry(record)
    return linear.linear(walk.ops, of, record, inputs[0], flat, False)


def _beside_scalars(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    return linear.linear(walk.ops, walk.geometry(record), record, inputs[0], inputs[1], True)


def _lanes(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    program = walk.operators[record["operator"]].program
    assert program is not None, "lanes of an operator that is no program"
    rest = inputs[1:]
    row = walk.ops.reshape(rest.pop(0), [1, -1, 1]) if program.rows else None
    flat = rest[0] if rest else None
    each = channels_of(record["each"])
    return steps.lanes(walk.ops, walk.evaluate, program, each, inputs[0], row, flat)


def _gains(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    own, heads = channels_of(record["channels"]), record["heads"]
    return steps.gains(walk.ops, walk.geometry(record), own, heads, *inputs)


def _attention(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    x, *rest = inputs
    geometry, crossing = walk.geometry(record), record.get("crossing", False)
    context = rest.pop(0) if crossing else None
    mask = rest.pop(0) if record["masked"] else None
    rows, of_context = walk.given.rows, walk.given.context if crossing else None
    assert rows is not None, "attention without samples"
    logs = rest[0] if rest else None
    return attention(walk.ops, geometry, record, x, context, mask, logs, rows, of_context)


def _rotary(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    rows = walk.given.rows
    assert rows is not None and rows.positions is not None, "positions without samples"
    return rotary(walk.ops, record["attention"], record["base"], inputs[0], rows.positions)


def _reinserted(walk: _Walk, _: dict[str, Any], inputs: list[Any]) -> Token:
    return steps.beside(walk.ops, *inputs)


def _frames(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    return steps.frames(walk.ops, walk.geometry(record), record["inverse"], *inputs)


def _components(walk: _Walk, record: dict[str, Any], inputs: list[Any]) -> Token:
    return steps.components(walk.ops, record, inputs[0])


def _dropout(_: _Walk, __: dict[str, Any], inputs: list[Any]) -> Token:
    # Runs of an exported network are not training.
    found: Token = inputs[0]
    return found


_STEPS: dict[str, Callable[[_Walk, dict[str, Any], list[Any]], Token]] = {
    "linear": _linear,
    "linear_beside_scalars": _beside_scalars,
    "lanes": _lanes,
    "gains": _gains,
    "attention": _attention,
    "rotary": _rotary,
    "reinserted": _reinserted,
    "frames": _frames,
    "components": _components,
    "dropout": _dropout,
}
