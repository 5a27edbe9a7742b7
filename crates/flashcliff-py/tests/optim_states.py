"""States, parameters and gradients that do not belong together, for AdamW on any device.

``python optim_states.py cpu`` runs all of them and prints, for each, what came of it. It is a separate program, because a defect
here ends the process or spoils its memory.
"""

from __future__ import annotations

import copy
import itertools
import sys
from functools import partial

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from flashcliff import optim

COUNT = 20
SHAPES = [
    (),
    (1,),
    (4,),
    (8,),
    (12,),
    (4, 1),
    (8, 4),
    (4, 8),
    (64, 4),
    (0,),
    (2, 0),
    (3, 4, 5),
    (5, 4, 3),
]


def made(device, shape=(8, 4), **options):
    """Named parameters with gradients, and an optimiser that did a step."""
    parameters = [torch.nn.Parameter(torch.randn(shape, device=device)) for _ in range(COUNT)]
    give(parameters)
    names = [(f"net.{at}.weight", p) for at, p in enumerate(parameters)]
    optimiser = optim.AdamW(names, **options)
    optimiser.step()
    return parameters, optimiser


def give(parameters):
    for p in parameters:
        p.grad = torch.ones_like(p)


def steps(parameters, optimiser, count=3):
    for _ in range(count):
        give(parameters)
        optimiser.step()


def fake(shape, device):
    with FakeTensorMode():
        return torch.ones(shape, device=device)


class Sub(torch.Tensor):
    pass


# Changes of a state whose mean is `m`, after which parameters get gradients and steps are done.
STATES = {
    "a larger mean": (
        lambda s, m: s.update(exp_avg=m.new_zeros(64, 4)),
        "ValueError",
        r"net\.3\.weight.*shape \[8, 4\], got \[64, 4\]",
    ),
    "a smaller square": (
        lambda s, m: s.update(exp_avg_sq=m.new_zeros(2, 4)),
        "ValueError",
        r"`exp_avg_sq` of parameter 3 of group 0.*shape \[8, 4\], got \[2, 4\]",
    ),
    "a mean whose memory was given back": (
        lambda s, m: m.untyped_storage().resize_(0),
        "ValueError",
        "memory of `exp_avg` .* is not there",
    ),
    "a square whose memory was cut": (
        lambda s, m: s["exp_avg_sq"].untyped_storage().resize_(16),
        "ValueError",
        "memory of `exp_avg_sq` .* not all of it",
    ),
    "a mean resized in place": (lambda s, m: m.resize_(2, 2), "ValueError", r"got \[2, 2\]"),
    "a mean that grew in place": (lambda s, m: m.resize_(640, 4), "ValueError", r"got \[640, 4\]"),
    "a mean with other data": (lambda s, m: setattr(m, "data", m.new_zeros(3)), "ValueError", r"got \[3\]"),
    "a fake mean": (
        lambda s, m: s.update(exp_avg=fake((8, 4), m.device)),
        "TypeError",
        "`exp_avg` of parameter 3.*plain, dense tensor, got FakeTensor",
    ),
    "a mean that became fake": (
        lambda s, m: setattr(m, "data", fake((8, 4), m.device)),
        "ValueError|TypeError",
        "`exp_avg` of parameter 3",
    ),
    "a mean on meta": (
        lambda s, m: s.update(exp_avg=torch.zeros(8, 4, device="meta")),
        "TypeError",
        "`exp_avg` of parameter 3 .*array of numbers",
    ),
    "a mean of a subclass": (
        lambda s, m: s.update(exp_avg=m.clone().as_subclass(Sub)),
        "TypeError",
        "plain, dense tensor, got Sub",
    ),
    "a sparse mean": (
        lambda s, m: s.update(exp_avg=torch.zeros_like(m).to_sparse()),
        "TypeError",
        "got the layout torch.sparse_coo",
    ),
    "a complex mean": (
        lambda s, m: s.update(exp_avg=m.to(torch.complex64)),
        "TypeError",
        "must be of real numbers, got torch.complex64",
    ),
    "a mean that is no tensor": (lambda s, m: s.update(exp_avg=[0.0]), "TypeError", "got list"),
    "many steps of one parameter": (
        lambda s, m: s.update(step=m.new_ones(5)),
        "ValueError",
        "`step` of parameter 3 .*must be a number",
    ),
    "a negative step": (
        lambda s, m: s.update(step=-3),
        "ValueError",
        "`step` of parameter 3 .*at least 0, got -3",
    ),
    "a step whose memory was given back": (
        lambda s, m: s["step"].untyped_storage().resize_(0),
        "ValueError",
        "`step` of parameter 3",
    ),
    "a state of another optimiser": (
        lambda s, m: (s.clear(), s.update(momentum_buffer=m)),
        "ValueError",
        "expected a state with step, exp_avg, exp_avg_sq, got momentum_buffer",
    ),
}
# Changes of a parameter without a gradient, which then gets one.
PARAMETERS = {
    "a parameter that shrank": (
        lambda p: setattr(p, "data", p.data[:2]),
        "ValueError",
        r"shape \[2, 4\], got \[8, 4\]",
    ),
    "a parameter that grew": (
        lambda p: setattr(p, "data", p.new_zeros(64, 4)),
        "ValueError",
        r"shape \[64, 4\], got \[8, 4\]",
    ),
    "a parameter of another shape in place": (
        lambda p: setattr(p, "data", p.data.view(4, 8)),
        "ValueError",
        r"shape \[4, 8\], got \[8, 4\]",
    ),
    "a parameter of 16 bits": (
        lambda p: setattr(p, "data", p.data.half()),
        "TypeError",
        "got torch.float16 as parameter 3",
    ),
    "a parameter negated by a flag": (
        lambda p: setattr(p, "data", torch._neg_view(p.data.clone())),
        "TypeError",
        "parameter 3 .* must be an array of numbers",
    ),
}
# Changes of a parameter with a gradient, or of that.
GRADIENTS = {
    "a parameter that shrank with its gradient left": (
        lambda p: setattr(p, "data", p.data[:2]),
        "ValueError",
        r"net\.3\.weight.*must have its shape \[2, 4\], got \[8, 4\]|shape \[2, 4\]",
    ),
    "a parameter whose memory was given back": (
        lambda p: p.untyped_storage().resize_(0),
        "ValueError",
        r"memory of parameter 3 of group 0 \(`net\.3\.weight`\)",
    ),
    "a parameter whose memory was cut": (
        lambda p: p.untyped_storage().resize_(16),
        "ValueError",
        "memory of parameter 3 .* has 16 bytes",
    ),
    "a parameter that became fake": (
        lambda p: setattr(p, "data", fake((8, 4), p.device)),
        "ValueError|UnsupportedError",
        "parameter 3",
    ),
    "a smaller gradient": (
        lambda p: setattr(p.grad, "data", p.new_ones(2, 4)),
        "ValueError",
        r"gradient of parameter 3 .*shape \[8, 4\], got \[2, 4\]",
    ),
    "a gradient whose memory was given back": (
        lambda p: p.grad.untyped_storage().resize_(0),
        "ValueError",
        "memory of the gradient of parameter 3",
    ),
    "a gradient within memory that was given back": (
        lambda p: (setattr(p, "grad", p.new_ones(64, 4)[8:16]), p.grad.untyped_storage().resize_(0)),
        "ValueError",
        "memory of the gradient of parameter 3",
    ),
    "a fake gradient": (
        lambda p: (setattr(p, "grad", None), setattr(p, "grad", fake((8, 4), p.device))),
        "TypeError",
        "gradient of parameter 3 .*array of numbers|FakeTensor",
    ),
    "a gradient that became fake": (
        lambda p: setattr(p.grad, "data", fake((8, 4), p.device)),
        "RuntimeError|ValueError",
        "gradient of parameter 3",
    ),
    "a functional gradient": (
        lambda p: setattr(p, "grad", torch._to_functional_tensor(p.new_ones(8, 4))),
        "TypeError",
        "gradient of parameter 3 .*array of numbers",
    ),
    "a gradient without memory": (
        lambda p: setattr(p, "grad", torch._efficientzerotensor((8, 4), device=p.device)),
        "TypeError|ValueError",
        "gradient of parameter 3",
    ),
    "a sparse gradient": (
        lambda p: setattr(p, "grad", p.new_ones(8, 4).to_sparse()),
        "RuntimeError",
        "gradients must be dense.* parameter 3 .*sparse=False",
    ),
    "a complex gradient": (
        lambda p: setattr(p.grad, "data", p.new_ones(8, 4).to(torch.complex64)),
        "TypeError",
        "gradient of parameter 3 .*real numbers, got torch.complex64",
    ),
}


def of_state(change, device):
    parameters, optimiser = made(device)
    state = optimiser.state[parameters[3]]
    change(state, state["exp_avg"])
    steps(parameters, optimiser)


def of_parameter(change, device):
    parameters, optimiser = made(device)
    parameters[3].grad = None
    change(parameters[3])
    steps(parameters, optimiser)


def of_gradient(change, device):
    parameters, optimiser = made(device)
    change(parameters[3])
    optimiser.step()


CASES = {
    name: (partial(run, change), kind, message)
    for run, rows in ((of_state, STATES), (of_parameter, PARAMETERS), (of_gradient, GRADIENTS))
    for name, (change, kind, message) in rows.items()
}


def case(kind, message):
    """An error that is expected."""

    def note(function):
        CASES[function.__name__] = (function, kind, message)
        return function

    return note


@case("ValueError", r"maxima of AMSGrad")
def a_state_of_amsgrad(device):
    parameters, optimiser = made(device)
    state = optimiser.state[parameters[3]]
    optimiser.state[parameters[3]] = {**state, "max_exp_avg_sq": state["exp_avg_sq"]}
    optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))


@case("ValueError", r"parameter 0 of group 0 and parameter 1 of group 0 share some")
def parameters_that_overlap(device):
    base = torch.zeros(12, device=device)
    parameters = [torch.nn.Parameter(base[:8]), torch.nn.Parameter(base[4:])]
    steps(parameters, optim.AdamW(parameters))


@case("ValueError", r"parameter 0 of group 0 and parameter 0 of group 1 share some")
def one_memory_in_two_groups(device):
    base = torch.zeros(12, device=device)
    parameters = [torch.nn.Parameter(base), torch.nn.Parameter(base.view(3, 4))]
    steps(parameters, optim.AdamW([{"params": [p]} for p in parameters]))


@case("ValueError", r"side by side")
def an_expanded_parameter(device):
    parameter = torch.nn.Parameter(torch.zeros(1, 1, device=device).expand(8, 4))
    steps([parameter], optim.AdamW([parameter]))


# Learning rates, and surroundings


@case("ValueError", r"memory of lr")
def a_rate_whose_memory_was_given_back(device):
    lr = torch.tensor(1e-3, device=device)
    parameters, optimiser = made(device, lr=lr)
    lr.untyped_storage().resize_(0)
    steps(parameters, optimiser)


@case("ValueError", r"lr: expected a number, or a tensor of one element")
def a_rate_of_many_elements(device):
    lr = torch.tensor(1e-3, device=device)
    parameters, optimiser = made(device, lr=lr)
    lr.resize_(3)
    steps(parameters, optimiser)


@case("TypeError", r"lr: expected a number, or a plain, dense tensor")
def a_fake_rate(device):
    parameters, optimiser = made(device)
    optimiser.param_groups[0]["lr"] = fake((), device)
    steps(parameters, optimiser)


@case("UnsupportedError", r"under FakeTensorMode; call it outside")
def a_step_under_a_mode(device):
    parameters, optimiser = made(device)
    with FakeTensorMode(allow_non_fake_inputs=True):
        optimiser.step()


@case("UnsupportedError", r"cannot be transformed or traced")
def a_step_within_a_transform(device):
    parameters, optimiser = made(device)

    def function(x):
        optimiser.step()
        return x

    torch.func.vmap(function)(torch.ones(2, device=device))


def outcome(function, device):
    """The name and the text of an error, or nothing."""
    try:
        function(device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def loaded(device, ours, theirs, by_loading):
    """A state of one shape for a parameter of another: ours the parameter's."""
    parameter, other = (
        torch.nn.Parameter(torch.ones(shape, device=device)) for shape in (ours, theirs)
    )
    source, optimiser = optim.AdamW([other]), optim.AdamW([parameter])
    give([parameter, other])
    source.step()
    if by_loading:
        optimiser.load_state_dict(copy.deepcopy(source.state_dict()))
    else:
        optimiser.step()
        optimiser.state[parameter] = source.state[other]
    steps([parameter], optimiser, 5)


def pairs():
    return list(itertools.product(SHAPES, SHAPES, (False, True)))


def main(device):
    for name, (function, *_) in CASES.items():
        print(name, flush=True, end="\t")
        print(outcome(function, device).replace("\n", " "), flush=True)
    for ours, theirs, by_loading in pairs():
        print(f"{ours} {theirs} {by_loading}", flush=True, end="\t")
        print(outcome(lambda d: loaded(d, ours, theirs, by_loading), device), flush=True)  # noqa: B023


if __name__ == "__main__":
    main(sys.argv[1])
