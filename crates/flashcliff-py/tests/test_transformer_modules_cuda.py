"""A module is what its user made of it on CUDA too, where blocks are one function: the tables of the CPU, in float32."""

import copy

import pytest
import test_transformer_modules as cpu
import torch
from described_common import by_layers, by_layers_that_drop, count_functions, results
from modules_common import CHANGES, SUBJECTS, changed, parameters_that_are_new
from nn_common import alike

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer.described import choice

pytestmark = pytest.mark.cuda
LIMIT = 3e-4
NETWORKS = ["network (1, 3, 0)", "network (3, 0, 1)", "GATr", "LGATr"]


def made(subject):
    return SUBJECTS[subject]().to("cuda", torch.float32)


@pytest.fixture
def count(monkeypatch):
    """The functions that stood for calls."""
    return count_functions(monkeypatch)


@pytest.mark.parametrize("called", [0, 3], ids=["at first", "after calls"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("subject", [*NETWORKS, "EquiLinear", "SelfAttention", "Block", "LGATrSlim"])
def test_changes_of_linear_maps(subject, change, called):
    one = made(subject)
    for _ in range(called):
        one.results()
    before = list(one.module.parameters())
    plain = changed(one, CHANGES[change], lambda found: found)
    alike(one.results(), plain.results(), LIMIT)
    for p in parameters_that_are_new(one, before):
        assert p.grad is not None and (p.grad.ne(0).any() or p.numel() == 1)


@pytest.mark.parametrize("follow", cpu.WAYS_TO_FOLLOW, ids=lambda f: f.__name__)
@pytest.mark.parametrize("subject", NETWORKS)
def test_each_module_is_called_where_something_follows_it_alone(subject, follow):
    one = made(subject)
    want = one.results()
    for name, module in cpu.called_ones(one.module).items():
        seen = []
        handle = follow(module, lambda seen=seen: seen.append(1))
        alike(one.results(), want, LIMIT)
        assert seen, name
        if handle is not None:
            handle.remove()
        for key in ("forward", "_compiled_call_impl"):
            module.__dict__.pop(key, None)


@pytest.mark.parametrize("change", [cpu.weight_norm, cpu.doubled_weight, cpu.pruned], ids=lambda f: f.__name__)
@pytest.mark.parametrize("subject", NETWORKS)
def test_other_weights_of_equivariant_layers(subject, change):
    one = made(subject)
    for _ in range(3):
        one.results()
    plain, before = one.copied(), list(one.module.parameters())
    for layer, other in zip(cpu.equivariant(one.module), cpu.equivariant(plain.module), strict=True):
        change(layer)
        with torch.no_grad():
            other.weight.copy_(layer.weight)
    alike(one.results(), plain.results(), LIMIT)
    for p in parameters_that_are_new(one, before):
        assert p.grad is not None and p.grad.ne(0).any()


@pytest.mark.parametrize("change", cpu.ATTRIBUTES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("subject", ["network (1, 3, 0)", "network (3, 0, 1)"])
def test_attributes_that_change_after_calls(subject, change, count):
    if subject == "network (3, 0, 1)" and change is cpu.a_norm_of_products_with_gains:
        pytest.skip("GATr has no such norm")
    one = made(subject)
    for _ in range(3):
        first = one.results()
    assert count == [("GATransformer", 4)] * 3
    for block in one.module.blocks:
        change(block)
    got, want = one.results(), by_layers(one.results)
    alike(got, want, LIMIT)
    assert change is cpu.frozen or not torch.allclose(got[0], first[0])


def test_a_scheduled_dropout(count):
    torch.manual_seed(0)
    net = gt.GATransformer((1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}, dropout=0.0).cuda()
    x, s = torch.randn(16, 2, 3, 2).cuda(), torch.randn(2, 3, 3).cuda()
    want = [net(x, s)[0] for _ in range(3)]
    assert count == [("GATransformer", 4)] * 3 and torch.equal(want[0], want[2])
    count.clear()
    for module in net.modules():
        if isinstance(module, gt.GradeDropout):
            module.p = 0.5
    assert not torch.equal(net(x, s)[0], want[0]) and not torch.equal(net(x, s)[0], net(x, s)[0])
    assert count == [("GATransformer", 4)] * 3
    assert torch.equal(net.eval()(x, s)[0], want[0])


def test_dropout_drops_what_layers_drop(monkeypatch):
    """Results, gradients and gradients of gradients, with a number on the device."""
    torch.manual_seed(0)
    net = gt.GATransformer((1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}, dropout=0.3).cuda().double()
    given = torch.randn(16, 2, 3, 2).cuda().double().requires_grad_(), torch.randn(2, 3, 3).cuda().double().requires_grad_()
    number = torch.tensor([2**31 - 7], dtype=torch.int32, device="cuda")
    monkeypatch.setattr(choice, "draw_on", lambda device: number)
    got = results(net, *given, second=True)
    alike(got, by_layers_that_drop(number, lambda: results(net, *given, second=True)), 1e-9)


def test_captured_steps_drop_others_each_time():
    net = gt.GATransformer((1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}, dropout=0.3).cuda()
    x, s = torch.randn(16, 2, 3, 2).cuda(), torch.randn(2, 3, 3).cuda()
    step = flashcliff.capture(lambda: net(x, s)[0].clone(), modules=net, fallback="error")
    found = [step().clone() for _ in range(6)]
    assert step.graph_count == 1
    assert all(not torch.equal(a, b) for at, a in enumerate(found) for b in found[:at])


@pytest.mark.parametrize("subject", ["EquiLinear", "SelfAttention", "network (1, 3, 0)", "network (3, 0, 1)"])
def test_changes_in_place_before_the_backward_pass(subject):
    one = made(subject)
    parameters = [p for p in one.module.parameters() if p.requires_grad]

    def fails(x):
        total = sum(t.square().sum() for t in one())
        with torch.no_grad():
            x.mul_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(total, parameters, allow_unused=True)

    for layer in cpu.equivariant(one.module):
        fails(layer.weight)
    for x in one.given:
        fails(x)
    torch.autograd.grad(sum(t.square().sum() for t in one()), parameters)


def test_explanations():
    one = made("network (1, 3, 0)")
    one.results()
    assert set(gt.explain(one.module).blocks.values()) == {"runs as one function"}
    with torch.autocast("cuda", dtype=torch.bfloat16):
        one()
    assert set(gt.explain(one.module).blocks.values()) == {"runs as one function"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_computed_in_float32(dtype):
    """A network in 16 bits, and one under autocast, compute what the network of float32 does with products in TF32."""
    one = made("network (1, 3, 0)")
    net, given = one.module.to(dtype), [x.to(dtype) for x in one.given]
    wide, of_wide = copy.deepcopy(net).float(), [x.float() for x in given]
    out = net(*given)
    with torch.autocast("cuda", dtype=dtype):
        under = wide(*of_wide)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    want = wide(*of_wide)
    torch.set_float32_matmul_precision(before)
    for got, low, x in zip(under, out, want, strict=True):
        assert torch.equal(got, x) and torch.equal(low, x.to(dtype))
