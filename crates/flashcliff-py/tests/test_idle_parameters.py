"""Parameters that no used result of a network depends on have no gradient, as where layers are called; zeros would let weights decay."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch._dynamo.compiled_autograd
from described_common import by_layers, network
from modules_common import SUBJECTS
from nn_common import random

from flashcliff.nn.transformer.described import compiled

results = pytest.mark.parametrize("used", [0, 1], ids=["multivectors", "scalars"])


def gradients(subject, used):
    """The gradients by parameters, of a loss on one result."""
    subject.module.zero_grad(set_to_none=True)
    subject()[used].pow(3).sum().backward()
    return {name: own.grad for name, own in subject.module.named_parameters()}


def without(found):
    return {name for name, gradient in found.items() if gradient is None}


def check(found, wanted):
    assert without(found) == without(wanted)
    for name, own in wanted.items():
        assert own is None or torch.allclose(found[name], own, rtol=1e-9, atol=1e-11)


@results
@pytest.mark.parametrize("name", SUBJECTS)
def test_they_have_none(name, used, path, functions):
    subject = SUBJECTS[name]()
    found = gradients(subject, used)
    assert functions and without(found)
    check(found, by_layers(lambda: gradients(subject, used)))


@results
def test_layers_whose_parts_never_meet(used):
    """After the last attention of a slim network its vectors do not depend on the scalars of its gated units."""
    found = without(gradients(SUBJECTS["LGATrSlim"](), used))
    part = ("weight_v", "linear_s.weight")[1 - used]
    assert {
        f"{at}.{part}"
        for at in ("linear_out", "blocks.0.mlp.layers.0.linear", "blocks.0.mlp.layers.1")
    } <= found


def inputs():
    return random(16, 2, 5, 2), random(2, 5, 3, seed=1)


@results
def test_weights_do_not_decay(used, path):
    net = network()
    before = {name: own.detach().clone() for name, own in net.named_parameters()}
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.1)
    net(*inputs())[used].sum().backward()
    optimizer.step()
    same = {name for name, own in net.named_parameters() if torch.equal(own, before[name])}
    last = (
        {"linear_out.mvs2s.weight", "linear_out.s2s.weight"},
        {"linear_out.weight", "linear_out.s2mvs.weight"},
    )
    assert last[used] <= same and not last[1 - used] & same


@results
@pytest.mark.skipif(not compiled.SERVES, reason="compilers of this PyTorch ask no objects")
def test_compiled_networks(used):
    torch._dynamo.reset()
    net = network()
    parameters = dict(net.named_parameters())
    function = torch.compile(lambda *given: net(*given)[used], backend="aot_eager", fullgraph=True)

    def found(function):
        made = torch.autograd.grad(
            function(*inputs()).pow(3).sum(), list(parameters.values()), allow_unused=True
        )
        return dict(zip(parameters, made, strict=True))

    check(found(function), by_layers(lambda: found(lambda *given: net(*given)[used])))


@pytest.mark.native
def test_compiled_autograd():
    """Losses on different results have separate graphs."""
    torch._dynamo.reset()
    net = network()

    def found(used, context):
        net.zero_grad(set_to_none=True)
        loss = sum(own.pow(3).sum() for own in net(*inputs())[used])
        with context:
            loss.backward()
        return {name: own.grad for name, own in net.named_parameters()}

    for used in (slice(0, 1), slice(1, 2), slice(0, 2), slice(0, 1)):
        compiles = torch._dynamo.compiled_autograd._enable(
            lambda graph: torch.compile(graph, backend="eager")
        )
        check(found(used, compiles), found(used, contextlib.nullcontext()))


@results
@pytest.mark.parametrize("name", SUBJECTS)
def test_hooks_of_parameters_have_gradients(name, used, path):
    """Clipping by hooks: PyTorch would call them with ``None`` for a parameter of a node that has no gradient."""
    subject = SUBJECTS[name]()
    handles = [own.register_hook(lambda g: 2 * g) for own in subject.module.parameters()]
    doubled = gradients(subject, used)
    for handle in handles:
        handle.remove()
    found = gradients(subject, used)
    check(doubled, {name: None if g is None else 2 * g for name, g in found.items()})
