"""States, parameters and gradients that do not belong together, for AdamW on any device.

``python optim_states.py cpu`` runs all of them and prints, for each, what came of it. It is a program of its own, because a defect here ends the
process or spoils its memory.
"""

from __future__ import annotations

import copy
import itertools
import sys

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


CASES = {}


def case(kind, message):
    """An error that is expected."""

    def note(function):
        CASES[function.__name__] = (function, kind, message)
        return function

    return note


# States


@case("ValueError", r"net\.3\.weight.*shape \[8, 4\], got \[64, 4\]")
def a_larger_mean(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"] = torch.zeros(64, 4, device=device)
    steps(parameters, optimiser)


@case("ValueError", r"`exp_avg_sq` of parameter 3 of group 0.*shape \[8, 4\], got \[2, 4\]")
def a_smaller_square(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg_sq"] = torch.zeros(2, 4, device=device)
    steps(parameters, optimiser)


@case("ValueError", r"memory of `exp_avg` .* is not there")
def a_mean_whose_memory_was_given_back(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"].untyped_storage().resize_(0)
    steps(parameters, optimiser)


@case("ValueError", r"memory of `exp_avg_sq` .* not all of it")
def a_square_whose_memory_was_cut(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg_sq"].untyped_storage().resize_(16)
    steps(parameters, optimiser)


@case("ValueError", r"got \[2, 2\]")
def a_mean_resized_in_place(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"].resize_(2, 2)
    steps(parameters, optimiser)


@case("ValueError", r"got \[640, 4\]")
def a_mean_that_grew_in_place(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"].resize_(640, 4)
    steps(parameters, optimiser)


@case("ValueError", r"got \[3\]")
def a_mean_with_other_data(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"].data = torch.zeros(3, device=device)
    steps(parameters, optimiser)


@case("TypeError", r"`exp_avg` of parameter 3.*plain, dense tensor, got FakeTensor")
def a_fake_mean(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"] = fake((8, 4), device)
    steps(parameters, optimiser)


@case("ValueError|TypeError", r"`exp_avg` of parameter 3")
def a_mean_that_became_fake(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"].data = fake((8, 4), device)
    steps(parameters, optimiser)


@case("TypeError", r"`exp_avg` of parameter 3 .*array of numbers")
def a_mean_on_meta(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"] = torch.zeros(8, 4, device="meta")
    steps(parameters, optimiser)


@case("TypeError", r"plain, dense tensor, got Sub")
def a_mean_of_a_subclass(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"] = torch.zeros(8, 4, device=device).as_subclass(Sub)
    steps(parameters, optimiser)


@case("TypeError", r"got the layout torch.sparse_coo")
def a_sparse_mean(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"] = torch.zeros(8, 4, device=device).to_sparse()
    steps(parameters, optimiser)


@case("TypeError", r"must be of real numbers, got torch.complex64")
def a_complex_mean(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"] = torch.zeros(8, 4, device=device).to(torch.complex64)
    steps(parameters, optimiser)


@case("TypeError", r"got list")
def a_mean_that_is_no_tensor(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["exp_avg"] = [0.0]
    steps(parameters, optimiser)


@case("ValueError", r"`step` of parameter 3 .*must be a number")
def many_steps_of_one_parameter(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["step"] = torch.ones(5, device=device)
    steps(parameters, optimiser)


@case("ValueError", r"`step` of parameter 3 .*at least 0, got -3")
def a_negative_step(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["step"] = -3
    steps(parameters, optimiser)


@case("ValueError", r"`step` of parameter 3")
def a_step_whose_memory_was_given_back(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]]["step"].untyped_storage().resize_(0)
    steps(parameters, optimiser)


@case("ValueError", r"expected a state with step, exp_avg, exp_avg_sq, got momentum_buffer")
def a_state_of_another_optimiser(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]] = {"momentum_buffer": torch.zeros(8, 4, device=device)}
    steps(parameters, optimiser)


@case("ValueError", r"maxima of AMSGrad")
def a_state_of_amsgrad(device):
    parameters, optimiser = made(device)
    optimiser.state[parameters[3]] = {
        **optimiser.state[parameters[3]],
        "max_exp_avg_sq": torch.zeros(8, 4, device=device),
    }
    optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))


# Parameters


@case("ValueError", r"shape \[2, 4\], got \[8, 4\]")
def a_parameter_that_shrank(device):
    parameters, optimiser = made(device)
    parameters[3].data = parameters[3].data[:2]
    parameters[3].grad = None
    steps(parameters, optimiser)


@case("ValueError", r"shape \[64, 4\], got \[8, 4\]")
def a_parameter_that_grew(device):
    parameters, optimiser = made(device)
    parameters[3].data = torch.zeros(64, 4, device=device)
    steps(parameters, optimiser)


@case("ValueError", r"shape \[4, 8\], got \[8, 4\]")
def a_parameter_of_another_shape_in_place(device):
    parameters, optimiser = made(device)
    parameters[3].data = parameters[3].data.view(4, 8)
    parameters[3].grad = None
    steps(parameters, optimiser)


@case("ValueError", r"net\.3\.weight.*must have its shape \[2, 4\], got \[8, 4\]|shape \[2, 4\]")
def a_parameter_that_shrank_with_its_gradient_left(device):
    parameters, optimiser = made(device)
    parameters[3].data = parameters[3].data[:2]
    optimiser.step()


@case("ValueError", r"memory of parameter 3 of group 0 \(`net\.3\.weight`\)")
def a_parameter_whose_memory_was_given_back(device):
    parameters, optimiser = made(device)
    parameters[3].untyped_storage().resize_(0)
    optimiser.step()


@case("ValueError", r"memory of parameter 3 .* has 16 bytes")
def a_parameter_whose_memory_was_cut(device):
    parameters, optimiser = made(device)
    parameters[3].untyped_storage().resize_(16)
    optimiser.step()


@case("ValueError|UnsupportedError", r"parameter 3")
def a_parameter_that_became_fake(device):
    parameters, optimiser = made(device)
    parameters[3].data = fake((8, 4), device)
    optimiser.step()


@case("TypeError", r"got torch.float16 as parameter 3")
def a_parameter_of_16_bits(device):
    parameters, optimiser = made(device)
    parameters[3].data = parameters[3].data.half()
    parameters[3].grad = None
    steps(parameters, optimiser)


@case("TypeError", r"parameter 3 .* must be an array of numbers")
def a_parameter_negated_by_a_flag(device):
    parameters, optimiser = made(device)
    parameters[3].data = torch._neg_view(parameters[3].data.clone())
    steps(parameters, optimiser)


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


# Gradients


@case("ValueError", r"gradient of parameter 3 .*shape \[8, 4\], got \[2, 4\]")
def a_smaller_gradient(device):
    parameters, optimiser = made(device)
    parameters[3].grad.data = torch.ones(2, 4, device=device)
    optimiser.step()


@case("ValueError", r"memory of the gradient of parameter 3")
def a_gradient_whose_memory_was_given_back(device):
    parameters, optimiser = made(device)
    parameters[3].grad.untyped_storage().resize_(0)
    optimiser.step()


@case("ValueError", r"memory of the gradient of parameter 3")
def a_gradient_within_memory_that_was_given_back(device):
    parameters, optimiser = made(device)
    flat = torch.ones(64, 4, device=device)
    parameters[3].grad = flat[8:16]
    flat.untyped_storage().resize_(0)
    optimiser.step()


@case("TypeError", r"gradient of parameter 3 .*array of numbers|FakeTensor")
def a_fake_gradient(device):
    parameters, optimiser = made(device)
    parameters[3].grad = None
    parameters[3].grad = fake((8, 4), device)
    optimiser.step()


@case("RuntimeError|ValueError", r"gradient of parameter 3")
def a_gradient_that_became_fake(device):
    parameters, optimiser = made(device)
    parameters[3].grad.data = fake((8, 4), device)
    optimiser.step()


@case("TypeError", r"gradient of parameter 3 .*array of numbers")
def a_functional_gradient(device):
    parameters, optimiser = made(device)
    parameters[3].grad = torch._to_functional_tensor(torch.ones(8, 4, device=device))
    optimiser.step()


@case("TypeError|ValueError", r"gradient of parameter 3")
def a_gradient_without_memory(device):
    parameters, optimiser = made(device)
    parameters[3].grad = torch._efficientzerotensor((8, 4), device=device)
    optimiser.step()


@case("RuntimeError", r"gradients must be dense.* parameter 3 .*sparse=False")
def a_sparse_gradient(device):
    parameters, optimiser = made(device)
    parameters[3].grad = torch.ones(8, 4, device=device).to_sparse()
    optimiser.step()


@case("TypeError", r"gradient of parameter 3 .*real numbers, got torch.complex64")
def a_complex_gradient(device):
    parameters, optimiser = made(device)
    parameters[3].grad.data = torch.ones(8, 4, device=device).to(torch.complex64)
    optimiser.step()


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
