"""Which part of a region belongs to which call."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]


def parts(spans: Sequence[Span | None], region: Span) -> tuple[list[float], float]:
    """The time of the region that belongs to each span, and the time that belongs to none.

    Spans are cut to the region. Where several run at once, on several threads or on the host and a GPU, they share the time
    evenly. So all parts and the rest add up to the region.
    """
    first, last = region
    edges: list[tuple[int, bool, int]] = []
    for at, span in enumerate(spans):
        if span is None:
            continue
        start, end = max(span[0], first), min(span[1], last)
        if start < end:
            edges += [(start, True, at), (end, False, at)]
    edges.sort()
    found = [0.0] * len(spans)
    rest = 0.0
    running: set[int] = set()
    before = first
    for now, begins, at in edges:
        if running:
            share = (now - before) / len(running)
            for one in running:
                found[one] += share
        else:
            rest += now - before
        before = now
        if begins:
            running.add(at)
        else:
            running.discard(at)
    return found, rest + (last - before)
