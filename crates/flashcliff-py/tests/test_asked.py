"""A backward pass computes the gradients that it is asked for, and no others."""

import pytest
import torch
from torch import func

import flashcliff
from flashcliff import functional as F
from flashcliff import nn
from flashcliff._derived.table import OPS
from flashcliff._ops import native

SPACE = flashcliff.Algebra(3)


class Counted:
    """Which gradients each backward pass of an operator of the library is told to compute."""

    def __init__(self, monkeypatch):
        from flashcliff._ops import run

        self.wanted = []
        backward = run.backward

        def counting(core, tensors, output, saved, grad, wanted):
            self.wanted.append(list(wanted))
            return backward(core, tensors, output, saved, grad, wanted)

        monkeypatch.setattr(run, "backward", counting)


@pytest.fixture
def counted(monkeypatch):
    # The compiled call path asks the engine itself.
    known = [op.native for op in OPS]
    for op in OPS:
        object.__setattr__(op, "native", None)
    yield Counted(monkeypatch)
    for op, found in zip(OPS, known):
        object.__setattr__(op, "native", found)


def operands():
    x = torch.randn(8, 5, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(8, 5, 4, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 20, dtype=torch.float64, requires_grad=True)
    return x, y, w


@pytest.mark.parametrize("way", ["eager", "dispatcher"])
@pytest.mark.parametrize("asked", [(True, False, False), (False, True, True), (False, False, True)])
def test_a_gradient_that_nobody_asks_for_is_not_computed(counted, asked, way):
    if way == "dispatcher" and native.loaded is not None:
        pytest.skip("the dispatcher calls the compiled path")
    x, y, w = operands()
    if way == "eager":
        # Values between, since a leaf is told by another way.
        output = F.sgp_norm(2 * x, 2 * y, w, SPACE)
    else:
        output = torch.ops.flashcliff.sgp_norm(2 * x, 2 * y, w, SPACE.name)[0]
    of = [tensor for tensor, want in zip((x, y, w), asked) if want]
    some = torch.autograd.grad(output.sum(), of, retain_graph=True)
    assert counted.wanted == [list(asked)]
    output.sum().backward()
    assert counted.wanted[1:] == [[True] * 3]
    for gradient, tensor in zip(some, of):
        torch.testing.assert_close(gradient, tensor.grad, rtol=0, atol=0)


def test_forces_need_no_gradient_of_a_weight(counted):
    torch.manual_seed(0)
    model = nn.MVLinear(SPACE, 1, 4).double()
    x = torch.randn(8, 5, 1, dtype=torch.float64, requires_grad=True)
    torch.autograd.grad(model(x).square().sum(), x)
    assert [wanted[:2] for wanted in counted.wanted] == [[True, False]]


def test_second_derivatives_are_those_that_are_asked_for(monkeypatch):
    from flashcliff._ops import derived

    x, y, w = operands()
    first = torch.autograd.grad(F.sgp_norm(x, y, w, SPACE).square().sum(), (x, y), create_graph=True)
    value = sum(gradient.square().sum() for gradient in first)
    told = []
    gradients = derived.gradients

    def telling(of, tensors, grads, needed):
        told.append(list(needed))
        return gradients(of, tensors, grads, needed)

    monkeypatch.setattr(derived, "gradients", telling)
    (of_w,) = torch.autograd.grad(value, (w,), retain_graph=True)
    told_of_w = list(told)
    whole = torch.autograd.grad(value, (x, y, w))
    torch.testing.assert_close(of_w, whole[2], rtol=0, atol=0)
    assert all(not needed[0] and not needed[1] for needed in told_of_w), told_of_w


def test_transforms_have_all_gradients():
    x, y, w = (tensor.detach() for tensor in operands())

    def energy(x, y, w):
        return F.sgp_norm(x, y, w, SPACE).square().sum()

    got = func.grad(energy, argnums=(0, 1, 2))(x, y, w)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, y, w)]
    want = torch.autograd.grad(energy(*leaves), leaves)
    for transformed, plain in zip(got, want):
        torch.testing.assert_close(transformed, plain)
