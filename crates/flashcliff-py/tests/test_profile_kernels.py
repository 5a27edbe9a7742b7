"""The kernels of transformers as rows of a profile. References stand in for the kernels, so no GPU is needed."""

from __future__ import annotations

from types import SimpleNamespace

import items_reference
import pytest
import torch
from nn_common import random
from profile_common import check_nothing_left, check_sums, places

import flashcliff
from flashcliff._ops import attention, block_sparse, items
from flashcliff._profile import kernels
from flashcliff._profile.costs import cost
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import block as blocks
from flashcliff.nn.transformer import packed, whole
from flashcliff.nn.transformer.whole import structure

ROWS, HEADS = 2 * 5, 2


@pytest.fixture
def called(monkeypatch):
    """The kernels are their references; a list of the names of those that are called."""
    called = items_reference.install(monkeypatch)
    items_reference.install_attention(monkeypatch)
    for phase in ("forward", "backward"):
        inner = getattr(attention, phase)

        def run(*arguments, inner=inner, phase=phase):
            called.append(f"attention.{phase}")
            return inner(*arguments)

        monkeypatch.setattr(attention, phase, run)
    monkeypatch.setattr(packed, "serves", lambda layers, x: True)
    counted = structure.padded_counts
    monkeypatch.setattr(
        structure, "padded_counts", lambda *counts: counted(*counts[:2], torch.float32, True)
    )
    return called


def network():
    torch.manual_seed(0)
    made = gt.GATransformer((3, 0, 1), 2, 3, 4, 3, 3, 8, blocks=2, attention={"heads": HEADS})
    return made.double()


def step(net):
    x, s = random(16, 2, 5, 2).requires_grad_(), random(2, 5, 3, seed=1).requires_grad_()
    out, more = net(x, s, reference=random(16, 2, 1, 1, seed=2))
    (out.pow(2).sum() + more.pow(2).sum()).backward()


PHASES = {
    "norm": ("item_norm", "forward"),
    "norm_gradient": ("item_norm", "backward"),
    "gate": ("item_gate", "forward"),
    "gate_gradient": ("item_gate", "backward"),
    "heads": ("item_heads", "forward"),
    "heads_gradient": ("item_heads", "backward"),
    "column_sums": ("column_sums", "backward"),
    "pack": ("pack", "forward"),
    "attention.forward": ("attention", "forward"),
    "attention.backward": ("attention", "backward"),
}
"""The rows of kernels, by the names of their functions."""


@pytest.mark.parametrize("by_layers", [False, True])
def test_each_call_of_a_kernel_is_in_a_row(by_layers, called, monkeypatch):
    if by_layers:
        monkeypatch.setattr(blocks, "attempt", lambda *_: None)
    else:
        assert blocks.attempt is whole.attempt
    net = network()
    called.clear()
    before = places(), [vars(place)[name] for place, name, _ in kernels.places()]
    with flashcliff.profile(rates=(1e9, 1e9)) as p:
        step(net)
        # Linear layers of few rows do without this kernel.
        items.column_sums(flashcliff.Algebra(3, 0, 1), torch.ones(3, 4), [(0, 2)])
    check_nothing_left(before[0])
    assert [vars(place)[name] for place, name, _ in kernels.places()] == before[1]
    check_sums(p)
    rows = p.rows[:-1]
    # Both functions that pack have the same row.
    called = [name.removesuffix("_tensors") for name in called]
    for function, (name, phase) in PHASES.items():
        own = [row for row in rows if (row.operator, row.phase) == (name, phase)]
        assert sum(row.calls for row in own) == called.count(function) > 0, function
        for row in own:
            assert row.bytes > 0 and row.roofline > 0 and row.shapes and row.device == "cpu"
    merged = [row for row in rows if row.operator == "item_merge"]
    assert sum(row.calls for row in merged) == called.count("merge") > 0
    # The stand-in calls the operator, whose row is the same.
    products = [row for row in rows if row.operator == "product"]
    both = called.count("product"), called.count("product_gradient")
    assert min(both) > 0
    assert sum(row.calls for row in products if row.phase == "forward") >= 2 * both[0]
    # Reports are made of such rows too.
    assert "item_norm" in p.table() and "attention" in p.json()


def one(describe, *arguments):
    return cost(describe(*arguments)[0])


def items_of(rows, channels, scalars, dtype=torch.float32):
    return torch.zeros(16, rows, channels, dtype=dtype), torch.zeros(rows, scalars, dtype=dtype)


def test_costs_are_those_of_tensors():
    """Counted by hand for ten rows of four multivectors of 16 blades, and three scalars: 640 and 30 numbers."""
    algebra = flashcliff.Algebra(3, 0, 1)
    x = items_of(10, 4, 3)
    none = None, None
    eps = 1e-6, 1e-6
    plain = one(kernels.norm, algebra, eps, none, x, None, x)
    assert (plain.bytes, plain.flops) == (4 * 2 * 670, 3 * 640 + 5 * 30)
    gains = torch.zeros(4, 5), torch.zeros(3)
    summed = one(kernels.norm, algebra, eps, gains, x, (x, x), x)
    assert (summed.bytes, summed.flops) == (4 * (4 * 670 + 23), plain.flops + 2 * 670)
    backward = one(kernels.norm_gradient, algebra, eps, gains, x, x, x, x)
    assert backward.bytes == 4 * (4 * 670 + 2 * 23)
    gate = one(kernels.gate, algebra, ("gelu", "gelu"), x, x)
    assert (gate.bytes, gate.flops) == (4 * 2 * 670, 640 + 40 + 30)
    assert one(kernels.gate_gradient, algebra, ("gelu", "gelu"), x, x, x).bytes == 4 * 3 * 670
    sums = one(kernels.column_sums, algebra, torch.zeros(10, 7), [(0, 2), (4, 7)])
    assert (sums.bytes, sums.flops) == (4 * 11 * 5, 50)
    half = items_of(10, 4, 3, torch.float16)
    assert one(kernels.gate, algebra, ("gelu", "gelu"), half, half).bytes == 2 * 2 * 670


def test_costs_of_features_and_attention():
    algebra = flashcliff.Algebra(3, 0, 1)
    features = torch.zeros(10, 2, 40)
    part = items.Part(items_of(10, 4, 4), features, 2, 0xFF)
    taken = one(kernels.heads, algebra, items.Split(None), [part, part])
    assert (taken.bytes, taken.flops) == (2 * 4 * (680 + 800), 0)
    back = one(kernels.heads_gradient, algebra, items.Split(None), [part], [part.items])
    assert back.bytes == 4 * (680 + 800)
    # Two sequences of five items, two heads of 40 features.
    q = torch.zeros(2, 2, 5, 40)
    rows = attention.Rows(10, 5)
    call = attention.Call(1.0, 2, rows, rows, False)
    forward = one(kernels.attend, call, (q, q, q), q)
    pairs = 2 * 2 * 25
    assert forward.flops == pairs * (2 * 80 + 3)
    assert forward.bytes == 4 * (4 * 800 + 20) and forward.saved_bytes == 4 * 20
    backward = one(kernels.attend_gradient, call, (q, q, q, q), None, q, (q, q, q))
    assert backward.flops == pairs * (2 * 200 + 6)
    assert backward.bytes == 4 * (8 * 800 + 20)


def test_costs_of_block_sparse_products(monkeypatch):
    """Of 3 x 2 units one in three is not zero."""
    sizes = SimpleNamespace(UNIT=8, GROUP_UNITS=8, GROUP_INPUTS=8, GROUP_NUMBERS=5)
    monkeypatch.setattr(block_sparse._core, "BlockSparse", sizes, raising=False)
    filled = torch.zeros(24, 16, dtype=torch.bool)
    filled[0, 0] = filled[23, 15] = True
    units = filled.view(3, 8, 2, 8).any(3).any(1)
    groups = block_sparse._groups(block_sparse._alike(units), torch.device("cpu"))
    assert groups.entries == 128
    x, matrix, gradient = torch.zeros(10, 24), torch.zeros(24, 16), torch.zeros(10, 16)
    forward = kernels.sparse_product(x, matrix, torch.zeros(16), groups)[0]
    assert cost(forward)[:2] == (4 * (10 * 40 + 128 + 16), 2 * 10 * 128)
    of_input = kernels.sparse_product(gradient, matrix, None, groups, True)[0]
    assert of_input.phase == "backward" and of_input.wanted == (True, False)
    of_weight = kernels.sparse_weights(x, gradient, groups, matrix)[0]
    assert cost(of_weight)[:2] == (4 * (10 * 40 + 128), 2 * 10 * 128)
    of_both = kernels.sparse_weights(x, gradient, groups, matrix, torch.zeros(16))[0]
    assert cost(of_both)[:2] == (4 * (10 * 40 + 128 + 16), 2 * 10 * 128 + 10 * 16)


def test_every_function_that_launches_kernels_has_a_row():
    """A function of the three modules that launches and is not described would be a part of the rest."""
    described = {(place.__name__, name) for place, name, _ in kernels.places()}
    inner = {"launch", "_call", "_sums"}
    for module in (items, attention, block_sparse):
        for name, function in vars(module).items():
            if getattr(function, "__module__", None) != module.__name__ or name in inner:
                continue
            code = getattr(function, "__code__", None)
            if code is not None and inner & set(code.co_names):
                assert (module.__name__, name) in described, name
