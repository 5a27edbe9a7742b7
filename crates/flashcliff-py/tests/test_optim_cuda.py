"""AdamW, Lion and averages of parameters on a GPU alone: many parameters at once, and steps that are recorded into CUDA graphs."""

from __future__ import annotations

import copy

import optim_common as common
import pytest
import torch
from optim_common import DTYPES, KIND, Pair, bits, groups
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import flashcliff
from flashcliff import CaptureError, nn, optim

pytestmark = pytest.mark.cuda
AVERAGES = pytest.mark.parametrize("average_decay", [None, 0.75])
# More parameters than two launches hold, with sizes around the sizes of blocks.
MANY = [(at % 7 + 1, at % 5) for at in range(1100)] + [(1024,), (1025,), (4096,), (4097,), (70000,)]


@KIND
@AVERAGES
@pytest.mark.parametrize("max_norm", [None, 3.0])
def test_more_parameters_and_groups_than_a_launch_holds(kind, max_norm, average_decay):
    pair = Pair(torch.float64, "cuda", MANY)
    options = [{"lr": 1e-3 * (at % 37 + 1), "weight_decay": 0.01 * (at % 3)} for at in range(40)]

    def split(parameters):
        return [{"params": parameters[at::40], **own} for at, own in enumerate(options)]

    ours, theirs = pair.made(kind, split, max_norm=max_norm, average_decay=average_decay)
    decay = get_ema_multi_avg_fn(average_decay or 0.0)
    averages = AveragedModel(torch.nn.ParameterList(pair.ours), multi_avg_fn=decay)
    for step in range(4):
        pair.step(ours, theirs, lambda at, step=step: at % 4 == step, max_norm=max_norm)
        if average_decay is None:
            continue
        averages.update_parameters(torch.nn.ParameterList(pair.ours))
        for p, want in zip(pair.ours, averages.module):
            common.close(ours.state[p]["average"] if p in ours.state else p.detach(), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lion_has_the_bits_of_the_cpu(dtype):
    runs = []
    for device in ("cuda", "cpu"):
        pair = Pair(dtype, device)
        ours = optim.Lion(groups(pair.ours, optim.Lion), lr=1e-2)
        for step in range(6):
            pair.draw(lambda at, step=step: at == step)
            ours.step()
        runs.append([t.cpu() for t in bits(pair.ours, ours)])
    assert all(map(torch.equal, *runs))


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_both_types_at_once(max_norm):
    pairs = [Pair(dtype, "cuda") for dtype in DTYPES]
    ours = optim.AdamW([p for pair in pairs for p in pair.ours], max_norm=max_norm)
    theirs = torch.optim.AdamW([p for pair in pairs for p in pair.theirs])
    for _ in range(4):
        for pair in pairs:
            pair.draw()
        if max_norm is not None:
            gradients = [p.grad for pair in pairs for p in pair.theirs]
            norm = torch.stack([g.double().square().sum() for g in gradients]).sum().sqrt()
            for gradient in gradients:
                gradient *= (max_norm / (norm + 1e-6)).clamp(max=1).to(gradient.dtype)
        ours.step()
        theirs.step()
        for pair in pairs:
            pair.compare(ours, theirs)


def test_many_steps_before():
    pair = Pair(torch.float64, "cuda")
    ours, theirs = pair.made(optim.AdamW, list)
    for count in (1e3, 123456.0, 2.0**24 - 3):
        for optimiser, parameters in ((ours, pair.ours), (theirs, pair.theirs)):
            for p in parameters:
                if p in optimiser.state:
                    optimiser.state[p]["step"].fill_(count)
        for _ in range(2):
            pair.step(ours, theirs)


def test_parameters_on_both_devices():
    pairs = [Pair(torch.float64, device) for device in ("cpu", "cuda")]
    ours = optim.AdamW([p for pair in pairs for p in pair.ours])
    theirs = torch.optim.AdamW([p for pair in pairs for p in pair.theirs])
    for _ in range(3):
        for pair in pairs:
            pair.draw()
        ours.step()
        theirs.step()
        for pair in pairs:
            pair.compare(ours, theirs)
    for group in ours.param_groups:
        group["max_norm"] = 1.0
    with pytest.raises(ValueError, match="all parameters on one device, got cpu and cuda:0"):
        ours.step()


def test_a_model_that_moves():
    """From the CPU to the GPU between steps, with its state."""
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2).double()
    twin = copy.deepcopy(net)
    ours = optim.AdamW(net.parameters(), lr=1e-2)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2)
    for device in ("cpu", "cuda"):
        net.to(device)
        for _ in range(3):
            x = torch.randn(4, 3, dtype=torch.float64)
            for model, optimiser, place in ((net, ours, device), (twin, theirs, "cpu")):
                optimiser.zero_grad()
                model(x.to(place)).square().sum().backward()
                optimiser.step()
    for p, q in zip(net.parameters(), twin.parameters()):
        common.close(p.cpu(), q)
    assert all(value.is_cuda for state in ours.state.values() for value in state.values())


def kernels(function):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    device = torch.autograd.DeviceType.CUDA
    names = [e.name for e in profile.events() if e.device_type == device]
    # PyTorch notes the span of a step beside its kernels.
    return [name for name in names if not name.startswith("Optimizer.")]


@KIND
@AVERAGES
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_few_launches_that_neither_wait_nor_allocate(kind, max_norm, average_decay):
    pair = Pair(torch.float32, "cuda", MANY[:400])
    lr = torch.tensor(1e-3, device="cuda")
    groups = [{"params": pair.ours[:9], "weight_decay": 0.3}, {"params": pair.ours[9:], "maximize": True}]
    ours = kind(groups, lr=lr, max_norm=max_norm, average_decay=average_decay)
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
@AVERAGES
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_replays_are_steps(kind, max_norm, average_decay):
    """Replays have gradients that are written in place, a learning rate that changes between replays, and averages. The step after the
    first one, which made the averages, can be recorded; recording changes nothing."""
    pairs = [Pair(torch.float32, "cuda") for _ in range(2)]
    rates = [torch.tensor(1e-2, device="cuda") for _ in pairs]
    optimisers = [
        kind(
            [{"params": pair.ours[:3]}, {"params": pair.ours[3:], "weight_decay": 0.5}],
            lr=rate,
            max_norm=max_norm,
            average_decay=average_decay,
        )
        for pair, rate in zip(pairs, rates)
    ]
    for pair, optimiser in zip(pairs, optimisers):
        pair.draw()
        optimiser.step()
    before = bits(pairs[0].ours, optimisers[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimisers[0].step()
    assert all(map(torch.equal, before, bits(pairs[0].ours, optimisers[0])))
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
        if max_norm is not None:
            assert torch.equal(optimisers[0].grad_norm, optimisers[1].grad_norm)
    if average_decay is not None:
        # The graph goes on where it was behind an exchange.
        for optimiser in optimisers:
            with optimiser.averaged_parameters():
                pass
        graph.replay()
        optimisers[1].step()
    # Eager steps go on where replays ended.
    for optimiser in optimisers:
        optimiser.step()
    got, want = (bits(p.ours, o) for p, o in zip(pairs, optimisers))
    assert all(map(torch.equal, got, want))


@KIND
@AVERAGES
def test_captured_training_with_a_schedule(kind, average_decay):
    torch.manual_seed(0)
    r3 = flashcliff.Algebra(3, 0, 0)
    model = torch.nn.Sequential(*(nn.FlashCliffordLayer(r3, 16) for _ in range(3))).cuda()
    runs = []
    for wrap in (True, False):
        own = copy.deepcopy(model)
        lr = torch.tensor(1e-3, device="cuda")
        optimiser = kind(own.parameters(), lr=lr, max_norm=0.1, average_decay=average_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 12)

        def step(x, own=own, optimiser=optimiser):
            optimiser.zero_grad()
            loss = own(x).square().mean()
            loss.backward()
            optimiser.step()
            return loss

        run = flashcliff.capture(step, modules=own, fallback="error") if wrap else step
        losses = []
        for at in range(12):
            torch.manual_seed(at)
            losses.append(run(torch.randn(8, 6, 16, device="cuda")).detach())
            schedule.step()
        if wrap:
            assert run.graph_count == 1
        runs.append((losses, bits(own.parameters(), optimiser)))
    for got, want in zip(*runs):
        assert all(map(torch.equal, got, want))


def test_a_number_that_changes_after_a_recording():
    x = torch.nn.Parameter(torch.ones(3, device="cuda"))
    ours = optim.AdamW([x], lr=1e-2, max_norm=1.0)

    @flashcliff.capture(warmup=1, fallback="error")
    def step():
        x.grad = x.detach() + 1
        ours.step()

    step(), step()
    for name, value in (("lr", 2e-2), ("max_norm", 2.0)):
        kept, ours.param_groups[0][name] = ours.param_groups[0][name], value
        with pytest.raises(CaptureError, match=f"`{name}` of group 0 was changed"):
            step()
        ours.param_groups[0][name] = kept
    step()


def recorded(function):
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        function()


@KIND
def test_recordings_that_would_be_wrong(kind):
    x = torch.nn.Parameter(torch.ones(3, device="cuda"))
    x.grad = torch.ones_like(x)
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


def test_a_recording_would_keep_a_rate_of_the_cpu():
    x = torch.nn.Parameter(torch.ones(3, device="cuda"))
    x.grad = torch.ones_like(x)
    ours = optim.AdamW([x], lr=torch.tensor(1e-3))
    ours.step()
    with pytest.raises(CaptureError, match="the tensor `lr` now has; make it on cuda:0"):
        recorded(ours.step)
    # The device works on.
    ours.step()
    assert int(ours.state[x]["step"]) == 2


def test_a_state_that_was_loaded_is_recorded_after_a_step():
    x = torch.nn.Parameter(torch.ones(3, device="cuda"))
    x.grad = torch.ones_like(x)
    ours = optim.AdamW([x])
    ours.step()
    again = optim.AdamW([x])
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    with pytest.raises(CaptureError, match="once before it is recorded"):
        recorded(again.step)
    again.step()
    recorded(again.step)
