"""Networks of layers, the kernel of attention, and messages, as rows of a profile."""

from __future__ import annotations

import torch
from nn_common import random
from profile_common import check_nothing_left, check_sums, places

import flashcliff
from flashcliff import Algebra
from flashcliff._ops import attention
from flashcliff._ops import messages as _messages
from flashcliff._profile import kernels
from flashcliff._profile.costs import cost
from flashcliff.graphs import Graph, messages
from flashcliff.nn import transformer as gt
from flashcliff.operators import Multivector, operator


def test_each_pass_of_a_network_is_in_a_row(monkeypatch):
    torch.manual_seed(0)
    pages, described = {}, kernels.network

    def network(phase, run, *more):
        if phase == "forward":
            pages[bool(run.wanted)] = str(run.plan)
        return described(phase, run, *more)

    monkeypatch.setattr(kernels, "network", network)
    net = gt.GATransformer((3, 0, 1), 2, 3, 4, 3, 3, 8, blocks=2, attention={"heads": 2}).double()
    x, s = random(16, 2, 5, 2).requires_grad_(), random(2, 5, 3, seed=1).requires_grad_()
    before = places(), [vars(place)[name] for place, name, _ in kernels.places()]
    with flashcliff.profile(rates=(1e9, 1e9)) as p:
        for _ in range(3):
            out, more = net(x, s, reference=random(2, 1, 1, seed=2))
            (out.pow(2).sum() + more.pow(2).sum()).backward()
        with torch.no_grad():
            net(x, s, reference=random(2, 1, 1, seed=2))
    check_nothing_left(before[0])
    assert [vars(place)[name] for place, name, _ in kernels.places()] == before[1]
    check_sums(p)
    found = {(row.phase, row.saved_bytes > 0): row for row in p.rows[:-1]}
    assert {key: row.calls for key, row in found.items()} == {
        ("forward", True): 3,
        ("forward", False): 1,
        ("backward", False): 3,
    }
    alone, forward, back = (
        found[key] for key in (("forward", False), ("forward", True), ("backward", False))
    )
    # Ten items of two multivectors and three scalars, the result, and parameters; and what lies between.
    ends = 10 * (16 * 2 + 3) + 10 * (16 * 3 + 3) + sum(p.numel() for p in net.parameters())
    assert alone.bytes > 8 * ends
    # The pages of plans have the sums over both passes.
    for page, rows in ((pages[False], [alone]), (pages[True], [forward, back])):
        moved, flops = (
            sum(getattr(row, of) // row.calls for row in rows) for of in ("bytes", "flops")
        )
        assert f"in all {moved / (1 << 20):.2f} MiB moved, {flops / 1e9:.3f} Gflop" in page
    for row in p.rows[:-1]:
        assert row.operator == "network" and row.algebra == "cl301" and row.device == "cpu"
        assert row.shapes == ((10, 35), (10,)) and row.roofline > 0
    # Two products for each of the forward pass.
    assert 3 * alone.flops == forward.flops < back.flops
    assert "network" in p.table() and "network" in p.json()


def one(describe, *arguments):
    return cost(describe(*arguments)[0])


def test_costs_of_attention():
    # Two sequences of five items, two heads of 40 features.
    q = torch.zeros(2, 2, 5, 40)
    rows = attention.Rows(10, 5)
    call = attention.Call(1.0, 2, rows, rows, False)
    forward = one(kernels.attend, "forward", call, (q, q, q), q)
    pairs = 2 * 2 * 25
    assert forward.flops == pairs * (2 * 80 + 3)
    assert forward.bytes == 4 * (4 * 800 + 20) and forward.saved_bytes == 4 * 20
    backward = one(kernels.attend, "backward", call, (q, q, q, q), None, q, (q, q, q))
    assert backward.flops == pairs * (2 * 200 + 6)
    assert backward.bytes == 4 * (8 * 800 + 20)


def test_messages_are_rows_of_both_passes():
    @operator(Algebra(3))
    def scaled(x: Multivector, y: Multivector.of(0)):
        return x * y

    graph = Graph(torch.tensor([[0, 1, 2], [1, 1, 0]]), 4)
    x, y = random(8, 4, 2).requires_grad_(), random(1, 3, 1, seed=1).requires_grad_()
    with flashcliff.profile(rates=(1e9, 1e9)) as p:
        messages(scaled, graph, x, y, ends=("senders", "edges")).sum().backward()
    check_sums(p)
    # Rows come in the order of their times.
    rows = sorted((row for row in p.rows if row.operator == "messages"), key=lambda row: row.phase)
    *back, forward = rows
    assert (forward.phase, forward.calls) == ("forward", 1)
    # The gradients of nodes, and of edges.
    assert sum(row.calls for row in back) == 2 and {row.phase for row in back} == {"backward"}
    relations = 4 * 2 * (3 + 5 + 3)
    assert forward.bytes == 8 * (8 * 4 * 2 + 3 + 8 * 4 * 2) + relations
    assert forward.flops == 8 * 3 * 2
    assert "scaled" in p.table()


def test_every_function_that_launches_kernels_has_a_row():
    """A function that launches and is not described would be a part of the rest."""
    described = {(place.__name__, name) for place, name, _ in kernels.places()}
    for module in (attention, _messages):
        for name, function in vars(module).items():
            code = getattr(function, "__code__", None)
            if code is not None and "launch" in code.co_names and name != "launch":
                assert (module.__name__, name) in described, name
