"""Profiles: which calls are recorded, how often, and what is left afterwards."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from profile_common import (
    BATCH,
    CHANNELS,
    R3,
    check_nothing_left,
    check_sums,
    counts,
    operands,
    places,
    step,
)
from releases import WHOLE

import flashcliff
from flashcliff import arrays
from flashcliff import functional as F
from flashcliff._ops import native, run
from flashcliff._profile import clock, compiled, hooks, timeline
from flashcliff._profile.rows import REST

STEP = {("sgp_norm", "forward"): 1, ("sgp_norm", "backward"): 1, ("reverse", "forward"): 1}


def times(number):
    return {key: number * value for key, value in STEP.items()}


def check_steps(repeats=3):
    """A profile of ``repeats`` steps has their calls and adds up; nothing is left afterwards."""
    before = places()
    with flashcliff.profile() as p:
        step(repeats)
    check_nothing_left(before)
    assert counts(p) == times(repeats)
    check_sums(p)
    assert all(row.seconds > 0 for row in p.rows)
    return p


@pytest.mark.usefixtures("path")
def test_calls_are_counted_and_add_up():
    p = check_steps()
    row = next(row for row in p.rows if row.phase == "backward")
    assert (row.algebra, row.dtype, row.device) == ("cl300", "f32", "cpu")
    assert row.gradients == ("x", "y", "weight")
    assert row.shapes == ((8, BATCH, CHANNELS), (8, BATCH, CHANNELS), (CHANNELS, 20))


@pytest.mark.usefixtures("path")
def test_calls_of_the_dispatcher():
    x, y, w = operands(grad=True)
    with flashcliff.profile() as p:
        out, _ = torch.ops.flashcliff.sgp_norm(x, y, w, "cl300")
        out.sum().backward()
        torch.ops.flashcliff.product(x.detach(), y.detach(), "cl300")
    assert counts(p) == {
        ("sgp_norm", "forward"): 1,
        ("sgp_norm", "backward"): 1,
        ("product", "forward"): 1,
    }


@pytest.mark.usefixtures("path")
def test_graphs_of_torch_compile():
    """Calls within a graph are seen, and a profile makes nothing compile again."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    layer = torch.compile(
        lambda x, y, w: F.sgp_norm(F.reverse(x, R3), y, w, R3), fullgraph=WHOLE, backend=counter
    )
    layer(*operands(grad=True)).sum().backward()
    with flashcliff.profile() as p:
        layer(*operands(grad=True)).sum().backward()
        layer(*operands(grad=True)).sum().backward()
    layer(*operands(grad=True)).sum().backward()
    assert counter.frame_count == 1 or not WHOLE
    assert counts(p) == {
        (name, phase): 2 for name in ("sgp_norm", "reverse") for phase in ("forward", "backward")
    }
    check_sums(p)


@pytest.mark.usefixtures("path")
def test_gradients_of_earlier_calls():
    """A backward pass is recorded even if its forward pass was before the region, and the other way round."""
    x, y, w = operands(grad=True)
    out = F.sgp_norm(x, y, w, R3)
    with flashcliff.profile() as p:
        out.sum().backward()
        late = F.sgp_norm(x, y, w, R3)
    late.sum().backward()
    assert counts(p) == {("sgp_norm", "backward"): 1, ("sgp_norm", "forward"): 1}


def test_arrays_of_numpy():
    x = np.ones((8, 3, 4), np.float32)
    with flashcliff.profile() as p:
        arrays.reverse(x, R3)
    assert counts(p) == {("reverse", "forward"): 1}


def test_rows_tell_shapes_options_and_types_apart():
    x = torch.randn(8, 3, 4)
    with flashcliff.profile() as p:
        for operand in (x, x, x.double(), torch.randn(8, 4, 4)):
            F.geometric_product(operand, operand, R3)
        F.exterior_product(x, x, R3)
        F.geometric_product(x[1:4], x, R3, left=(1,))
    assert sorted(row.calls for row in p.rows[:-1]) == [1, 1, 1, 1, 2]
    assert {str(row.options) for row in p.rows[:-1]} == {
        "{}",
        "{'kind': 'exterior'}",
        "{'left': (1,)}",
    }


@pytest.mark.usefixtures("path")
def test_errors_leave_nothing_behind():
    before = places()
    p = flashcliff.profile()
    with pytest.raises(KeyError, match="mine"), p:
        step()
        raise KeyError("mine")
    check_nothing_left(before)
    assert counts(p) == STEP
    assert "ended with KeyError" in p.table() and json.loads(p.json())["error"] == "KeyError"
    with pytest.raises(ValueError, match="must be"), flashcliff.profile() as q:
        F.norm(torch.ones(7, 3, 4), R3)
    check_nothing_left(before)
    assert counts(q) == {}
    check_sums(q)
    assert q.rows[-1].share == 1


def test_an_error_of_the_start_leaves_nothing_behind(monkeypatch):
    before = places()

    def fails():
        raise RuntimeError("no table")

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "install", fails)
        with pytest.raises(RuntimeError, match="no table"), flashcliff.profile():
            pass
    check_nothing_left(before)
    check_steps(1)


@pytest.mark.usefixtures("path")
def test_nested_regions():
    before = places()
    with flashcliff.profile() as outer:
        step()
        with flashcliff.profile() as inner:
            step()
        step()
    check_nothing_left(before)
    assert counts(outer) == times(3) and counts(inner) == STEP
    check_sums(outer)
    check_sums(inner)
    assert inner.seconds < outer.seconds


@pytest.mark.usefixtures("path")
def test_regions_that_overlap_end_in_any_order():
    before = places()
    first, second = flashcliff.profile(), flashcliff.profile()
    first.__enter__()
    step()
    second.__enter__()
    step()
    first.__exit__(None, None, None)
    step()
    second.__exit__(None, None, None)
    check_nothing_left(before)
    assert counts(first) == times(2) and counts(second) == times(2)


@pytest.mark.usefixtures("path")
def test_threads():
    """A region records the calls of all threads, whoever entered it; the sums hold where calls overlap."""
    before = places()
    start = threading.Barrier(4)

    def work():
        start.wait()
        step(5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with flashcliff.profile() as p:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check_nothing_left(before)
    assert counts(p) == times(20)
    check_sums(p)
    assert json.loads(p.json())["threads"] == 4


@pytest.mark.usefixtures("path")
def test_regions_of_several_threads():
    """Nothing is left after threads enter and leave their own regions, and each region holds its own calls."""
    before = places()
    failures = []

    def work():
        try:
            for _ in range(10):
                with flashcliff.profile() as p:
                    step()
                found = counts(p)
                assert all(found[key] >= 1 for key in STEP)
                check_sums(p)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    check_nothing_left(before)


@pytest.mark.native
def test_the_compiled_call_path_may_come_and_go_within_a_region():
    loaded = native.loaded
    before = places()
    with flashcliff.profile() as p:
        step()
        native.use(None)
        step()
        native.use(loaded)
        step()
    assert counts(p) == times(3)
    after = places()
    assert all(after[name] is before[name] for name in ("run.forward", "native.use"))
    with flashcliff.profile() as q:
        step()
    assert counts(q) == STEP and len(p._log.events) == 9


@pytest.mark.parametrize("use", ["rows", "table", "json", "seconds", "rates"])
def test_reports_need_a_region_that_has_ended(use):
    def ask(p):
        report = getattr(p, use)
        return report() if callable(report) else report

    p = flashcliff.profile()
    with pytest.raises(RuntimeError, match="whose region has ended, got one without a region"):
        ask(p)
    with p, pytest.raises(RuntimeError, match="got one that runs; ask for reports behind"):
        ask(p)
    assert ask(p) is not None
    with pytest.raises(RuntimeError, match="expected a new profile.*for each region"):
        p.__enter__()


# Mistakes that the checks above must find.


def dropped(monkeypatch):
    """Backward passes are not recorded."""
    inner = clock.timed

    def timed(key, gpu, call):
        return inner(key, gpu, call) if key.phase == "forward" else call()

    monkeypatch.setattr(clock, "timed", timed)
    monkeypatch.setattr(compiled, "timed", timed)


def doubled(monkeypatch):
    """Calls are recorded twice."""
    inner = clock.timed

    def timed(key, gpu, call):
        inner(key, gpu, lambda: True)
        return inner(key, gpu, call)

    monkeypatch.setattr(clock, "timed", timed)
    monkeypatch.setattr(compiled, "timed", timed)


def confused(monkeypatch):
    """Backward passes are taken for forward passes."""
    inner = clock.timed

    def timed(key, gpu, call):
        return inner(key._replace(phase="forward"), gpu, call)

    monkeypatch.setattr(clock, "timed", timed)
    monkeypatch.setattr(compiled, "timed", timed)


def without_rest(monkeypatch):
    """The rest is the whole region."""
    inner = timeline.parts
    monkeypatch.setattr(
        timeline, "parts", lambda spans, region: (inner(spans, region)[0], region[1] - region[0])
    )


def left_behind(monkeypatch):
    """A place keeps its hook."""
    inner = hooks.remove

    def remove():
        kept = run.forward
        inner()
        monkeypatch.setattr(run, "forward", kept)

    monkeypatch.setattr(hooks, "remove", remove)


@pytest.mark.parametrize("mistake", [dropped, doubled, confused, without_rest, left_behind])
def test_the_checks_find_mistakes(mistake, monkeypatch):
    with monkeypatch.context() as patch:
        mistake(patch)
        with pytest.raises(AssertionError):
            check_steps(2)
    check_steps(1)


def test_the_name_of_the_rest():
    with flashcliff.profile() as p:
        pass
    assert [row.operator for row in p.rows] == [REST]
    assert "0.0% of it in 0 calls" in p.table()
    assert repr(p).startswith("Profile(seconds=")
