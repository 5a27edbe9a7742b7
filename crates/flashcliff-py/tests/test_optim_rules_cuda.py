"""Lion, and averages of parameters, on a GPU: beside their formulas and PyTorch's, and recorded into CUDA graphs."""

from __future__ import annotations

import averages_common as averages
import lion_common as lion
import optim_common as common
import pytest
import torch
from optim_common import Pair, bits
from test_optim_cuda import MANY, kernels
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import flashcliff
from flashcliff import CaptureError, nn, optim

pytestmark = pytest.mark.cuda
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
KIND = pytest.mark.parametrize("kind", averages.KINDS, ids=lambda kind: kind.__name__)


@DTYPES
def test_lion_is_as_published(dtype):
    lion.trains_as_published(dtype, "cuda")


@pytest.mark.parametrize("formula", lion.WRONG, ids=lambda formula: formula.__name__)
def test_other_formulas_are_found(formula):
    with pytest.raises(AssertionError):
        lion.trains_as_published(torch.float32, "cuda", formula)


@DTYPES
def test_lion_clips(dtype):
    lion.clips_as_published(dtype, "cuda")


@DTYPES
def test_lion_with_a_schedule(dtype):
    lion.schedules(dtype, "cuda")


def test_lion_with_strides():
    lion.takes_strides("cuda")


def test_signs_of_special_numbers():
    lion.signs_of_special_numbers("cuda")


def test_lion_repeats():
    lion.repeats("cuda")


@DTYPES
def test_states_of_lion(dtype):
    lion.goes_on_with_a_state(dtype, "cuda")


@DTYPES
def test_lion_has_the_bits_of_the_cpu(dtype):
    runs = []
    for device in ("cuda", "cpu"):
        beside = lion.Beside(dtype, device)
        ours = optim.Lion(lion.groups(beside.ours), lr=1e-2)
        for step in range(6):
            beside.step(ours, lambda at, step=step: at == step)
        runs.append([t.cpu() for t in bits(beside.ours, ours)])
    assert all(map(torch.equal, *runs))


@KIND
@DTYPES
def test_averages_are_those_of_pytorch(kind, dtype):
    averages.averages_alike(kind, dtype, "cuda")


@KIND
def test_parameters_and_averages_are_exchanged(kind):
    averages.exchanges(kind, "cuda")


@KIND
def test_averages_that_begin_later(kind):
    averages.begins_later(kind, "cuda")


@KIND
def test_averages_change_no_step(kind):
    averages.changes_no_step(kind, "cuda")


@pytest.mark.parametrize("max_norm", [None, 3.0])
def test_more_parameters_and_groups_than_a_launch_holds(max_norm):
    beside = lion.Beside(torch.float64, "cuda", shapes=MANY)
    # In the order of the parameters, as the comparison goes through them.
    ends = [len(MANY) * at // 40 for at in range(41)]
    split = [
        {"params": beside.ours[a:b], "lr": 1e-3 * (at % 37 + 1), "weight_decay": 0.01 * (at % 3)}
        for at, (a, b) in enumerate(zip(ends, ends[1:]))
    ]
    ours = optim.Lion(split, max_norm=max_norm, average_decay=0.9)
    theirs = AveragedModel(
        torch.nn.ParameterList(beside.ours), multi_avg_fn=get_ema_multi_avg_fn(0.9)
    )
    for step in range(4):
        beside.step(ours, lambda at, step=step: at % 4 == step, max_norm)
        beside.compare(ours)
        theirs.update_parameters(torch.nn.ParameterList(beside.ours))
        for p, want in zip(beside.ours, theirs.module):
            common.close(ours.state[p]["average"] if p in ours.state else p.detach(), want)


@KIND
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_few_launches_that_neither_wait_nor_allocate(kind, max_norm):
    pair = Pair(torch.float32, "cuda", MANY[:400])
    lr = torch.tensor(1e-3, device="cuda")
    ours = kind([{"params": pair.ours[:9]}, {"params": pair.ours[9:]}], lr=lr, max_norm=max_norm, average_decay=0.9)
    for _ in range(2):
        pair.draw()
        ours.step()
    pair.draw(lambda at: at % 5 == 0)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    names = kernels(ours.step)
    assert len(names) == (1 if max_norm is None else 2), names
    assert all("list_" in name for name in names)


# In CUDA graphs


@KIND
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_replays_are_steps(kind, max_norm):
    """Of gradients that are written in place, with a learning rate that changes between replays, and with averages. The step behind the first
    one, which made the averages, can be recorded."""
    pairs = [Pair(torch.float32, "cuda") for _ in range(2)]
    rates = [torch.tensor(1e-2, device="cuda") for _ in pairs]
    optimisers = [
        kind(pair.ours, lr=rate, max_norm=max_norm, weight_decay=0.5, average_decay=0.75)
        for pair, rate in zip(pairs, rates)
    ]
    for pair, optimiser in zip(pairs, optimisers):
        pair.draw()
        optimiser.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimisers[0].step()
    for step in range(6):
        for pair in pairs:
            kept = [p.grad for p in pair.ours]
            pair.draw()
            for parameter, gradient in zip(pair.ours, kept):
                gradient.copy_(parameter.grad)
                parameter.grad = gradient
        for rate in rates:
            rate.fill_(1e-2 / (step + 1))
        graph.replay()
        optimisers[1].step()
        got, want = (bits(p.ours, o) for p, o in zip(pairs, optimisers))
        assert all(map(torch.equal, got, want)), step
    # The graph goes on where it was behind an exchange.
    for optimiser in optimisers:
        with optimiser.averaged_parameters():
            pass
    graph.replay()
    optimisers[1].step()
    got, want = (bits(p.ours, o) for p, o in zip(pairs, optimisers))
    assert all(map(torch.equal, got, want))


@KIND
def test_recordings_that_would_be_wrong(kind):
    x = torch.nn.Parameter(torch.ones(3, device="cuda"))
    x.grad = torch.ones_like(x)

    def recorded(function):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            function()

    name = kind.__name__
    with pytest.raises(CaptureError, match=f"{name}: the first step makes the state"):
        recorded(kind([x]).step)
    ours = kind([x])
    ours.step()
    # Averages that are still to be made.
    ours.param_groups[0]["average_decay"] = 0.9
    with pytest.raises(CaptureError, match=f"{name}: the first step makes the state"):
        recorded(ours.step)
    ours.step()
    recorded(ours.step)
    # One average of two that is missing.
    y = torch.nn.Parameter(torch.ones(3, device="cuda"))
    y.grad = torch.ones_like(y)
    ours.add_param_group({"params": [y], "average_decay": 0.9})
    ours.step()
    del ours.state[y]["average"]
    with pytest.raises(CaptureError, match=f"{name}: the first step makes the state"):
        recorded(ours.step)


def test_captured_training():
    torch.manual_seed(0)
    r3 = flashcliff.Algebra(3, 0, 0)
    model = torch.nn.Sequential(*(nn.FlashCliffordLayer(r3, 16) for _ in range(3))).cuda()
    runs = []
    for captured in (True, False):
        own = torch.nn.Sequential(*(nn.FlashCliffordLayer(r3, 16) for _ in range(3))).cuda()
        own.load_state_dict(model.state_dict())
        lr = torch.tensor(1e-3, device="cuda")
        optimiser = optim.Lion(own.parameters(), lr=lr, max_norm=0.1, average_decay=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 12)

        def step(x, own=own, optimiser=optimiser):
            optimiser.zero_grad()
            loss = own(x).square().mean()
            loss.backward()
            optimiser.step()
            return loss

        run = flashcliff.capture(step, modules=own, fallback="error") if captured else step
        losses = []
        for at in range(12):
            torch.manual_seed(at)
            losses.append(run(torch.randn(8, 6, 16, device="cuda")).detach())
            schedule.step()
        if captured:
            assert run.graph_count == 1
        runs.append((losses, bits(own.parameters(), optimiser)))
    for got, want in zip(*runs):
        assert all(map(torch.equal, got, want))


def test_gradient_scaler():
    x = torch.nn.Parameter(torch.ones(2, device="cuda"))
    ours, scaler = optim.Lion([x], lr=0.1), torch.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale(x.square().sum()).backward()
    scaler.step(ours)
    scaler.update()
    assert ours.state[x]["exp_avg"].tolist() == pytest.approx([0.02, 0.02])
