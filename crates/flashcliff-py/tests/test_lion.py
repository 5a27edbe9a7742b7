"""Lion beside its formulas, and what it refuses."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from lion_common import WRONG, Beside, groups, trains_as_published
from optim_common import LIMIT, bits

from flashcliff import optim

DTYPES = [torch.float64, torch.float32]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_training_is_as_published(dtype, device):
    trains_as_published(dtype, device)


@pytest.mark.parametrize("formula", WRONG, ids=lambda formula: formula.__name__)
def test_other_formulas_are_found(formula, device):
    with pytest.raises(AssertionError):
        trains_as_published(torch.float32, device, formula)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_clipping(dtype, device):
    """Norms above the bound and below it."""
    beside = Beside(dtype, device)
    ours = optim.Lion(groups(beside.ours), lr=1e-2, max_norm=2.0)
    assert ours.grad_norm is None
    norms = []
    for step in range(6):
        scale = (1.0, 0.01)[step % 2]
        norms.append(beside.step(ours, lambda at, step=step: at == step, 2.0, scale))
        assert abs(float(ours.grad_norm) - norms[-1]) <= LIMIT[dtype] * norms[-1]
        beside.compare(ours)
    assert min(norms) < 2 < max(norms)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_schedules(dtype, device):
    """A scheduler writes to a learning rate that is a tensor."""
    beside = Beside(dtype, device)
    ours = optim.Lion(beside.ours, lr=torch.tensor(1e-2, dtype=torch.float64, device=device))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(ours, 8)
    seen = set()
    for _ in range(8):
        beside.step(ours)
        beside.compare(ours)
        seen.add(float(ours.param_groups[0]["lr"]))
        schedule.step()
    assert len(seen) == 8


def test_strides(device):
    """Parameters and gradients that lie in another order."""
    beside = Beside(torch.float64, device, shapes=[(4, 6), (3, 5, 2)])
    beside.ours[0].data = beside.ours[0].data.t().contiguous().t()
    ours = optim.Lion(beside.ours, lr=1e-2)
    for _ in range(4):
        beside.step(ours)
        beside.compare(ours)


def test_signs_of_special_numbers(device):
    """Nothing moves where the direction is 0; what is not a number, or too large for one, is not hidden."""
    inf, nan = torch.inf, torch.nan
    p = torch.nn.Parameter(torch.ones(5, dtype=torch.float64, device=device))
    ours = optim.Lion([p], lr=0.5)
    p.grad = torch.tensor([0.0, -0.0, nan, inf, -inf], dtype=torch.float64, device=device)
    ours.step()
    assert p[:2].tolist() == [1.0, 1.0] and p[2].isnan() and p[3:].tolist() == [0.5, 1.5]


def test_determinism(device):
    """Two runs give the same bits."""
    runs = []
    for _ in range(2):
        beside = Beside(torch.float32, device)
        ours = optim.Lion(groups(beside.ours), max_norm=0.5, average_decay=0.9)
        for _ in range(5):
            beside.step(ours)
        runs.append(bits(beside.ours, ours))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_state_that_is_loaded(dtype, device):
    """An optimiser with a loaded state gives the bits of the one that it is of."""
    beside = Beside(dtype, device)
    ours = optim.Lion(groups(beside.ours), lr=1e-2, average_decay=0.9)
    for step in range(3):
        beside.step(ours, lambda at, step=step: at == step)
    twins = [torch.nn.Parameter(p.detach().clone()) for p in beside.ours]
    again = optim.Lion(groups(twins), lr=5.0)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert [g["lr"] for g in again.param_groups] == [g["lr"] for g in ours.param_groups]
    for _ in range(3):
        beside.step(ours)
        for p, q in zip(beside.ours, twins):
            q.grad = p.grad
        again.step()
        assert all(map(torch.equal, bits(beside.ours, ours), bits(twins, again)))
        beside.compare(ours)


def test_steps_by_hand():
    """Numbers that were computed by hand: a step of the sign, a decay, a mean."""
    x = torch.nn.Parameter(torch.tensor([2.0, -1.0], dtype=torch.float64))
    ours = optim.Lion([x], lr=0.5, betas=(0.5, 0.75), weight_decay=0.25)
    x.grad = torch.tensor([4.0, -8.0], dtype=torch.float64)
    ours.step()
    assert x.tolist() == [2.0 - 0.5 * (1 + 0.5), -1.0 - 0.5 * (-1 - 0.25)]
    assert ours.state[x]["exp_avg"].tolist() == [1.0, -2.0]
    # The first direction is 0.5 * 1 - 0.5 * 0.5 > 0 by the mean, against the gradient.
    x.grad = torch.tensor([-0.5, -8.0], dtype=torch.float64)
    ours.step()
    assert x.tolist() == [1.25 - 0.5 * (1 + 0.25 * 1.25), -0.375 - 0.5 * (-1 - 0.25 * 0.375)]
    assert ours.state[x]["exp_avg"].tolist() == [0.75 * 1 - 0.25 * 0.5, -0.75 * 2 - 0.25 * 8]


def test_defaults_are_those_of_the_publication():
    group = optim.Lion([torch.nn.Parameter(torch.zeros(2))]).param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (1e-4, (0.9, 0.99), 0.0)
    assert group["max_norm"] is None and group["average_decay"] is None and not group["maximize"]


def parameter(**options):
    made = torch.nn.Parameter(torch.ones(2, **options))
    made.grad = torch.ones_like(made)
    return made


def test_saved_and_copied():
    x = parameter()
    ours = optim.Lion([("x", x)], max_norm=1.0, average_decay=0.9)
    ours.step()
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    y = parameter()
    with torch.no_grad():
        y.copy_(x)
    again = optim.Lion([("x", y)])
    again.load_state_dict(torch.load(file, weights_only=True))
    ours.step()
    again.step()
    assert torch.equal(x, y)
    for twin in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert twin.param_groups[0]["average_decay"] == 0.9
        twin.step()


def test_a_state_of_another_implementation():
    """Groups and states as lion-pytorch has them: no option of ours, no step count."""
    x = parameter()
    ours = optim.Lion([x])
    ours.load_state_dict(
        {
            "state": {0: {"exp_avg": torch.full((2,), -3.0)}},
            "param_groups": [
                {"lr": 0.5, "betas": (0.9, 0.99), "weight_decay": 0.0, "decoupled_weight_decay": False, "params": [0]}
            ],
        }
    )
    ours.step()
    assert x.tolist() == [1.5, 1.5] and "decoupled_weight_decay" not in ours.param_groups[0]
    assert ours.state[x]["exp_avg"].tolist() == pytest.approx([-2.96, -2.96])


def test_gradient_scaler():
    x = torch.nn.Parameter(torch.ones(2))
    ours, scaler = optim.Lion([x], lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(x.square().sum()).backward()
    scaler.step(ours)
    scaler.update()
    assert ours.state[x]["exp_avg"].tolist() == pytest.approx([0.02, 0.02])
    before = x.detach().clone()
    scaler.scale(x.sum() * torch.inf).backward()
    scaler.step(ours)
    assert torch.equal(x, before)


# What is refused


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"lr": -1.0}, ValueError, "lr: expected at least 0, got -1.0"),
        ({"lr": "1"}, TypeError, "lr: expected a number"),
        ({"betas": (0.9, 1.0)}, ValueError, "betas: expected two numbers, at least 0 and below 1"),
        ({"weight_decay": float("inf")}, ValueError, "weight_decay: expected a finite number"),
        ({"max_norm": 0.0}, ValueError, "max_norm: expected a number above 0 or None"),
        ({"maximize": 1}, TypeError, "maximize: expected True or False"),
        ({"average_decay": 1.5}, ValueError, "average_decay: expected a number from 0 to 1 or None"),
        ({"average_decay": "x"}, TypeError, "average_decay: expected a number, got 'x'"),
        ({"average_decay": True}, TypeError, "average_decay: expected a number, got True"),
    ],
)
def test_options_out_of_range(options, kind, message):
    with pytest.raises(kind, match=message):
        optim.Lion([parameter()], **options)
    ours = optim.Lion([parameter()])
    with pytest.raises(kind, match=message):
        ours.add_param_group({"params": [parameter()], **options})
    ours.step()
    ours.param_groups[0].update(options)
    with pytest.raises(kind, match=message):
        ours.step()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("amsgrad", True, "Lion: `amsgrad=True` asks for the maxima"),
        ("foreach", True, "Lion: `foreach=True` asks for another implementation"),
        ("fused", False, "Lion: `fused=False` asks for another implementation"),
        ("decoupled_weight_decay", True, "not scaled by the first learning rate"),
    ],
)
def test_options_that_no_step_heeds(name, value, message):
    with pytest.raises(ValueError, match=message):
        optim.Lion([{"params": [parameter()], name: value}])


def test_types_without_kernels():
    for dtype in (torch.bfloat16, torch.float16):
        with pytest.raises(TypeError, match="Lion: parameters must be float32 or float64.*torch.autocast"):
            optim.Lion([torch.nn.Parameter(torch.zeros(2, dtype=dtype))])


def test_states_of_other_optimisers():
    x = parameter()
    adamw, lion = optim.AdamW([x]), optim.Lion([x])
    for other in (adamw, torch.optim.AdamW([x])):
        with pytest.raises(ValueError, match="Lion: expected the state of a Lion, got .* `eps`"):
            lion.load_state_dict(other.state_dict())
    lion.step()
    with pytest.raises(ValueError, match="AdamW: expected the state of an AdamW, got .* no eps"):
        adamw.load_state_dict(lion.state_dict())
    adamw.step()
    lion.state[x] = dict(adamw.state[x])
    with pytest.raises(ValueError, match="Lion: the state of parameter 0 .*means of squares"):
        lion.step()
    lion.state[x] = {"momentum_buffer": torch.zeros(2)}
    with pytest.raises(ValueError, match="expected a state with exp_avg, got momentum_buffer"):
        lion.step()


def test_states_of_other_shapes():
    x = parameter()
    ours = optim.Lion([("x", x)], average_decay=0.9)
    ours.step()
    for key in ("exp_avg", "average"):
        kept, ours.state[x][key] = ours.state[x][key], torch.zeros(3)
        with pytest.raises(ValueError, match=rf"Lion: `{key}` of parameter 0 of group 0 \(`x`\) .*\[2\], got \[3\]"):
            ours.step()
        ours.state[x][key] = kept
    ours.step()


def test_memory_that_is_shared():
    base = torch.zeros(6)
    parameters = [torch.nn.Parameter(base[:4]), torch.nn.Parameter(base[2:])]
    for p in parameters:
        p.grad = torch.ones_like(p)
    with pytest.raises(ValueError, match="Lion: expected parameters with memory of their own"):
        optim.Lion(parameters).step()
