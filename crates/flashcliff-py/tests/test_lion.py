"""Lion beside its formulas, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from lion_common import WRONG
from optim_common import Pair, parameter

from flashcliff import optim


@pytest.mark.parametrize("formula", WRONG, ids=lambda formula: formula.__name__)
def test_other_formulas_are_found(formula, device):
    pair = Pair(torch.float32, device)
    ours, theirs = pair.made(optim.Lion)
    theirs.formula = formula
    with pytest.raises(AssertionError):
        for _ in range(12):
            pair.step(ours, theirs)


def test_signs_of_special_numbers(device):
    """Nothing moves where the direction is 0; what is not a number, or too large for one, is not hidden."""
    inf, nan = torch.inf, torch.nan
    p = torch.nn.Parameter(torch.ones(5, dtype=torch.float64, device=device))
    ours = optim.Lion([p], lr=0.5)
    p.grad = torch.tensor([0.0, -0.0, nan, inf, -inf], dtype=torch.float64, device=device)
    ours.step()
    assert p[:2].tolist() == [1.0, 1.0] and p[2].isnan() and p[3:].tolist() == [0.5, 1.5]


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


# What is refused


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
