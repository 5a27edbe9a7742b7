"""Averages of parameters that optimisers keep."""

from __future__ import annotations

import copy
import pickle

import averages_common as common
import pytest
import torch
from optim_common import Pair, bits

from flashcliff import optim

KIND = pytest.mark.parametrize("kind", common.KINDS, ids=lambda kind: kind.__name__)
DTYPES = [torch.float64, torch.float32]


@KIND
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_averages_are_those_of_pytorch(kind, dtype, device):
    common.averages_alike(kind, dtype, device)


@KIND
def test_other_decays_are_found(kind, device):
    with pytest.raises(AssertionError):
        common.averages_alike(kind, torch.float64, device, 0.2)


@KIND
def test_parameters_and_averages_are_exchanged(kind, device):
    common.exchanges(kind, device)


@KIND
def test_averages_that_begin_later(kind, device):
    common.begins_later(kind, device)


@KIND
def test_averages_change_no_step(kind, device):
    common.changes_no_step(kind, device)


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
    """Loaded, copied, and in memory of their own."""
    pair = Pair(torch.float32, "cpu")
    ours = common.made(kind, pair.ours, average_decay=0.9)
    pair.draw()
    ours.step()
    again = common.made(kind, pair.theirs)
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
    ours = common.made(optim.AdamW, pair.ours, average_decay=0.9)
    theirs = common.made(torch.optim.AdamW, pair.theirs)
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


def test_wrong_decays():
    for wrong, kind in ((-0.1, ValueError), (1.1, ValueError), (float("nan"), ValueError), ("x", TypeError)):
        with pytest.raises(kind, match="average_decay: expected a number"):
            optim.AdamW([torch.nn.Parameter(torch.ones(2))], average_decay=wrong)
