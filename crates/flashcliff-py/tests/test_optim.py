"""AdamW and Lion beside PyTorch's and the publication's, and what they refuse."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from optim_common import DTYPES, KIND, LIMIT, THEIRS, Pair, bits, groups
from releases import is_before
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

import flashcliff
from flashcliff import optim

DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@KIND
@DTYPE
def test_training_is_that_of_others(kind, dtype, device):
    """Several groups, and parameters without a gradient in some steps, one of them in the first ones."""
    pair = Pair(dtype, device)
    ours, theirs = pair.made(kind)
    before = [p.detach().clone() for p in pair.ours]
    for step in range(12):
        pair.step(ours, theirs, lambda at, step=step: (step + at) % 5 == 0 or (at == 5 and step < 4))
    changed = torch.cat([(p != b).flatten() for p, b in zip(pair.ours, before)])
    if kind is optim.AdamW:
        assert changed.all() and len({int(ours.state[p]["step"]) for p in pair.ours}) > 1
    else:
        # Steps of one size can cancel out.
        assert changed.float().mean() > 0.5


@KIND
@DTYPE
def test_clipping_is_that_of_pytorch(kind, dtype, device):
    """Norms above the bound and below it; gradients stay as they are."""
    pair = Pair(dtype, device)
    ours, theirs = pair.made(kind, max_norm=2.0)
    assert ours.grad_norm is None
    norms = []
    for step in range(6):
        pair.draw(lambda at, step=step: at == step, scale=(1.0, 0.01)[step % 2])
        kept = [None if p.grad is None else p.grad.clone() for p in pair.ours]
        norms.append(float(pair.update(ours, theirs, 2.0)))
        assert abs(float(ours.grad_norm) - norms[-1]) <= LIMIT[dtype] * norms[-1]
        assert all(k is None or torch.equal(k, p.grad) for k, p in zip(kept, pair.ours))
    assert min(norms) < 2 < max(norms)


@KIND
def test_clipping_of_what_is_no_number(kind, device):
    """A norm that is not a number reaches the parameters, as with PyTorch's function."""
    pair = Pair(torch.float64, device, [(3,), (2,)])
    ours, theirs = kind(pair.ours, max_norm=1.0), THEIRS[kind](pair.theirs)
    pair.draw()
    for some in (pair.ours, pair.theirs):
        some[0].grad[1] = torch.nan
    torch.nn.utils.clip_grad_norm_(pair.theirs, 1.0)
    ours.step()
    theirs.step()
    for p, q in zip(pair.ours, pair.theirs):
        assert p.isnan().all()
        # In PyTorch the sign of what is not a number is 0.
        assert q.isnan().all() or kind is optim.Lion


def _schedule(optimiser, is_plain):
    """A schedule, of two parts unless it is plain."""
    if is_plain:
        return CosineAnnealingLR(optimiser, 10)
    parts = [LinearLR(optimiser, 0.1, 1.0, 3), CosineAnnealingLR(optimiser, 10)]
    return SequentialLR(optimiser, parts, [3])


@KIND
@pytest.mark.parametrize("tensor", [False, True])
@DTYPE
def test_schedules(kind, dtype, tensor, device):
    """Schedulers write to the learning rate, a number or a tensor."""

    def rate(device):
        return torch.tensor(1e-2, dtype=dtype, device=device) if tensor else 1e-2

    pair = Pair(dtype, device)
    ours = kind(pair.ours, lr=rate(device))
    # On a GPU PyTorch would compute with such a tensor in float32.
    theirs = THEIRS[kind](pair.theirs, lr=rate("cpu"))
    # Before PyTorch 2.10 a second part falls from the last rate of the first, if that is a tensor.
    schedules = [_schedule(o, is_plain=tensor and is_before("2.10")) for o in (ours, theirs)]
    seen = set()
    for _ in range(10):
        pair.step(ours, theirs)
        for schedule in schedules:
            schedule.step()
        seen.add(float(ours.param_groups[0]["lr"]))
    assert len(seen) == 10


@DTYPE
def test_states_are_exchanged(dtype, device):
    """In the middle of training each optimiser goes on with the state of the other."""
    pair = Pair(dtype, device)
    ours, theirs = pair.made(optim.AdamW)

    def train(steps):
        for step in range(steps):
            pair.step(ours, theirs, lambda at, step=step: at == 1 + step)

    train(4)
    of_ours, of_theirs = (copy.deepcopy(o.state_dict()) for o in (ours, theirs))
    own = of_ours["param_groups"][0].keys() - of_theirs["param_groups"][0].keys()
    # Before PyTorch 2.8 its states do not say it.
    older = {"decoupled_weight_decay"} if is_before("2.8") else set()
    assert own == {"max_norm", "average_decay"} | older
    assert of_theirs["param_groups"][0].keys() <= of_ours["param_groups"][0].keys()
    ours = optim.AdamW(groups(pair.ours), lr=5.0, max_norm=1e9)
    theirs = torch.optim.AdamW(groups(pair.theirs), lr=5.0)
    ours.load_state_dict(of_theirs)
    theirs.load_state_dict(of_ours)
    for group in theirs.param_groups:
        # PyTorch computes powers in float32 if steps can be captured.
        assert group["capturable"] == (device != "cpu")
        group["capturable"] = False
    assert ours.param_groups[0]["lr"] == theirs.param_groups[0]["lr"] == 1e-2
    assert ours.param_groups[0]["max_norm"] == 1e9
    train(4)
    # An optimiser that is at work takes another state.
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    train(3)
    twin = copy.deepcopy(ours)
    assert [len(s) for s in twin.state.values()] == [3] * len(ours.state)


@KIND
@DTYPE
def test_a_state_that_is_loaded(kind, dtype, device):
    """An optimiser with a loaded state gives the bits of the one that it is of."""
    pair = Pair(dtype, device)
    ours = kind(groups(pair.ours, kind), lr=1e-2, average_decay=0.9)
    for step in range(3):
        pair.draw(lambda at, step=step: at == step)
        ours.step()
    again = kind(groups(pair.theirs, kind), lr=5.0)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert [g["lr"] for g in again.param_groups] == [g["lr"] for g in ours.param_groups]
    for p, q in zip(pair.ours, pair.theirs):
        q.data.copy_(p.data)
    for _ in range(3):
        pair.draw()
        ours.step()
        again.step()
        assert all(map(torch.equal, bits(pair.ours, ours), bits(pair.theirs, again)))


@KIND
def test_changes_count(kind, device):
    """States that are replaced, parameters that move or are added, and groups that change count at the next step."""
    pair = Pair(torch.float64, device)
    ours, theirs = pair.made(kind, lambda parameters: parameters[:4])

    def train(steps=2):
        for _ in range(steps):
            pair.step(ours, theirs)

    train()
    for optimiser, parameters in ((ours, pair.ours), (theirs, pair.theirs)):
        optimiser.add_param_group({"params": parameters[4:], "weight_decay": 0.5})
    train()
    for parameters in (pair.ours, pair.theirs):
        parameters[0].data = parameters[0].data.clone() + 1
    train()
    for optimiser, parameters in ((ours, pair.ours), (theirs, pair.theirs)):
        optimiser.state[parameters[1]]["exp_avg"] = torch.ones_like(parameters[1])
    train()
    for optimiser, parameters in ((ours, pair.ours), (theirs, pair.theirs)):
        own = optimiser.state[parameters[0]]
        optimiser.state[parameters[0]] = {name: value.clone() for name, value in own.items()}
        optimiser.state[parameters[0]]["exp_avg"] += 1
    train()
    for optimiser in (ours, theirs):
        optimiser.param_groups[0]["betas"] = (0.5, 0.6)
        optimiser.param_groups[1]["lr"] = 0.1
    train()
    for optimiser in (ours, theirs):
        optimiser.state.clear()
    train()


@KIND
def test_strides(kind, device):
    """Parameters, moments and gradients that lie in another order."""
    pair = Pair(torch.float64, device, [(4, 6), (3, 5, 2)])
    for parameters in (pair.ours, pair.theirs):
        parameters[0].data = parameters[0].data.t().contiguous().t()
    ours, theirs = pair.made(kind, list)
    for step in range(4):
        pair.draw()
        if step % 2:
            for parameter in pair.ours:
                turned = parameter.grad.transpose(0, 1).contiguous().transpose(0, 1)
                parameter.grad = turned
        ours.step()
        theirs.step()
        pair.compare(ours, theirs)
    loaded = copy.deepcopy(ours.state_dict())
    for state in loaded["state"].values():
        state["exp_avg"] = state["exp_avg"].contiguous()
    ours.load_state_dict(loaded)
    pair.step(ours, theirs)


@KIND
def test_determinism(kind, device):
    """Two runs give the same bits."""
    runs = []
    for _ in range(2):
        pair = Pair(torch.float32, device)
        ours = kind(groups(pair.ours, kind), max_norm=0.5, average_decay=0.9)
        for _ in range(5):
            pair.draw()
            ours.step()
        runs.append(bits(pair.ours, ours))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@KIND
def test_autograd_sees_the_change(kind, device):
    """A backward pass through a value of before the step is an error, as with PyTorch's optimisers."""
    x = torch.nn.Parameter(torch.ones(3, device=device))
    ours = kind([x])
    loss = (x * x).sum()
    x.grad = torch.ones_like(x)
    ours.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_comparison_finds_other_optimisers():
    """Without the decay, or with a step too many, results are further away than the limit."""
    for wrong in ({"weight_decay": 0.0}, {"betas": (0.9, 0.9990001)}, {"eps": 1.1e-8}):
        pair = Pair(torch.float64, "cpu")
        ours, theirs = optim.AdamW(pair.ours, **wrong), torch.optim.AdamW(pair.theirs)
        with pytest.raises(AssertionError):
            for _ in range(3):
                pair.step(ours, theirs)
    pair = Pair(torch.float64, "cpu")
    ours, theirs = optim.AdamW(pair.ours), torch.optim.AdamW(pair.theirs)
    pair.draw()
    ours.step()
    with pytest.raises(AssertionError):
        pair.compare(ours, theirs)


def test_defaults_are_those_of_pytorch():
    x = torch.nn.Parameter(torch.zeros(2))
    ours, theirs = optim.AdamW([x]).param_groups[0], torch.optim.AdamW([x]).param_groups[0]
    for name in ("lr", "betas", "eps", "weight_decay", "maximize"):
        assert ours[name] == theirs[name]
    assert ours["max_norm"] is None


@KIND
def test_saved_and_copied(kind):
    pair = Pair(torch.float32, "cpu")
    ours = kind(groups(pair.ours, kind), max_norm=1.0, average_decay=0.9)
    pair.draw()
    ours.step()
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    again = kind(groups(pair.theirs, kind), max_norm=1.0)
    again.load_state_dict(torch.load(file, weights_only=True))
    for p, q in zip(pair.ours, pair.theirs):
        q.data.copy_(p.data)
        q.grad = None if p.grad is None else p.grad.clone()
    ours.step()
    again.step()
    assert all(torch.equal(p, q) for p, q in zip(pair.ours, pair.theirs))
    for twin in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert twin.param_groups[0]["max_norm"] == 1.0 and twin.param_groups[0]["average_decay"] == 0.9
        twin.step()


@KIND
def test_a_closure_and_hooks(kind):
    x = torch.nn.Parameter(torch.ones(2))
    ours = kind([x], lr=0.1)
    seen = []
    ours.register_step_pre_hook(lambda *_: seen.append("before"))
    ours.register_step_post_hook(lambda *_: seen.append("after"))

    def closure():
        ours.zero_grad()
        loss = x.square().sum()
        loss.backward()
        return loss

    assert ours.step(closure).item() == 2.0
    assert seen == ["before", "after"] and (x < 1).all()
    ours.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0, 0]
    assert ours.step() is None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        ours.zero_grad()
    assert x.grad is None
    assert any("zero_grad" in event.key for event in found.key_averages())


@KIND
def test_gradient_scaler(kind, device):
    x = torch.nn.Parameter(torch.ones(2, device=device))
    ours, scaler = kind([x], lr=0.1), torch.amp.GradScaler(device, init_scale=4.0)
    scaler.scale(x.square().sum()).backward()
    scaler.step(ours)
    scaler.update()
    mean = {optim.AdamW: 0.2, optim.Lion: 0.02}[kind]
    assert ours.state[x]["exp_avg"].tolist() == pytest.approx([mean, mean])
    before = x.detach().clone()
    scaler.scale(x.sum() * torch.inf).backward()
    scaler.step(ours)
    assert torch.equal(x, before)


@KIND
def test_within_a_compiled_function(kind):
    x, y = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    ours, plain = kind([x], lr=0.1), kind([y], lr=0.1)

    @torch.compile(backend="eager")
    def step():
        ours.step()

    for _ in range(3):
        x.grad, y.grad = torch.ones(3), torch.ones(3)
        step()
        plain.step()
    assert torch.equal(x, y)


@KIND
def test_without_parameters_that_have_gradients(kind):
    x = torch.nn.Parameter(torch.ones(2))
    ours = kind([x], max_norm=1.0)
    ours.step()
    assert not ours.state and x.tolist() == [1, 1]


# What is refused


def wide():
    return torch.nn.Parameter(torch.zeros(2, 3).t())


@KIND
@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (torch.bfloat16, "keep them in float32.*torch.autocast"),
        (torch.float16, "keep them in float32"),
        (torch.complex64, "must be float32 or float64, got torch.complex64"),
    ],
)
def test_types_without_kernels(kind, dtype, message):
    with pytest.raises(TypeError, match=f"{kind.__name__}: parameters.*{message}"):
        kind([torch.nn.Parameter(torch.zeros(2, dtype=dtype))])


def test_a_parameter_that_becomes_one_of_16_bits():
    net = torch.nn.Linear(2, 2)
    ours = optim.AdamW(net.parameters())
    net.half()
    net.weight.grad = torch.ones_like(net.weight)
    with pytest.raises(TypeError, match="got torch.float16"):
        ours.step()


def test_a_group_that_is_refused_is_not_added():
    ours = optim.AdamW([wide()])
    with pytest.raises(TypeError):
        ours.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2).half())]})
    assert len(ours.param_groups) == 1


def test_tensors_of_other_classes():
    class Shard(torch.Tensor):
        pass

    x = torch.nn.Parameter(torch.zeros(2).as_subclass(Shard))
    with pytest.raises(TypeError, match="plain tensors, got .*torch.optim.AdamW"):
        optim.AdamW([x])


def test_sparse_gradients():
    table = torch.nn.Embedding(4, 2, sparse=True)
    ours = optim.AdamW(table.parameters())
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="gradients must be dense.*sparse=False"):
        ours.step()


def test_elements_apart():
    x = torch.zeros(4, 4)[:, :2].requires_grad_()
    ours = optim.AdamW([x])
    x.grad = torch.ones(4, 2)
    with pytest.raises(ValueError, match=r"side by side.*\[4, 2\].*strides \[4, 1\].*contiguous"):
        ours.step()


def test_bounds_that_differ():
    x, y = wide(), wide()
    ours = optim.AdamW([{"params": [x], "max_norm": 1.0}, {"params": [y]}])
    x.grad = torch.ones_like(x)
    with pytest.raises(ValueError, match="max_norm: expected one number for all groups"):
        ours.step()


@pytest.mark.parametrize("option", ["amsgrad", "differentiable"])
def test_states_of_what_there_is_not(option):
    x = wide()
    theirs = torch.optim.AdamW([x], **{option: True})
    ours = optim.AdamW([x], lr=0.5)
    with pytest.raises(ValueError, match=f"`{option}=True`.*torch.optim.AdamW"):
        ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"] == 0.5


def test_other_devices():
    x = torch.nn.Parameter(torch.zeros(2, device="meta"))
    ours = optim.AdamW([x])
    x.grad = torch.zeros(2, device="meta")
    with pytest.raises(flashcliff.UnsupportedError, match="on the CPU or on CUDA, got meta"):
        ours.step()
