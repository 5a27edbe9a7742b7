"""From the times of few samples to those of a batch, and from memory to the largest batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from .rates import Rates
from .record import Call
from .step import Probe

_LIMIT = 1 << 40
"""No batch is larger."""
_TOLD = 0.1
"""The least time of a call, as a share of the latency, from which calls of its name are predicted."""
_CLOSE = 0.005
"""How close the largest batch is found, as a share of it."""


class Sample(NamedTuple):
    """A measured small step."""

    probe: Probe
    calls: Sequence[Call]
    """Its calls by a run with fake tensors, in the order of those of a large step."""


def times(rates: Rates, samples: Sequence[Sample], large: Sequence[Call]) -> list[float]:
    """The seconds of each call of a large step.

    Args:
        rates: the rates of the machine.
        samples: one or two small steps, the smaller one first.
        large: the calls of the large step.
    """
    last = samples[-1]
    latency = _latency(rates, last.probe)
    measured = [_Measured(rates, sample.probe.calls, latency) for sample in samples]
    if not same_order(last.calls, large):
        last = Sample(last.probe, large)
    smaller = samples[0] if same_order(samples[0].calls, large) else last
    found = []
    for few, more, all_ in zip(smaller.calls, last.calls, large):
        seconds = measured[0].seconds(few), measured[-1].seconds(more)
        found.append(_grown(rates, (few, more, all_), seconds, latency))
    return found


def _latency(rates: Rates, probe: Probe) -> float:
    """The seconds of a call with next to no work."""
    if probe.latency is not None:
        return probe.latency
    idle = [call.seconds for call in probe.calls if not call.bytes and not call.flops]
    return median(idle) if idle else rates.call_seconds


def same_order(small: Sequence[Call], large: Sequence[Call]) -> bool:
    same = (one.name == two.name for one, two in zip(small, large))
    return len(small) == len(large) and all(same)


def _grown(
    rates: Rates, calls: tuple[Call, Call, Call], seconds: tuple[float, float], latency: float
) -> float:
    """The seconds of a large call from those of two smaller ones, or of one that is given twice.

    Work that is no bound of the machine grows as the numbers do from one, and from two along a line, since few numbers do not fill a GPU.
    Bytes and products of matrices may not be faster than the small call was beside the rates of its size.
    """
    few, small, large = calls
    least = _model(rates, small)
    work = max(seconds[1] - latency, 0.0)
    if not least or not work:
        return seconds[1]
    size = "flops" if small.flops else "bytes"
    numbers = [getattr(call, size) for call in (few, small, large)]
    grown = work * numbers[2] / numbers[1]
    if numbers[0] < numbers[1]:
        slope = max(seconds[1] - seconds[0], 0.0) / (numbers[1] - numbers[0])
        grown = min(grown, work + slope * (numbers[2] - numbers[1]))
    bound = _model(rates, large) * min(work / least, 1.0)
    return min(seconds[1], latency) + max(grown, bound)


def _model(rates: Rates, call: Call) -> float:
    """The least seconds of a call without its latency."""
    if not call.bytes and not call.flops:
        return 0.0
    return rates.seconds(call.bytes, call.flops, call.dtype, call.result or call.bytes // 3)


class _Measured:
    """The times of calls in a measured step: of a call with these shapes, else by what operators of the name take of the least time."""

    def __init__(self, rates: Rates, calls: Sequence[Call], latency: float) -> None:
        self._rates, self._latency = rates, latency
        by_key: dict[object, list[float]] = defaultdict(list)
        by_name: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for call in calls:
            by_key[call.key].append(call.seconds)
            model = _model(rates, call)
            # The time of less work than that says nothing of more.
            if model > _TOLD * latency:
                by_name[call.name].append((max(call.seconds - latency, 0.0), model))
        self._by_key = {key: sum(all_) / len(all_) for key, all_ in by_key.items()}
        self._factors = {
            name: sum(seconds for seconds, _ in pairs) / sum(model for _, model in pairs)
            for name, pairs in by_name.items()
        }

    def seconds(self, call: Call) -> float:
        known = self._by_key.get(call.key)
        if known is not None:
            return known
        return self._latency + self._factors.get(call.name, 1.0) * _model(self._rates, call)


def largest(peak: Callable[[int], int], available: int, known: dict[int, int]) -> int:
    """The largest batch whose peak fits, or 0. ``known`` has the peaks of at least two batches.

    A peak is the largest of sums that grow evenly with the batch, so it grows ever faster. The line through two peaks meets the limit at or
    behind the batch that is looked for.
    """
    if available <= 0:
        return 0
    fits = max((size for size, held in known.items() if held <= available), default=0)
    over = min((size for size, held in known.items() if held > available), default=None)
    for _ in range(40):
        if over is not None and over - fits <= max(1, int(_CLOSE * over)):
            break
        guess = _guess(known, available, fits, over)
        if guess > _LIMIT:
            return _LIMIT
        known[guess] = peak(guess)
        if known[guess] <= available:
            fits = guess
        else:
            over = guess
    return fits


def _guess(known: dict[int, int], available: int, fits: int, over: int | None) -> int:
    """The next batch to try, between what fits and what does not."""
    sizes = sorted(known)
    one, two = sizes[-2:] if over is None else (fits, over)
    if one not in known:
        return (fits + (over or 2)) // 2
    slope = (known[two] - known[one]) / (two - one)
    guess = int(one + (available - known[one]) / slope) if slope > 0 else 2 * two
    if over is None:
        return max(guess, fits + 1)
    # A guess at the edge is moved off it, so that the gap closes from both sides.
    margin = max(1, (over - fits) // 50)
    return min(max(guess, fits + 1) if over - fits < 8 else max(guess - margin, fits + 1), over - 1)
