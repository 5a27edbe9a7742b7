"""Linear maps of multivectors that commute with a group, as runs of blades for matrix products."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

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
    # Entries of one run have consecutive outputs, and inputs that are consecutive in the same or in the reverse order.
    forward = sorted((e for e in entries if e[1] + e[2] != last), key=lambda e: (e[2] - e[1], e[1]))
    backward = sorted(e for e in entries if e[1] + e[2] == last)
    backward.sort(key=lambda e: e[1])
    # The first run covers all outputs, so that it creates the result and the others add to it.
    forward.sort(key=lambda e: (e[2] != e[1], e[2] - e[1], e[1]))
    runs: list[Run] = []
    ordered = forward + backward
    for at, (_, output, source, _) in enumerate(ordered):
        flipped = at >= len(forward)
        read = last - source if flipped else source
        if runs:
            run = runs[-1]
            follows = (output - run.output, read - run.input, flipped) == (
                run.length,
                run.length,
                run.reversed,
            )
            if follows:
                runs[-1] = Run(run.output, run.input, run.length + 1, run.start, flipped)
                continue
        runs.append(Run(output, read, 1, at, flipped))
    return MapPlan(
        count=len(maps),
        map_of=tuple(entry[0] for entry in ordered),
        factors=tuple(entry[3] for entry in ordered),
        runs=tuple(runs),
        sizes=tuple(len(pairs) for _, _, pairs in maps),
        grades=tuple((source, target) for source, target, _ in maps),
    )
