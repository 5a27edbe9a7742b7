"""Reports of profiles: time, bytes, operations, the roofline, saved memory, the formats, and clocks of GPUs that are faked."""

from __future__ import annotations

import json
import random

import pytest
import reference
import torch
from profile_common import (
    BATCH,
    CHANNELS,
    R3,
    check_sums,
    counts,
    operands,
    step,
)

import flashcliff
from flashcliff import functional as F
from flashcliff._profile import clock, cuda, events, rates, timeline
from flashcliff._profile.events import Event, Key, Log, Replay

LANES = BATCH * CHANNELS


def only(profile, operator, phase):
    """The one row of an operator and a pass."""
    rows = [row for row in profile.rows if (row.operator, row.phase) == (operator, phase)]
    assert len(rows) == 1
    return rows[0]


# Time


def by_the_nanosecond(spans, region):
    """The parts of each span, nanosecond by nanosecond."""
    found, rest = [0.0] * len(spans), 0
    for now in range(*region):
        running = [at for at, span in enumerate(spans) if span and span[0] <= now < span[1]]
        for at in running:
            found[at] += 1 / len(running)
        rest += not running
    return found, rest


def check_parts():
    rng = random.Random(0)
    for _ in range(200):
        region = (10, 60)
        starts = [rng.randrange(0, 65) for _ in range(rng.randrange(0, 6))]
        spans = [None if rng.random() < 0.1 else (at, at + rng.randrange(0, 30)) for at in starts]
        parts, rest = timeline.parts(spans, region)
        expected, expected_rest = by_the_nanosecond(spans, region)
        assert parts == pytest.approx(expected) and rest == pytest.approx(expected_rest)


def test_parts_of_a_region():
    check_parts()


def test_the_comparison_of_parts_can_fail(monkeypatch):
    inner = timeline.parts
    for mistake in (
        lambda spans, region: (inner(spans[:1], region)[0] + [0.0] * (len(spans) - 1), 0.0),
        lambda spans, region: inner(spans, (region[0] - 1, region[1])),
        lambda spans, region: ([float(s[1] - s[0]) if s else 0.0 for s in spans], 0.0),
    ):
        monkeypatch.setattr(timeline, "parts", mistake)
        with pytest.raises(AssertionError):
            check_parts()


@pytest.mark.usefixtures("path")
def test_times_by_a_clock_that_ticks(monkeypatch):
    """Each look at the clock is a microsecond after the last, so all times are known."""
    looks = iter(range(10**6))
    monkeypatch.setattr("time.perf_counter_ns", lambda: 1000 * next(looks))
    x = torch.randn(8, 3, 4)
    with flashcliff.profile() as p:
        for _ in range(4):
            F.reverse(x, R3)
    row = only(p, "reverse", "forward")
    assert row.seconds == row.host_seconds == pytest.approx(4e-6)
    # One look for the region and two for each call, at its start; one at its end.
    assert p.seconds == pytest.approx(9e-6)
    assert row.share == pytest.approx(4 / 9) and p.rows[-1].share == pytest.approx(5 / 9)


# Bytes, operations, memory


@pytest.mark.parametrize("signature", [(2, 0, 0), (3, 0, 0), (3, 0, 1), (1, 3, 0)])
def test_operations_of_a_product(signature):
    blades = 1 << sum(signature)
    x = torch.randn(blades, BATCH, CHANNELS, requires_grad=True)
    y = torch.randn(blades, BATCH, CHANNELS)
    with flashcliff.profile() as p:
        F.geometric_product(x, y, signature).sum().backward()
    forward, backward = only(p, "product", "forward"), only(p, "product", "backward")
    assert forward.flops == LANES * (2 * len(reference.terms(signature)) - blades)
    assert forward.bytes == 3 * blades * LANES * 4
    # One gradient of two, from the gradient of the output and both inputs.
    assert backward.flops == forward.flops
    assert backward.bytes == 4 * blades * LANES * 4


@pytest.mark.usefixtures("path")
def test_operations_of_matrix_products():
    x = torch.randn(8, BATCH, 4, dtype=torch.float64)
    with flashcliff.profile() as p:
        F.mv_linear(x, torch.randn(7, 4, 4, dtype=torch.float64), algebra=R3)
        F.fcgp_norm(x, x, torch.randn(20, 4, 3, dtype=torch.float64), R3, gate="none", norm="none")
    linear = only(p, "mv_linear", "forward")
    assert linear.flops == 2 * 8 * BATCH * 4 * 7
    assert linear.bytes == 8 * (8 * BATCH * (4 + 7) + 7 * 4 * 4)
    # A path from grade a to grade g has one piece for each blade of grade g.
    pieces = sum((1, 3, 3, 1)[to] for _, to, _ in R3.paths)
    connected = only(p, "fcgp_norm", "forward")
    # The pieces are made of 64 products of blades, with a sign and a sum for each at most.
    formed = connected.flops - BATCH * 2 * pieces * 4 * 3
    assert 64 <= formed / (BATCH * 4) <= 3 * 64 and not formed % (BATCH * 4)


def test_gradients_that_nobody_wants_cost_nothing():
    x, y, w = operands(grad=True)
    found = []
    for wanted in ([x], [x, y], [x, y, w]):
        with flashcliff.profile() as p:
            torch.autograd.grad(F.sgp_norm(x, y, w, R3).sum(), wanted)
        found.append(only(p, "sgp_norm", "backward").flops)
    assert 0 < found[0] < found[1] < found[2]


def test_operations_are_the_count_of_the_kernels():
    """The guide has the count of `sgp_norm` with its norm and without gates: 199 operations a lane."""
    with flashcliff.profile() as p:
        F.sgp_norm(*operands(), R3, gate="none")
    assert only(p, "sgp_norm", "forward").flops == 199 * LANES


def test_every_operator_has_a_cost():
    """Each operator of the table has bytes and operations, forward and backward; operations grow with the batch."""
    from cases import SPACE

    for case in SPACE:
        tensors = case.tensors(grad=True)
        with flashcliff.profile() as p:
            case.run(**tensors).sum().backward()
        rows = [row for row in p.rows if row.operator == case.name]
        assert sorted(row.phase for row in rows) == ["backward", "forward"]
        given = sum(tensor.nbytes for tensor in tensors.values() if tensor is not None)
        for row in rows:
            assert row.flops > 0
            assert row.bytes > (given if row.phase == "forward" else 0)


@pytest.mark.usefixtures("path")
def test_memory_for_the_backward_pass():
    x, y, w = operands(grad=True)
    with flashcliff.profile() as p:
        F.sgp_norm(x, y, w, R3)
    row = only(p, "sgp_norm", "forward")
    # One sum for each grade and batch element.
    assert row.saved_bytes == 4 * 4 * BATCH
    assert row.held_bytes == sum(tensor.nbytes for tensor in (x, y, w))
    with flashcliff.profile() as p, torch.no_grad():
        F.sgp_norm(x, y, w, R3)
        F.reverse(x, R3)
    assert [(row.saved_bytes, row.held_bytes) for row in p.rows[:-1]] == [(0, 0), (0, 0)]
    with flashcliff.profile() as p:
        # The gradient of a linear operator needs nothing.
        F.reverse(x, R3)
        F.sgp_norm(*operands(), R3)
    assert [(row.saved_bytes, row.held_bytes) for row in p.rows[:-1]] == [(0, 0), (0, 0)]
    with flashcliff.profile() as p:
        torch.ops.flashcliff.sgp_norm(x, y, w, "cl300")
    assert only(p, "sgp_norm", "forward").held_bytes is None


@pytest.mark.usefixtures("path")
def test_the_output_is_held_where_the_gradient_reads_it():
    x = torch.randn(8, BATCH, 4, requires_grad=True)
    w = torch.randn(20, 4, 3)
    with flashcliff.profile() as p:
        out = F.fcgp_norm(x, x.detach(), w, R3)
    row = only(p, "fcgp_norm", "forward")
    assert row.held_bytes == 2 * x.nbytes + w.nbytes + out.nbytes


# The roofline


def test_shares_of_the_roofline():
    with flashcliff.profile(rates=(1e9, 1e12)) as p:
        F.geometric_product(*operands()[:2], R3)
    row = only(p, "product", "forward")
    assert row.roofline == pytest.approx(row.bytes / 1e9 / row.seconds)
    with flashcliff.profile(rates=(1e15, 1e9)) as p:
        F.geometric_product(*operands()[:2], R3)
    row = only(p, "product", "forward")
    assert row.roofline == pytest.approx(row.flops / 1e9 / row.seconds)
    assert p.rows[-1].roofline is None


def test_measured_rates(monkeypatch):
    asked = []

    def measure(device, dtype):
        asked.append((device, dtype))
        return rates.Rates(2e9, 3e9)

    monkeypatch.setattr("flashcliff._profile.region.measure", measure)
    with flashcliff.profile() as p:
        step(2)
    assert only(p, "reverse", "forward").roofline is None
    assert p.rates() == p.rates() == {("cpu", "f32"): rates.Rates(2e9, 3e9)}
    assert asked == [("cpu", "f32")] and only(p, "reverse", "forward").roofline > 0
    with flashcliff.profile(rates="measure") as p:
        step()
    assert len(asked) == 2 and json.loads(p.json())["rows"][0]["rates"] is not None


def test_rates_are_not_measured_after_an_error(monkeypatch):
    monkeypatch.setattr("flashcliff._profile.region.measure", None)
    with pytest.raises(KeyError), flashcliff.profile(rates="measure"):
        step()
        raise KeyError


def test_a_machine_has_rates():
    found = rates.measure("cpu", "f32")
    assert 1e8 < found.bytes_per_second < 1e13 and 1e8 < found.flops_per_second < 1e15


# Formats


def test_the_table():
    with flashcliff.profile(rates=(1e10, 1e11)) as p:
        step(2)
    lines = p.table().splitlines()
    assert lines[0].split()[:6] == ["operator", "pass", "algebra", "shapes", "type", "device"]
    assert lines[4].startswith("the rest: PyTorch, Python")
    assert sum(f"8x{BATCH}x{CHANNELS}" in line for line in lines) == 3
    assert "in 6 calls of flashcliff." in p.table() and "replay" not in p.table()


def test_json_has_the_rows():
    with flashcliff.profile() as p:
        step(2)
    found = json.loads(p.json())
    assert found["seconds"] == p.seconds and found["error"] is None
    assert [row["operator"] for row in found["rows"]] == [row.operator for row in p.rows]
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1)


def test_a_trace_for_chrome(tmp_path):
    with flashcliff.profile() as p:
        step(3)
    p.chrome_trace(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in found if event["ph"] == "X"]
    (region,) = [event for event in spans if event["name"] == "region" or event["cat"] == "region"]
    calls = [event for event in spans if event is not region]
    assert len(calls) == 9
    assert sum(event["name"] == "sgp_norm backward" for event in calls) == 3
    assert all(0 <= event["ts"] <= event["ts"] + event["dur"] <= region["dur"] for event in calls)
    with pytest.raises(OSError):
        p.chrome_trace(tmp_path / "missing" / "trace.json")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ("fast", ValueError, "\"measure\", or two positive numbers.*got 'fast'"),
        (1e9, TypeError, "two positive numbers.*got 1000000000.0"),
        ((1e9,), ValueError, "two positive numbers"),
        ((1e9, -1.0), ValueError, "two positive numbers"),
        ((1e9, float("nan")), ValueError, "two positive numbers"),
        (("1", "2"), TypeError, "two positive numbers"),
    ],
)
def test_rates_that_are_none(given, error, says):
    with pytest.raises(error, match=says):
        flashcliff.profile(rates=given)


# GPUs, faked


class FakeEvent:
    """An event of CUDA on a GPU where launches take 5 us each and all work is done at once."""

    now = 0.0

    def __init__(self):
        FakeEvent.now += 0.005
        self.at = FakeEvent.now

    def elapsed_time(self, end):
        return end.at - self.at


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that records events, and counts how often the host waits for it."""
    waits = []
    monkeypatch.setattr(cuda, "mark", FakeEvent)
    monkeypatch.setattr(cuda, "is_used", lambda: True)
    monkeypatch.setattr(cuda, "is_recording", lambda: False)
    monkeypatch.setattr(cuda, "anchors", lambda: {})
    monkeypatch.setattr(cuda, "wait", lambda: waits.append(1))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return waits


KEY = Key(Replay("CUDA graph"), "replay", (), "", "cuda:0")


def test_calls_on_a_gpu_are_timed_by_its_events(gpu):
    with flashcliff.profile() as p:
        clock.timed(KEY, True, lambda: None)
        clock.timed(KEY, True, lambda: None)
        assert len(gpu) == 1
    # Once before the region and once after it.
    assert len(gpu) == 2
    assert p._log.anchors.keys() == {0}
    (row,) = p.rows[:-1]
    assert row.seconds == pytest.approx(1e-5) and row.calls == 2
    assert row.host_seconds != row.seconds
    assert "A replay of a CUDA graph is one row" in p.table()


def test_a_trace_has_the_gpu_apart(gpu, tmp_path):
    with flashcliff.profile() as p:
        clock.timed(KEY, True, lambda: None)
    p.chrome_trace(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["cat"] for e in found if e["ph"] == "X"] == ["region", "host", "gpu"]


def test_calls_that_are_recorded_into_a_graph_have_no_time(gpu, monkeypatch):
    monkeypatch.setattr(cuda, "is_recording", lambda: True)
    with flashcliff.profile() as p:
        clock.timed(KEY, True, lambda: None)
    (row,) = p.rows[:-1]
    assert (row.phase, row.seconds, row.share, row.bytes) == ("recorded", 0, 0, 0)
    assert "did not run then" in p.table() and p.rows[-1].share == 1


def test_calls_that_raise_are_not_recorded(gpu):
    def fails():
        raise ValueError("no")

    with flashcliff.profile() as p, pytest.raises(ValueError):
        clock.timed(KEY, True, fails)
    assert p.rows[:-1] == []


def test_replays_of_captured_steps(monkeypatch):
    """A replay is one row, named by the step."""
    from flashcliff._capture.step import Captured

    monkeypatch.setattr(Captured, "_replay", lambda self, graph, leaves: False)
    stepper = flashcliff.capture(lambda: None)
    with flashcliff.profile() as p:
        assert [stepper._replay(None, None) for _ in range(3)] == [False] * 3
    assert counts(p) == {("CUDA graph of `<lambda>`", "replay"): 3}
    check_sums(p)


def test_a_replay_within_a_replay_is_one():
    inner = clock.timed_replay(lambda self: None, lambda self: "inner")
    outer = clock.timed_replay(lambda self: inner(self), lambda self: "outer")
    log = Log({})
    events.active = (log,)
    try:
        outer(None)
        inner(None)
    finally:
        events.active = ()
    assert [event.key.subject.name for event in log.events] == ["outer", "inner"]
    assert isinstance(log.events[0], Event)
