"""Muon for stacks of matrices beside PyTorch's for each matrix, and the split of the parameters of networks."""

from __future__ import annotations

import copy

import pytest
import torch
from releases import needs_muon

import flashcliff
from flashcliff import nn, optim
from flashcliff.nn import transformer
from flashcliff.optim import _muon

AXES = [(2, 0, 1), (0, 2, 1), (1, 0, 2)]


def taken_apart(stack, axes):
    """The matrices [out, in] of a stack, by loops over its elements."""
    count, rows, columns = (stack.shape[axis] for axis in axes)
    made = torch.empty(count, rows, columns, dtype=stack.dtype)
    for at in range(count):
        for row in range(rows):
            for column in range(columns):
                index = [0, 0, 0]
                for axis, place in zip(axes, (at, row, column)):
                    index[axis] = place
                made[at, row, column] = stack[tuple(index)]
    return made


@needs_muon
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_a_stack_is_its_matrices(axes, device):
    """Steps with decay, with and without gradients. Results agree on the CPU bit for bit; a GPU may add products of matrices with another
    layout in another order."""
    limit = 0.0 if device == "cpu" else 2e-3
    options = {"lr": 0.05, "weight_decay": 0.2, "momentum": 0.9}
    stack = torch.nn.Parameter(torch.randn(4, 3, 5, device=device))
    matrix = torch.nn.Parameter(torch.randn(6, 2, device=device))
    apart = [torch.nn.Parameter(m.to(device)) for m in taken_apart(stack.detach().cpu(), axes)]
    other = torch.nn.Parameter(matrix.detach().clone())
    ours = optim.Muon([{"params": [matrix]}, {"params": [stack], "axes": axes}], **options)
    theirs = torch.optim.Muon([*apart, other], **options)
    for step in range(4):
        stack.grad = None if step == 2 else torch.randn_like(stack)
        matrix.grad = torch.randn_like(matrix)
        other.grad = matrix.grad.clone()
        for at, p in enumerate(apart):
            p.grad = None if step == 2 else taken_apart(stack.grad.cpu(), axes)[at].to(device)
        ours.step()
        theirs.step()
        for got, p in zip(taken_apart(stack.detach().cpu(), axes), apart, strict=True):
            assert (got - p.detach().cpu()).abs().max() <= limit
        assert torch.equal(matrix, other)
    assert ours.state[stack]["momentum_buffer"].shape == stack.shape


@needs_muon
def test_a_step_is_orthogonal_for_each_matrix():
    """The step of each map is near the orthogonal factor of its gradient, which that of all maps side by side is not."""
    stack = torch.nn.Parameter(torch.zeros(6, 8, 3))
    stack.grad = torch.randn_like(stack)
    ours = optim.Muon([{"params": [stack], "axes": (2, 0, 1)}], lr=1.0, weight_decay=0.0)
    ours.step()
    for step, gradient in zip(taken_apart(-stack.detach(), (2, 0, 1)), taken_apart(stack.grad, (2, 0, 1))):
        u, _, v = torch.linalg.svd(gradient.double(), full_matrices=False)
        assert (torch.linalg.svdvals(step.double()) - 1).abs().max() < 0.45
        along = (step.double() * (u @ v)).sum() / (step.double().norm() * (u @ v).norm())
        assert along > 0.95
    flat = -stack.detach().reshape(6, 24).double()
    assert (torch.linalg.svdvals(flat) - 1).abs().max() > 0.45


@needs_muon
def test_states():
    stack, twin = (torch.nn.Parameter(torch.ones(4, 3, 5)) for _ in range(2))
    group = {"axes": (2, 0, 1)}
    ours = optim.Muon([{"params": [stack], **group}], lr=0.1)
    stack.grad = torch.randn_like(stack)
    ours.step()
    again = optim.Muon([{"params": [twin], **group}], lr=5.0)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    twin.data.copy_(stack.data)
    stack.grad = torch.randn_like(stack)
    twin.grad = stack.grad
    ours.step()
    again.step()
    assert torch.equal(stack, twin)


@needs_muon
def test_what_is_refused():
    with pytest.raises(ValueError, match="Muon: expected at least one parameter or group, got none"):
        optim.Muon([])
    stack = torch.nn.Parameter(torch.ones(4, 3, 5))
    with pytest.raises(TypeError, match=r"in a list, got one tensor; write `\[parameter\]`"):
        optim.Muon(torch.nn.Parameter(torch.ones(2, 3)))
    with pytest.raises(ValueError, match=r"Muon: expected matrices, got .*\[4, 3, 5\]; give the option `axes`"):
        optim.Muon([stack])
    for axes in ((0, 1), (0, 0, 1), (1, 2, 3)):
        with pytest.raises(ValueError, match="three axes and their order in `axes`"):
            optim.Muon([{"params": [stack], "axes": axes}])
    with pytest.raises(ValueError, match=r"three axes.*got the shape \[2, 3\]"):
        optim.Muon([{"params": [torch.nn.Parameter(torch.ones(2, 3))], "axes": (0, 1, 2)}])
    ours = optim.Muon([{"params": [stack], "axes": (2, 0, 1)}])
    with pytest.raises(ValueError, match="Muon: expected matrices"):
        ours.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})
    assert len(ours.param_groups) == 1
    with pytest.raises(ValueError, match="lr: expected a finite number, at least 0, got -1.0"):
        optim.Muon([{"params": [stack], "axes": (2, 0, 1)}], lr=-1.0)


WRONG = [
    ("lr", "x", TypeError, "lr: expected a number, got 'x'"),
    ("lr", torch.ones(2), ValueError, r"lr: expected a number, or a tensor of one .*got \[2\] of torch.float32"),
    ("weight_decay", None, TypeError, "weight_decay: expected a number, got None"),
    ("momentum", float("nan"), ValueError, "momentum: expected a finite number, at least 0, got nan"),
    ("eps", -1, ValueError, "eps: expected a finite number, at least 0, got -1"),
    ("nesterov", 1, TypeError, "nesterov: expected True or False, got 1"),
    ("ns_steps", 2.5, TypeError, "ns_steps: expected an integer, got 2.5"),
    ("ns_steps", 100, ValueError, "ns_steps: expected 0 to 99, got 100"),
    ("ns_coefficients", (1.0, 2.0), TypeError, "ns_coefficients: expected a tuple of three numbers"),
    ("ns_coefficients", (1.0, 2.0, "3"), TypeError, "ns_coefficients: expected a number, got '3'"),
    ("adjust_lr_fn", 1, TypeError, "adjust_lr_fn: expected a string, got 1"),
    ("adjust_lr_fn", "x", ValueError, "Adjust learning rate function x is not supported"),
    ("axes", 5, TypeError, "axes: expected integers as an iterable, got 5"),
    ("axes", (2.0, 0.0, 1.0), TypeError, "axes: expected an integer, got 2.0"),
]


@needs_muon
@pytest.mark.parametrize(("name", "value", "error", "says"), WRONG)
def test_options_are_checked_where_they_are_given(name, value, error, says):
    """By the constructor, in a group that is added, which is not kept then, and, where a step reads them, after they were set."""
    stack, matrix = torch.nn.Parameter(torch.ones(4, 3, 5)), torch.nn.Parameter(torch.ones(2, 2))
    group = {"params": [stack], "axes": (2, 0, 1)}
    if name != "axes":
        with pytest.raises(error, match=says):
            optim.Muon([group], **{name: value})
    ours = optim.Muon([matrix])
    with pytest.raises(error, match=says):
        ours.add_param_group({**group, name: value})
    assert len(ours.param_groups) == 1
    if name != "axes":
        ours.param_groups[0][name] = value
        matrix.grad = torch.ones_like(matrix)
        with pytest.raises(error, match=says):
            ours.step()
        assert matrix.eq(1).all()


@needs_muon
def test_states_of_pytorch_load_and_others_are_refused():
    matrix, twin = (torch.nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    theirs, ours = torch.optim.Muon([matrix], lr=0.3), optim.Muon([twin])
    for step in range(3):
        matrix.grad, twin.grad = (torch.full((3, 4), 1.0 + step).tril() for _ in range(2))
        theirs.step()
        if step:
            ours.step()
            assert torch.equal(matrix, twin)
        else:
            twin.data.copy_(matrix)
            ours.load_state_dict(theirs.state_dict())
    before = copy.deepcopy(ours.state_dict())
    for other in (torch.optim.AdamW([matrix]), torch.optim.SGD([matrix], momentum=0.9)):
        with pytest.raises(ValueError, match="Muon: expected the state of a Muon, got one whose group 0 has no .*it is of another optimiser"):
            ours.load_state_dict(other.state_dict())
    wide = torch.nn.Parameter(torch.ones(3, 5))
    wide.grad = torch.ones_like(wide)
    of_wide = optim.Muon([wide])
    of_wide.step()
    with pytest.raises(ValueError, match=r"momenta of the shapes .*got \[3, 5\] for a parameter \[3, 4\]"):
        ours.load_state_dict(of_wide.state_dict())
    after = ours.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert torch.equal(after["state"][0]["momentum_buffer"], before["state"][0]["momentum_buffer"])
    assert copy.deepcopy(ours).param_groups[0]["axes"] is None


def test_pytorch_without_muon(monkeypatch):
    monkeypatch.setattr(_muon, "_Base", torch.optim.Optimizer)
    with pytest.raises(flashcliff.UnsupportedError, match="expected PyTorch 2.9 or later"):
        optim.Muon([torch.nn.Parameter(torch.ones(2, 2))])


def shapes_of(network, **options):
    """The shapes in each group by axes, and the names of the rest."""
    matrices, rest = optim.split_matrices(network, **options)
    found = {g["axes"]: sorted((n, tuple(p.shape)) for n, p in g["params"]) for g in matrices}
    every = [id(p) for g in matrices for _, p in g["params"]] + [id(p) for _, p in rest]
    assert sorted(every) == sorted(id(p) for p in network.parameters() if p.requires_grad)
    return found, {name for name, _ in rest}


def test_layers_that_are_split():
    r3 = flashcliff.Algebra(3, 0, 0)
    network = torch.nn.ModuleDict(
        {
            "plain": torch.nn.Linear(3, 2),
            "grades": nn.MVLinear(r3, 3, 2),
            "one": nn.MVLinear(r3, 3, 2, per_grade=False),
            "points": nn.PointEmbedding(r3, 3, 2),
            "product": nn.FullyConnectedSteerableGeometricProduct(r3, 3, 2),
            "paths": nn.FCGPNorm(r3, 3, 2),
            "channels": nn.FlashCliffordLayer(r3, 5),
            "full": nn.FlashCliffordLayer(r3, 5, fully_connected=True),
            "maps": transformer.EquiLinear(flashcliff.Algebra(3, 0, 1), 3, 2, 4, 6),
        }
    )
    network["plain"].bias.requires_grad_(False)
    count = r3.path_count
    found, rest = shapes_of(network)
    assert found == {
        None: [
            ("maps.mvs2s.weight", (6, 3)),
            ("maps.s2mvs.weight", (2, 4)),
            ("maps.s2s.weight", (6, 4)),
            ("one.weight", (2, 3)),
            ("plain.weight", (2, 3)),
            ("points.weight", (2, 3)),
        ],
        (2, 0, 1): [
            ("grades.weight", (2, 3, 4)),
            ("maps.weight", (2, 3, 9)),
            ("product.linear_left.weight", (2, 3, 4)),
            ("product.linear_right.weight", (3, 3, 4)),
            ("product.weight", (2, 3, count)),
        ],
        (0, 2, 1): [
            ("channels.linear_weight", (4, 5, 5)),
            ("full.gp_weight", (count, 5, 5)),
            ("full.linear_weight", (4, 5, 5)),
            ("paths.weight", (count, 3, 2)),
        ],
    }
    assert {"channels.gp_weight", "grades.bias", "maps.s2mvs.bias"} <= rest
    assert not any(name.endswith("linear_weight") for name in rest)


def test_modules_that_are_left_out_and_shared():
    first, hidden, last = (torch.nn.Linear(3, 3, bias=False) for _ in range(3))
    network = torch.nn.Sequential(first, hidden, hidden, last)
    found, rest = shapes_of(network, rest=[first, last])
    assert found == {None: [("1.weight", (3, 3))]} and rest == {"0.weight", "3.weight"}
    with pytest.raises(ValueError, match="rest: expected modules of the network, got Linear, which is not in Sequential"):
        optim.split_matrices(network, rest=[torch.nn.Linear(2, 2)])
    with pytest.raises(TypeError, match="rest: expected modules as an iterable, got Linear"):
        optim.split_matrices(network, rest=torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="network: expected a torch.nn.Module, got generator"):
        optim.split_matrices(network.parameters())


@pytest.mark.share(2)
@needs_muon
@pytest.mark.parametrize("other", [optim.AdamW, optim.Lion], ids=lambda kind: kind.__name__)
def test_a_transformer_trains(other, device):
    """To a quarter of its first loss, and repeatable bit for bit."""
    losses = []
    for _ in range(2):
        torch.manual_seed(1)
        algebra = flashcliff.Algebra(3, 0, 1)
        network = transformer.GATransformer(algebra, 2, 1, 8, 0, 1, 4, blocks=2, attention={"heads": 2}).to(device)
        matrices, rest = optim.split_matrices(network)
        optimisers = [optim.Muon(matrices, lr=0.02, weight_decay=0.0), other(rest, lr=3e-3)]
        x = torch.randn(algebra.blade_count, 4, 6, 2, device=device)
        target = x.square().sum((0, -1), keepdim=True)[0]
        own = []
        for _ in range(60):
            for optimiser in optimisers:
                optimiser.zero_grad()
            _, scalars = network(x)
            loss = (scalars - target / 16).square().mean()
            loss.backward()
            for optimiser in optimisers:
                optimiser.step()
            own.append(loss.item())
        losses.append(own)
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0] / 4
