"""Averages of parameters beside those of PyTorch, on any device."""

from __future__ import annotations

import copy

import torch
from optim_common import SHAPES, Pair, bits, close, groups
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from flashcliff import optim

KINDS = [optim.AdamW, optim.Lion]


def made(kind, parameters, **options):
    """An optimiser of three groups, of which the first two share options."""
    kept = groups(parameters)
    for group in kept:
        if kind is optim.Lion:
            group.pop("eps", None)
    return kind(kept, lr=1e-2, **options)


def averages_alike(kind, dtype, device, decay=0.8):
    """Of all parameters, with and without a gradient, those of PyTorch after each step."""
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


def exchanges(kind, device):
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


def begins_later(kind, device):
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


def changes_no_step(kind, device):
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
