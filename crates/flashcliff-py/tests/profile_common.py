"""What the tests of profiles have in common: checks of a report that any mistake of the clocks must fail."""

from __future__ import annotations

import pytest
import torch

import flashcliff
from flashcliff import functional as F
from flashcliff._derived.table import OPS
from flashcliff._ops import borrowed, library, native, run
from flashcliff._profile import events
from flashcliff._profile.rows import REST

R3 = flashcliff.Algebra(3, 0, 0)
BATCH, CHANNELS = 6, 5


def operands(grad=False, batch=BATCH):
    """The operands and the weight of ``sgp_norm``."""
    x, y = torch.randn(2, 8, batch, CHANNELS)
    tensors = (x, y, torch.randn(CHANNELS, R3.path_count))
    return tuple(tensor.requires_grad_(grad) for tensor in tensors)


def step(repeats=1):
    """``repeats`` forward and backward passes of ``sgp_norm``, and one forward pass of ``reverse`` each."""
    for _ in range(repeats):
        tensors = operands(grad=True)
        out = F.sgp_norm(*tensors, R3)
        F.reverse(out.detach(), R3)
        out.sum().backward()


def counts(profile):
    """The calls by operator and pass."""
    found: dict[tuple[str, str], int] = {}
    for row in profile.rows[:-1]:
        key = row.operator, row.phase
        found[key] = found.get(key, 0) + row.calls
    return found


def check_sums(profile):
    """The rows are the region, no more and no less."""
    rows = profile.rows
    assert [row.operator for row in rows].count(REST) == 1 and rows[-1].operator == REST
    assert all(row.share >= 0 and row.seconds >= 0 for row in rows)
    assert sum(row.share for row in rows) == pytest.approx(1, abs=1e-9)
    ours = sum(row.share for row in rows[:-1]) * profile.seconds
    assert ours + rows[-1].seconds == pytest.approx(profile.seconds, abs=1e-8)


def places():
    """Every place where a profile puts something, with what is there."""
    return {
        "run.forward": run.forward,
        "run.backward": run.backward,
        "library.run": library.run,
        "borrowed.operator": borrowed.operator,
        "CUDAGraph.replay": torch.cuda.CUDAGraph.replay,
        "Captured._replay": flashcliff.capture(lambda: None).__class__._replay,
        "native.use": native.use,
        **{op.name: op.native for op in OPS},
    }


def check_nothing_left(before):
    """All places are as they were, and no call is recorded."""
    assert events.active == ()
    after = places()
    assert all(after[name] is value for name, value in before.items())
