"""The report of a prediction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_MIB = 1 << 20
_SHOWN = 12
"""How many rows the text has."""


@dataclass(frozen=True)
class Row:
    """What a step spends in one operator, forward or backward."""

    operator: str
    phase: str
    calls: int
    seconds: float
    bytes: int
    """The bytes that must be moved."""
    flops: int


@dataclass(frozen=True)
class Prediction:
    """The expected time and memory of a step; :func:`flashcliff.predict` makes it."""

    device: str
    batch: int
    """The batch that is predicted."""
    probe_batch: int
    """The samples that were run for their times."""
    forward_seconds: float
    backward_seconds: float
    peak_bytes: int
    """The most bytes that are held at once: parameters, inputs, results, what is kept for the backward pass, gradients, workspaces. The state
    of an optimiser is not among them."""
    parameter_bytes: int
    """The parameters and buffers, a part of the peak."""
    available_bytes: int | None
    """The bytes that the device could give besides the parameters; ``None`` if it does not tell."""
    largest_batch: int | None
    """The largest batch that fits, to within half a percent; ``None`` if the memory is not known."""
    rows: tuple[Row, ...]
    """The operators, those with the largest share first. Their times are those of kernels; a step has the time of the host besides."""

    @property
    def seconds(self) -> float:
        """Seconds of both passes."""
        return self.forward_seconds + self.backward_seconds

    def as_dict(self) -> dict[str, Any]:
        """All numbers, for JSON."""
        return {**asdict(self), "seconds": self.seconds}

    def __str__(self) -> str:
        lines = [
            f"a batch of {self.batch} on {self.device}: {1e3 * self.seconds:.2f} ms "
            f"({1e3 * self.forward_seconds:.2f} forward, {1e3 * self.backward_seconds:.2f} backward)",
            f"peak {self.peak_bytes / _MIB:.1f} MiB, {self.parameter_bytes / _MIB:.1f} of them parameters",
        ]
        if self.largest_batch is not None and self.available_bytes is not None:
            lines.append(
                f"the largest batch in {self.available_bytes / _MIB:.0f} MiB: {self.largest_batch}"
            )
        total = sum(row.seconds for row in self.rows) or 1.0
        head = f"{'operator':40} {'pass':9} {'calls':>6} {'ms':>10} {'share':>7} {'MB':>10} {'Mflop':>12}"
        lines += ["", head]
        lines += [
            f"{row.operator:40} {row.phase:9} {row.calls:6} {1e3 * row.seconds:10.3f} "
            f"{row.seconds / total:7.1%} {row.bytes / 1e6:10.2f} {row.flops / 1e6:12.2f}"
            for row in self.rows[:_SHOWN]
        ]
        if len(self.rows) > _SHOWN:
            rest = sum(row.seconds for row in self.rows[_SHOWN:])
            lines.append(f"{len(self.rows) - _SHOWN} more: {1e3 * rest:.3f} ms")
        return "\n".join(lines)
