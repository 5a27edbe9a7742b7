"""What transformers do on the CPU alone: layers that share an input as one function of autograd, heads that share keys as one, and features of
heads by a compiled function; each beside the same layers without it."""

import pytest
import torch
from nn_common import alike
from test_transformer_items import derivatives, leaf

from flashcliff._ops import equivariant
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import attention, contract, linear

SIGNATURES = [(3, 0, 1), (2, 0, 1), (3, 0, 0), (1, 3, 0), (4, 1, 0)]
SHORT = [(equivariant, "serves_heads"), (linear, "_are_native"), (attention, "_folds")]


def refused(monkeypatch, *names):
    """A context in which some of the ways of this page are refused."""
    context = monkeypatch.context()
    patch = context.__enter__()
    for module, name in SHORT:
        if name in names:
            patch.setattr(module, name, lambda *_: False)
    return context


def compare(monkeypatch, run, *names):
    """Compares a run with one in which some ways are refused. Returns the ways that the first one took."""
    taken = set()

    def noted(name, function):
        def call(*arguments):
            found = function(*arguments)
            if found:
                taken.add(name)
            return found

        return call

    with monkeypatch.context() as patch:
        for module, name in SHORT:
            patch.setattr(module, name, noted(name, getattr(module, name)))
        got = run()
    context = refused(monkeypatch, *names)
    want = run()
    context.__exit__(None, None, None)
    alike(got, want, 1e-10)
    return taken


@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("batch", [(5,), (2, 3), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_attention(signature, batch, multi_query, scalars, monkeypatch):
    torch.manual_seed(0)
    layer = gt.SelfAttention(signature, 4, scalars, heads=2, multi_query=multi_query).double()
    x = leaf(layer.geometry.algebra.blade_count, *batch, 4)
    s = leaf(*batch, scalars, seed=1) if scalars else None
    leaves = [t for t in (x, s, *layer.parameters()) if t is not None]

    def run():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return derivatives(lambda: layer(x, s), leaves)

    taken = compare(monkeypatch, run, *[name for _, name in SHORT])
    # Heads of L-GATr are normalised first, which is left to PyTorch. Without scalars its biases are added behind.
    assert ("serves_heads" in taken) == (signature != (1, 3, 0))
    assert ("_are_native" in taken) == (multi_query and not (signature == (1, 3, 0) and not scalars))


@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_bilinear(signature, scalars, monkeypatch):
    torch.manual_seed(0)
    layer = gt.GeometricBilinear(signature, 2, 4, in_scalars=scalars, out_scalars=3).double()
    x = leaf(layer.geometry.algebra.blade_count, 5, 2)
    s = leaf(5, scalars, seed=1) if scalars else None
    reference = leaf(5, 1, seed=2) if layer.geometry.join else None
    leaves = [t for t in (x, s, reference, *layer.parameters()) if t is not None]

    def run():
        out = layer(x, s, reference)
        first = torch.autograd.grad(sum(o.pow(3).sum() for o in out), leaves, create_graph=True)
        total = sum(each.square().sum() for each in first)
        return [*out, *first, *torch.autograd.grad(total, leaves, allow_unused=True)]

    taken = compare(monkeypatch, run, "_are_native")
    assert ("_are_native" in taken) == (signature != (1, 3, 0) or scalars > 0)


def test_layers_that_nothing_reads_have_no_gradients():
    layers = tuple(gt.EquiLinear((3, 0, 1), 2, 3, 4, out_scalars).double() for out_scalars in (0, 5, 5))
    x, s = leaf(16, 6, 2), leaf(6, 4, seed=1)
    made = linear.together(layers, x, s)
    assert type(made[0][0].grad_fn).__name__ == f"{contract.Outputs.__name__}Backward"
    (made[0][0].sum() + made[1][1].sum()).backward()
    assert all(p.grad is not None for p in layers[0].parameters())
    assert all(p.grad is None for p in layers[2].parameters())
    # The scalars alone are read.
    assert layers[1].weight.grad.eq(0).all() and layers[1].s2s.weight.grad.ne(0).any()
    alone = [t.detach().clone().requires_grad_() for t in (x, s)]
    first, second = (layer(*alone) for layer in layers[:2])
    (first[0].sum() + second[1].sum()).backward()
    alike([x.grad, s.grad], [t.grad for t in alone])


def test_layers_with_hooks_are_called():
    layers = tuple(gt.EquiLinear((3, 0, 1), 2, 3, 4) for _ in range(2))
    seen = []
    layers[1].register_forward_hook(lambda *_: seen.append(1))
    made = linear.together(layers, torch.randn(16, 6, 2), torch.randn(6, 4))
    assert seen == [1]
    assert all(pair[0].grad_fn is not made[0][0].grad_fn for pair in made[1:])


@pytest.mark.parametrize("by_item", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_heads_that_share_keys_are_one(by_item, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    query = leaf(3, 5, 2, 6).movedim(1, 2) if by_item else leaf(3, 2, 5, 6)
    key, value = leaf(3, 1, 4, 6, seed=1), leaf(3, 1, 4, 6, seed=2)
    leaves = [query, key, value]

    def run():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return derivatives(lambda: (gt.attend(*leaves),), leaves)

    taken = compare(monkeypatch, run, "_folds")
    # Batch elements are work for so many threads.
    assert ("_folds" in taken) == (threads == 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_features_of_few_and_of_many_rows(dtype, monkeypatch):
    torch.manual_seed(0)
    layer = gt.SelfAttention((3, 0, 1), 16, 128, heads=8, ratio=2, multi_query=True).to(dtype)
    for rows in (1, 63, 64, 130):
        x = torch.randn(16, 1, rows, 16, dtype=dtype, requires_grad=True)
        s = torch.randn(1, rows, 128, dtype=dtype, requires_grad=True)

        def run(x=x, s=s):
            out = layer(x, s)
            return [*out, *torch.autograd.grad(sum(o.square().sum() for o in out), [x, s, *layer.parameters()])]

        with monkeypatch.context() as patch:
            got = run()
            patch.setattr(equivariant, "serves_heads", lambda *_: False)
            want = run()
        alike(got, want, 1e-10 if dtype == torch.float64 else 2e-4)
