"""Options of AdamW and Lion: wrong ones are named, wherever they come from, and none is kept that no step heeds."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from optim_common import KINDS, bits, parameter
from releases import says_decay

from flashcliff import optim

NAN, INF = float("nan"), float("inf")


WRONG = [
    ("lr", -1.0, ValueError, "lr: expected at least 0, got -1.0"),
    ("lr", NAN, ValueError, "lr: expected at least 0, got nan"),
    ("lr", INF, ValueError, "lr: expected a finite number, got inf"),
    ("lr", 10**400, ValueError, "lr: expected a finite number"),
    ("lr", True, TypeError, "lr: expected a number, got True of the type bool"),
    ("lr", "1", TypeError, "lr: expected a number, got '1' of the type str"),
    ("lr", None, TypeError, "lr: expected a number, got None"),
    ("lr", 1j, TypeError, "lr: expected a number"),
    ("lr", torch.tensor(-1.0), ValueError, "lr: expected at least 0, got -1.0"),
    ("lr", torch.tensor(NAN), ValueError, "lr: expected at least 0, got nan"),
    ("lr", torch.tensor([INF]), ValueError, "lr: expected a finite number, got inf"),
    ("lr", torch.tensor(True), ValueError, "lr: expected a number, or a tensor of one element"),
    ("lr", torch.tensor(1), ValueError, "got torch.int64"),
    ("lr", torch.tensor(1j), ValueError, "got torch.complex64"),
    ("lr", torch.ones(0), ValueError, r"got torch.float32 \[0\]"),
    ("lr", torch.ones((), device="meta"), RuntimeError, "on the CPU or on CUDA, got meta"),
    ("lr", torch.ones(1).to_sparse(), TypeError, "lr: expected a number, or a plain, dense tensor"),
    ("lr", torch.ones(2), ValueError, "lr: expected a number, or a tensor of one element"),
    ("lr", torch.ones((), dtype=torch.bfloat16), ValueError, "got torch.bfloat16"),
    ("betas", None, TypeError, "betas: expected two numbers.*got NoneType"),
    ("betas", 0.9, TypeError, "betas: expected two numbers.*got float"),
    ("betas", (2, 3), ValueError, "betas: expected two numbers"),
    ("betas", (0.9, 1.0), ValueError, "betas: expected two numbers, at least 0 and below 1"),
    ("betas", (0.9,), ValueError, "betas: expected two numbers"),
    ("betas", (0.9, NAN), ValueError, "betas: expected two numbers"),
    ("betas", (0.9, "x"), TypeError, "betas: expected a number, got 'x'"),
    ("betas", (0.9, True), TypeError, "betas: expected a number, got True"),
    ("betas", (0.9, 0.99, 0.999), ValueError, "betas: expected two numbers"),
    ("eps", None, TypeError, "eps: expected a number, got None"),
    ("eps", "1e-8", TypeError, "eps: expected a number, got '1e-8'"),
    ("eps", -1e-8, ValueError, "eps: expected at least 0"),
    ("eps", NAN, ValueError, "eps: expected at least 0, got nan"),
    ("eps", INF, ValueError, "eps: expected a finite number, got inf"),
    ("weight_decay", "x", TypeError, "weight_decay: expected a number"),
    ("weight_decay", -0.1, ValueError, "weight_decay: expected at least 0"),
    ("weight_decay", INF, ValueError, "weight_decay: expected a finite number"),
    ("weight_decay", False, TypeError, "weight_decay: expected a number, got False"),
    ("max_norm", "x", TypeError, "max_norm: expected a number, got 'x'"),
    ("max_norm", 0.0, ValueError, "max_norm: expected a number above 0 or None, got 0.0"),
    ("max_norm", NAN, ValueError, "max_norm: expected a number above 0 or None, got nan"),
    ("max_norm", True, TypeError, "max_norm: expected a number, got True"),
    ("average_decay", 1.5, ValueError, "average_decay: expected a number from 0 to 1 or None"),
    ("average_decay", -0.1, ValueError, "average_decay: expected a number"),
    ("average_decay", NAN, ValueError, "average_decay: expected a number"),
    ("average_decay", "x", TypeError, "average_decay: expected a number, got 'x'"),
    ("average_decay", True, TypeError, "average_decay: expected a number, got True"),
    ("maximize", 1, TypeError, "maximize: expected True or False"),
    ("maximize", None, TypeError, "maximize: expected True or False, got None"),
    ("maximize", "yes", TypeError, "maximize: expected True or False, got 'yes'"),
]
FOREIGN = [
    ("amsgrad", True, "`amsgrad=True` asks for the maxima of AMSGrad"),
    ("differentiable", True, "`differentiable=True` asks for steps that are differentiated"),
    ("foreach", True, "`foreach=True` asks for another implementation"),
    ("fused", False, "`fused=False` asks for another implementation"),
    ("capturable", True, "`capturable=True` .* not on CUDA"),
]
DECAYS = [
    (optim.AdamW, "decoupled_weight_decay", False, "`decoupled_weight_decay=False` asks for weight decay"),
    (optim.Lion, "decoupled_weight_decay", True, "not scaled by the first learning rate"),
]
# Lion has no eps.
OPTIONS = [(kind, *row) for kind in KINDS for row in WRONG if kind is optim.AdamW or row[0] != "eps"]
HEEDED = [*((kind, *row) for kind in KINDS for row in FOREIGN), *DECAYS]


def named(rows):
    return [f"{kind.__name__}-{name}-{value}".replace(" ", "") for kind, name, value, *_ in rows]


wrong = pytest.mark.parametrize(("optimiser", "name", "value", "kind", "message"), OPTIONS, ids=named(OPTIONS))


@wrong
def test_wrong_options(optimiser, name, value, kind, message):
    with pytest.raises(kind, match=message):
        optimiser([parameter()], **{name: value})
    ours = optimiser([parameter()])
    with pytest.raises(kind, match=message):
        ours.add_param_group({"params": [parameter()], name: value})
    assert len(ours.param_groups) == 1


@wrong
def test_wrong_options_that_are_set_later(optimiser, name, value, kind, message):
    """They count at the next step, which changes nothing, and leave no trace when they are gone."""
    x = parameter()
    ours = optimiser([x])
    ours.step()
    before, kept = bits([x], ours), ours.param_groups[0][name]
    ours.param_groups[0][name] = value
    for _ in range(2):
        with pytest.raises(kind, match=message):
            ours.step()
    assert all(map(torch.equal, before, bits([x], ours)))
    ours.param_groups[0][name] = kept
    ours.step()
    assert not torch.equal(before[0], x)


@wrong
def test_wrong_options_in_a_state(optimiser, name, value, kind, message):
    ours = optimiser([parameter()], lr=0.5)
    state = ours.state_dict()
    state["param_groups"][0][name] = value
    with pytest.raises(kind, match=message):
        ours.load_state_dict(state)
    assert ours.param_groups[0]["lr"] == 0.5


def test_values_that_change_in_place():
    lr = torch.tensor(0.1)
    ours = optim.AdamW([parameter()], lr=lr, betas=[0.9, 0.99])
    ours.step()
    lr.fill_(-1)
    with pytest.raises(ValueError, match="lr: expected at least 0, got -1"):
        ours.step()
    lr.fill_(0.1)
    ours.step()
    ours.param_groups[0]["betas"][1] = 1.5
    with pytest.raises(ValueError, match="betas: expected two numbers"):
        ours.step()


def test_options_that_are_missing():
    ours = optim.AdamW([parameter()])
    del ours.param_groups[0]["eps"]
    with pytest.raises(ValueError, match="group 0 has no eps"):
        ours.step()


def test_numbers_of_other_libraries():
    import numpy

    x, y = parameter(), parameter()
    ours = optim.AdamW(
        [x], lr=numpy.float32(0.5), betas=(numpy.float64(0.9), 0), eps=0, max_norm=INF
    )
    plain = optim.AdamW([y], lr=0.5, betas=(0.9, 0.0), eps=0.0)
    ours.step()
    plain.step()
    assert torch.equal(x, y)


@pytest.mark.parametrize(("kind", "name", "value", "message"), HEEDED, ids=named(HEEDED))
def test_options_that_no_step_heeds(kind, name, value, message):
    message = f"{kind.__name__}: .*{message}"
    with pytest.raises(ValueError, match=message):
        kind([{"params": [parameter()], name: value}])
    ours = kind([parameter()])
    with pytest.raises(ValueError, match=message):
        ours.add_param_group({"params": iter([parameter()]), name: value})
    assert len(ours.param_groups) == 1
    ours.param_groups[0][name] = value
    with pytest.raises(ValueError, match=message):
        ours.step()


def test_options_that_ask_for_what_is_done_anyway():
    given = {
        "amsgrad": False,
        "differentiable": False,
        "foreach": None,
        "fused": True,
        "capturable": False,
        "decoupled_weight_decay": True,
    }
    ours = optim.AdamW([{"params": [parameter()], **given}])
    ours.step()
    assert not given.keys() & ours.param_groups[0].keys()
    ours.load_state_dict(copy.deepcopy(ours.state_dict()))
    ours.add_param_group({"params": [parameter()]})
    assert not given.keys() & ours.param_groups[1].keys()


# States of other optimisers


def state_of(kind, **options):
    theirs = kind([parameter()], lr=0.1, **options)
    theirs.step()
    return theirs.state_dict()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (torch.optim.SGD, {}, "group 0 has no betas, eps, but .*momentum.*another optimiser"),
        (torch.optim.SGD, {"momentum": 0.9}, "group 0 has no betas, eps"),
        (torch.optim.RMSprop, {}, "group 0 has no betas"),
        (torch.optim.Adagrad, {}, "group 0 has no betas"),
        (torch.optim.Adadelta, {}, "group 0 has no betas"),
        (torch.optim.Adamax, {}, "expected a state with step, exp_avg, exp_avg_sq, got .*exp_inf"),
        (torch.optim.NAdam, {}, "NAdam"),
        (torch.optim.RAdam, {}, "RAdam"),
        pytest.param(
            torch.optim.Adam, {"weight_decay": 0.1}, "decoupled; take torch.optim.Adam", marks=says_decay
        ),
        (torch.optim.Adam, {"amsgrad": True}, "amsgrad=True"),
        (torch.optim.AdamW, {"amsgrad": True}, "amsgrad=True"),
    ],
)
def test_states_of_other_optimisers(kind, options, message):
    ours = optim.AdamW([parameter()], lr=0.5)
    ours.step()
    before = copy.deepcopy(ours.state_dict())
    with pytest.raises(ValueError, match=message):
        ours.load_state_dict(state_of(kind, **options))
    assert str(ours.state_dict()) == str(before)
    ours.step()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {"maximize": True}),
        # Without decay there is one formula.
        (torch.optim.Adam, {"weight_decay": 0.0}),
        pytest.param(
            torch.optim.Adam, {"weight_decay": 0.1, "decoupled_weight_decay": True}, marks=says_decay
        ),
    ],
)
def test_states_that_are_of_this_formula(kind, options):
    x, y = parameter(), parameter()
    theirs = kind([x], lr=0.1, **options)
    theirs.step()
    with torch.no_grad():
        y.copy_(x)
    ours = optim.AdamW([y])
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    for _ in range(3):
        theirs.step()
        ours.step()
    assert torch.allclose(x, y)


def test_a_state_of_adam_goes_on_decoupled_if_that_is_asked_for():
    state = state_of(torch.optim.Adam, weight_decay=0.1)
    state["param_groups"][0]["decoupled_weight_decay"] = True
    optim.AdamW([parameter()]).load_state_dict(state)


def test_copies():
    ours = optim.AdamW([("x", parameter())], lr=torch.tensor(0.1), max_norm=1.0)
    ours.step()
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        twin.param_groups[0]["eps"] = -1
        with pytest.raises(ValueError, match="eps: expected at least 0"):
            twin.step()
        twin.param_groups[0]["eps"] = 1e-8
        twin.step()
        (x,) = twin.param_groups[0]["params"]
        twin.state[x]["exp_avg"] = torch.ones(3)
        with pytest.raises(ValueError, match=re.escape("parameter 0 of group 0 (`x`)")):
            twin.step()


def test_a_group_that_comes_later():
    ours = optim.AdamW([parameter()])
    ours.step()
    ours.add_param_group({"params": [parameter()], "lr": 0.5})
    ours.step()
    assert len(ours.state) == 2
    half = torch.nn.Parameter(torch.ones(2).half())
    with pytest.raises(TypeError, match="got torch.float16 as parameter 1 of group 2"):
        ours.add_param_group({"params": [parameter(), half]})
    with pytest.raises(ValueError, match="parameter"):
        ours.add_param_group({"params": [ours.param_groups[0]["params"][0]]})
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="share some"):
        x = parameter()
        optim.AdamW([x, x]).step()


@pytest.mark.cuda
def test_rates_on_a_gpu():
    """Their number is looked at when they are given, and not in steps."""
    for wrong in (-1.0, NAN, INF):
        lr = torch.tensor(wrong, device="cuda")
        with pytest.raises(ValueError, match="lr: expected"):
            optim.AdamW([parameter(device="cuda")], lr=lr)
    ours = optim.AdamW([parameter(device="cuda")], lr=torch.tensor(0.1, device="cuda"))
    ours.step()
    state = ours.state_dict()
    state["param_groups"][0]["lr"] = torch.tensor(NAN, device="cuda")
    with pytest.raises(ValueError, match="lr: expected"):
        ours.load_state_dict(state)
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours.step()
        ours.param_groups[0]["lr"] = torch.full((1,), 0.2, device="cuda")
        ours.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for wrong in (torch.ones((), dtype=torch.int32, device="cuda"), torch.ones(2, device="cuda")):
        ours.param_groups[0]["lr"] = wrong
        with pytest.raises(ValueError, match="lr: expected a number, or a tensor of one element"):
            ours.step()


@pytest.mark.cuda
def test_capturable_groups_on_a_gpu():
    ours = optim.AdamW([{"params": [parameter(device="cuda")], "capturable": True}])
    ours.step()
