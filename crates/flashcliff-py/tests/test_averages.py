"""Averages of parameters that optimisers keep."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from optim_common import DTYPES, KIND, SHAPES, Pair, bits, close, groups
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from flashcliff import optim


def made(kind, parameters, **options):
    """An optimiser of three groups, of which the first two share options."""
    return kind(groups(parameters, kind), lr=1e-2, **options)


def averages_alike(kind, dtype, device, decay=0.8):
    """The averages of all parameters, with and without a gradient, are PyTorch's averages after each step."""
    pair = Pair(dtype, device)
    ours = made(kind, pair.ours, average_decay=decay)
    theirs = AveragedModel(torch.nn.ParameterList(pair.ours), multi_avg_fn=get_ema_multi_avg_fn(0.8))
    for step in range(8):
        # The last one has no gradient at all, and the one before none in the first steps.
        pair.draw(lambda at, step=step: at == 6 or (at == 5 and step < 3) or (step + at) % 4 == 0)
        ours.step()
        theirs.update_parameters(torch.nn.ParameterList(pair.ours))
        for p, want in zip(pair.ours, theirs.module):
            # A parameter without a gradient so far is its own average.
            close(ours.state[p]["average"] if p in ours.state else p.detach(), want)
    assert pair.ours[5] in ours.state and pair.ours[6] not in ours.state


@KIND
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_averages_are_those_of_pytorch(kind, dtype, device):
    averages_alike(kind, dtype, device)


@KIND
def test_other_decays_are_found(kind, device):
    with pytest.raises(AssertionError):
        averages_alike(kind, torch.float64, device, 0.2)


@KIND
def test_parameters_and_averages_are_exchanged(kind, device):
    """Parameters have the numbers of their averages within a block, in the same memory, and get their own back."""
    pair = Pair(torch.float32, device)
    ours = made(kind, pair.ours, average_decay=0.5)
    for _ in range(3):
        pair.draw(lambda at: at == 6)
        ours.step()
    own, before = [p.detach().clone() for p in pair.ours], bits(pair.ours, ours)
    averages = [ours.state[p]["average"].clone() if p in ours.state else p.detach().clone() for p in pair.ours]
    places = [p.data_ptr() for p in pair.ours]
    with ours.averaged_parameters():
        assert all(map(torch.equal, pair.ours, averages))
        assert not all(map(torch.equal, pair.ours, own))
        assert [p.data_ptr() for p in pair.ours] == places
    assert all(map(torch.equal, bits(pair.ours, ours), before))
    try:
        with ours.averaged_parameters():
            raise KeyError
    except KeyError:
        pass
    assert all(map(torch.equal, bits(pair.ours, ours), before))


@KIND
def test_averages_that_begin_later(kind, device):
    """In a run without averages that goes on with them, and of some groups alone."""
    pair = Pair(torch.float64, device)
    plain = made(kind, pair.ours)
    pair.draw()
    plain.step()
    ours = made(kind, pair.ours)
    ours.load_state_dict(copy.deepcopy(plain.state_dict()))
    ours.param_groups[1]["average_decay"] = 0.75
    wanted = None
    for step in range(4):
        pair.draw(lambda at: at == 2)
        ours.step()
        now = [p.detach().clone() for p in pair.ours[2:4]]
        wanted = now if wanted is None else [0.75 * w + 0.25 * p for w, p in zip(wanted, now)]
        for p, want in zip(pair.ours[2:4], wanted):
            close(ours.state[p]["average"], want)
        assert all("average" not in ours.state[p] for p in pair.ours[:2] + pair.ours[4:]), step
    # A group that comes later begins with its parameters of before.
    ours.param_groups[0]["average_decay"] = 0.5
    before = [p.detach().clone() for p in pair.ours[:2]]
    pair.draw()
    ours.step()
    for p, of_before in zip(pair.ours[:2], before):
        close(ours.state[p]["average"], 0.5 * of_before + 0.5 * p.detach())
    wanted = [0.75 * w + 0.25 * p.detach() for w, p in zip(wanted, pair.ours[2:4])]
    # Without a decay they stay, and are not exchanged.
    ours.param_groups[1]["average_decay"] = None
    pair.draw()
    ours.step()
    for p, want in zip(pair.ours[2:4], wanted):
        close(ours.state[p]["average"], want)
    own = [p.detach().clone() for p in pair.ours]
    with ours.averaged_parameters():
        stays = [torch.equal(p, q) for p, q in zip(pair.ours, own)]
    assert stays[:2] == [False, False] and all(stays[2:])


@KIND
def test_averages_change_no_step(kind, device):
    """Parameters have the same bits with averages and without."""
    runs = []
    for decay in (None, 0.9):
        pair = Pair(torch.float32, device, SHAPES)
        ours = made(kind, pair.ours, max_norm=1.0, average_decay=decay)
        for step in range(4):
            pair.draw(lambda at, step=step: at == step)
            ours.step()
        runs.append([p.detach() for p in pair.ours])
    assert all(map(torch.equal, *runs))


@KIND
def test_by_hand(kind):
    """The first average is the parameter after its first step, not the one before."""
    x = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    ours = kind([x], lr=0.5, weight_decay=0.0, average_decay=0.75)
    seen = []
    for _ in range(3):
        x.grad = torch.ones_like(x)
        ours.step()
        seen.append(x.item())
    assert ours.state[x]["average"].item() == pytest.approx(
        0.75 * (0.75 * seen[0] + 0.25 * seen[1]) + 0.25 * seen[2], abs=1e-15
    )


@KIND
@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_the_ends_of_the_range(kind, decay):
    x = torch.nn.Parameter(torch.ones(3))
    ours = kind([x], lr=0.1, average_decay=decay)
    seen = []
    for _ in range(3):
        x.grad = torch.ones_like(x)
        ours.step()
        seen.append(x.detach().clone())
    want = seen[-1] if decay == 0 else seen[0]
    assert torch.allclose(ours.state[x]["average"], want, rtol=1e-6)


@KIND
def test_states_with_averages(kind):
    """States are loaded and copied, and averages get their own memory."""
    pair = Pair(torch.float32, "cpu")
    ours = made(kind, pair.ours, average_decay=0.9)
    pair.draw()
    ours.step()
    again = made(kind, pair.theirs)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    for p, q in zip(pair.ours, pair.theirs):
        q.data.copy_(p.data)
    pair.draw()
    ours.step()
    again.step()
    assert all(map(torch.equal, bits(pair.ours, ours), bits(pair.theirs, again)))
    shared = again.state[pair.theirs[0]]
    shared["average"] = shared["exp_avg"]
    pair.draw()
    again.step()
    assert shared["average"].data_ptr() != shared["exp_avg"].data_ptr()
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        with twin.averaged_parameters():
            pass


def test_states_are_read_by_pytorch():
    """AdamW of PyTorch goes on from a state with averages, and ours from one without."""
    pair = Pair(torch.float64, "cpu")
    ours = made(optim.AdamW, pair.ours, average_decay=0.9)
    theirs = made(torch.optim.AdamW, pair.theirs)
    pair.draw()
    ours.step()
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    for p, q in zip(pair.ours, pair.theirs):
        q.data.copy_(p.data)
    for _ in range(2):
        pair.draw()
        ours.step()
        theirs.step()
    for p, q in zip(pair.ours, pair.theirs):
        assert torch.allclose(p, q, rtol=1e-12, atol=1e-15)


@KIND
def test_what_a_block_refuses(kind):
    x = torch.nn.Parameter(torch.ones(3))
    x.grad = torch.ones_like(x)
    for ours in (kind([x]), kind([x], average_decay=0.9)):
        with pytest.raises(RuntimeError, match="no parameter has an average; give `average_decay`"):
            with ours.averaged_parameters():
                pass
    ours.step()
    state = ours.state_dict()
    before = x.detach().clone()
    with ours.averaged_parameters():
        for call in (
            ours.step,
            ours.state_dict,
            ours.averaged_parameters().__enter__,
            lambda: ours.load_state_dict(state),
            lambda: copy.deepcopy(ours),
        ):
            with pytest.raises(RuntimeError, match="within `averaged_parameters\\(\\)`; end that block"):
                call()
    assert torch.equal(x, before)
    ours.step()
