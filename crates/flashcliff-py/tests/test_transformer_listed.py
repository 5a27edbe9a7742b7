"""Blocks as lists of calls: what the same kernels give one by one, and where no list may be used."""

import functools
import gc

import lists_reference
import pytest
import torch
from nn_common import disturb, random
from whole_common import count_whole

from flashcliff._ops import calls
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import packed
from flashcliff.nn.transformer.whole import choice, function, listed, structure

SIGNATURES = [(3, 0, 1), (1, 3, 0)]


@pytest.fixture
def lists(monkeypatch):
    """References in the place of kernels. A list that gets, of each pass, whether it was a list of calls."""
    packed.table_of.cache_clear()
    lists_reference.install(monkeypatch)
    monkeypatch.setattr(packed, "serves", lambda layers, x: True)
    counted = structure.padded_counts
    monkeypatch.setattr(
        structure, "padded_counts", lambda *counts: counted(*counts[:2], torch.float32, True)
    )
    assert count_whole(monkeypatch) == []
    found = []

    def forward(given, taken):
        made = listed.lists_of(given, taken)
        found.append(made is not None)
        return made

    monkeypatch.setattr(function, "lists_of", forward)
    yield found
    packed.table_of.cache_clear()


def network(signature, scalars=8, **options):
    torch.manual_seed(0)
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    some = 3 if scalars else 0
    return disturb(gt.GATransformer(signature, 2, 3, 4, some, some, scalars, **settings))


def inputs(net, *batch):
    x = random(net.geometry.algebra.blade_count, *batch, 2).float().requires_grad_()
    some = net.linear_in.in_scalars
    s = random(*batch, some, seed=1).float().requires_grad_() if some else None
    reference = random(*batch[:1], *[1] * (len(batch) - 1), 1, seed=2).float()
    return x, s, {"reference": reference} if net.geometry.join else {}


def results(net, x, s, options):
    """Outputs and gradients."""
    leaves = [t for t in (x, s, *net.parameters()) if t is not None]
    out = [t for t in net(x, s, **options) if t is not None]
    total = sum((t * t.detach().cos()).sum() for t in out)
    return [*out, *torch.autograd.grad(total, leaves)]


def same(got, want):
    """The same tensors, bit for bit."""
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and torch.equal(g, w)


def check(lists, run):
    """Calls of a shape give the same with lists as without."""
    with calls.paused():
        want = run()
    assert not any(lists)
    lists.clear()
    # A shape is listed when it comes again.
    for used in (False, True, True):
        same(run(), want)
        assert lists == [used] * len(lists) and lists
        lists.clear()
    return want


@pytest.mark.parametrize(("batch", "scalars"), [((2, 5), 0), ((2, 1, 3), 8)], ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_lists_are_the_kernels_one_by_one(signature, batch, scalars, lists):
    net = network(signature, scalars)
    given = inputs(net, *batch)
    check(lists, lambda: results(net, *given))

    def inference():
        with torch.no_grad():
            return [t for t in net(*given[:2], **given[2]) if t is not None]

    check(lists, inference)


CHOICES = [
    {"affine": True},
    {"mlp_layers": 1},
    {"mlp_layers": 3},
    {"attention": {"heads": 2, "multi_query": True}},
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_choices_of_blocks(signature, options, lists):
    net = network(signature, **options)
    given = inputs(net, 2, 3)
    check(lists, lambda: results(net, *given))


def test_ragged_batches(lists):
    net = network((1, 3, 0))
    x, s, options = inputs(net, 7)

    def run(bounds):
        return results(net, x, s, {**options, "cu_seqlens": torch.tensor(bounds)})

    check(lists, lambda: run([0, 2, 3, 7]))
    # The same list serves all sequences of as many items that are no longer.
    with calls.paused():
        want = run([0, 4, 5, 7])
    lists.clear()
    same(run([0, 4, 5, 7]), want)
    assert all(lists)


def test_parameters_are_read_in_every_call(lists):
    net = network((3, 0, 1))
    given = inputs(net, 2, 3)
    before = check(lists, lambda: results(net, *given))
    with torch.no_grad():
        for p in net.parameters():
            p.data = p * 1.5
    with calls.paused():
        want = results(net, *given)
    lists.clear()
    same(results(net, *given), want)
    assert all(lists) and not torch.equal(want[0], before[0])


def test_choices_that_change(lists):
    """Attributes that the passes read are a part of what calls of a list have in common."""
    net = network((3, 0, 1))
    given = inputs(net, 2, 3)
    before = check(lists, lambda: results(net, *given))
    gates = [x for x in net.modules() if isinstance(x, gt.ScalarGate)]
    for gate in gates:
        gate.activation = "sigmoid"
    assert gates and not torch.equal(check(lists, lambda: results(net, *given))[0], before[0])
    for layer in net.modules():
        if isinstance(layer, gt.EquiLayerNorm):
            layer.eps *= 1e3
    check(lists, lambda: results(net, *given))


def test_inputs_in_other_places(lists):
    """A list serves tensors of other strides only if it was made for them."""
    net = network((1, 3, 0))
    x, s, options = inputs(net, 2, 3)
    want = check(lists, lambda: results(net, x, s, options))
    block = net.blocks[0]
    here = random(16, 2, 3, 4).float(), random(2, 3, 8, seed=1).float()
    there = here[0].movedim(0, -1).contiguous().movedim(-1, 0), here[1].mT.contiguous().mT
    for pair in (here, here, there, there, there, here):
        with torch.no_grad(), calls.paused():
            first = block(*pair)
        with torch.no_grad():
            same(block(*pair), first)
    assert len(want) > 2


def test_gradients_that_come_in_other_ways(lists):
    """Gradients of one of both results, and of no scalars, beside those of all."""
    net = network((3, 0, 1))
    block = net.blocks[1]
    here = [random(16, 2, 3, 4).float().requires_grad_(), random(2, 3, 8, seed=1).float().requires_grad_()]
    pending = [random(16, 2, 3, 4, seed=2).float(), random(2, 3, 8, seed=3).float()]
    reference = random(2, 1, 1, seed=4).float()
    joins = gt.bilinear.JoinFactors(reference)
    leaves = [*here, *block.parameters()]

    def run(used):
        pairs = block.chained(tuple(here), tuple(pending), (None, None), joins)
        flat = [*pairs[0], *pairs[1]]
        total = sum((flat[at] * flat[at].detach().sin()).sum() for at in used)
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        return [torch.zeros(1) if g is None else g for g in found]

    for used in ((0, 1, 2, 3), (0,), (1,), (2,), (3,), (0, 2), (1, 3), (0, 1, 2, 3)):
        with calls.paused():
            want = run(used)
        for _ in range(3):
            same(run(used), want)
    assert any(lists)
    # Ways are known by what they are, not by addresses, which are ever others.
    (found,) = choice.modules_of(block).structure.lists.values()
    assert 0 < len(found._backward) <= 2


def test_second_derivatives_after_a_list(lists):
    net = network((1, 3, 0))
    x, s, options = inputs(net, 2, 3)

    def run():
        out = net(x, s, **options)[0]
        (g,) = torch.autograd.grad(out.pow(2).sum(), x, create_graph=True)
        return [out, g]

    with calls.paused():
        want = run()
    for _ in range(3):
        for got, expected in zip(run(), want, strict=True):
            assert torch.allclose(got, expected, atol=1e-5) and got.requires_grad
    assert lists[-1]


def test_a_pause_between_both_passes(lists):
    net = network((3, 0, 1))
    x, s, options = inputs(net, 2, 3)
    want = check(lists, lambda: results(net, x, s, options))
    out = net(x, s, **options)
    assert all(lists)
    total = sum((t * t.detach().cos()).sum() for t in out)
    with calls.paused():
        found = torch.autograd.grad(total, [x, s, *net.parameters()])
    same(found, want[2:])


def test_memory_of_lists_is_planned(lists):
    """What is needed at the same time never overlaps, and an inference holds less than a step."""
    net = network((3, 0, 1))
    x, s, options = inputs(net, 2, 3)
    check(lists, lambda: results(net, x, s, options))
    with torch.no_grad():
        check(lists, lambda: list(net(x, s, **options)))
    found = [x._forward for x in choice.modules_of(net.blocks[0]).structure.lists.values()]
    (of_step,) = [x for x in found if x.sizes[1]]
    (of_inference,) = [x for x in found if not x.sizes[1]]
    assert of_inference.scratch < of_step.sizes[1] + of_step.scratch


def test_lists_do_not_keep_tensors(lists):
    net = network((3, 0, 1))
    check(lists, functools.partial(results, net, *inputs(net, 2, 3)))
    gc.collect()
    held = [t for t in gc.get_objects() if type(t) is calls.Slot]
    assert all(t.region.draft.calls.regions is not None for t in held)
