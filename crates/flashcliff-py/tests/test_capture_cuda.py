"""Captured steps on a GPU are eager steps, bit for bit: losses, gradients, parameters and states of optimisers."""

from __future__ import annotations

import copy
import gc

import pytest
import torch

import flashcliff
from flashcliff import CaptureError, CaptureWarning, nn
from flashcliff.nn import transformer as gt

pytestmark = pytest.mark.cuda
R3 = flashcliff.Algebra(3, 0, 0)


def hulls():
    return nn.models.Hulls(8, 8, 2), lambda size: (torch.randn(size, 8, 5), torch.randn(size))


def layers():
    net = torch.nn.Sequential(*(nn.FlashCliffordLayer(R3, 16) for _ in range(3)))
    return net, lambda size: torch.randn(2, 8, size, 16).unbind()


class Block(torch.nn.Module):
    """A transformer of two blocks, whose multivectors are the result."""

    def __init__(self):
        super().__init__()
        self.net = gt.GATransformer(
            flashcliff.Algebra(3, 0, 1), 2, 2, 4, 3, 2, 8, blocks=2, attention={"heads": 2}
        )

    def forward(self, x):
        scalars = x.mean(0)[..., :1].expand(*x.shape[1:-1], 3)
        return self.net(x, scalars)[0]


def gatr():
    return Block(), lambda size: torch.randn(2, 16, size, 5, 2).unbind()


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop = layers()[0], torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.inner(self.drop(x)))


def dropping():
    return Dropping(), layers()[1]


MODELS = [hulls, layers, gatr, dropping]
OPTIMISERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, capturable=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-2, capturable=True, fused=True),
    "ours": lambda p: flashcliff.optim.AdamW(p, lr=1e-2, max_norm=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
}


def pair(make, optimiser="adamw"):
    """Two equal models with their optimisers, and what draws a batch."""
    torch.manual_seed(0)
    model, draw = make()
    model = model.cuda()
    twin = copy.deepcopy(model)
    models = [(m, OPTIMISERS[optimiser](m.parameters())) for m in (model, twin)]
    return models, lambda seed, size: drawn(draw, seed, size)


def drawn(draw, seed, size):
    torch.manual_seed(seed)
    return [tensor.cuda() for tensor in draw(size)]


def trainer(model, optimiser):
    def step(x, y):
        optimiser.zero_grad()
        output = model(x)
        loss = (output - y).square().mean()
        loss.backward()
        optimiser.step()
        return loss, output

    return step


def state(model, optimiser):
    states = [value for s in optimiser.state.values() for value in s.values()]
    tensors = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return [t.detach().clone() for t in (*tensors, *states) if isinstance(t, torch.Tensor)]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_captured_is_eager(make, optimiser):
    """Over shapes that change, with the noise of dropout."""
    (captured, eager), draw = pair(make, optimiser)
    step = flashcliff.capture(trainer(*captured), modules=captured[0], fallback="error")
    plain = trainer(*eager)
    for i, size in enumerate([7, 7, 7, 7, 7, 4, 7, 4, 4, 4, 4, 7, 4, 7]):
        results = []
        for run in (step, plain):
            # The draws leave the generator in the same state.
            batch = draw(i, size)
            torch.cuda.manual_seed(100 + i // 4)
            results.append((run(*batch), torch.cuda.get_rng_state()))
        (got, noise), (want, other_noise) = results
        assert same(got, want), i
        assert same(state(*captured), state(*eager)), i
        assert torch.equal(noise, other_noise), i
    assert step.graph_count == 2 and step.reason is None


def test_noise_differs_from_call_to_call():
    step = flashcliff.capture(lambda x: torch.nn.functional.dropout(x, 0.5), warmup=1)
    torch.cuda.manual_seed(0)
    x = torch.ones(1000, device="cuda")
    seen = [step(x) for _ in range(5)]
    torch.cuda.manual_seed(0)
    for one in seen:
        assert torch.equal(one, torch.nn.functional.dropout(x, 0.5))
    assert step.graph_count == 1 and not torch.equal(seen[-1], seen[-2])


def test_autocast_within_a_step():
    (captured, eager), draw = pair(layers)

    def trainer_in_16_bits(model, optimiser):
        def step(x, y):
            optimiser.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = (model(x).float() - y).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimiser.step()
            return loss

        return step

    step = flashcliff.capture(trainer_in_16_bits(*captured), modules=captured[0], fallback="error")
    plain = trainer_in_16_bits(*eager)
    for i in range(7):
        assert torch.equal(step(*draw(i, 9)), plain(*draw(i, 9)))
        assert same(state(*captured), state(*eager)), i
    assert step.graph_count == 1


def test_a_schedule_by_a_tensor():
    (captured, eager), draw = pair(layers)
    runs = []
    for (model, _), wrap in ((captured, True), (eager, False)):
        lr = torch.tensor(1e-2, device="cuda")
        optimiser = torch.optim.AdamW(model.parameters(), lr=lr, capturable=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10)
        step = trainer(model, optimiser)
        step = flashcliff.capture(step, modules=model, fallback="error") if wrap else step
        losses = []
        for i in range(10):
            losses.append(step(*draw(i, 5))[0])
            schedule.step()
        runs.append((torch.stack(losses), state(model, optimiser)))
    assert torch.equal(runs[0][0], runs[1][0]) and same(runs[0][1], runs[1][1])


def test_inference():
    model, draw = layers()
    model = model.cuda().eval()
    step = flashcliff.capture(model, modules=model, warmup=1, fallback="error")
    for i in range(4):
        (x, _) = drawn(draw, i, 6)
        with torch.no_grad():
            assert torch.equal(step(x), model(x))
        with torch.inference_mode():
            assert torch.equal(step(x), model(x))
    assert step.graph_count == 2


def test_compiled_models_within_a_step():
    """``torch.compile`` with its default mode, and our graph around it and the optimiser."""
    torch._dynamo.reset()
    (captured, eager), draw = pair(layers)
    model, optimiser = captured
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    step = flashcliff.capture(trainer(compiled, optimiser), modules=model, fallback="error")
    plain = trainer(*eager)
    for i in range(7):
        (got, _), (want, _) = step(*draw(i, 6)), plain(*draw(i, 6))
        assert (got - want).abs() < 1e-4 * want.abs(), i
    assert step.graph_count == 1


def test_a_step_that_waits_for_the_gpu():
    """It falls back, and leaves the device, its generator and other graphs in order."""
    (captured, eager), draw = pair(dropping)
    good = flashcliff.capture(lambda x: x + 1, warmup=1, fallback="error")
    x = torch.ones(4, device="cuda")
    good(x), good(x)
    inner = trainer(*captured)
    step = flashcliff.capture(lambda x, y: inner(x, y)[0].item(), modules=captured[0], warmup=2)
    plain = trainer(*eager)
    for i in range(5):
        batch = draw(i, 6)
        torch.cuda.manual_seed(i)
        if i == 2:
            with pytest.warns(CaptureWarning, match="cannot be recorded"):
                got = step(*batch)
        else:
            got = step(*batch)
        torch.cuda.manual_seed(i)
        assert got == plain(*batch)[0].item(), i
        assert same(state(*captured), state(*eager)), i
    assert step.graph_count == 0 and "cannot be recorded" in step.reason
    assert torch.equal(good(x + 1), x + 2)
    # Noise comes from the seed as before.
    torch.cuda.manual_seed(5)
    first = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(5)
    assert torch.equal(first, torch.rand(4, device="cuda"))
    again = flashcliff.capture(lambda x: torch.rand_like(x) + x, warmup=1, fallback="error")
    torch.cuda.manual_seed(6)
    got = [again(x) for _ in range(3)]
    torch.cuda.manual_seed(6)
    assert same(got, [torch.rand_like(x) + x for _ in range(3)])
    assert again.graph_count == 1


def test_a_step_that_does_nothing_on_the_gpu():
    step = flashcliff.capture(lambda: torch.ones(3), warmup=1)
    step()
    with pytest.warns(CaptureWarning, match="CUDA Graph is empty"):
        assert step().tolist() == [1, 1, 1]


def test_tensors_of_several_devices_and_optimisers_that_count_on_the_host():
    (captured, _), draw = pair(layers)
    model = captured[0]
    step = flashcliff.capture(trainer(model, torch.optim.AdamW(model.parameters())), modules=model)
    x, y = draw(0, 4)
    with pytest.raises(CaptureError, match="capturable=True"):
        step(x, y)
    with pytest.raises(CaptureError, match="on one GPU, got cpu and cuda:0"):
        step(x, y.cpu())


def test_on_a_side_stream():
    (captured, eager), draw = pair(layers)
    step, plain = flashcliff.capture(trainer(*captured), modules=captured[0]), trainer(*eager)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for i in range(6):
        want = plain(*draw(i, 5))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            batch = draw(i, 5)
            torch.cuda._sleep(5_000_000)
            got = step(*batch)
            got = [tensor + 0 for tensor in got]
        torch.cuda.current_stream().wait_stream(side)
        assert same(got, want), i
    assert step.graph_count == 1


def test_memory_is_freed():
    (captured, _), draw = pair(layers)
    step = flashcliff.capture(trainer(*captured), modules=captured[0])
    batch = draw(0, 2000)
    for _ in range(3):
        step(*batch)
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    before, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    for _ in range(3):
        step(*batch)
    held = torch.cuda.memory_reserved() - before
    assert held > 0
    step.reset()
    captured[1].zero_grad()
    gc.collect()
    torch.cuda.empty_cache()
    # Small tensors that stay, such as a loss, keep the 2 MiB segments that they share with others.
    kept = torch.cuda.memory_reserved() - before
    assert kept <= held / 8, (kept, held)
    assert torch.cuda.memory_allocated() <= allocated
