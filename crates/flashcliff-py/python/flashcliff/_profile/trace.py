"""The trace of a profile, in the format that Chrome's tracing and Perfetto read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .costs import cost
from .events import Event
from .rows import name, options


def chrome(
    events: Sequence[Event], spans: Sequence[tuple[int, int] | None], region: tuple[int, int]
) -> str:
    """All calls as complete events: calls of the host by thread, calls of GPUs by device, and the region."""
    first, last = region
    found: list[dict[str, Any]] = [
        _process(0, "host"),
        _event("flashcliff.profile", "region", 0, 0, 0, last - first, {}),
    ]
    devices: set[int] = set()
    for event, span in zip(events, spans):
        key = event.key
        title = f"{name(key)} {'recorded' if key.recorded else key.phase}"
        told = cost(key)
        arguments = {
            "shapes": key.shapes,
            "dtype": key.dtype,
            "device": key.device,
            "options": {option: str(value) for option, value in options(key).items()},
            "bytes": told.bytes,
            "flops": told.flops,
        }
        on_host = event.start - first, event.end - event.start
        found.append(_event(title, "host", 0, event.thread, *on_host, arguments))
        if event.marks is not None and span is not None:
            device = event.marks.device + 1
            if device not in devices:
                devices.add(device)
                found.append(_process(device, key.device))
            found.append(
                _event(title, "gpu", device, 0, span[0] - first, span[1] - span[0], arguments)
            )
    return json.dumps({"traceEvents": found, "displayTimeUnit": "ms"})


def _process(number: int, title: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": number, "args": {"name": title}}


def _event(
    title: str, kind: str, process: int, thread: int, start: int, length: int, arguments: Any
) -> dict[str, Any]:
    return {
        "name": title,
        "cat": kind,
        "ph": "X",
        "pid": process,
        "tid": thread,
        # Microseconds.
        "ts": start / 1e3,
        "dur": length / 1e3,
        "args": arguments,
    }
