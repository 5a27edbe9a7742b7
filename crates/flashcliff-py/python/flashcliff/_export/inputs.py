"""The inputs of an exported network, and how its rows belong to samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import _core
from .lowered.layout import Rows, axis_of
from .lowered.network import Given
from .operations import Tensor
from .stored import Stored

__all__ = ["Field", "Inputs"]


class Field(NamedTuple):
    """An input: axes are sizes, or names of what a run gives."""

    name: str
    axes: tuple[int | str, ...]
    integers: bool = False


class Inputs:
    """The inputs of a network, as a batch of a kind has them.

    Attributes:
        fields: the inputs in their order.

    Raises:
        UnsupportedError: masks of ragged batches.
        ValueError: samples of a network that has none.
    """

    def __init__(self, stored: Stored, batch: str) -> None:
        self.records = stored.graph["inputs"]
        self.batch = batch
        self.has_tokens = any(_is_token(own) for own in self.records)
        if not self.has_tokens and batch != "equal":
            raise ValueError(
                f"batch: expected 'equal' for a network of rows without samples, got {batch!r}"
            )
        masks = [own["name"] for own in self.records if own["axes"][0] == "samples"]
        if batch == "ragged" and masks:
            raise _core.UnsupportedError(
                f"export: expected batches of equal items for the inputs {masks}, got ragged ones"
            )
        self.sides = [own for own in ("rows", "context_rows") if self.has_tokens and self._has(own)]
        self.fields = tuple(map(self._field, self.records))
        if batch != "equal":
            self.fields += tuple(Field(_lengths(own), ("samples",), True) for own in self.sides)
        self.relations = [own["name"] for own in stored.graph.get("relations", [])]
        self.fields += tuple(
            Field(own["name"], (axis_of(own["from"]),), True)
            for own in stored.graph.get("relations", [])
        )

    def _has(self, rows: str) -> bool:
        return any(own["axes"][0] == rows for own in self.records)

    def _field(self, record: dict[str, Any]) -> Field:
        axes = tuple(map(axis_of, record["axes"]))
        if axes[0] in self.sides and self.batch != "ragged":
            items = "items" if axes[0] == "rows" else "context_items"
            axes = "samples", items, *axes[1:]
        return Field(record["name"], axes)

    def given(self, host: Any, tensors: Mapping[str, Tensor]) -> Given:
        """The tensors of a run, each with one axis of rows."""
        found = {}
        for field, record in zip(self.fields, self.records):
            x = tensors[field.name]
            if len(field.axes) > len(record["axes"]):
                x = host.reshape(x, [-1, *field.axes[2:]])
            found[field.name] = x
        sides = {own: self._rows(host, own, tensors) for own in self.sides}
        relations = {name: tensors[name] for name in self.relations}
        return Given(found, sides.get("rows"), sides.get("context_rows"), relations)

    def _rows(self, host: Any, side: str, tensors: Mapping[str, Tensor]) -> Rows:
        """The items of samples, or the items of their context."""
        x = tensors[self._first(side).name]
        if self.batch == "ragged":
            lengths = tensors[_lengths(side)]
            items, places, seen, back = host.ragged(lengths)
            positions = host.positions_of_rows(host.size(x, 0))
            return Rows(host.size(lengths, 0), items, places, seen, back, positions)
        samples, items = host.size(x, 0), host.size(x, 1)
        seen = None
        if self.batch == "padded":
            seen = host.seen(tensors[_lengths(side)], items)
        return Rows(samples, items, seen=seen, positions=host.positions(samples, items))

    def _first(self, side: str) -> Field:
        """The first input whose rows are the rows of a side."""
        pairs = zip(self.fields, self.records)
        return next(field for field, record in pairs if record["axes"][0] == side)

    def output(self, host: Any, value: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """An output with the axes of the inputs."""
        if not self.has_tokens or self.batch == "ragged":
            return value
        x = tensors[self._first("rows").name]
        return host.reshape(value, [host.size(x, 0), host.size(x, 1), value.shape[-1]])

    def output_axes(self, shape: Sequence[int | None]) -> list[int | str]:
        """The axes of an output, of which those without a size have names."""
        if not self.has_tokens:
            # They are the axes of nodes or of graphs, and no shape tells which.
            return [f"output_{at}" if own is None else own for at, own in enumerate(shape)]
        open_ = iter([own for own in self._first("rows").axes if isinstance(own, str)])
        return [next(open_) if own is None else own for own in shape]


def _lengths(side: str) -> str:
    return "lengths" if side == "rows" else "context_lengths"


def _is_token(record: dict[str, Any]) -> bool:
    return any(isinstance(axis, dict) and "token" in axis for axis in record["axes"])
