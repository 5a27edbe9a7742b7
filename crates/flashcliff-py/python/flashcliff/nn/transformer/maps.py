"""Linear maps of multivectors that commute with a group, as runs of blades for matrix products."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from ...algebra import Algebra

GROUPS = ("pin", "spin")
"""Groups of layers: with reflections, and the connected one."""


@dataclass(frozen=True)
class Run:
    """Maps between a range of output blades and a range of input blades.

    Output blade ``output + t`` reads input blade ``input + t`` with matrix ``start + t``. In a reversed run the input
    is the tensor with its blades in reverse order.
    """

    output: int
    input: int
    length: int
    start: int
    reversed: bool


@dataclass(frozen=True)
class MapPlan:
    """All maps of an algebra and a group, in the order of weights ``[outputs, inputs, maps]``.

    A layer computes ``out[i] = sum over entries (i <- j) of map a: factor_a sign W_a x[j]``. The plan lists one matrix
    for each entry and groups the entries into runs, so that a layer is a few batched matrix products without copies of
    the input.
    """

    count: int
    """The number of maps."""
    map_of: tuple[int, ...]
    """The map of each matrix."""
    factors: tuple[float, ...]
    """The sign of each matrix, times the map's factor."""
    runs: tuple[Run, ...]
    sizes: tuple[int, ...]
    """The number of entries of each map."""
    grades: tuple[tuple[int, int], ...]
    """The grades (read, written) of each map."""

    @property
    def is_reversed(self) -> bool:
        """Whether a run reads the blades in reverse order."""
        return any(run.reversed for run in self.runs)

    @property
    def is_plain(self) -> bool:
        """Whether all factors are 1."""
        return all(factor == 1 for factor in self.factors)


@functools.cache
def map_plan(algebra: Algebra, group: str, unit: bool) -> MapPlan:
    """The plan of all maps that commute with a group.

    Args:
        algebra: the algebra.
        group: one of :data:`GROUPS`.
        unit: whether each map is divided by its Frobenius norm.
    """
    maps = algebra.equivariant_maps(group)
    entries = []
    for index, (_, _, pairs) in enumerate(maps):
        factor = 1 / math.sqrt(len(pairs)) if unit else 1.0
        entries += [(index, output, source, sign * factor) for output, source, sign in pairs]
    last = algebra.blade_count - 1

    def order(entry: tuple[int, int, int, float]) -> tuple[bool, bool, int, int]:
        # Runs in the reverse order come last. The first run covers all outputs, so that it creates the result and the
        # others add to it. Entries of one run have consecutive outputs.
        _, output, source, _ = entry
        reverse = output + source == last
        return reverse, output != source, 0 if reverse else source - output, output

    entries.sort(key=order)
    runs: list[Run] = []
    for at, entry in enumerate(entries):
        _, output, source, _ = entry
        reverse = output + source == last
        read = last - source if reverse else source
        if runs:
            run = runs[-1]
            after = run.output + run.length, run.input + run.length, run.reversed
            if after == (output, read, reverse):
                runs[-1] = replace(run, length=run.length + 1)
                continue
        runs.append(Run(output, read, 1, at, reverse))
    return MapPlan(
        count=len(maps),
        map_of=tuple(entry[0] for entry in entries),
        factors=tuple(entry[3] for entry in entries),
        runs=tuple(runs),
        sizes=tuple(len(pairs) for _, _, pairs in maps),
        grades=tuple((source, target) for source, target, _ in maps),
    )
