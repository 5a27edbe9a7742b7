"""AdamW refuses states, parameters and gradients that do not belong together, and touches no memory of others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import optim_states as table
import pytest
import torch
import torch.utils.flop_counter
from optim_common import Pair
from torch.fx.experimental.proxy_tensor import make_fx

import flashcliff
import flashcliff.functional  # noqa: F401  (which loads the compiled call path)
from flashcliff import optim

HERE = Path(__file__).resolve().parent
NATIVE = pytest.mark.parametrize("native", ["0", ""], ids=["python", "compiled"])


@cache
def outcomes(device, native):
    """What comes of each case, in a separate process."""
    code = f"import flashcliff.functional, optim_states; optim_states.main({device!r})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "FLASHCLIFF_NATIVE": native},
        cwd=HERE,
        capture_output=True,
        text=True,
    )
    found = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    assert done.returncode == 0, (
        done.returncode,
        list(found)[-1:],
        done.stdout[-300:],
        done.stderr[-2000:],
    )
    return found


@NATIVE
@pytest.mark.parametrize("name", table.CASES)
def test_what_does_not_belong_together(name, device, native):
    _, kind, message = table.CASES[name]
    got_kind, _, got = outcomes(device, native)[name].partition(": ")
    assert re.fullmatch(kind, got_kind) and re.search(message, got), (got_kind, got)


@NATIVE
def test_states_of_all_shapes(device, native):
    """Only a state of the same shape is taken, whether it is loaded or set."""
    found = outcomes(device, native)
    assert len(table.pairs()) == 2 * len(table.SHAPES) ** 2
    for ours, theirs, by_loading in table.pairs():
        got = found[f"{ours} {theirs} {by_loading}"]
        if ours == theirs:
            assert got == "no error"
        else:
            assert got.startswith(
                "ValueError: AdamW: `exp_avg` of parameter 0 of group 0 must have"
            )
            assert f"shape {list(ours)}, got {list(theirs)}" in got


# What goes on, as with PyTorch's optimiser


class Both(Pair):
    """Equal parameters with our optimiser and with PyTorch's, some steps in."""

    def __init__(self, device, shape=(4, 6)):
        super().__init__(torch.float64, device, [shape] * 3)
        theirs = torch.optim.AdamW(self.theirs, lr=0.1, foreach=False)
        self.optimisers = optim.AdamW(self.ours, lr=0.1), theirs
        self.go()

    def sides(self):
        return zip((self.ours, self.theirs), self.optimisers)

    def go(self):
        for _ in range(2):
            self.step(*self.optimisers)


def test_shared_states_get_memory_of_their_own(device, path):
    both = Both(device)
    for parameters, optimiser in both.sides():
        shared = optimiser.state[parameters[0]]
        for parameter in parameters[1:]:
            own = optimiser.state[parameter]
            own["exp_avg"], own["step"] = shared["exp_avg"], shared["step"]
            own["exp_avg_sq"] = shared["exp_avg_sq"].view(6, 4).view(4, 6)
    # PyTorch's goes on with shared memory, so it gets copies here.
    state = both.optimisers[1].state
    for parameter in both.theirs:
        state[parameter] = {name: value.clone() for name, value in state[parameter].items()}
    both.go()


@pytest.mark.parametrize("how", ["expanded", "turned", "float32", "negated", "part", "missing"])
def test_gradients_of_other_forms(how, device, path):
    both = Both(device, shape=(4, 4))
    single = Both(device, shape=(1,))
    for pair in (both, single):
        pair.draw()
        for ours, theirs in zip(pair.ours, pair.theirs):
            given = ours.grad
            if how == "expanded":
                given = given.flatten()[:1].view([1] * ours.dim()).expand(ours.shape)
            elif how == "turned":
                given = given.t()
            elif how == "float32":
                given = given.float()
            elif how == "negated":
                given = torch.complex(given, given).conj().imag
                assert given.is_neg()
            elif how == "part":
                given = torch.stack([given, given], dim=-1)[..., 1]
            else:
                given = None
            # Under `grad` an assignment checks the type.
            if how == "float32":
                ours.grad.data = given
            else:
                ours.grad = given
            theirs.grad = None if given is None else given.double().resolve_neg().clone()
        pair.update(*pair.optimisers)
        pair.go()


def test_parameters_that_change_with_their_states(device, path):
    both = Both(device, shape=(4, 4))

    def change(function):
        for parameters, optimiser in both.sides():
            for parameter in parameters:
                parameter.data = function(parameter.data)
                parameter.grad = None
                for name in ("exp_avg", "exp_avg_sq"):
                    optimiser.state[parameter][name] = function(optimiser.state[parameter][name])
        both.go()

    change(lambda x: x[:2].clone())
    change(lambda x: x.view(4, 2))
    change(lambda x: x.t())
    change(lambda x: torch.cat([x, x], 1))
    for parameters, optimiser in both.sides():
        parameters[0].data = parameters[0].data[:1].clone()
        parameters[0].grad = None
        del optimiser.state[parameters[0]]
    both.go()


def test_a_square_parameter_turned_in_place(device, path):
    """Address and shape stay, the order of elements does not."""
    both = Both(device, shape=(4, 4))
    for parameters, _ in both.sides():
        parameters[1].data = parameters[1].data.t()
    both.go()


def test_memory_that_comes_back(device, path):
    """As of shards, which are given back between steps."""
    both = Both(device)
    for parameters, optimiser in both.sides():
        for tensor in (parameters[1], optimiser.state[parameters[1]]["exp_avg"]):
            kept, storage = tensor.detach().clone(), tensor.untyped_storage()
            storage.resize_(0)
            others = [torch.empty_like(kept) for _ in range(4)]
            storage.resize_(kept.nbytes)
            with torch.no_grad():
                tensor.copy_(kept)
            del others
    both.go()


def test_types_that_change(device, path):
    both = Both(device)
    for parameters, _ in both.sides():
        for parameter in parameters:
            parameter.data = parameter.data.float()
            parameter.grad = None
    for ours, theirs in zip(both.ours, both.theirs):
        ours.grad, theirs.grad = torch.ones_like(ours), torch.ones_like(theirs)
    both.optimisers[0].step()
    assert {p.dtype for p in both.ours} == {torch.float32}
    for state in both.optimisers[0].state.values():
        assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.float32


def test_inference_mode(device, path):
    """A first step within inference mode leaves a state that later steps change."""
    both = Both(device)
    for _, optimiser in both.sides():
        optimiser.state.clear()
    both.draw()
    with torch.inference_mode():
        both.optimisers[0].step()
    both.optimisers[1].step()
    both.go()
    with torch.inference_mode():
        made = torch.nn.Parameter(torch.ones(3, device=device))
    ours = optim.AdamW([made])
    made.grad = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="parameter 0 of group 0 was made in inference mode"):
        ours.step()


def test_an_error_leaves_everything_as_it_was(device, path):
    both = Both(device)
    ours = both.optimisers[0]
    before = [p.detach().clone() for p in both.ours]
    kept = {p: {n: v.clone() for n, v in ours.state[p].items()} for p in both.ours}
    both.draw()
    both.ours[2].grad.data = torch.ones(3, dtype=torch.float64, device=device)
    with pytest.raises(ValueError, match="gradient of parameter 2"):
        ours.step()
    small = torch.nn.Parameter(torch.ones(2, device=device))
    source = optim.AdamW([torch.nn.Parameter(torch.ones(2, device=device)) for _ in range(3)])
    for p in source.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    source.step()
    with pytest.raises(ValueError, match=r"parameter 0 of group 0 .*shape \[4, 6\], got \[2\]"):
        ours.load_state_dict(source.state_dict())
    del small
    for parameter, value in zip(both.ours, before):
        assert torch.equal(parameter, value)
        for name, want in kept[parameter].items():
            assert torch.equal(ours.state[parameter][name], want)
    both.go()


def test_modes_that_watch(device, path):
    """A mode that makes real tensors does not change a step."""
    both = Both(device)
    with torch.utils.flop_counter.FlopCounterMode(display=False):
        both.go()
    with pytest.raises(flashcliff.UnsupportedError, match="make_fx"):
        make_fx(lambda x: both.optimisers[0].step() or x)(torch.ones(2))
