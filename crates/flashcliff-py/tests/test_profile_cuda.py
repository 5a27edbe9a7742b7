"""Profiles on a GPU: times are the GPU's, nothing waits within the region, and replays of graphs are rows."""

from __future__ import annotations

import json

import pytest
import torch
from profile_common import R3, check_nothing_left, check_sums, counts, places

import flashcliff
from flashcliff import functional as F

pytestmark = pytest.mark.cuda


def operands(batch=4096, channels=256):
    x, y = torch.randn(2, 8, batch, channels, device="cuda").unbind()
    weight = torch.randn(channels, R3.path_count, device="cuda")
    return tuple(tensor.requires_grad_() for tensor in (x, y, weight))


def step(tensors):
    F.sgp_norm(*tensors, R3).sum().backward()


def by_events(function, repeats=20):
    """The seconds that the GPU takes for a call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats


def test_times_are_those_of_the_gpu(tmp_path):
    # So large that the GPU never waits for the host.
    tensors = operands(16384, 512)
    step(tensors)
    before = places()
    with flashcliff.profile() as p:
        # An operation that waits for the GPU raises.
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(20):
                step(tensors)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    check_nothing_left(before)
    check_sums(p)
    assert counts(p) == {("sgp_norm", "forward"): 20, ("sgp_norm", "backward"): 20}
    forward = next(row for row in p.rows if row.phase == "forward")
    assert forward.device == "cuda:0"
    with torch.no_grad():
        alone = by_events(lambda: F.sgp_norm(*tensors, R3))
    assert forward.seconds / 20 == pytest.approx(alone, rel=0.3)
    p.rates()
    assert 0.1 < next(row for row in p.rows if row.phase == "forward").roofline < 1.3
    p.chrome_trace(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event.get("cat") == "gpu" for event in found) == 40


def test_graphs_of_the_user():
    tensors = tuple(tensor.detach() for tensor in operands(64, 16))
    F.sgp_norm(*tensors, R3)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with flashcliff.profile() as p:
        with torch.cuda.graph(graph):
            F.sgp_norm(*tensors, R3)
        for _ in range(5):
            graph.replay()
    assert counts(p) == {("sgp_norm", "recorded"): 1, ("CUDA graph", "replay"): 5}
    recorded = next(row for row in p.rows if row.phase == "recorded")
    replay = next(row for row in p.rows if row.phase == "replay")
    assert recorded.seconds == 0 and replay.seconds > 0 and replay.device == "cuda:0"
    check_sums(p)


def test_captured_steps():
    model = flashcliff.nn.FlashCliffordLayer(R3, 16).cuda()
    optimiser = torch.optim.Adam(model.parameters(), capturable=True)

    @flashcliff.capture(modules=model)
    def step(x):
        optimiser.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    x = torch.randn(8, 64, 16, device="cuda")
    for _ in range(5):
        step(x)
    with flashcliff.profile() as p:
        for _ in range(7):
            step(x)
    assert counts(p) == {("CUDA graph of `step`", "replay"): 7}
    check_sums(p)


def transformer():
    torch.manual_seed(0)
    net = flashcliff.nn.transformer.GATransformer(
        (3, 0, 1), 2, 2, 8, blocks=2, attention={"heads": 4}
    ).cuda()
    x = torch.randn(16, 8, 128, 2, device="cuda")

    def step():
        out, _ = net(x, reference=x[:, :, :1].mean(-1, keepdim=True))
        out.square().sum().backward()

    return step


KERNELS = {("network", "forward"), ("network", "backward")}


def test_kernels_of_transformers():
    step = transformer()
    step()
    before = places()
    with flashcliff.profile(rates="measure") as p:
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(3):
                step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    check_nothing_left(before)
    check_sums(p)
    found = counts(p)
    assert set(found) >= KERNELS, found
    assert all(found[kernel] % 3 == 0 for kernel in KERNELS)
    for row in p.rows[:-1]:
        assert row.seconds > 0 and row.bytes > 0 and 0 < row.roofline < 2, row


def test_kernels_of_transformers_in_a_graph():
    step = transformer()
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with flashcliff.profile() as p:
        with torch.cuda.graph(graph):
            step()
        graph.replay()
    found = counts(p)
    recorded = {name for name, phase in found if phase == "recorded"}
    assert recorded >= {name for name, _ in KERNELS}, found
    assert found["CUDA graph", "replay"] == 1
    check_sums(p)
