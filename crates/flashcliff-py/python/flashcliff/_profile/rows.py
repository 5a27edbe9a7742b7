"""The rows of a profile: calls with the same operator, shapes, type and device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._ops.op import Made
from .costs import cost
from .events import Cost, Event, Kernel, Key, Replay
from .rates import Rates

REST = "the rest"
"""The name of the row of all that is not a call into the extension."""


@dataclass(frozen=True)
class Row:
    """Calls that have everything but their time in common, or, named :data:`REST`, what is not such a call."""

    operator: str
    options: dict[str, Any]
    """The options that are not the default."""
    algebra: str
    phase: str
    """``forward``, ``backward``, ``replay`` of a CUDA graph, ``recorded`` into one; empty for the rest."""
    gradients: tuple[str, ...]
    """The inputs whose gradients a backward call computes."""
    shapes: tuple[tuple[int, ...], ...]
    """An operator and a network of layers have the shapes of their inputs here. The kernel of attention has the shapes of its features."""
    dtype: str
    device: str
    calls: int
    seconds: float
    """The sum over the calls: of a CPU's time on a CPU, of the GPU's on a GPU."""
    host_seconds: float
    """The time that the host spent in the calls; on a GPU, to launch them."""
    share: float
    """The share of the region. Calls that run at the same time share that time."""
    bytes: int
    flops: int
    saved_bytes: int
    """Sums and tensors that forward calls made for backward calls."""
    held_bytes: int | None
    """Inputs and outputs that graphs of autograd keep for backward calls, each call counted by itself; ``None`` where a compiled
    graph or a layer decides that."""
    rates: Rates | None

    @property
    def roofline(self) -> float | None:
        """The least time at the rates, as a share of the time taken; ``None`` without rates or time."""
        if self.rates is None or self.seconds <= 0 or not (self.bytes or self.flops):
            return None
        return self.rates.limit(self.bytes, self.flops) / self.seconds


def gather(
    events: Sequence[Event],
    spans: Sequence[tuple[int, int] | None],
    parts: Sequence[float],
    rest: float,
    total: int,
    rates: dict[tuple[str, str], Rates],
) -> list[Row]:
    """The rows by share, and last the rest."""
    groups: dict[Key, list[int]] = {}
    for at, event in enumerate(events):
        groups.setdefault(event.key, []).append(at)
    rows = [
        _row(
            key,
            members,
            sum(span[1] - span[0] for span in (spans[at] for at in members) if span) / 1e9,
            sum(events[at].end - events[at].start for at in members) / 1e9,
            _share(sum(parts[at] for at in members), total),
            rates.get((key.device, key.dtype)),
        )
        for key, members in groups.items()
    ]
    rows.sort(key=lambda row: -row.share)
    seconds, share = rest / 1e9, _share(rest, total)
    rows.append(
        Row(REST, {}, "", "", (), (), "", "", 0, seconds, seconds, share, 0, 0, 0, None, None)
    )
    return rows


def _share(part: float, total: int) -> float:
    return part / total if total else 0.0


def _row(
    key: Key, members: Sequence[int], seconds: float, host: float, share: float, rates: Rates | None
) -> Row:
    calls = len(members)
    one = Cost(0, 0) if key.recorded else cost(key)
    return Row(
        operator=name(key),
        options=options(key),
        algebra=_algebra(key),
        phase="recorded" if key.recorded else key.phase,
        gradients=_gradients(key),
        shapes=key.shapes,
        dtype=key.dtype,
        device=key.device,
        calls=calls,
        seconds=seconds,
        host_seconds=host,
        share=share,
        bytes=calls * one.bytes,
        flops=calls * one.flops,
        saved_bytes=calls * one.saved_bytes,
        held_bytes=None if one.held_bytes is None else calls * one.held_bytes,
        rates=rates,
    )


def name(key: Key) -> str:
    """The name of what was called."""
    subject = key.subject
    return subject.op.name if isinstance(subject, Made) else subject.name


def _algebra(key: Key) -> str:
    subject = key.subject
    if isinstance(subject, Made):
        return subject.algebra
    if isinstance(subject, Replay) or subject.algebra is None:
        return ""
    return str(subject.algebra.name)


def _gradients(key: Key) -> tuple[str, ...]:
    subject = key.subject
    if not isinstance(subject, Made):
        return ()
    names = [name for name, given in zip(subject.op.names, subject.given) if given]
    return tuple(name for name, wanted in zip(names, key.wanted) if wanted)


def options(key: Key) -> dict[str, Any]:
    """The options that are not the default."""
    subject = key.subject
    if isinstance(subject, Made):
        pairs = zip(subject.op.options, subject.options)
        return {option.name: value for option, value in pairs if value != option.default}
    if isinstance(subject, Kernel):
        return dict(subject.details)
    return {}
