"""Captured steps without a GPU: calls that cannot be graphs, and all that surrounds a graph, with a recorder that repeats
operations on the CPU."""

from __future__ import annotations

import importlib
import warnings

import pytest
import torch
from capture_fake import Fake

import flashcliff
from flashcliff import CaptureError, CaptureWarning, nn
from flashcliff._capture import signature, training

R3 = flashcliff.Algebra(3, 0, 0)
module = importlib.import_module("flashcliff._capture")
steps = importlib.import_module("flashcliff._capture.step")


@pytest.fixture
def fake(monkeypatch):
    """Makes calls on the CPU ones that can be recorded. Gives the recorders that are made."""
    monkeypatch.setattr(module, "Cuda", Fake)
    monkeypatch.setattr(steps, "place", lambda leaves: torch.device("cpu"))
    monkeypatch.setattr(Fake, "made", [])
    return Fake.made


class Descent(torch.optim.Optimizer):
    """Descent along the gradient with momentum, by tensors alone, as a graph needs it."""

    def __init__(self, parameters, lr=0.1, **more):
        super().__init__(parameters, {"lr": lr, **more})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                moment = self.state[p].setdefault("moment", torch.zeros_like(p))
                moment.mul_(0.9).add_(p.grad)
                p.sub_(group["lr"] * moment)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(nn.FlashCliffordLayer(R3, 4), nn.FlashCliffordLayer(R3, 4))


def trainer(model, optimiser):
    def step(x, y, scale=1.0):
        optimiser.zero_grad()
        loss = scale * (model(x) - y).square().mean()
        loss.backward()
        optimiser.step()
        return {"loss": loss, "scale": scale}

    return step


def batch(seed, size=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 8, size, 4, generator=generator).unbind()


def state(model, optimiser):
    moments = [value for s in optimiser.state.values() for value in s.values()]
    return [p.detach().clone() for p in model.parameters()] + [m.clone() for m in moments] + [
        p.grad.clone() for p in model.parameters()
    ]


def same(left, right):
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right))


# Without a GPU


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_step_runs_eagerly_and_says_so_once():
    model, twin = network(), network()
    optimiser, other = Descent(model.parameters()), Descent(twin.parameters())
    step = flashcliff.capture(trainer(model, optimiser), modules=model)
    assert step.reason is None and step.graph_count == 0
    with pytest.warns(CaptureWarning, match="`step` runs without a graph: PyTorch finds no GPU") as said:
        got = [step(*batch(i)) for i in range(5)]
    assert len(said) == 1 and said[0].filename == __file__
    assert step.reason == "PyTorch finds no GPU" and step.graph_count == 0
    plain = trainer(twin, other)
    want = [plain(*batch(i)) for i in range(5)]
    assert all(torch.equal(a["loss"], b["loss"]) for a, b in zip(got, want))
    assert same(state(model, optimiser), state(twin, other))
    assert not got[0]["loss"].requires_grad


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_an_error_if_that_was_asked_for():
    step = flashcliff.capture(lambda x: x, fallback="error")
    with pytest.raises(CaptureError, match="has no graph: PyTorch finds no GPU"):
        step(torch.ones(3))


def test_places(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)

    class At(torch.Tensor):
        device = property(lambda self: torch.device(self.where))

    def at(name):
        tensor = torch.ones(1).as_subclass(At)
        tensor.where = name
        return tensor

    assert signature.place([1, None]) == torch.device("cuda", 1)
    assert signature.place([at("cuda:0"), 3]) == torch.device("cuda", 0)
    assert signature.place([at("cpu")]) == "the tensors of the call are on cpu, not on a GPU"
    with pytest.raises(CaptureError, match="on one GPU, got cpu and cuda:0; move them"):
        signature.place([at("cuda:0"), at("cpu")])
    with pytest.raises(CaptureError, match="got cuda:0 and cuda:1"):
        signature.place([at("cuda:0"), at("cuda:1")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fallback": "no"}, "fallback: expected one of eager, error, got `no`"),
        ({"warmup": 0}, "warmup: expected at least 1, got 0"),
        ({"max_graphs": 0}, "max_graphs: expected at least 1, got 0"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        flashcliff.capture(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 3}, "step: expected a function, got 3"),
        ({"warmup": 1.5}, "warmup: expected an integer, got 1.5"),
        ({"max_graphs": True}, "max_graphs: expected an integer, got True"),
        ({"copy_outputs": "no"}, "copy_outputs: expected True or False, got 'no'"),
        ({"modules": 3}, "modules: expected a torch.nn.Module, or several, got 3"),
        ({"modules": [None]}, "modules: expected a torch.nn.Module, or several, got None"),
    ],
)
def test_options_of_other_types(options, message):
    with pytest.raises(TypeError, match=message):
        flashcliff.capture(**options)


def test_it_decorates_methods(fake):
    class Trainer:
        def __init__(self, factor):
            self.factor = factor

        @flashcliff.capture(warmup=1)
        def step(self, x):
            return self.factor * x

    one, two, x = Trainer(2.0), Trainer(3.0), torch.ones(3)
    for _ in range(3):
        assert torch.equal(one.step(x), 2 * x) and torch.equal(two.step(x), 3 * x)
    assert Trainer.step.graph_count == one.step.graph_count == 2


def test_it_decorates():
    @flashcliff.capture(warmup=1)
    def double(x):
        """Twice as much."""
        return 2 * x

    assert double.__name__ == "double" and double.__doc__ == "Twice as much."
    assert "double" in repr(double) and "graphs=0" in repr(double)
    assert double.__wrapped__(2) == 4


def test_it_takes_modules(fake):
    model = network().eval()
    step = flashcliff.capture(model, modules=model, warmup=1)
    x, _ = batch(0)
    assert all(torch.equal(step(x), model(x)) for _ in range(3))
    assert step.graph_count == 1 and not hasattr(step, "training")


# A recorded step


@pytest.mark.parametrize("warmup", [1, 3])
def test_each_call_is_one_step(fake, warmup):
    """Losses, gradients, parameters and moments are the same as in eager steps, bit for bit."""
    model, twin = network(), network()
    optimiser, other = Descent(model.parameters()), Descent(twin.parameters())
    step = flashcliff.capture(trainer(model, optimiser), modules=model, warmup=warmup)
    plain = trainer(twin, other)
    for i in range(8):
        got, want = step(*batch(i)), plain(*batch(i))
        assert torch.equal(got["loss"], want["loss"]) and got["scale"] == 1.0
        assert same(state(model, optimiser), state(twin, other)), i
        assert step.reason is None and not got["loss"].requires_grad
    (recorder,) = fake
    assert (recorder.runs, recorder.records, recorder.replays) == (warmup, 1, 8 - warmup)
    assert step.graph_count == 1


def test_results_are_copies_or_of_the_graph(fake):
    for copies in (True, False):
        step = flashcliff.capture(lambda x: (x + 1, "text"), warmup=1, copy_outputs=copies)
        first, second = [step(torch.full((2,), i)) for i in (0.0, 5.0, 7.0)][1:]
        assert second[0].tolist() == [8, 8] and second[1] == "text"
        assert first[0].tolist() == ([6, 6] if copies else [8, 8])


def test_a_graph_for_each_signature(fake):
    calls = []

    def step(x, *, scale=1.0, more=None):
        calls.append(x.shape)
        return x * scale

    captured = flashcliff.capture(step, warmup=1, max_graphs=20)
    x = torch.arange(12.0).reshape(3, 4)
    model = torch.nn.Linear(1, 1)
    different = [
        ((x,), {}),
        ((x[:2],), {}),
        ((x.double(),), {}),
        ((x.t().contiguous().t(),), {}),
        ((x,), {"scale": 2.0}),
        ((x,), {"scale": 2}),
        ((x,), {"scale": 1}),
        ((x,), {"scale": True}),
        ((x,), {"scale": -0.0}),
        ((x,), {"scale": 0.0}),
        ((x,), {"more": {"a": x}}),
        ((x,), {"more": {"b": x}}),
        ((x,), {"more": model}),
        ((x,), {"more": torch.nn.Linear(1, 1)}),
    ]
    for index, (args, kwargs) in enumerate(different):
        for _ in range(4):
            assert torch.equal(captured(*args, **kwargs), step(*args, **kwargs)), index
        assert captured.graph_count == index + 1
    with torch.no_grad():
        captured(x)
    assert len(captured._calls) == len(different) + 1
    captured._training.modules.append(model)
    before = len(captured._calls)
    captured(x)
    model.eval()
    captured(x)
    assert len(captured._calls) == before + 2


def test_a_graph_reads_the_new_inputs(fake):
    captured = flashcliff.capture(lambda a, b: a["x"] - b[0], warmup=1)
    for i in range(5):
        x, y = torch.full((3,), float(i)), torch.full((3,), 10.0 * i)
        assert captured({"x": x}, [y]).tolist() == [-9.0 * i] * 3
    (recorder,) = fake
    assert recorder.replays == 4


def test_no_more_graphs_than_allowed(fake):
    captured = flashcliff.capture(lambda x: x + 1, warmup=1, max_graphs=2)
    for size in (1, 2):
        for _ in range(2):
            captured(torch.ones(size))
    captured(torch.ones(3))
    assert captured.reason is None
    with pytest.warns(CaptureWarning, match="there are 2 graphs already"):
        assert captured(torch.ones(3)).tolist() == [2, 2, 2]
    assert captured.graph_count == 2 and "2 graphs" in captured.reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captured(torch.ones(3))
        # The others are still graphs.
        captured(torch.ones(2))
    assert captured.reason is None
    captured.reset()
    assert captured.graph_count == 0
    captured(torch.ones(3))
    captured(torch.ones(3))
    assert captured.graph_count == 1


def test_a_step_that_cannot_be_recorded_runs_eagerly(fake):
    model, twin = network(), network()
    optimiser, other = Descent(model.parameters()), Descent(twin.parameters())

    def waiting(step):
        def run(x, y):
            return step(x, y)["loss"].item()

        return run

    step = flashcliff.capture(waiting(trainer(model, optimiser)), warmup=1, modules=model)
    plain = waiting(trainer(twin, other))
    step(*batch(0)), plain(*batch(0))
    before = [p.grad for p in model.parameters()]
    with pytest.raises(CaptureError, match=r"RuntimeError: operation not permitted.*\)") as raised:
        step._fallback = "error"
        step(*batch(1))
    assert "\nmore" not in str(raised.value) and isinstance(raised.value.__cause__, RuntimeError)
    # The gradients that the recording made have no values, so those from before it are back.
    assert all(p.grad is g for p, g in zip(model.parameters(), before))
    step._fallback = "eager"
    with pytest.warns(CaptureWarning, match="cannot be recorded"):
        assert isinstance(step(*batch(1)), float)
    assert "cannot be recorded" in step.reason and step.graph_count == 0
    assert fake[0].records == 1


def test_gradients_are_those_of_the_call(fake):
    """Each graph has its own gradients; after a call the parameters have the gradients of that call."""
    model, twin = network(), network()
    optimiser, other = Descent(model.parameters()), Descent(twin.parameters())
    step = flashcliff.capture(trainer(model, optimiser), warmup=1, modules=model)
    plain = trainer(twin, other)
    for i, size in enumerate([6, 6, 3, 3, 6, 3, 6, 6, 3, 3]):
        step(*batch(i, size)), plain(*batch(i, size))
        assert same(state(model, optimiser), state(twin, other)), i
    assert step.graph_count == 2


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_add_up(fake, set_to_none):
    """The optimiser is called outside of the step, after several of them."""
    model, twin = network(), network()

    def accumulate(model):
        def step(x, y):
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        return step

    step = flashcliff.capture(accumulate(model), warmup=1, modules=model, fallback="error")
    plain = accumulate(twin)
    for i in range(12):
        got, want = step(*batch(i)), plain(*batch(i))
        assert torch.equal(got, want)
        assert same([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()]), i
        if i % 3 == 2:
            for part in (model, twin):
                with torch.no_grad():
                    for p in part.parameters():
                        p.sub_(0.1 * p.grad)
                part.zero_grad(set_to_none)
    # One graph makes gradients and one adds to them; another adds to the gradients of the first calls.
    assert step.graph_count <= 3


# What a graph would get wrong


def test_options_of_optimisers_that_change(fake):
    model = network()
    optimiser = Descent(model.parameters(), lr=0.1)
    step = flashcliff.capture(trainer(model, optimiser), warmup=1, modules=model)
    step(*batch(0)), step(*batch(1))
    optimiser.param_groups[0]["lr"] = 0.05
    with pytest.raises(CaptureError, match=r"Descent: `lr` of group 0 was changed from 0.1 to 0.05.*lr=torch"):
        step(*batch(2))
    optimiser.param_groups[0]["lr"] = 0.1
    step(*batch(2))
    step.reset()
    optimiser.param_groups[0]["lr"] = 0.05
    step(*batch(3)), step(*batch(4))
    assert step.graph_count == 1


def test_learning_rates_that_are_tensors_follow_a_schedule(fake):
    losses = []
    for wrap in (lambda step, **_: step, flashcliff.capture):
        model = network()
        optimiser = Descent(model.parameters(), lr=torch.tensor(0.1))
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
        step = wrap(trainer(model, optimiser), modules=model)
        losses.append([])
        for i in range(8):
            losses[-1].append(step(*batch(i))["loss"].item())
            schedule.step()
    assert losses[0] == losses[1] and step.graph_count == 1


def test_schedulers_within_a_step_are_refused(fake):
    for lr in (0.1, torch.tensor(0.1)):
        model = network()
        optimiser = Descent(model.parameters(), lr=lr)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
        inner = trainer(model, optimiser)

        def both(x, y, inner=inner, schedule=schedule):
            loss = inner(x, y)
            schedule.step()
            return loss

        step = flashcliff.capture(both, warmup=1, modules=model)
        step(*batch(0))
        with pytest.raises(CaptureError, match="call schedulers outside of"):
            step(*batch(1))


def test_states_that_were_replaced_are_recorded_again(fake):
    model, twin = network(), network()
    optimiser, other = Descent(model.parameters()), Descent(twin.parameters())
    step = flashcliff.capture(trainer(model, optimiser), warmup=1, modules=model, max_graphs=1)
    plain = trainer(twin, other)
    for i in range(10):
        step(*batch(i)), plain(*batch(i))
        assert same(state(model, optimiser), state(twin, other)), i
        if i == 3:
            for part in (optimiser, other):
                part.load_state_dict(part.state_dict())
        if i == 6:
            for part in (model, twin):
                for p in part.parameters():
                    p.data = p.data.clone()
    assert step.graph_count == 1 and fake[0].records == 3 and step.reason is None


def test_an_optimiser_that_no_warm_up_called(fake):
    model = network()
    optimiser = Descent(model.parameters())
    inner, turn = trainer(model, optimiser), []

    def step(x, y):
        turn.append(0)
        return inner(x, y) if len(turn) > 1 else model(x)

    step = flashcliff.capture(step, warmup=1)
    step(*batch(0))
    with pytest.raises(CaptureError, match="did not call while it warmed up"):
        step(*batch(1))


def test_inputs_that_a_graph_cannot_take(fake):
    step = flashcliff.capture(lambda x: 2 * x, warmup=1)
    step(torch.ones(3)), step(torch.ones(3))
    with pytest.raises(CaptureError, match=r"tensor 0 of the call requires a gradient"):
        step(torch.ones(3, requires_grad=True))
    with pytest.raises(CaptureError, match="layout torch.sparse_coo"):
        step(torch.eye(3).to_sparse())


# Optimisers


def parameters():
    return [torch.nn.Parameter(torch.ones(3))]


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adamax", "Adadelta"])
def test_optimisers_must_be_capturable(kind):
    make = getattr(torch.optim, kind)
    with pytest.raises(CaptureError, match=f"{kind} counts its steps.*`capturable=True`, as in"):
        training.check(make(parameters()), "cpu")
    training.check(make(parameters(), capturable=True), "cuda")


def test_optimisers_without_that_option():
    training.check(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9), "cuda")
    with pytest.raises(CaptureError, match="Adagrad counts its steps on cpu.*the option `capturable`"):
        training.check(torch.optim.Adagrad(parameters()), "cuda")


def test_options_of_optimisers_must_be_on_the_gpu():
    optimiser = torch.optim.AdamW(parameters(), lr=torch.tensor(0.1), capturable=True)
    with pytest.raises(CaptureError, match="AdamW: the tensor `lr` must be on cuda.*got cpu"):
        training.check(optimiser, "cuda")


def test_optimisers_are_refused_before_they_change_anything(fake):
    model = network()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    step = flashcliff.capture(trainer(model, optimiser), warmup=1)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(CaptureError, match="capturable=True"):
        step(*batch(0))
    assert same(before, [p.detach() for p in model.parameters()])
    # Optimisers outside of captured steps are nobody's business.
    trainer(model, optimiser)(*batch(0))


def test_autocast_with_its_cache_around_a_step(fake, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: True)
    step = flashcliff.capture(lambda x: x + 1, warmup=1)
    with pytest.raises(CaptureError, match="cache_enabled=False"):
        step(torch.ones(3))
