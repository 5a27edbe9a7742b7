"""The table and the JSON of a profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .rows import REST, Row

_REPLAYS = (
    "A replay of a CUDA graph is one row: calls of ours within it run without the host and cannot be told from others. "
    "To see them, profile the step without the graph."
)
_RECORDED = "Calls that were recorded into a CUDA graph did not run then, so they have no time."
_MODEL = (
    "MB and Mflop are models: each tensor moved once by each call, operations as the kernels count them; a network is the sum of "
    "its plan's calls. saved: made for the backward pass; held: tensors that a graph of autograd keeps for it, - if not known."
)


def table(rows: Sequence[Row], seconds: float, error: str | None) -> str:
    """A table in plain text."""
    head = ["operator", "pass", "algebra", "shapes", "type", "device", "calls", "ms", "us/call"]
    head += ["share", "MB", "GB/s", "Mflop", "roofline", "saved MB", "held MB"]
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    left = 6

    def joined(line: list[str]) -> str:
        cells = (
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths))
        )
        return "  ".join(cells).rstrip()

    ours = sum(row.share for row in rows if row.operator != REST)
    calls = sum(row.calls for row in rows)
    notes = [f"{1e3 * seconds:.3f} ms, {ours:.1%} of it in {calls} calls of flashcliff."]
    if error is not None:
        notes.append(f"The region ended with {error}.")
    if any(row.phase == "replay" for row in rows):
        notes.append(_REPLAYS)
    if any(row.phase == "recorded" for row in rows):
        notes.append(_RECORDED)
    return "\n".join([*map(joined, lines), "", *notes, _MODEL])


def _cells(row: Row) -> list[str]:
    if row.operator == REST:
        time = [f"{1e3 * row.seconds:.3f}", "", f"{row.share:.1%}"]
        return [f"{REST}: PyTorch, Python, allocations", "", "", "", "", "", "", *time, *[""] * 6]
    seconds = row.seconds
    options = ", ".join(f"{name}={value}" for name, value in row.options.items())
    return [
        row.operator + (f"({options})" if options else ""),
        f"{row.phase} of {', '.join(row.gradients)}" if row.gradients else row.phase,
        row.algebra,
        " ".join("x".join(map(str, shape)) for shape in row.shapes),
        row.dtype,
        row.device,
        str(row.calls),
        f"{1e3 * seconds:.3f}",
        f"{1e6 * seconds / row.calls:.1f}",
        f"{row.share:.1%}",
        _mega(row.bytes),
        f"{row.bytes / seconds / 1e9:.1f}" if seconds > 0 and row.bytes else "-",
        _mega(row.flops),
        "-" if row.roofline is None else f"{row.roofline:.0%}",
        _mega(row.saved_bytes),
        "-" if row.held_bytes is None else _mega(row.held_bytes),
    ]


def _mega(number: int) -> str:
    return f"{number / 1e6:.3f}"


def as_json(rows: Sequence[Row], seconds: float, error: str | None, threads: int) -> str:
    """The rows as JSON."""
    found = {"seconds": seconds, "threads": threads, "error": error}
    return json.dumps({**found, "rows": [_fields(row) for row in rows]}, indent=1)


def _fields(row: Row) -> dict[str, Any]:
    fields = dict(vars(row))
    fields["rates"] = None if row.rates is None else row.rates._asdict()
    return {**fields, "roofline": row.roofline}
