"""AdamW beside PyTorch's, and what it refuses."""

from __future__ import annotations

import copy
import io
import pickle

import optim_common as common
import pytest
import torch

import flashcliff
from flashcliff import optim

DTYPES = [torch.float64, torch.float32]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_training_is_that_of_pytorch(dtype, device):
    common.trains_alike(dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_clipping_is_that_of_pytorch(dtype, device):
    common.clips_alike(dtype, device)


def test_clipping_of_what_is_no_number(device):
    common.clips_what_is_no_number(device)


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_schedules(dtype, tensor, device):
    common.schedules_alike(dtype, device, tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_states_are_exchanged(dtype, device):
    common.exchanges_states(dtype, device)


def test_changes_count(device):
    common.follows_changes(device)


def test_strides(device):
    common.takes_strides(device)


def test_determinism(device):
    common.repeats(device)


def test_autograd_sees_the_change(device):
    common.is_caught_by_autograd(device)


def test_the_comparison_finds_other_optimisers():
    """Without the decay, or with a step too many, results are further away than the limit."""
    for wrong in ({"weight_decay": 0.0}, {"betas": (0.9, 0.9990001)}, {"eps": 1.1e-8}):
        pair = common.Pair(torch.float64, "cpu")
        ours, theirs = optim.AdamW(pair.ours, **wrong), torch.optim.AdamW(pair.theirs)
        with pytest.raises(AssertionError):
            for _ in range(3):
                pair.draw()
                ours.step()
                theirs.step()
                pair.compare(ours, theirs)
    pair = common.Pair(torch.float64, "cpu")
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


def test_saved_and_copied():
    pair = common.Pair(torch.float32, "cpu")
    ours = optim.AdamW(common.groups(pair.ours), max_norm=1.0)
    pair.draw()
    ours.step()
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    again = optim.AdamW(common.groups(pair.theirs), max_norm=1.0)
    again.load_state_dict(torch.load(file, weights_only=True))
    for p, q in zip(pair.ours, pair.theirs):
        q.data.copy_(p.data)
        q.grad = None if p.grad is None else p.grad.clone()
    ours.step()
    again.step()
    assert all(torch.equal(p, q) for p, q in zip(pair.ours, pair.theirs))
    for twin in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert twin.param_groups[0]["max_norm"] == 1.0
        twin.step()


def test_a_closure_and_hooks():
    x = torch.nn.Parameter(torch.ones(2))
    ours = optim.AdamW([x], lr=0.1)
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


def test_gradient_scaler():
    x = torch.nn.Parameter(torch.ones(2))
    ours, scaler = optim.AdamW([x], lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(x.square().sum()).backward()
    scaler.step(ours)
    scaler.update()
    assert ours.state[x]["exp_avg"].tolist() == pytest.approx([0.2, 0.2])
    x.grad = torch.full((2,), torch.inf)
    before = x.detach().clone()
    scaler.scale(x.sum() * torch.inf).backward()
    scaler.step(ours)
    assert torch.equal(x, before)


def test_within_a_compiled_function():
    x, y = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    ours, plain = optim.AdamW([x], lr=0.1), optim.AdamW([y], lr=0.1)

    @torch.compile(backend="eager")
    def step():
        ours.step()

    for _ in range(3):
        x.grad, y.grad = torch.ones(3), torch.ones(3)
        step()
        plain.step()
    assert torch.equal(x, y)


def test_without_parameters_that_have_gradients():
    x = torch.nn.Parameter(torch.ones(2))
    ours = optim.AdamW([x], max_norm=1.0)
    ours.step()
    assert not ours.state and x.tolist() == [1, 1]


# What is refused


def wide():
    return torch.nn.Parameter(torch.zeros(2, 3).t())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr: expected at least 0, got -1.0"),
        ({"lr": float("nan")}, "lr: expected at least 0"),
        ({"lr": torch.ones(2)}, "lr: expected a number, or a tensor of one element"),
        ({"lr": torch.ones((), dtype=torch.bfloat16)}, "got torch.bfloat16"),
        ({"betas": (0.9, 1.0)}, "betas: expected two numbers, at least 0 and below 1"),
        ({"betas": (0.9,)}, "betas: expected two numbers"),
        ({"eps": -1e-8}, "eps: expected at least 0"),
        ({"weight_decay": -0.1}, "weight_decay: expected at least 0"),
        ({"max_norm": 0.0}, "max_norm: expected a number above 0 or None, got 0.0"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        optim.AdamW([wide()], **options)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (torch.bfloat16, "keep them in float32.*torch.autocast"),
        (torch.float16, "keep them in float32"),
        (torch.complex64, "must be float32 or float64, got torch.complex64"),
    ],
)
def test_types_without_kernels(dtype, message):
    with pytest.raises(TypeError, match=message):
        optim.AdamW([torch.nn.Parameter(torch.zeros(2, dtype=dtype))])


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
